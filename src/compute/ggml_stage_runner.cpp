#include "compute/ggml_stage_runner.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "compute/cpu_block.h"
#include "compute/folded_states.h"
#include "compute/ggml_layers.h"
#include "compute/layer.h"
#include "compute/rounding.h"

namespace sluice {

namespace {

bool contains(const std::vector<int32_t>& layers, int32_t layer) {
  return std::ranges::find(layers, layer) != layers.end();
}

// Its layers, cut where states are wanted on the host: to be rounded, or for heads; and within those that fold their
// past.
std::vector<GgmlPart> parts_of(const HyperParameters& h, const StageOptions& options) {
  std::vector<GgmlPart> parts;
  GgmlPart part{.range = {options.range.first, options.range.first}};
  for (int32_t l = options.range.first; l < options.range.last; ++l) {
    part.range.last = l + 1;
    if (h.delta.is_in(l)) {
      part.ends_projected = true;
      parts.push_back(part);
      part = {.range = {l, l + 1}, .begins_folded = true};
    }
    if (l + 1 < options.range.last && !contains(options.taps, l + 1) && !contains(options.rounded, l + 1)) continue;
    parts.push_back(part);
    part = {.range = {l + 1, l + 1}};
  }
  return parts;
}

// What layers that fold their past know of paths, on the host: its kernels give every node of a tree a state.
class Folds {
 public:
  Folds(const HyperParameters& h, const StageOptions& options, const StageWeights& weights)
      : block_(h, {}, options.n_cells, options.max_rows, options.threads), first_(options.range.first) {
    int32_t n = 0;
    for (const LayerWeights& layer : weights.layers) {
      layers_.push_back(layer.mixed ? make_folding(layer) : DeltaNet());
      if (layer.mixed) layers_.back().index = n++;
    }
    states_.emplace(h.delta, n, options.n_cells);
  }

  void apply(const PathUpdate& update) { states_->apply(update); }
  void enter(const Row& row) { states_->enter(row); }

  void begin(std::span<const Row> rows, std::span<const BlockRow> places, const Paths& paths) {
    states_->prepare(rows, places, paths);
    block_.begin(places, &*states_);
  }
  // Of the rows at hand, to be filled; and what comes of them in a layer.
  std::span<float> projected() { return block_.delta_projections(); }
  std::span<const float> fold(int32_t layer) {
    const DeltaNet& delta = layers_[static_cast<size_t>(layer - first_)];
    block_.run([&](CpuBlock::Thread& thread) {
      thread.convolve(delta);
      thread.fold(delta);
    });
    return block_.delta_attended();
  }
  void finish(const Paths& paths) { states_->finish(paths); }

 private:
  CpuBlock block_;
  int32_t first_;
  std::vector<DeltaNet> layers_;  // without products; those that do not fold are empty
  std::optional<FoldedStates> states_;
};

class GgmlStageRunner final : public StageRunner {
 public:
  // Throws std::runtime_error, which names the device, if that fails.
  static Result<std::unique_ptr<StageRunner>> create(const ModelFile& model, const StageOptions& options) {
    SLUICE_TRY(auto layers, GgmlLayers::create(model, options, parts_of(model.hparams(), options)));
    LayerRange with_tables{options.range.first, options.range.first};
    if (model.hparams().d_per_layer > 0) with_tables = options.range;  // whose matrices nobody reads here
    SLUICE_TRY(StageWeights embedding, model.map(with_tables, options.with_embedding, /*with_head=*/false));
    std::unique_ptr<GgmlStageRunner> runner(
        new GgmlStageRunner(model, options, std::move(layers), std::move(embedding)));
    if (std::ranges::any_of(runner->parts_, &GgmlPart::ends_projected)) {
      SLUICE_TRY(const StageWeights weights, model.map(options.range, /*with_embedding=*/false, /*with_head=*/false));
      runner->folds_.emplace(model.hparams(), options, weights);
    }
    return runner;
  }

  const StageOptions& options() const override { return options_; }
  Exactness exactness() const override { return exactness_; }

  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows) override {
    for (const PathUpdate& update : updates) {
      paths_.apply(update);
      if (folds_) folds_->apply(update);
    }
    for (const Row& row : rows) {
      paths_.enter(row);
      if (folds_) folds_->enter(row);
    }
  }

  void run(std::span<const Row> rows, std::span<float> hidden) override {
    SLUICE_CHECK(static_cast<int64_t>(rows.size()) <= options_.max_rows, "a batch is wider than max_rows");
    SLUICE_CHECK(hidden.size() == rows.size() * d_, "hidden states of another size");
    if (options_.with_embedding)
      for (size_t i = 0; i < rows.size(); ++i)
        embed(embedding_, h_, options_, rows[i].token, hidden.subspan(i * d_, d_));
    arrange(rows, hidden);
    for (std::vector<float>& tap : taps_) tap.resize(hidden.size());
    if (rows.empty()) return;
    if (folds_) folds_->begin(rows_, places_, paths_);
    for (size_t part = 0; part < parts_.size(); ++part) {
      const GgmlPart& which = parts_[part];
      if (!which.begins_folded) keep_taps(which.range.first);
      run_part(part, which.begins_folded ? folds_->fold(which.range.first) : std::span<const float>());
      if (!which.ends_projected && contains(options_.rounded, which.range.last))
        n_beyond_ += static_cast<uint64_t>(round_to_half(states_));
    }
    keep_taps(options_.range.last);
    if (folds_) folds_->finish(paths_);
    put_back(states_, hidden);
  }

  std::span<const float> tap(size_t i) const override { return taps_[i]; }
  uint64_t take_out_of_range() override { return std::exchange(n_beyond_, 0); }

  void logits(std::span<const float> hidden, std::span<float> logits) override {
    const auto width = static_cast<size_t>(layers_->n_logits());
    SLUICE_CHECK(hidden.size() % d_ == 0 && logits.size() == hidden.size() / d_ * width,
                 "hidden states or logits of another size");
    while (!hidden.empty()) {
      const size_t n = std::min(hidden.size() / d_, static_cast<size_t>(layers_->most_head_rows()));
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
        parts_(parts_of(h_, options)),
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

  // The rows at hand, those that see few cells first: a parent sees no more than its child.
  void arrange(std::span<const Row> rows, std::span<const float> hidden) {
    order_.resize(rows.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(order_, {}, [&](size_t i) { return attended(rows[i]); });
    rows_.clear();
    places_.resize(rows.size());
    states_.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows_.emplace_back(rows[order_[i]]);
      places_[i].cell = row.cell;
      places_[i].position = row.position;
      paths_.find(row, places_[i].path);
      const auto state = hidden.subspan(order_[i] * d_, d_);
      states_.insert(states_.end(), state.begin(), state.end());
    }
    if (embedding_.per_layer_embedding) read_tokens();
    find_passes();
  }

  // What these rows bring to each layer.
  void read_tokens() {
    const size_t width = static_cast<size_t>(options_.range.count()) * static_cast<size_t>(h_.d_per_layer);
    begins_.resize(rows_.size() * d_);
    tables_.resize(rows_.size() * width);
    for (size_t i = 0; i < rows_.size(); ++i) {
      embed(embedding_, h_, options_, rows_[i].token, std::span(begins_).subspan(i * d_, d_));
      embed_for_layers(embedding_.per_layer_embedding, rows_[i].token, options_.range.first, h_.d_per_layer,
                       std::span(tables_).subspan(i * width, width));
    }
  }

  // Of the rows as they came. states: [rows, d_model], as they are arranged.
  void put_back(std::span<const float> states, std::span<float> to) const {
    for (size_t i = 0; i < order_.size(); ++i)
      std::ranges::copy(states.subspan(i * d_, d_), to.subspan(order_[i] * d_, d_).begin());
  }

  // Passes that rows go in: long chains, as of prompts, which may be wide, else whoever comes next.
  void find_passes() {
    const auto most_chained = static_cast<size_t>(layers_->most_chained());
    passes_.clear();
    for (size_t first = 0; first < rows_.size(); first = passes_.back().second) {
      const int32_t cells = attended(rows_[first]);
      const auto end_of = [&](size_t most, auto&& goes_on) {
        size_t end = first + 1;
        while (end < std::min(rows_.size(), first + most) && attended(rows_[end]) == cells && goes_on(end)) ++end;
        return end;
      };
      const auto most = static_cast<size_t>(layers_->most_rows(cells));
      const size_t chain =
          end_of(most_chained, [&](size_t i) { return begins_with(places_[i].path, places_[i - 1].path); });
      passes_.emplace_back(first, chain - first >= most ? chain : end_of(most, [](size_t) { return true; }));
    }
  }

  // attended_to: as in GgmlBesides, of all rows.
  void run_part(size_t part, std::span<const float> attended_to) {
    const auto rows_of = [&](auto values, size_t first, size_t n) {
      const size_t width = values.size() / rows_.size();
      return values.subspan(first * width, n * width);
    };
    const std::span<float> projected = parts_[part].ends_projected ? folds_->projected() : std::span<float>();
    for (const auto& [first, end] : passes_)
      layers_->run(part, std::span(places_).subspan(first, end - first),
                   rows_of(std::span(states_), first, end - first),
                   {rows_of(attended_to, first, end - first), rows_of(projected, first, end - first),
                    rows_of(std::span<const float>(begins_), first, end - first),
                    rows_of(std::span<const float>(tables_), first, end - first)});
  }

  void keep_taps(int32_t layer) {
    for (size_t t = 0; t < taps_.size(); ++t)
      if (options_.taps[t] == layer) put_back(states_, taps_[t]);
  }

  StageOptions options_;
  HyperParameters h_;
  size_t d_;
  std::vector<GgmlPart> parts_;
  std::unique_ptr<GgmlLayers> layers_;
  std::optional<Folds> folds_;  // if some of its layers have no attention
  StageWeights embedding_;
  Exactness exactness_;
  Paths paths_;
  std::vector<std::vector<float>> taps_;  // [tap][rows, d_model]
  uint64_t n_beyond_ = 0;

  // The rows at hand, as they are arranged.
  std::vector<size_t> order_;  // their numbers as they came
  std::vector<Row> rows_;
  std::vector<BlockRow> places_;
  std::vector<std::pair<size_t, size_t>> passes_;  // the first, and the one behind the last
  std::vector<float> states_;                      // [rows, d_model]
  std::vector<float> begins_, tables_;             // as GgmlBesides, or empty
};

}  // namespace

Result<std::unique_ptr<StageRunner>> make_ggml_stage_runner(const ModelFile& model, const StageOptions& options) {
  try {
    return GgmlStageRunner::create(model, options);
  } catch (const std::runtime_error& failure) {
    return runtime_error(failure.what());
  }
}

}  // namespace sluice
