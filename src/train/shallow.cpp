#include "train/shallow.h"

#include "train/fit.h"
#include "train/spd.h"
#include "train/states.h"

namespace sluice {

namespace {

constexpr size_t kEvaluatedDepths = 7;

}  // namespace

Shallow::Shallow(const HyperParameters& hparams, const TargetTensors& target, ShallowOptions options,
                 std::vector<Token> vocabulary)
    : Trainee(hparams, target, std::move(vocabulary)), options_(std::move(options)), chains_(kEvaluatedDepths) {
  for (size_t i = 0; i < options_.layers.size(); ++i) {
    if (options_.random)
      add_random_layer(parameters_, static_cast<int64_t>(i), shape_);
    else
      add_layer(parameters_, static_cast<int64_t>(i), shape_, target, options_.layers[i]);
  }
}

nlohmann::json Shallow::settings() const {
  return {{"kind", options_.draft ? "draft" : "exit"}, {"input", options_.input}, {"layers", options_.layers}};
}

torch::Tensor Shallow::after_layers(const torch::Tensor& states) const {
  const auto positions = torch::arange(states.size(0), torch::kLong);
  const auto causal = mask_of(positions.unsqueeze(0) <= positions.unsqueeze(1));
  auto x = states;
  for (size_t i = 0; i < options_.layers.size(); ++i)
    x = decoder_layer(x, positions, causal, parameters_, "blk." + std::to_string(i) + ".", shape_);
  return x;
}

torch::Tensor Shallow::forward(const torch::Tensor& states, int64_t first) const {
  return output_.logits(after_layers(states).slice(0, first));
}

// The output begins as the target's behind the least-squares map from the states after the own layers to the target's
// last ones, which a tuned lens (Belrose et al., 2023) learns.
void Shallow::begin(const std::function<Captured(size_t)>& example, size_t n) {
  if (options_.random) return;
  const torch::NoGradGuard frozen;
  LeastSquares fit;
  for (size_t i = 0; i < std::min<size_t>(n, 48); ++i) {
    const Captured captured = example(i);
    const auto x = after_layers(states_of(captured, options_.input, shape_.d_model)),
               y = last_states_of(captured, shape_.d_model);
    if (x.size(0) > kFitSkips)
      fit.add(rms_norm(x.slice(0, kFitSkips), shape_.epsilon), rms_norm(y.slice(0, kFitSkips), shape_.epsilon));
  }
  if (!fit.empty()) output_.begin_behind(fit.solve());
}

LossFigures Shallow::accumulate(const Captured& example, uint64_t, double weight) {
  const auto input = states_of(example, options_.input, shape_.d_model);
  const int64_t first = example.example->n_prompt - 1, last = input.size(0) - 1;
  if (last <= first) return {};
  const auto goal =
      output_.target_probabilities(states_of(example, hparams_.n_layers, shape_.d_model).slice(0, first, last));
  const auto sum = output_.divergence(forward(input.slice(0, 0, last), first), goal);
  (sum * weight).backward();
  return {sum.item<double>(), last - first};
}

void Shallow::evaluate(const Captured& example) {
  const torch::NoGradGuard frozen;
  const auto input = states_of(example, options_.input, shape_.d_model);
  const int64_t first = example.example->n_prompt - 1, last = input.size(0) - 1;
  if (last <= first) return;
  const auto hidden = states_of(example, hparams_.n_layers, shape_.d_model).slice(0, first, last);
  const auto logits = forward(input.slice(0, 0, last), first);
  closeness_.add(output_, logits, hidden);
  if (example.example->temperature > 0) return;
  const auto guesses = output_.guesses(logits);
  std::vector<bool> right;
  for (size_t i = 0; i < guesses.size(); ++i)
    right.push_back(guesses[i] == example.example->tokens[static_cast<size_t>(first) + 1 + i]);
  greedy_ += last - first;
  greedy_steps_ += spd_steps(std::vector(static_cast<size_t>(options_.stages), right));
  // A guess depends on the tokens alone, however many of them were drafted.
  std::vector<std::vector<bool>> by_depth;
  for (size_t j = 0; j < kEvaluatedDepths; ++j)
    by_depth.emplace_back(right.begin() + static_cast<ptrdiff_t>(std::min(j, right.size())), right.end());
  chains_.add(by_depth);
}

nlohmann::json Shallow::acceptance() {
  nlohmann::json summary = chains_.summary();
  if (!options_.draft) {
    const double length =
        static_cast<double>(options_.stages * greedy_) / static_cast<double>(std::max<int64_t>(1, greedy_steps_));
    const auto layers = static_cast<double>(hparams_.n_layers), own = static_cast<double>(options_.layers.size());
    summary = {{"top1", summary["top1_by_depth"][0]},
               {"equivalent_acceptance_length", length},
               // SPD section 4.2: the exit runs after the stage.
               {"speed_up", length * layers / (own * options_.stages + layers)}};
  }
  greedy_ = greedy_steps_ = 0;
  return summary;
}

Status Shallow::write(GgufWriter& file, const MatrixTypes& types) const {
  file.set("sluice-head.kind", options_.draft ? "draft" : "exit");
  file.set("sluice-head.block_count", static_cast<uint32_t>(options_.layers.size()));
  file.set("sluice-head.draft_vocab", static_cast<uint32_t>(output_.tokens().size()));
  if (options_.draft) {
    file.set("sluice-head.draft.layers", options_.layers);
    file.set("sluice-head.borrows", std::vector<std::string>{"token_embd.weight"});
  } else {
    file.set("sluice-head.exit.layer", static_cast<uint32_t>(options_.input));
  }
  if (!output_.tokens().empty()) file.add("d2t", std::span<const int32_t>(output_.tokens()));
  parameters_.write(file, types);
  return {};
}

}  // namespace sluice
