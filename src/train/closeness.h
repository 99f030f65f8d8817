// How near a head's distribution is to the target's, over held-out text.
#pragma once

#include <nlohmann/json.hpp>

#include "train/output.h"

namespace sluice {

class Closeness {
 public:
  // logits: [N, draft vocabulary]; last_states: [N, d_model], the target's at the same positions.
  void add(const Output& output, const torch::Tensor& logits, const torch::Tensor& last_states);
  // Adds `kl` (nats a position) and `overlap` (see Output::overlaps; top-k 50) to the summary, and begins anew.
  void report(nlohmann::json& summary);

 private:
  double divergence_ = 0, overlap_ = 0;
  int64_t positions_ = 0;
};

}  // namespace sluice
