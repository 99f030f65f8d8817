// A model's or head's weights for stages that do not have them, from the coordinator's side.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "transport/connection.h"
#include "wire/recipe.h"
#include "wire/weights.h"

namespace sluice {

using OpenFiles = std::vector<std::shared_ptr<const OpenFile>>;

// What a stage of this recipe needs; or what a head of it borrows of its target. Reads all of it where that is not
// known from before. Errors name the file: it has changed since it was opened, or cannot be read.
Result<WeightsOffered> offer_weights(const ModelFile& model, const StageRecipe& recipe);
// All of the head's own file. target: of it.
Result<WeightsOffered> offer_weights(const HeadFile& head, const ModelFile& target, const StageRecipe& recipe);
// Errors: likewise, or there is no such block.
Result<WeightBlock> read_weights(const OpenFiles& files, const WeightBlockAsked& asked);
// The blocks that hold what a stage of these layers reads, of each of the model's files, rising.
std::vector<std::vector<uint32_t>> blocks_of_stage(const ModelFile& model, const StageOptions& options);

// Answers stages in the order in which they ask, in a thread of its own. Thread safety: any thread.
class WeightServer {
 public:
  // files: that are read. offer: what there is in them for a recipe; of the thread. on_sent: is told of blocks so far,
  // and in all that anybody has asked for yet; false: the user wants it to stop. failed: of the thread, with what was
  // wrong here, not with a connection. Either may be empty.
  using Offer = std::function<Result<WeightsOffered>(const StageRecipe&)>;
  using OnSent = std::function<bool(uint64_t, uint64_t)>;
  WeightServer(OpenFiles files, Offer offer, OnSent on_sent, std::function<void(const Error&)> failed);
  WeightServer(const WeightServer&) = delete;
  WeightServer& operator=(const WeightServer&) = delete;
  // Whoever is still waited for has ended: REQUIRES that connections end before.
  ~WeightServer();

  // Nothing asked: what there is for this recipe. Does not wait. Errors (kRuntime): it asks for more at a time than a
  // stage may, or for what is not there.
  Status ask(std::shared_ptr<Connection> stage, const StageRecipe& recipe, std::optional<WeightBlockAsked> asked);

 private:
  struct Request {
    std::shared_ptr<Connection> stage;
    StageRecipe recipe;
    std::optional<WeightBlockAsked> asked;
  };
  void serve();
  Status answer(const Request& request);
  bool note_sent(const Request& request);

  const OpenFiles files_;
  const Offer offer_;
  const OnSent on_sent_;
  const std::function<void(const Error&)> failed_;
  uint64_t sent_ = 0;                           // blocks; of the thread, as the next
  std::map<const Connection*, uint32_t> left_;  // blocks that stages have still to ask for

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Request> requests_;
  bool closed_ = false;
  std::thread thread_;  // since somebody has asked
};

}  // namespace sluice
