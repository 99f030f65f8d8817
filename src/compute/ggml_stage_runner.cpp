#include "compute/ggml_stage_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "compute/ggml_layers.h"
#include "compute/layer.h"
#include "compute/rounding.h"

namespace sluice {

namespace {

bool contains(const std::vector<int32_t>& layers, int32_t layer) {
  return std::ranges::find(layers, layer) != layers.end();
}

// Its layers, cut where states are wanted on the host: to be rounded, or for heads.
std::vector<LayerRange> parts_of(const StageOptions& options) {
  std::vector<LayerRange> parts;
  int32_t first = options.range.first;
  for (int32_t l = first + 1; l <= options.range.last; ++l) {
    if (l < options.range.last && !contains(options.taps, l) && !contains(options.rounded, l)) continue;
    parts.push_back({first, l});
    first = l;
  }
  return parts;
}

class GgmlStageRunner final : public StageRunner {
 public:
  static Result<std::unique_ptr<StageRunner>> create(const ModelFile& model, const StageOptions& options) {
    SLUICE_TRY(auto layers, GgmlLayers::create(model, options, parts_of(options)));
    const LayerRange none{options.range.first, options.range.first};
    SLUICE_TRY(StageWeights embedding, model.map(none, options.with_embedding, /*with_head=*/false));
    return std::unique_ptr<StageRunner>(new GgmlStageRunner(model, options, std::move(layers), std::move(embedding)));
  }

  const StageOptions& options() const override { return options_; }
  Exactness exactness() const override { return exactness_; }

  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows) override {
    for (const PathUpdate& update : updates) paths_.apply(update);
    for (const Row& row : rows) paths_.enter(row);
  }

  void run(std::span<const Row> rows, std::span<float> hidden) override {
    SLUICE_CHECK(static_cast<int64_t>(rows.size()) <= options_.max_rows, "a batch is wider than max_rows");
    SLUICE_CHECK(hidden.size() == rows.size() * d_, "hidden states of another size");
    if (options_.with_embedding)
      for (size_t i = 0; i < rows.size(); ++i)
        embed(embedding_, h_, options_, rows[i].token, hidden.subspan(i * d_, d_));
    for (size_t i = 0; i < taps_.size(); ++i) taps_[i].resize(hidden.size());
    find_order(rows);
    for (auto first = order_.begin(); first != order_.end();) {
      const auto last = std::find_if(first, first + std::min<ptrdiff_t>(order_.end() - first, layers_->most_rows()),
                                     [&](size_t i) { return attended(rows[i]) != attended(rows[*first]); });
      pass(rows, {first, last}, hidden);
      first = last;
    }
  }

  std::span<const float> tap(size_t i) const override { return taps_[i]; }
  uint64_t take_out_of_range() override { return std::exchange(n_beyond_, 0); }

  void logits(std::span<const float> hidden, std::span<float> logits) override {
    const auto width = static_cast<size_t>(layers_->n_logits());
    SLUICE_CHECK(hidden.size() % d_ == 0 && logits.size() == hidden.size() / d_ * width,
                 "hidden states or logits of another size");
    while (!hidden.empty()) {
      const size_t n = std::min(hidden.size() / d_, static_cast<size_t>(layers_->most_rows()));
      layers_->logits(hidden.first(n * d_), logits.first(n * width));
      hidden = hidden.subspan(n * d_);
      logits = logits.subspan(n * width);
    }
  }

  Spread spread() override { return {}; }

 private:
  GgmlStageRunner(const ModelFile& model, const StageOptions& options, std::unique_ptr<GgmlLayers> layers,
                  StageWeights embedding)
      : options_(options),
        h_(model.hparams()),
        d_(static_cast<size_t>(h_.d_model)),
        parts_(parts_of(options)),
        layers_(std::move(layers)),
        embedding_(std::move(embedding)),
        exactness_(layers_->is_locked() && layers_->holds_still() ? Exactness::kWidthLocked
                                                                  : Exactness::kGreedyChecked),
        paths_(options.n_cells),
        taps_(options.taps.size()) {}

  // Only such rows go together. Without a lock all do.
  int32_t attended(const Row& row) const {
    return layers_->is_locked() ? ggml_attended_cells(int64_t{row.position} + 1) : 0;
  }

  // Those that see few cells first: a parent sees no more than its child.
  void find_order(std::span<const Row> rows) {
    order_.resize(rows.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(order_, {}, [&](size_t i) { return attended(rows[i]); });
  }

  // Those of the rows whose numbers are `chosen`.
  void pass(std::span<const Row> rows, std::span<const size_t> chosen, std::span<float> hidden) {
    rows_.resize(chosen.size());
    states_.resize(chosen.size() * d_);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const Row& row = rows[chosen[i]];
      rows_[i].cell = row.cell;
      rows_[i].position = row.position;
      paths_.find(row, rows_[i].path);
      std::ranges::copy(hidden.subspan(chosen[i] * d_, d_), state(i).begin());
    }
    for (size_t part = 0; part < parts_.size(); ++part) {
      keep_taps(parts_[part].first, chosen);
      layers_->run(part, rows_, states_);
      if (contains(options_.rounded, parts_[part].last)) n_beyond_ += static_cast<uint64_t>(round_to_half(states_));
    }
    keep_taps(options_.range.last, chosen);
    for (size_t i = 0; i < chosen.size(); ++i) std::ranges::copy(state(i), hidden.subspan(chosen[i] * d_, d_).begin());
  }

  void keep_taps(int32_t layer, std::span<const size_t> chosen) {
    for (size_t t = 0; t < taps_.size(); ++t) {
      if (options_.taps[t] != layer) continue;
      for (size_t i = 0; i < chosen.size(); ++i)
        std::ranges::copy(state(i), taps_[t].begin() + static_cast<ptrdiff_t>(chosen[i] * d_));
    }
  }

  std::span<float> state(size_t i) { return std::span(states_).subspan(i * d_, d_); }

  StageOptions options_;
  HyperParameters h_;
  size_t d_;
  std::vector<LayerRange> parts_;
  std::unique_ptr<GgmlLayers> layers_;
  StageWeights embedding_;
  Exactness exactness_;
  Paths paths_;
  std::vector<std::vector<float>> taps_;  // [tap][rows, d_model]
  uint64_t n_beyond_ = 0;

  std::vector<size_t> order_;   // of the rows at hand
  std::vector<BlockRow> rows_;  // of the pass at hand
  std::vector<float> states_;   // [rows, d_model], likewise
};

}  // namespace

Result<std::unique_ptr<StageRunner>> make_ggml_stage_runner(const ModelFile& model, const StageOptions& options) {
  return GgmlStageRunner::create(model, options);
}

}  // namespace sluice
