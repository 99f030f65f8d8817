#include "train/eagle3.h"

#include "train/fit.h"
#include "train/near_far.h"
#include "train/states.h"

namespace sluice {

namespace {

constexpr int64_t kEvaluatedDepths = 7;

}  // namespace

Eagle3::Eagle3(const ModelFile& model, const TargetTensors& target, Eagle3Options options,
               std::vector<Token> vocabulary)
    : Trainee(model.hparams(), target, std::move(vocabulary)),
      model_path_(model.path()),
      options_(std::move(options)),
      chains_(kEvaluatedDepths) {
  if (options_.taps.empty()) options_.taps = feature_layers(hparams_.n_layers);
  shape_.rope_halves = false;  // as llama.cpp turns the rows of this architecture
  const int64_t d = shape_.d_model;
  embedding_ = to_tensor(target.floats("token_embd.weight"), {hparams_.n_vocab, d});
  parameters_.add("fc.weight", random_matrix(d, 3 * d));
  if (options_.norm_before_fc) parameters_.add("enc.output_norm.weight", torch::ones({3 * d}));
  // The layer begins as the target's last one on the hidden state and its first one on the embedding.
  if (options_.init == Init::kRandom) {
    Parameters layer;
    add_random_layer(layer, 0, shape_);
    for (const char* half : {"attn_q", "attn_k", "attn_v"}) {
      const auto rows = layer[layer_tensor(0, half)].size(0);
      parameters_.add(layer_tensor(0, half), random_matrix(rows, 2 * d));
    }
    for (const char* same : {"attn_norm", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"})
      parameters_.add(layer_tensor(0, same), layer[layer_tensor(0, same)]);
    parameters_.add("blk.0.attn_norm_2.weight", torch::ones({d}));
    return;
  }
  const int64_t last = hparams_.n_layers - 1;
  const bool halves = layer_shape(hparams_).rope_halves;
  const auto matrix = [&](int64_t layer, const std::string& tensor) {
    const auto values = target.floats(layer_tensor(layer, tensor));
    const auto rows = to_tensor(values, {static_cast<int64_t>(values.size()) / d, d});
    if (!halves || (tensor != "attn_q" && tensor != "attn_k")) return rows;
    // What the target turns as pairs (i, i + head_dim / 2) of a head is turned as (2 i, 2 i + 1) here.
    return rows.view({-1, 2, shape_.head_dim / 2, d}).transpose(1, 2).reshape({-1, d});
  };
  for (const char* half : {"attn_q", "attn_k", "attn_v"})
    parameters_.add(layer_tensor(0, half), torch::cat({matrix(0, half), matrix(last, half)}, 1));
  Parameters end;
  add_layer(end, 0, shape_, target, last);
  for (const char* same : {"attn_output", "ffn_gate", "ffn_up", "ffn_down", "ffn_norm"})
    parameters_.add(layer_tensor(0, same), end[layer_tensor(0, same)]);
  parameters_.add(layer_tensor(0, "attn_norm"), to_tensor(target.floats(layer_tensor(0, "attn_norm")), {d}));
  parameters_.add("blk.0.attn_norm_2.weight", end[layer_tensor(0, "attn_norm")]);
}

nlohmann::json Eagle3::settings() const {
  return {{"kind", "eagle3"},        {"taps", options_.taps}, {"unroll", options_.unroll},
          {"decay", options_.decay}, {"hca", options_.hca},   {"norm_before_fc", options_.norm_before_fc}};
}

std::vector<int32_t> Eagle3::taps() const {
  std::vector<int32_t> taps = options_.taps;
  taps.push_back(hparams_.n_layers);
  if (options_.init != Init::kRandom) taps.push_back(hparams_.n_layers - 1);
  return taps;
}

torch::Tensor Eagle3::features(const Captured& example) const {
  return features_of(example, options_.taps, shape_.d_model);
}

torch::Tensor Eagle3::fused(const torch::Tensor& features) const {
  const auto x =
      options_.norm_before_fc ? rms_norm(features, parameters_["enc.output_norm.weight"], shape_.epsilon) : features;
  return product(x, parameters_["fc.weight"]);
}

torch::Tensor Eagle3::Step::logits() const { return output->logits(state); }

std::vector<Eagle3::Step> Eagle3::unroll(const torch::Tensor& features, const std::vector<Token>& tokens, int64_t first,
                                         int64_t steps) const {
  const auto& p = parameters_;
  const int64_t n = features.size(0);
  const auto ids = torch::tensor(std::vector<int64_t>(tokens.begin(), tokens.begin() + n), torch::kLong);
  const auto embedded = rms_norm(embedding_.index_select(0, ids), p["blk.0.attn_norm.weight"], shape_.epsilon);
  const auto keys = [&](const torch::Tensor& x, const torch::Tensor& at) {
    return turn(heads(x, p["blk.0.attn_k.weight"], shape_.n_kv_heads), at, shape_);
  };
  const auto values = [&](const torch::Tensor& x) { return heads(x, p["blk.0.attn_v.weight"], shape_.n_kv_heads); };

  // Rows 0 … n - 2 of step 0: keys and values for all steps.
  const auto all = torch::arange(n - 1, torch::kLong);
  const auto hidden = fused(features.slice(0, 0, n - 1));
  const auto normed = [&](const torch::Tensor& state) {
    return rms_norm(state, p["blk.0.attn_norm_2.weight"], shape_.epsilon);
  };
  const auto inputs = torch::cat({embedded.slice(0, 1, n), normed(hidden)}, -1);
  const auto far_k = keys(inputs, all), far_v = values(inputs);

  std::vector<Step> made;
  std::vector<torch::Tensor> own_k, own_v;  // of steps 1 …, [rows, kv_heads, head_dim]
  auto state = hidden.slice(0, first);
  for (int64_t j = 0; j < steps && first < n - 1 - j; ++j) {
    const int64_t rows = n - 1 - j - first;
    state = state.slice(0, 0, rows);
    const auto at = torch::arange(first, first + rows, torch::kLong);
    const auto x = torch::cat({embedded.slice(0, first + 1 + j, first + 1 + j + rows), normed(state)}, -1);
    if (j > 0) {
      own_k.push_back(keys(x, at + j));
      own_v.push_back(values(x));
    }
    const auto q = turn(heads(x, p["blk.0.attn_q.weight"], shape_.n_heads), at + j, shape_).unsqueeze(0);
    // Each row sees the rows of step 0 up to its position and its own earlier steps.
    const auto own = [&](const std::vector<torch::Tensor>& all_steps) {
      std::vector<torch::Tensor> steps = {torch::zeros({0, rows, shape_.n_kv_heads, shape_.head_dim})};
      for (const auto& step : all_steps) steps.push_back(step.slice(0, 0, rows).unsqueeze(0));
      return torch::cat(steps);
    };
    const auto sum =
        near_far_attention(q, own(own_k), own(own_v), far_k, far_v, {.far_of_first = first + 1, .near_of_first = j})[0];
    state = add_feed_forward(state + product(sum, p["blk.0.attn_output.weight"]), p, "blk.0.", shape_);
    made.push_back({state, &output_});
  }
  return made;
}

LossFigures Eagle3::accumulate(const Captured& example, uint64_t, double weight) {
  const auto features = this->features(example);
  const int64_t n = features.size(0), first = std::max<int64_t>(0, example.example->n_prompt - 2);
  if (n - 1 <= first) return {};
  const auto p = output_.target_probabilities(last_states_of(example, shape_.d_model).slice(0, first + 1));
  const auto steps = unroll(features, example.example->tokens, first, options_.unroll);
  auto sum = torch::zeros({});
  double factor = 1, factors = 0;
  for (size_t j = 0; j < steps.size(); ++j, factor *= options_.decay) {
    const int64_t rows = steps[j].state.size(0), begin = first + 1 + static_cast<int64_t>(j);
    sum = sum + factor * output_.divergence(steps[j].logits(),
                                            p.slice(0, static_cast<int64_t>(j), static_cast<int64_t>(j) + rows));
    if (options_.hca > 0) {  // the state of each step is drawn to the feature that it stands for
      const auto goal = fused(features.slice(0, begin, begin + rows)).detach();
      sum = sum + factor * options_.hca * torch::smooth_l1_loss(steps[j].state, goal) * rows;
    }
    factors += factor;
  }
  sum = sum / factors;
  (sum * weight).backward();
  return {sum.item<double>(), n - 1 - first};
}

// The fused features begin as the least-squares guess of what the target's last layer takes at the same token. Fitted
// to what it takes at the next one, whose successor is wanted, they know less: more guesses are right at first, fewer
// soon.
void Eagle3::begin(const std::function<Captured(size_t)>& example, size_t n) {
  if (options_.init == Init::kRandom || !options_.norm_before_fc) return;
  const torch::NoGradGuard frozen;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> data;
  for (size_t i = 0; i < std::min<size_t>(n, 32); ++i) {
    const Captured captured = example(i);
    data.emplace_back(features(captured), states_of(captured, hparams_.n_layers - 1, shape_.d_model));
  }
  fit_features(data, shape_, parameters_["enc.output_norm.weight"], parameters_["fc.weight"]);
}

void Eagle3::evaluate(const Captured& example) {
  const torch::NoGradGuard frozen;
  const auto features = this->features(example);
  const int64_t n = features.size(0), first = std::max<int64_t>(0, example.example->n_prompt - 2);
  if (n - 1 <= first) return;
  const auto& tokens = example.example->tokens;
  const auto hidden = last_states_of(example, shape_.d_model);
  const auto steps = unroll(features, tokens, first, kEvaluatedDepths);
  const auto logits = steps.front().logits();
  closeness_.add(output_, logits, hidden.slice(0, first + 1, first + 1 + logits.size(0)));
  if (example.example->temperature > 0) return;
  std::vector<std::vector<bool>> right;
  for (size_t j = 0; j < steps.size(); ++j) {
    right.emplace_back();
    const auto guesses = output_.guesses(steps[j].logits());
    for (size_t i = 0; i < guesses.size(); ++i) {
      const size_t at = static_cast<size_t>(first) + 2 + j + i;
      if (at < tokens.size()) right.back().push_back(guesses[i] == tokens[at]);
    }
  }
  chains_.add(right);
}

Status Eagle3::write(GgufWriter& file, const MatrixTypes& types) const {
  const std::string key = "eagle3.";
  file.set("general.architecture", "eagle3");
  file.set(key + "block_count", uint32_t{1});
  file.set(key + "context_length", static_cast<uint32_t>(hparams_.context_length));
  file.set(key + "embedding_length", static_cast<uint32_t>(shape_.d_model));
  file.set(key + "feed_forward_length", static_cast<uint32_t>(shape_.d_ff));
  file.set(key + "attention.head_count", static_cast<uint32_t>(shape_.n_heads));
  file.set(key + "attention.head_count_kv", static_cast<uint32_t>(shape_.n_kv_heads));
  file.set(key + "attention.key_length", static_cast<uint32_t>(shape_.head_dim));
  file.set(key + "attention.value_length", static_cast<uint32_t>(shape_.head_dim));
  file.set(key + "attention.layer_norm_rms_epsilon", static_cast<float>(shape_.epsilon));
  file.set(key + "rope.freq_base", static_cast<float>(shape_.rope_base));
  file.set(key + "rope.dimension_count", static_cast<uint32_t>(shape_.head_dim));
  file.set(key + "vocab_size", static_cast<uint32_t>(hparams_.n_vocab));
  file.set(key + "target_layers", options_.taps);
  file.set(key + "target_hidden_size", static_cast<uint32_t>(shape_.d_model));
  file.set(key + "norm_before_residual", false);
  file.set(key + "norm_before_fc", options_.norm_before_fc);
  SLUICE_TRY_STATUS(file.copy_metadata(model_path_, "tokenizer."));
  if (!output_.tokens().empty())
    file.add("d2t", std::vector<int64_t>(output_.tokens().begin(), output_.tokens().end()));
  parameters_.write(file, types);
  return {};
}

}  // namespace sluice
