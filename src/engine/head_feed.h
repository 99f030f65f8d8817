// The coordinator's side of a head: which of the target's states its worker has by now, and which of them a row takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "model/head_file.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

class HeadFeed {
 public:
  // `cuts`: the target's. REQUIRES: those of an SPD head, if it is one.
  HeadFeed(const HeadParameters& head, std::span<const LayerRange> cuts);

  void arrived(const TapsArrived& taps);

  // Whether the states of all committed tokens before the root are there. Not before the first token of the answer.
  bool knows_committed(const Request& request) const;
  // How many rows of committed tokens the head can be given beyond the `there` that it has.
  size_t rows_at_hand(const Request& request, size_t there) const;
  // Whether a guess at the node's children can be made now. SPD's module guesses once the node has entered the target
  // and its ancestors have got as far as they were when it was trained; an exit, once the node has passed it; EAGLE's
  // heads and a model's further layer guess anywhere. REQUIRES: knows_committed().
  bool can_guess(const Request& request, NodeId node) const;

  // Of a sequence that is cut where the head keeps `kept` tokens: how many of them the target may keep. What it
  // computes again comes to the head once more: an EAGLE head's next row takes the state of the token before, which the
  // head's worker has forgotten.
  size_t target_keeps(size_t kept) const { return takes_token_before() ? std::max<size_t>(kept, 1) - 1 : kept; }

  // How many the head may keep where the target keeps so many.
  size_t keeps_beside(size_t target) const { return takes_token_before() && target > 0 ? target + 1 : target; }

  // What the head's row of the next committed token, or of a node, takes; and what has to be refreshed first. `there`:
  // the head's own residency. REQUIRES: can_guess(); batch.rows holds the row.
  void add_prompt(const Request& request, Residency& there, Batch& batch) const;
  void add_node(const Request& request, NodeId node, Residency& there, Batch& batch) const;

 private:
  bool takes_token_before() const {
    return kind_ == HeadKind::kEagle3 || kind_ == HeadKind::kPEagle || kind_ == HeadKind::kMtp;
  }
  bool passed(BatchId batch, int32_t stage) const { return batch <= passed_[static_cast<size_t>(stage)]; }
  // The target's cell whose states committed token i takes; none for the first one of an EAGLE head.
  Cell cell_of_committed(const Request& request, size_t i) const;
  int32_t depth_at(int32_t distance) const { return std::min(distance + timing_, n_stages_); }
  void refresh_committed(const Request& request, size_t n, Residency& there, Batch& batch) const;
  void refresh_ancestors(const Request& request, NodeId node, const Residency& there, Batch& batch) const;

  HeadKind kind_;
  int32_t n_stages_;
  int32_t timing_ = 0;    // SPD: depth of the newest token
  int32_t last_tap_ = 0;  // the last stage that is tapped
  // By taps list (SPD: by depth): the stage that computes the last of its states; negative: they need none.
  std::vector<int32_t> needs_;
  std::vector<BatchId> passed_;  // by stage: the newest batch whose taps have come
};

}  // namespace sluice
