// How long drafted chains are accepted, for heads that draft several tokens at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace sluice {

// right[j][i]: whether the j-th token drafted at place i of a text, where the tokens before were right, is right; texts
// are added one by one. At place i the chain's first guess is the i-th token.
class ChainEvaluation {
 public:
  explicit ChainEvaluation(size_t depths) : right_(depths), reached_(depths), rounds_(depths), tokens_(depths) {}

  void add(const std::vector<std::vector<bool>>& right);
  // accepted_length[m - 1]: the tokens that a verification of m drafted ones yields (L_acc, the bonus token included);
  // top1_by_depth: how often the j-th token is right when those before it were. Begins anew.
  nlohmann::json summary();

 private:
  std::vector<int64_t> right_, reached_, rounds_, tokens_;
};

}  // namespace sluice
