// The rows of P-EAGLE's training (sections 3 and 4): which positions are trained at which depth, which rows see which,
// and how a sequence is cut into segments.
#pragma once

#include <cstdint>
#include <vector>

#include "train/torch.h"

namespace sluice {

// Depth 0 takes the token after `position` and the target's state there; depth d >= 1 stands in for them. Either
// guesses the token at position + 2. A row (p, d) depends on (p - 1, d - 1).
struct CodRow {
  int64_t position = 0, depth = 0;
  bool operator==(const CodRow&) const = default;
};

// Whether `row` sees `other`: the positions of depth 0 up to position - depth, and its own chain (p - d + j, j), j =
// 1 … d.
bool sees(const CodRow& row, const CodRow& other);
// [rows, others], built entry by entry by tensor operations.
torch::Tensor sees(const std::vector<CodRow>& rows, const std::vector<CodRow>& others);

// The same of rows given as tensors of their positions and depths, i64.
torch::Tensor sees(const torch::Tensor& positions, const torch::Tensor& depths, const torch::Tensor& other_positions,
                   const torch::Tensor& other_depths);

// Softmax attention of rows among themselves (as `attention` of layers.h), which keeps no scores: they are computed
// again for the gradients, some queries at a time, so that memory grows with the rows and not with their square.
torch::Tensor frugal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               const torch::Tensor& positions, const torch::Tensor& depths);

// Section 3.1: what rows see does not depend on where the sequence ends, so the matrix for the longest sequence, with
// its rows ordered by position, holds that of every other as its upper left corner, and that of any choice of rows as a
// selection. Training does without, since the matrix grows with the square of the length and a mask computed by
// compiled code costs less than a selection (docs/experiments.md); sluice_p_eagle_costs measures both.
class AmortisedMask {
 public:
  AmortisedMask(int64_t max_length, int64_t groups);
  torch::Tensor select(const std::vector<CodRow>& rows, const std::vector<CodRow>& others) const;

 private:
  torch::Tensor index(const std::vector<CodRow>& rows) const;
  int64_t groups_;
  torch::Tensor sees_;  // [max_length * groups, max_length * groups] bool; row p * groups + d
};

// Conditional drop-token sampling: of depth 0 all positions first … last - 1; of depth d a share retention^d of them,
// drawn from those whose dependency was kept. By depth, then by position. Depends on `draw` alone.
std::vector<std::vector<int64_t>> sample_cod(int64_t first, int64_t last, int64_t groups, double retention,
                                             uint64_t draw);

// Algorithm 1. A segment's own rows are those whose losses it counts: those of depth 0 and 1 by their position, deeper
// ones with the row they depend on. Its context are the positions of depth 0 before its own.
struct Segment {
  std::vector<CodRow> context;  // positions 0 …, depth 0, not in `own`
  std::vector<CodRow> own;
};
std::vector<Segment> partition(const std::vector<std::vector<int64_t>>& kept, int64_t segments);

}  // namespace sluice
