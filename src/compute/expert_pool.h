// Memory for some of a stage's experts: they stay in the file until a row is given to one, and are packed then, in
// place of those that were used longest ago. What an expert computes is the same whenever it was packed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/memory.h"
#include "compute/mixture.h"
#include "compute/thread_team.h"
#include "model/model_file.h"

namespace sluice {

class ExpertPool {
 public:
  // In so many bytes, of packed matrices. weights: what the experts are in, which outlives this.
  ExpertPool(int64_t bytes, const StageWeights& weights) : bytes_(bytes), weights_(&weights) {}

  // Its experts are this pool's from now on. REQUIRES: their matrices wait (Linear::waiting()), and stay where they
  // are.
  void add(Mixture& mixture);
  // When all are there: makes room, and packs the first ones into it. Errors (kInput): there is not even room for all
  // experts of one layer, which a batch may need at the same time.
  Status begin(ThreadTeam& team);

  // Whether one of these networks of a mixture is not packed, to be asked by every thread of a team: they get the same
  // answer as long as nobody makes room.
  bool lacks_some(const Mixture& mixture, std::span<const ExpertGroups::Group> wanted) const;
  // By one thread, while the others wait: those that are wanted have places. Then the matrices to_pack() are to be
  // packed, by whoever likes.
  void make_room(const Mixture& mixture, std::span<const ExpertGroups::Group> wanted);
  std::span<const Linear* const> to_pack() const { return to_pack_; }
  // By one thread: they are packed, and their pages of the file are not needed any more.
  void packed();
  // By one thread: they are used now.
  void use(const Mixture& mixture, std::span<const ExpertGroups::Group> wanted);

 private:
  struct Expert {
    FeedForward* network = nullptr;
    int32_t slot = -1;
    uint64_t used = 0;
  };
  static size_t bytes_of(const FeedForward& network);
  Expert& expert(const Mixture& mixture, int32_t network) {
    return experts_[static_cast<size_t>(mixture.first_in_pool + network)];
  }
  void place(Expert& expert, int32_t slot);
  int32_t free_slot();

  int64_t bytes_;
  const StageWeights* weights_;
  std::vector<Expert> experts_;  // of all layers
  int32_t most_of_layer_ = 0;
  size_t slot_bytes_ = 0;
  Memory memory_;                 // [slots]
  std::vector<int32_t> in_slot_;  // the expert, or -1
  std::vector<const Linear*> to_pack_;
  uint64_t time_ = 0;
};

}  // namespace sluice
