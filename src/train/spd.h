// Speculative Pipeline Decoding's speculation module (SPD sections 3.2 to 3.7 and appendix A).
#pragma once

#include <map>

#include "train/near_far.h"
#include "train/options.h"
#include "train/trainee.h"

namespace sluice {

// Where depth k of n stages takes its states from: SPD eq. (1), k = 0 … n.
std::vector<std::vector<int32_t>> spd_taps(const std::vector<int32_t>& cuts, bool single_depth);

// SPD's clock at T = 0 and W = 1. guesses_right[a - 1][i]: whether the module, with a tokens in flight (at most n),
// would guess the i-th token of an answer right. A right guess costs one step, a wrong one n, after which one token is
// in flight. Gives the steps K that the answer takes.
int64_t spd_steps(const std::vector<std::vector<bool>>& guesses_right);

class Spd : public Trainee {
 public:
  Spd(const HyperParameters& hparams, const TargetTensors& target, SpdOptions options, std::vector<Token> vocabulary);

  nlohmann::json settings() const override;
  std::vector<int32_t> taps() const override;
  void begin(const std::function<Captured(size_t)>& example, size_t n) override;
  LossFigures accumulate(const Captured& example, uint64_t draw, double weight) override;
  void evaluate(const Captured& example) override;
  Status write(GgufWriter& file, const MatrixTypes& types) const override;

  using States = std::map<int32_t, torch::Tensor>;  // by layer: [tokens, d], normed if options.feature_norm
  States states(const Captured& example) const;
  // Logits of the tokens after positions first … last - 1 when `active` tokens are in flight. [last - first, draft
  // vocabulary]
  torch::Tensor forward(const States& states, int64_t first, int64_t last, int64_t active) const;

  // How many tokens are in flight in a training example (appendix A.2): half of the time n, else 1 … n - 1.
  int64_t active(uint64_t draw) const;

 private:
  nlohmann::json acceptance() override;
  torch::Tensor feature(const States& states, int64_t depth, int64_t begin, int64_t end) const;
  torch::Tensor concatenated(const States& states, int64_t depth, int64_t begin, int64_t end) const;
  std::string fc_name(int64_t depth) const;
  // The rows of all calls together: the newest of each [1, Q, d], the other near ones, newest first [a - 1, Q, d], and
  // the far ones [T, d].
  struct Rows {
    torch::Tensor newest, older, far;
  };
  struct Places {
    torch::Tensor near, far;  // positions, [a, Q] and [T]
    NearFar sees;
  };
  void advance(Rows& rows, int64_t layer, const Places& at) const;  // through one layer
  int64_t newest_depth() const { return options_.output_timing ? 1 : 0; }
  int64_t most_active() const { return n_ - newest_depth(); }

  SpdOptions options_;
  int64_t n_;
  std::vector<std::vector<int32_t>> taps_;  // by depth

  struct Evaluation {
    std::vector<int64_t> right;  // by active - 1
    int64_t greedy = 0, greedy_steps = 0;
  } evaluation_;
};

}  // namespace sluice
