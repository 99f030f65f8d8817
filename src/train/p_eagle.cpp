#include "train/p_eagle.h"

#include "train/fit.h"
#include "train/states.h"

namespace sluice {

PEagle::PEagle(const HyperParameters& hparams, const TargetTensors& target, PEagleOptions options,
               std::vector<Token> vocabulary)
    : Trainee(hparams, target, std::move(vocabulary)),
      options_(std::move(options)),
      chains_(static_cast<size_t>(options_.evaluate_depths)) {
  if (options_.taps.empty()) options_.taps = feature_layers(hparams.n_layers);
  const int64_t d = shape_.d_model;
  const auto embedding = to_tensor(target.floats("token_embd.weight"), {hparams.n_vocab, d});
  if (options_.train_embedding)
    parameters_.add("token_embd.weight", embedding);
  else
    embedding_ = embedding;
  const auto size = [](const torch::Tensor& rows) { return rows.pow(2).mean(-1).sqrt().mean(); };
  const auto mean = embedding.mean(0);
  parameters_.add("mask_embedding", mean * (size(embedding) / size(mean)));
  // Not zeros, from which a norm passes on gradients hundreds of times larger than everybody else's.
  parameters_.add("mask_hidden",
                  options_.hidden == MaskedState::kByDepth ? torch::randn({options_.groups, d}) : torch::randn({d}));
  parameters_.add("fc.weight", random_matrix(d, 3 * d));
  parameters_.add("feature_norm.weight", torch::ones({3 * d}));
  for (int64_t i = 0; i < options_.layers; ++i) {
    const int64_t from = hparams.n_layers - options_.layers + i;
    Parameters layer;
    if (options_.init == Init::kRandom)
      add_random_layer(layer, i, shape_);
    else
      add_layer(layer, i, shape_, target, from);
    for (const auto& entry : layer.all()) {
      // The first layer's queries, keys and values come from embedding and hidden state side by side; on the embedding
      // they begin as the target's first layer's.
      const bool doubled =
          i == 0 && (entry.name == layer_tensor(0, "attn_q") || entry.name == layer_tensor(0, "attn_k") ||
                     entry.name == layer_tensor(0, "attn_v"));
      if (!doubled) {
        parameters_.add(entry.name, entry.values);
        continue;
      }
      const auto on_embedding = options_.init == Init::kRandom
                                    ? random_matrix(entry.values.size(0), d)
                                    : to_tensor(target.floats(entry.name), entry.values.sizes());
      parameters_.add(entry.name, torch::cat({on_embedding, entry.values.detach()}, 1));
    }
  }
  parameters_.add("blk.0.attn_norm_2.weight", parameters_["blk.0.attn_norm.weight"].detach().clone());
  if (options_.init == Init::kRandom) return;
  const torch::NoGradGuard frozen;
  parameters_["blk.0.attn_norm.weight"].copy_(to_tensor(target.floats(layer_tensor(0, "attn_norm")), {d}));
}

nlohmann::json PEagle::settings() const {
  return {{"kind", "p-eagle"},
          {"taps", options_.taps},
          {"groups", options_.groups},
          {"retention", options_.retention},
          {"hidden", name_of(kMaskedStates, options_.hidden)},
          {"train_embedding", options_.train_embedding}};
}

std::vector<int32_t> PEagle::taps() const {
  std::vector<int32_t> taps = options_.taps;
  taps.push_back(hparams_.n_layers);
  taps.push_back(hparams_.n_layers - options_.layers);
  return taps;
}

torch::Tensor PEagle::features(const Captured& example) const {
  return features_of(example, options_.taps, shape_.d_model);
}

torch::Tensor PEagle::fused(const torch::Tensor& features) const {
  return product(rms_norm(features, parameters_["feature_norm.weight"], shape_.epsilon), parameters_["fc.weight"]);
}

torch::Tensor PEagle::forward(const torch::Tensor& features, const std::vector<Token>& tokens,
                              const Segment& segment) const {
  const auto& p = parameters_;
  std::vector<CodRow> rows = segment.context;
  rows.insert(rows.end(), segment.own.begin(), segment.own.end());
  std::vector<int64_t> positions, all_depths;
  std::vector<int64_t> known, known_tokens, masked, masked_depths;  // indices of rows
  for (size_t i = 0; i < rows.size(); ++i) {
    positions.push_back(rows[i].position);
    all_depths.push_back(rows[i].depth);
    if (rows[i].depth == 0) {
      known.push_back(static_cast<int64_t>(i));
      known_tokens.push_back(tokens[static_cast<size_t>(rows[i].position) + 1]);
    } else {
      masked.push_back(static_cast<int64_t>(i));
      masked_depths.push_back(rows[i].depth);
    }
  }
  const auto at = torch::tensor(positions, torch::kLong);
  const auto known_rows = torch::tensor(known, torch::kLong), masked_rows = torch::tensor(masked, torch::kLong);
  const auto& table = options_.train_embedding ? p["token_embd.weight"] : embedding_;
  // Known rows first, masked ones after them, then back into the order of `rows`.
  const auto back = torch::argsort(torch::cat({known_rows, masked_rows}));
  const auto n_masked = static_cast<int64_t>(masked.size()), d = shape_.d_model;
  const auto hidden_of_masked =
      options_.hidden == MaskedState::kByDepth
          ? p["mask_hidden"].index_select(0, torch::tensor(masked_depths, torch::kLong).clamp_max(options_.groups - 1))
          : p["mask_hidden"].unsqueeze(0).expand({n_masked, d});
  const auto hidden = torch::cat({fused(features.index_select(0, at.index_select(0, known_rows))), hidden_of_masked})
                          .index_select(0, back);
  const auto embedded = torch::cat({table.index_select(0, torch::tensor(known_tokens, torch::kLong)),
                                    p["mask_embedding"].unsqueeze(0).expand({n_masked, d})})
                            .index_select(0, back);

  const auto depths = torch::tensor(all_depths, torch::kLong);
  const Attend attend = [&](const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    return frugal_attention(q, k, v, at, depths);
  };
  auto x = hidden;
  for (int64_t i = 0; i < options_.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    const auto own = [&](const torch::Tensor& of, const char* norm) {
      return rms_norm(of, p[blk + norm], shape_.epsilon);
    };
    const auto inputs = i == 0 ? torch::cat({own(embedded, "attn_norm.weight"), own(hidden, "attn_norm_2.weight")}, -1)
                               : own(x, "attn_norm.weight");
    x = decoder_layer(x, inputs, at, attend, p, blk, shape_);
  }
  return x.slice(0, static_cast<int64_t>(segment.context.size()));
}

namespace {

// Of each row the position whose target distribution it is compared with.
torch::Tensor goals(const std::vector<CodRow>& rows) {
  std::vector<int64_t> positions;
  for (const CodRow& row : rows) positions.push_back(row.position + 1);
  return torch::tensor(positions, torch::kLong);
}

}  // namespace

LossFigures PEagle::accumulate(const Captured& example, uint64_t draw, double weight) {
  const auto features = this->features(example);
  const int64_t first = std::max(0, example.example->n_prompt - 2), last = features.size(0) - 2;
  if (last <= first) return {};
  const auto kept = sample_cod(first, last, options_.groups, options_.retention, draw);
  int64_t rows = 0;
  for (const auto& positions : kept) rows += static_cast<int64_t>(positions.size());
  const auto p = output_.target_probabilities(last_states_of(example, shape_.d_model));
  const double share = static_cast<double>(last - first) / static_cast<double>(rows);  // a mean over the rows
  LossFigures figures{.count = last - first};
  for (const Segment& segment : partition(kept, options_.segments)) {
    if (segment.own.empty()) continue;
    const auto x = forward(features, example.example->tokens, segment);
    const auto sum = output_.divergence(output_.logits(x), p.index_select(0, goals(segment.own))) * share;
    (sum * weight).backward();
    figures.sum += sum.item<double>();
  }
  return figures;
}

void PEagle::begin(const std::function<Captured(size_t)>& example, size_t n) {
  if (options_.init == Init::kRandom) return;
  const torch::NoGradGuard frozen;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> data;
  for (size_t i = 0; i < std::min<size_t>(n, 32); ++i) {
    const Captured captured = example(i);
    const auto goal = hparams_.n_layers - static_cast<int32_t>(options_.layers);
    data.emplace_back(features(captured), states_of(captured, goal, shape_.d_model));
  }
  fit_features(data, shape_, parameters_["feature_norm.weight"], parameters_["fc.weight"]);
  // The masked rows' state begins as the mean of the known ones', at their usual size.
  auto mean = torch::zeros({shape_.d_model});
  double size = 0, rows = 0;
  for (const auto& [x, y] : data) {
    const auto known = fused(x.slice(0, std::min<int64_t>(kFitSkips, x.size(0))));
    mean += known.sum(0);
    size += known.pow(2).mean(-1).sqrt().sum().item<double>();
    rows += static_cast<double>(known.size(0));
  }
  if (rows == 0) return;
  mean *= size / rows / std::max(1e-12, mean.pow(2).mean().sqrt().item<double>());
  parameters_["mask_hidden"].copy_(mean.expand_as(parameters_["mask_hidden"]));
}

void PEagle::evaluate(const Captured& example) {
  const torch::NoGradGuard frozen;
  const auto features = this->features(example);
  const auto& tokens = example.example->tokens;
  const int64_t first = std::max(0, example.example->n_prompt - 2), last = features.size(0) - 2;
  if (last <= first) return;
  const bool greedy = example.example->temperature == 0;
  const int64_t depths = greedy ? options_.evaluate_depths : 1;
  const auto kept = sample_cod(first, last, depths, 1.0, 0);
  const Segment whole = partition(kept, 1).front();
  std::vector<CodRow> rows = whole.own;
  const auto logits = output_.logits(forward(features, tokens, whole));
  const auto hidden = last_states_of(example, shape_.d_model).slice(0, first + 1, last + 1);
  const auto next = logits.slice(0, 0, last - first);  // depth 0 comes first
  closeness_.add(output_, next, hidden);
  if (!greedy) return;
  const auto guesses = output_.guesses(logits);
  std::vector<std::vector<bool>> right(static_cast<size_t>(depths));
  for (size_t i = 0; i < rows.size(); ++i)
    right[static_cast<size_t>(rows[i].depth)].push_back(guesses[i] ==
                                                        tokens[static_cast<size_t>(rows[i].position) + 2]);
  chains_.add(right);
}

Status PEagle::write(GgufWriter& file, const MatrixTypes& types) const {
  file.set("sluice-head.kind", "p-eagle");
  file.set("sluice-head.block_count", static_cast<uint32_t>(options_.layers));
  file.set("sluice-head.p-eagle.taps", options_.taps);
  file.set("sluice-head.p-eagle.groups", static_cast<uint32_t>(options_.groups));
  file.set("sluice-head.draft_vocab", static_cast<uint32_t>(output_.tokens().size()));
  if (!options_.train_embedding) file.set("sluice-head.borrows", std::vector<std::string>{"token_embd.weight"});
  if (!output_.tokens().empty()) file.add("d2t", std::span<const int32_t>(output_.tokens()));
  parameters_.write(file, types);
  return {};
}

}  // namespace sluice
