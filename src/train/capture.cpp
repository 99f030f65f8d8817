#include "train/capture.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr int32_t kChunk = 128;  // rows a pass
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
  SLUICE_TRY(auto runner, StageRunner::create(model, {.range = {0, model.hparams().n_layers},
                                                      .with_embedding = true,
                                                      .with_head = false,
                                                      .kv = options.kv,
                                                      .n_cells = options.max_tokens,
                                                      .max_rows = kChunk,
                                                      .threads = options.threads,
                                                      .taps = options.taps}));
  return Capture(std::move(runner), std::move(options), model.hparams().d_model);
}

Captured Capture::run(const Example& example) {
  const auto n = std::min(static_cast<int32_t>(example.tokens.size()), options_.max_tokens);
  Captured captured{.example = &example, .layers = options_.taps};
  for (size_t i = 0; i < options_.taps.size(); ++i)
    captured.states.emplace_back().reserve(static_cast<size_t>(n) * static_cast<size_t>(d_model_));
  std::vector<PathUpdate> updates = {Open{kSequence, {}}};
  for (int32_t begin = 0; begin < n; begin += kChunk) {
    std::vector<Row> rows;
    for (int32_t t = begin; t < std::min(n, begin + kChunk); ++t)
      rows.push_back({.sequence = kSequence,
                      .token = example.tokens[static_cast<size_t>(t)],
                      .position = t,
                      .cell = Cell{t},
                      .parent = t == 0 ? Cell{} : Cell{t - 1},
                      .kind = Row::Kind::kPrompt,
                      .index = static_cast<uint16_t>(rows.size())});
    hidden_.resize(rows.size() * static_cast<size_t>(d_model_));
    runner_.enter(updates, rows);
    runner_.run(rows, hidden_);
    updates.clear();
    for (size_t i = 0; i < options_.taps.size(); ++i) {
      const auto tap = runner_.tap(i);
      captured.states[i].insert(captured.states[i].end(), tap.begin(), tap.end());
    }
  }
  updates.push_back(Close{kSequence});
  runner_.enter(updates, {});
  return captured;
}

}  // namespace sluice
