#include "train/spd.h"

#include "base/random.h"
#include "train/fit.h"
#include "train/near_far.h"
#include "train/states.h"

namespace sluice {

namespace {

constexpr double kMoreInFlight = 0.6;  // of Fill::kFlushes

}  // namespace

std::vector<std::vector<int32_t>> spd_taps(const std::vector<int32_t>& cuts, bool single_depth) {
  std::vector<std::vector<int32_t>> taps = {{0}};
  for (size_t k = 1; k < cuts.size(); ++k) {
    const int32_t deepest = cuts[k];
    taps.push_back(single_depth ? std::vector{deepest} : std::vector{0, deepest / 2, deepest});
  }
  return taps;
}

int64_t spd_steps(const std::vector<std::vector<bool>>& guesses_right) {
  const size_t n = guesses_right.size();
  int64_t steps = 0;
  size_t active = 1;
  for (size_t i = 0; i < guesses_right.front().size(); ++i) {
    const bool right = guesses_right[active - 1][i];
    steps += right ? 1 : static_cast<int64_t>(n);
    active = right ? std::min(active + 1, n) : 1;
  }
  return steps;
}

Spd::Spd(const HyperParameters& hparams, const TargetTensors& target, SpdOptions options, std::vector<Token> vocabulary)
    : Trainee(hparams, target, std::move(vocabulary)),
      options_(std::move(options)),
      n_(static_cast<int64_t>(options_.cuts.size()) - 1),
      taps_(spd_taps(options_.cuts, options_.single_depth)) {
  for (int64_t i = 0; i < options_.layers; ++i) {
    if (options_.init == Init::kRandom)
      add_random_layer(parameters_, i, shape_);
    else
      add_layer(parameters_, i, shape_, target,
                options_.init == Init::kFirst ? i : hparams.n_layers - options_.layers + i);
  }
  for (int64_t k = newest_depth(); k <= n_; ++k) {
    const int64_t d = shape_.d_model, n_in = d * static_cast<int64_t>(taps_[static_cast<size_t>(k)].size());
    if (!parameters_.holds(fc_name(k))) parameters_.add(fc_name(k), random_matrix(d, n_in));
  }
  evaluation_.right.resize(static_cast<size_t>(most_active()));
}

std::string Spd::fc_name(int64_t depth) const {
  return "fc." + std::to_string(options_.shared_fc ? std::min<int64_t>(depth, 1) : depth) + ".weight";
}

nlohmann::json Spd::settings() const {
  return {{"kind", "spd"},
          {"cuts", options_.cuts},
          {"attention", options_.attention == Attention::kFull ? "full" : "single"},
          {"fill", options_.fill == Fill::kFlushes ? "flushes" : "uniform"},
          {"feature_norm", options_.feature_norm},
          {"output_timing", options_.output_timing},
          {"single_depth", options_.single_depth},
          {"shared_fc", options_.shared_fc}};
}

std::vector<int32_t> Spd::taps() const {
  std::vector<int32_t> all = {options_.cuts.back()};  // for the target's distribution
  for (const auto& of_depth : taps_) all.insert(all.end(), of_depth.begin(), of_depth.end());
  if (options_.init == Init::kLens) all.push_back(options_.cuts.back() - options_.layers);
  return all;
}

Spd::States Spd::states(const Captured& example) const {
  States states;
  for (const int32_t layer : example.layers) {
    const auto state = states_of(example, layer, shape_.d_model);
    states[layer] = options_.feature_norm ? rms_norm(state, shape_.epsilon) : state;
  }
  return states;
}

torch::Tensor Spd::concatenated(const States& states, int64_t depth, int64_t begin, int64_t end) const {
  std::vector<torch::Tensor> parts;
  for (const int32_t layer : taps_[static_cast<size_t>(depth)]) parts.push_back(states.at(layer).slice(0, begin, end));
  return parts.size() == 1 ? parts.front() : torch::cat(parts, -1);
}

// SPD eq. (1).
torch::Tensor Spd::feature(const States& states, int64_t depth, int64_t begin, int64_t end) const {
  return product(concatenated(states, depth, begin, end), parameters_[fc_name(depth)]);
}

int64_t Spd::active(uint64_t draw) const {
  const DrawSite site{.seed = draw, .purpose = Purpose::kDraft};
  const int64_t most = most_active();
  if (options_.fill == Fill::kFlushes) {  // a quarter full, else another one in flight with probability 0.6
    if (uniform(site, 0) < 0.25) return most;
    int64_t active = 1;
    for (double u = uniform(site, 1), longer = kMoreInFlight; active < most && u < longer; longer *= kMoreInFlight)
      ++active;
    return active;
  }
  if (most == 1 || uniform(site, 0) < 0.5) return most;
  return 1 + static_cast<int64_t>(uniform(site, 1) * static_cast<double>(most - 1));
}

// The expanded sequence of appendix A without the rows that nobody sees. The call at time t has `active` near rows, of
// the tokens t, t - 1, … at depths 0, 1, …, and the far rows of the tokens up to t - active, at depth n, which all
// calls share.
torch::Tensor Spd::forward(const States& states, int64_t first, int64_t last, int64_t active) const {
  const int64_t n_queries = last - first, n_far = std::max<int64_t>(0, last - active), d = shape_.d_model;
  std::vector<torch::Tensor> near_rows;
  for (int64_t back = 0; back < active; ++back) {
    const int64_t begin = std::max<int64_t>(0, first - back), end = std::max<int64_t>(0, last - back);
    auto rows = feature(states, std::min(n_, back + newest_depth()), begin, end);
    if (const int64_t missing = n_queries - rows.size(0); missing > 0)
      rows = torch::cat({torch::zeros({missing, d}), rows});
    near_rows.push_back(rows.unsqueeze(0));
  }
  Rows rows{.newest = near_rows.front(), .far = feature(states, n_, 0, n_far)};
  near_rows.front() = torch::zeros({0, n_queries, d});
  rows.older = torch::cat(near_rows);
  const auto time = torch::arange(first, last, torch::kLong), back = torch::arange(active, torch::kLong);
  const Places places{.near = time.unsqueeze(0) - back.unsqueeze(1),
                      .far = torch::arange(n_far, torch::kLong),
                      .sees = {.far_of_first = first - active + 1, .near_of_first = first + 1}};
  for (int64_t i = 0; i < options_.layers; ++i) advance(rows, i, places);
  return output_.logits(rows.newest[0]);
}

// Where a row is computed no further, because nobody will see it, it stays as it is; with `single` all but the newest
// stay features.
void Spd::advance(Rows& rows, int64_t layer, const Places& at) const {
  const std::string blk = "blk." + std::to_string(layer) + ".";
  const auto& p = parameters_;
  const auto norm = [&](const torch::Tensor& x) { return rms_norm(x, p[blk + "attn_norm.weight"], shape_.epsilon); };
  const auto keys = [&](const torch::Tensor& normed, const torch::Tensor& positions) {
    return turn(heads(normed, p[blk + "attn_k.weight"], shape_.n_kv_heads), positions, shape_);
  };
  const auto values = [&](const torch::Tensor& normed) {
    return heads(normed, p[blk + "attn_v.weight"], shape_.n_kv_heads);
  };
  const auto queries = [&](const torch::Tensor& normed, const torch::Tensor& positions) {
    return turn(heads(normed, p[blk + "attn_q.weight"], shape_.n_heads), positions, shape_);
  };
  const auto finish = [&](const torch::Tensor& x, const torch::Tensor& attended) {
    return add_feed_forward(x + product(attended, p[blk + "attn_output.weight"]), p, blk, shape_);
  };
  const auto newest = norm(rows.newest), older = norm(rows.older), far = norm(rows.far);
  const auto newest_at = at.near.slice(0, 0, 1), older_at = at.near.slice(0, 1);
  const auto near_k = torch::cat({keys(newest, newest_at), keys(older, older_at)});
  const auto near_v = torch::cat({values(newest), values(older)});
  const auto far_k = keys(far, at.far), far_v = values(far);
  if (options_.attention == Attention::kSingle || layer + 1 == options_.layers) {
    const auto q = queries(newest, newest_at);
    rows.newest = finish(rows.newest, near_far_attention(q, near_k, near_v, far_k, far_v, at.sees));
    return;
  }
  const auto q = queries(torch::cat({newest, older}), at.near);
  const auto next =
      finish(torch::cat({rows.newest, rows.older}), near_far_attention(q, near_k, near_v, far_k, far_v, at.sees))
          .split_with_sizes({1, at.near.size(0) - 1});
  rows.newest = next[0], rows.older = next[1];
  if (rows.far.size(0) == 0) return;
  const auto nothing = torch::zeros({0, rows.far.size(0), shape_.n_kv_heads, shape_.head_dim});
  const auto attended =
      near_far_attention(queries(far, at.far).unsqueeze(0), nothing, nothing, far_k, far_v, {.far_of_first = 1});
  rows.far = finish(rows.far, attended[0]);
}

namespace {

// The positions whose next tokens are the answer's.
std::pair<int64_t, int64_t> trained_positions(const Captured& example, int64_t d) {
  const int64_t n = static_cast<int64_t>(example.states.front().size()) / d;
  return {example.example->n_prompt - 1, n - 1};
}

}  // namespace

LossFigures Spd::accumulate(const Captured& example, uint64_t draw, double weight) {
  const auto [first, last] = trained_positions(example, shape_.d_model);
  if (last <= first) return {};
  const auto logits = forward(states(example), first, last, active(draw));
  const auto sum = output_.divergence(
      logits, output_.target_probabilities(last_states_of(example, shape_.d_model).slice(0, first, last)));
  (sum * weight).backward();
  return {sum.item<double>(), last - first};
}

// "lens": each FC begins as the linear map from its states to what the first of the target's last layers takes, by
// least squares, so that the module begins as the target's end on guessed hidden states.
void Spd::begin(const std::function<Captured(size_t)>& example, size_t n) {
  if (options_.init != Init::kLens) return;
  const torch::NoGradGuard frozen;
  std::map<std::string, LeastSquares> fits;
  double scale = 0, rows = 0;
  for (size_t i = 0; i < std::min<size_t>(n, 48); ++i) {
    const Captured captured = example(i);
    const auto states = this->states(captured);
    const auto taken = states_of(captured, options_.cuts.back() - options_.layers, shape_.d_model);
    const int64_t tokens = taken.size(0);
    if (tokens <= kFitSkips) continue;
    const auto goal = taken.slice(0, kFitSkips);
    scale += goal.pow(2).mean(-1).sqrt().sum().item<double>();
    rows += static_cast<double>(goal.size(0));
    for (int64_t k = newest_depth(); k <= n_; ++k)
      fits[fc_name(k)].add(concatenated(states, k, kFitSkips, tokens), rms_norm(goal, shape_.epsilon));
  }
  for (const auto& [name, fit] : fits) parameters_[name].copy_(fit.solve() * (scale / rows));
}

void Spd::evaluate(const Captured& example) {
  const torch::NoGradGuard frozen;
  const auto [first, last] = trained_positions(example, shape_.d_model);
  if (last <= first) return;
  const auto states = this->states(example);
  const auto last_hidden = last_states_of(example, shape_.d_model).slice(0, first, last);
  const auto& tokens = example.example->tokens;
  std::vector<std::vector<bool>> right;
  for (int64_t a = 1; a <= most_active(); ++a) {
    const bool greedy = example.example->temperature == 0;
    if (!greedy && a < most_active()) continue;
    const auto logits = forward(states, first, last, a);
    if (greedy) {
      const auto guesses = output_.guesses(logits);
      right.emplace_back();
      for (size_t i = 0; i < guesses.size(); ++i) {
        right.back().push_back(guesses[i] == tokens[static_cast<size_t>(first) + i + 1]);
        evaluation_.right[static_cast<size_t>(a - 1)] += right.back().back();
      }
    }
    if (a < most_active()) continue;
    closeness_.add(output_, logits, last_hidden);
  }
  if (right.empty()) return;
  while (static_cast<int64_t>(right.size()) < n_) right.push_back(right.back());  // output timing
  evaluation_.greedy += last - first;
  evaluation_.greedy_steps += spd_steps(right);
}

nlohmann::json Spd::acceptance() {
  Evaluation e = std::exchange(evaluation_, {});
  evaluation_.right.resize(e.right.size());
  const auto share = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  std::vector<double> top1;
  for (const int64_t r : e.right) top1.push_back(share(static_cast<double>(r), static_cast<double>(e.greedy)));
  return {{"top1_by_tokens_in_flight", top1},
          // SPD eq. (4)
          {"speed_up", share(static_cast<double>(n_ * e.greedy), static_cast<double>(e.greedy_steps))}};
}

Status Spd::write(GgufWriter& file, const MatrixTypes& types) const {
  std::vector<int32_t> flat, sizes;
  for (const auto& of_depth : taps_) {
    sizes.push_back(static_cast<int32_t>(of_depth.size()));
    flat.insert(flat.end(), of_depth.begin(), of_depth.end());
  }
  file.set("sluice-head.kind", "spd");
  file.set("sluice-head.block_count", static_cast<uint32_t>(options_.layers));
  file.set("sluice-head.spd.stages", static_cast<uint32_t>(n_));
  file.set("sluice-head.spd.cuts", options_.cuts);
  file.set("sluice-head.spd.taps_per_depth", sizes);
  file.set("sluice-head.spd.taps", flat);
  file.set("sluice-head.spd.attention", options_.attention == Attention::kFull ? "full" : "single");
  file.set("sluice-head.spd.timing", options_.output_timing ? "output" : "input");
  file.set("sluice-head.spd.feature_norm", options_.feature_norm);
  file.set("sluice-head.spd.shared_fc", options_.shared_fc);
  file.set("sluice-head.draft_vocab", static_cast<uint32_t>(output_.tokens().size()));
  if (!output_.tokens().empty()) file.add("d2t", std::span<const int32_t>(output_.tokens()));
  parameters_.write(file, types);
  return {};
}

}  // namespace sluice
