// Stages that nobody uses any more, for who asks for the same next.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/recipe.h"
#include "transport/weight_store.h"

namespace sluice {

// A stage that was made, and holds no sequence.
struct MadeStage {
  StageRecipe recipe;
  Stage stage;
  int64_t bytes = 0;                              // of memory, that are set aside for it
  std::string what;                               // it computes, for people
  int32_t d_model = 0;                            // of the model
  std::vector<std::unique_ptr<FileLock>> in_use;  // of weights that were fetched
};

// When one host of a pipeline is lost, the others hold the same layers in the next one: with their stages at hand they
// are ready at once. Thread safety: any thread.
class KeptStages {
 public:
  // free: gives the bytes of a stage back that goes.
  explicit KeptStages(std::function<void(int64_t)> free) : free_(std::move(free)) {}

  void keep(MadeStage made);
  // One that was made by this recipe, from wherever the files were.
  std::optional<MadeStage> take(const StageRecipe& recipe);
  // Lets the one go that has lain here longest; false: there is none.
  bool drop();
  // Those that have lain here for so many seconds.
  void drop_older_than(double seconds);
  bool empty();

 private:
  struct Kept {
    MadeStage made;
    std::chrono::steady_clock::time_point since;
  };
  std::function<void(int64_t)> free_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // the oldest first
};

}  // namespace sluice
