#include "train/capture.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr int32_t kChunk = 128;      // rows a pass
constexpr int32_t kRemembered = 64;  // tokens of a sequence's beginning: more than a chat template's is
constexpr SequenceId kSequence{0};

}  // namespace

std::span<const float> Captured::layer(int32_t l) const {
  const auto it = std::lower_bound(layers.begin(), layers.end(), l);
  SLUICE_CHECK(it != layers.end() && *it == l, "a captured layer");
  return states[static_cast<size_t>(it - layers.begin())];
}

Result<Capture> Capture::create(const ModelFile& model, CaptureOptions options) {
  std::sort(options.taps.begin(), options.taps.end());
  options.taps.erase(std::unique(options.taps.begin(), options.taps.end()), options.taps.end());
  options.max_tokens = std::min(options.max_tokens, model.hparams().context_length);
  SLUICE_TRY(auto runner, make_stage_runner(model, {.range = {0, model.hparams().n_layers},
                                                    .with_embedding = true,
                                                    .with_head = false,
                                                    .kv = options.kv,
                                                    .n_cells = options.max_tokens,
                                                    .max_rows = kChunk,
                                                    .threads = options.threads,
                                                    .taps = options.taps}));
  return Capture(std::move(runner), std::move(options), model.hparams());
}

int32_t Capture::shared(const Example& example, int32_t n) const {
  if (folds_) return 0;  // it can't go on from where an earlier text was
  const auto most = std::min({n, static_cast<int32_t>(before_.tokens.size()), kRemembered});
  int32_t same = 0;
  while (same < most && example.tokens[static_cast<size_t>(same)] == before_.tokens[static_cast<size_t>(same)]) ++same;
  return same;
}

Captured Capture::run(const Example& example) {
  const auto n = std::min(static_cast<int32_t>(example.tokens.size()), options_.max_tokens), same = shared(example, n);
  const auto d = static_cast<size_t>(d_model_);
  Captured captured{.example = &example, .layers = options_.taps};
  for (size_t i = 0; i < options_.taps.size(); ++i) {
    auto& states = captured.states.emplace_back();
    states.reserve(static_cast<size_t>(n) * d);
    if (same > 0) states.assign(before_.states[i].begin(), before_.states[i].begin() + same * d_model_);
  }
  std::vector<PathUpdate> updates;
  if (n == 0) return captured;
  if (before_.tokens.empty())
    updates.emplace_back(Open{kSequence, {}});
  else
    updates.emplace_back(Truncate{kSequence, same, {}});
  for (int32_t begin = same; begin < n; begin += kChunk) {
    std::vector<Row> rows;
    for (int32_t t = begin; t < std::min(n, begin + kChunk); ++t)
      rows.push_back({.sequence = kSequence,
                      .token = example.tokens[static_cast<size_t>(t)],
                      .position = t,
                      .cell = Cell{t},
                      .parent = t == 0 ? Cell{} : Cell{t - 1},
                      .kind = Row::Kind::kPrompt,
                      .index = static_cast<uint16_t>(rows.size())});
    hidden_.resize(rows.size() * d);
    runner_->enter(updates, rows);
    runner_->run(rows, hidden_);
    updates.clear();
    for (size_t i = 0; i < options_.taps.size(); ++i) {
      const auto tap = runner_->tap(i);
      captured.states[i].insert(captured.states[i].end(), tap.begin(), tap.end());
    }
  }
  remember(captured, n);
  return captured;
}

void Capture::remember(const Captured& captured, int32_t n) {
  const int32_t kept = std::min(n, kRemembered);
  before_.tokens.assign(captured.example->tokens.begin(), captured.example->tokens.begin() + kept);
  before_.states.clear();
  for (const auto& states : captured.states)
    before_.states.emplace_back(states.begin(), states.begin() + kept * d_model_);
}

}  // namespace sluice
