#include "compute/cpu_stage_runner.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "compute/block.h"
#include "compute/cpu_block.h"
#include "compute/expert_pool.h"
#include "compute/fetch_distance.h"
#include "compute/packed_size.h"
#include "compute/rounding.h"
#include "compute/window_cells.h"

namespace sluice {
namespace {

class CpuStageRunner final : public StageRunner {
 public:
  static Result<std::unique_ptr<StageRunner>> create(const ModelFile& model, const StageOptions& options) {
    SLUICE_TRY(StageWeights weights, model.map(options.range, options.with_embedding, options.with_head));
    std::unique_ptr<CpuStageRunner> runner(new CpuStageRunner(model, options, std::move(weights)));
    // The largest matrix first: while it is packed, it is in memory twice.
    if (options.with_head) SLUICE_TRY_STATUS(runner->prepare_head());
    SLUICE_TRY_STATUS(runner->prepare_layers(model));
    runner->measure_fetching();
    return runner;
  }

  const StageOptions& options() const override { return options_; }
  Exactness exactness() const override { return kCpuExactness; }

  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows) override {
    for (const PathUpdate& update : updates) {
      if (window_cells_) window_cells_->before(update, paths_);
      paths_.apply(update);
      if (window_cells_) window_cells_->after(update, paths_);
      if (states_) states_->apply(update);
    }
    for (const Row& row : rows) {
      paths_.enter(row);
      if (window_cells_) window_cells_->entered(row, paths_);
      if (states_) states_->enter(row);
    }
  }

  bool holds(Cell cell) const override { return !window_cells_ || !window_cells_->is_lost(cell); }

  void run(std::span<const Row> rows, std::span<float> hidden) override {
    const auto d = static_cast<size_t>(h_.d_model);
    SLUICE_CHECK(static_cast<int64_t>(rows.size()) <= options_.max_rows, "a batch is wider than max_rows");
    SLUICE_CHECK(hidden.size() == rows.size() * d, "hidden states of another size");
    if (rows.empty()) return;
    rows_in_taps_ = rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      rows_[i].cell = rows[i].cell;
      rows_[i].position = rows[i].position;
      paths_.find(rows[i], rows_[i].path);
      if (window_cells_) window_cells_->written(rows[i].cell);
    }
    const std::span places(rows_.data(), rows.size());
    if (states_) states_->prepare(rows, places, paths_);
    block_.begin(places, states_ ? &*states_ : nullptr);
    block_.run([&](CpuBlock::Thread& thread) {
      const Part mine = thread.rows();
      const std::span<float> begins = options_.with_embedding ? hidden : std::span(begins_);
      if (options_.with_embedding || per_layer_)
        for (auto i = static_cast<size_t>(mine.begin); i < static_cast<size_t>(mine.end); ++i)
          embed(weights_, h_, options_, rows[i].token, begins.subspan(i * d, d));
      thread.find_angles();
      if (per_layer_) thread.find_layer_inputs(*per_layer_, rows, begins.data());
      thread.own_rows_written();
      for (int32_t i = 0; i < options_.range.count(); ++i) {
        keep_tap(options_.range.first + i, hidden.data(), mine);
        block(thread, layers_[static_cast<size_t>(i)], hidden.data());
        if (!is_rounded(options_.range.first + i + 1)) continue;
        round(hidden.data(), mine);
        thread.own_rows_written();
      }
      keep_tap(options_.range.last, hidden.data(), mine);
    });
    if (states_) states_->finish(paths_);
    forget_embedding(rows.size());
  }

  std::span<const float> tap(size_t i) const override {
    return {taps_[i].as<float>(), rows_in_taps_ * static_cast<size_t>(h_.d_model)};
  }
  uint64_t take_out_of_range() override { return n_beyond_.exchange(0); }

  void logits(std::span<const float> hidden, std::span<float> logits) override {
    SLUICE_CHECK(head_.has_value(), "logits of a stage without a head");
    const auto n = std::ssize(hidden) / h_.d_model;
    SLUICE_CHECK(std::ssize(hidden) == n * h_.d_model && std::ssize(logits) == n * n_logits_,
                 "hidden states or logits of another size");
    for (int64_t first = 0; first < n; first += options_.max_rows) {
      block_.begin(std::min<int64_t>(n - first, options_.max_rows));
      block_.run([&](CpuBlock::Thread& thread) {
        thread.normalise(hidden.data() + first * h_.d_model, head_->norm, head_->formats);
        thread.product(head_->output, logits.data() + first * n_logits_, h_.logit_cap);
      });
    }
  }

  Spread spread() override {
    ThreadTeam& team = block_.team();
    return {static_cast<size_t>(team.size()), [&team](size_t n, const Spread::Part& part) {
              Pieces pieces;
              team.run([&](int thread) {
                const auto next = [&] { return pieces.take(static_cast<int64_t>(n), 1, static_cast<int64_t>(n)); };
                for (Part piece = next(); !piece.empty(); piece = next())
                  part(static_cast<size_t>(piece.begin), static_cast<size_t>(thread));
              });
            }};
  }

 private:
  CpuStageRunner(const ModelFile& model, const StageOptions& options, StageWeights weights)
      : options_(options),
        h_(model.hparams()),
        n_logits_(options.n_logits > 0 ? std::min(options.n_logits, model.n_logits()) : model.n_logits()),
        weights_(std::move(weights)),
        paths_(options.n_cells),
        block_(h_, vector_or_empty(weights_.rope_factors), options.n_cells, options.max_rows, options.threads),
        rows_(static_cast<size_t>(options.max_rows)) {
    for (size_t i = 0; i < options.taps.size(); ++i)
      taps_.emplace_back(static_cast<size_t>(options.max_rows) * static_cast<size_t>(h_.d_model) * sizeof(float));
  }

  Status prepare_layers(const ModelFile& model) {
    layers_.reserve(weights_.layers.size());
    if (options_.expert_memory > 0 && options_.expert_memory < expert_bytes(model, options_.range))
      pool_.emplace(options_.expert_memory, weights_);
    int32_t n_folded = 0;
    for (int32_t i = options_.range.first; i < options_.range.last; ++i) {
      LayerWeights w = weights_.layers[layers_.size()];
      const int32_t kv_layer = h_.kv_layer_of(i), window = h_.window_of(i);
      const bool keeps = !w.mixed && kv_layer == i;
      if (kv_layer != i) w.k = w.v = w.k_norm = {};
      KvLayer cells(block_.shape(window > 0), keeps ? options_.n_cells : 0, options_.kv);
      SLUICE_TRY(Layer layer, make_layer(packer(), w, std::move(cells), h_.mixture));
      if (layer.delta) layer.delta->index = n_folded++;
      if (layer.per_layer) layer.per_layer->at = std::ssize(layers_) * h_.d_per_layer;
      if (kv_layer != i) layer.shared_kv = &layers_[static_cast<size_t>(kv_layer - options_.range.first)].kv;
      if (h_.normed_values) layer.v_norm.assign(static_cast<size_t>(h_.head_dim_of(i)), 1.0f);
      layer.window = window;
      block_.reserve(layer);
      layers_.push_back(std::move(layer));
      if (pool_ && layers_.back().mixture) pool_->add(*layers_.back().mixture);
    }
    if (pool_)
      if (const Status begun = pool_->begin(block_.team()); !begun)
        return input_error(model.path() + ": " + begun.error().message);
    if (n_folded > 0) states_.emplace(h_.delta, n_folded, options_.n_cells);
    const bool has_windows = std::ranges::any_of(layers_, [](const Layer& layer) { return layer.window > 0; });
    if (has_windows && options_.kept_behind >= 0)
      window_cells_.emplace(options_.n_cells, h_.window, options_.kept_behind, [this](Cell first, int32_t n) {
        for (Layer& layer : layers_)
          if (layer.window > 0) layer.kv.forget(first, n);
      });
    if (h_.d_per_layer == 0 || layers_.empty()) return {};
    SLUICE_TRY(per_layer_, make_per_layer_embedding(packer(), h_));
    block_.reserve(*per_layer_);
    if (!options_.with_embedding)
      begins_.resize(static_cast<size_t>(options_.max_rows) * static_cast<size_t>(h_.d_model));
    return {};
  }

  Status prepare_head() {
    weights_.output.ne[1] = n_logits_;
    SLUICE_TRY(head_, make_head(packer()));
    block_.reserve(head_->formats, h_.d_model);
    return {};
  }

  void measure_fetching() {
    std::vector<const Linear*> matrices;
    const auto add = [&](const FeedForward& ffn) { matrices.insert(matrices.end(), {&ffn.gate, &ffn.up, &ffn.down}); };
    for (const Layer& layer : layers_) {
      if (!layer.mixture) add(layer.ffn);
      if (layer.mixture) std::ranges::for_each(layer.mixture->networks, add);
    }
    std::erase_if(matrices, [](const Linear* matrix) { return !matrix->is_there(); });
    measure_fetch_distance(matrices, block_.team());
  }

  Packer packer() { return {weights_, packed_, block_.team(), /*experts_wait=*/pool_.has_value()}; }

  // Each row that is read of an embedding brings its neighbours into memory, and a long prompt all of it.
  void forget_embedding(size_t n_read) {
    constexpr size_t kMostRows = 64;
    rows_embedded_ += n_read;
    if (rows_embedded_ < kMostRows || !(options_.with_embedding || per_layer_)) return;
    const bool is_head_too = head_ && !head_->output.is_packed();  // then its pages are read all the time
    if (!is_head_too) weights_.release(weights_.token_embedding);
    weights_.release(weights_.per_layer_embedding);
    rows_embedded_ = 0;
  }

  // Every thread keeps its own rows, which it finished itself or which a barrier has made visible.
  void keep_tap(int32_t layer, const float* hidden, Part rows) {
    for (size_t i = 0; i < taps_.size(); ++i)
      if (options_.taps[i] == layer)
        std::copy(hidden + rows.begin * h_.d_model, hidden + rows.end * h_.d_model,
                  taps_[i].as<float>() + rows.begin * h_.d_model);
  }

  bool is_rounded(int32_t layer) const { return std::ranges::find(options_.rounded, layer) != options_.rounded.end(); }

  // Its own rows, as with taps.
  void round(float* hidden, Part rows) {
    const std::span mine(hidden + rows.begin * h_.d_model, hidden + rows.end * h_.d_model);
    if (const int64_t n = round_to_half(mine); n > 0) n_beyond_ += static_cast<uint64_t>(n);
  }

  StageOptions options_;
  HyperParameters h_;
  int32_t n_logits_;
  StageWeights weights_;
  Arena packed_;
  std::optional<ExpertPool> pool_;  // if not all experts are packed
  std::vector<Layer> layers_;
  std::optional<Head> head_;
  Paths paths_;
  std::optional<WindowCells> window_cells_;  // if some have a window
  std::optional<FoldedStates> states_;       // if some of its layers have no attention
  std::optional<PerLayerEmbedding> per_layer_;
  std::vector<float> begins_;  // [max_rows, d_model]: states that rows begin with, where they don't come in `hidden`
  CpuBlock block_;
  std::vector<BlockRow> rows_;  // [max_rows]
  std::vector<Memory> taps_;    // [tap][rows, d_model]
  size_t rows_in_taps_ = 0;
  size_t rows_embedded_ = 0;  // since the embedding's pages were given back
  std::atomic<uint64_t> n_beyond_ = 0;
};

}  // namespace

Result<std::unique_ptr<StageRunner>> make_cpu_stage_runner(const ModelFile& model, const StageOptions& options) {
  return CpuStageRunner::create(model, options);
}

}  // namespace sluice
