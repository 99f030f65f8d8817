#include "compute/cpu_stage_runner.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compute/attention.h"
#include "compute/fetch_distance.h"
#include "compute/kernels/kernels.h"
#include "compute/layer.h"
#include "compute/linear.h"
#include "compute/paths.h"
#include "compute/rope.h"
#include "compute/thread_team.h"

namespace sluice {
namespace {

// How far the regions of a layer have got that threads take piece by piece.
struct LayerPieces {
  Pieces qkv, attention, attention_out, feed_forward, down;

  void restart() {
    for (Pieces* pieces : {&qkv, &attention, &attention_out, &feed_forward, &down}) pieces->restart();
  }
};

class CpuStageRunner final : public StageRunner {
 public:
  static Result<std::unique_ptr<StageRunner>> create(const ModelFile& model, const StageOptions& options);

  const StageOptions& options() const override { return options_; }
  Exactness exactness() const override { return kCpuExactness; }
  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows) override;
  void run(std::span<const Row> rows, std::span<float> hidden) override;
  std::span<const float> tap(size_t i) const override {
    return {taps_[i].as<float>(), rows_in_taps_ * static_cast<size_t>(h_.d_model)};
  }
  void logits(std::span<const float> hidden, std::span<float> logits) override;
  Spread spread() override;

 private:
  CpuStageRunner(const ModelFile& model, const StageOptions& options, StageWeights weights);
  Status prepare_layers();
  Status prepare_head();
  void reserve_inputs();
  void measure_fetching();

  static constexpr int64_t kOwnInputRows = 2;

  // Parts of run(), each on every thread of the team; between them a barrier.
  void begin_rows(std::span<const Row> rows, float* hidden, int thread);
  void embed(Token token, std::span<float> out) const;
  void keep_tap(int32_t layer, const float* hidden, int thread);
  void compute_layer(Layer& layer, LayerPieces& pieces, std::span<const Row> rows, float* hidden, int thread);
  void normalise(const std::vector<float>& weight, FormatSet formats, const float* hidden, int thread);
  void project_qkv(const Layer& layer, Pieces& pieces, int thread);
  void turn_and_store(Layer& layer, std::span<const Row> rows, int thread);
  void attend(const Layer& layer, Pieces& pieces, int thread);
  void feed_forward(const Layer& layer, Pieces& pieces, int thread);
  void store_rows(FormatSet formats, const float* from, int64_t width, int thread);
  void add_product(const Linear& linear, Pieces& pieces, float* hidden, int thread);

  void find_tiles();
  void forget_embedding(size_t n_read);

  Packer packer() { return {weights_, packed_, team_}; }
  Part rows_of(int thread) const { return part_of(n_rows_, 1, thread, team_.size()); }

  // The input of the next products. Of few rows each thread makes one of its own: that takes less time than to wait for
  // the others.
  bool inputs_are_own() const { return n_rows_ <= kOwnInputRows; }
  LinearInput& input(int thread) { return inputs_[inputs_are_own() ? static_cast<size_t>(thread) : 0]; }
  Part input_rows_of(int thread) const { return inputs_are_own() ? Part{0, n_rows_} : rows_of(thread); }
  void input_ready() {
    if (!inputs_are_own()) team_.barrier();
  }

  // Many pieces leave little to wait for, but a thread that begins one waits for memory; more rows hide that.
  int64_t n_pieces() const {
    constexpr int64_t kMostEach = 8;
    return team_.size() == 1 ? 1 : std::clamp<int64_t>(n_rows_ / 4, 1, kMostEach) * team_.size();
  }
  // Calls work(part) for pieces of [0, n) until the team has done them all.
  template <class Work>
  void divide(Pieces& pieces, int64_t n, int64_t grain, Work&& work) {
    const auto next = [&] { return pieces.take(n, grain, n_pieces()); };
    for (Part part = next(); !part.empty(); part = next()) work(part);
  }
  // The same for the outputs of a product.
  template <class Work>
  void divide_outputs(Pieces& pieces, int64_t n, Work&& work) {
    const int64_t groups = n_rows_ < kernels::kRowsForTwoGroups ? 1 : 2;
    divide(pieces, n, groups * Linear::kGrain, work);
  }
  int64_t q_width() const { return int64_t{shape_.n_heads} * shape_.head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * shape_.kv_width(); }

  const kernels::Kernels& kernels_ = kernels::kernels();
  StageOptions options_;
  HyperParameters h_;
  int32_t n_logits_;
  StageWeights weights_;
  Arena packed_;
  AttentionShape shape_;
  Rope rope_;
  TreeAttention attention_;
  std::vector<Layer> layers_;
  std::optional<Head> head_;
  Paths paths_;
  ThreadTeam team_;

  // For the batch at hand, max_rows each.
  int64_t n_rows_ = 0;
  std::vector<Path> row_paths_;
  std::vector<Part> tiles_;                 // rows that go through attention together
  std::vector<LinearInput> inputs_;         // [thread], the first with room for max_rows, the others for few
  Memory qkv_;                              // [rows, q_width + 2 kv_width]: queries, keys, values
  Memory attended_;                         // [rows, q_width]
  Memory gate_, up_;                        // [rows, d_ff]
  Memory angles_;                           // [rows, rope size]
  std::vector<std::vector<float>> normed_;  // [thread][d_model]
  std::vector<AttentionScratch> scratch_;   // [thread]
  std::vector<Memory> taps_;                // [tap][rows, d_model]
  size_t rows_in_taps_ = 0;
  size_t rows_embedded_ = 0;  // since the embedding's pages were given back

  LayerPieces pieces_[2];  // of even and odd layers
  Pieces head_pieces_;
};

CpuStageRunner::CpuStageRunner(const ModelFile& model, const StageOptions& options, StageWeights weights)
    : options_(options),
      h_(model.hparams()),
      n_logits_(options.n_logits > 0 ? std::min(options.n_logits, model.n_logits()) : model.n_logits()),
      weights_(std::move(weights)),
      shape_{h_.n_heads, h_.n_kv_heads, h_.head_dim},
      rope_(h_.rope, vector_or_empty(weights_.rope_factors)),
      attention_(shape_),
      paths_(options.n_cells),
      team_(options.threads),
      row_paths_(static_cast<size_t>(options.max_rows)),
      normed_(static_cast<size_t>(options.threads), std::vector<float>(static_cast<size_t>(h_.d_model))) {
  const auto floats = [&](int64_t width) {
    return Memory(static_cast<size_t>(options.max_rows * width) * sizeof(float));
  };
  qkv_ = floats(qkv_width());
  attended_ = floats(q_width());
  gate_ = floats(h_.d_ff);
  up_ = floats(h_.d_ff);
  angles_ = floats(rope_.size());
  for (int thread = 0; thread < options.threads; ++thread) scratch_.emplace_back(shape_, options.n_cells);
  for (int thread = 0; thread < options.threads; ++thread) {
    inputs_.emplace_back(thread == 0 ? std::max<int64_t>(options.max_rows, kOwnInputRows) : kOwnInputRows);
  }
  for (size_t i = 0; i < options.taps.size(); ++i) taps_.push_back(floats(h_.d_model));
}

Result<std::unique_ptr<StageRunner>> CpuStageRunner::create(const ModelFile& model, const StageOptions& options) {
  SLUICE_TRY(StageWeights weights, model.map(options.range, options.with_embedding, options.with_head));
  std::unique_ptr<CpuStageRunner> runner(new CpuStageRunner(model, options, std::move(weights)));
  // The largest matrix first: while it is packed, it is in memory twice.
  if (options.with_head) SLUICE_TRY_STATUS(runner->prepare_head());
  SLUICE_TRY_STATUS(runner->prepare_layers());
  runner->measure_fetching();
  runner->reserve_inputs();
  return runner;
}

Status CpuStageRunner::prepare_layers() {
  layers_.reserve(weights_.layers.size());
  for (const LayerWeights& w : weights_.layers) {
    SLUICE_TRY(Layer layer, make_layer(packer(), w, KvLayer(shape_, options_.n_cells, options_.kv == KvType::kF16)));
    layers_.push_back(std::move(layer));
  }
  return {};
}

Status CpuStageRunner::prepare_head() {
  weights_.output.ne[1] = n_logits_;
  SLUICE_TRY(head_, make_head(packer()));
  return {};
}

void CpuStageRunner::reserve_inputs() {
  for (LinearInput& input : inputs_) {
    for (const Layer& layer : layers_) {
      input.reserve(layer.qkv_formats, h_.d_model);
      input.reserve(layer.attention_out_formats, q_width());
      input.reserve(layer.ffn_formats, h_.d_model);
      input.reserve(layer.down_formats, h_.d_ff);
    }
    if (head_) input.reserve(head_->formats, h_.d_model);
  }
}

void CpuStageRunner::measure_fetching() {
  std::vector<const Linear*> matrices;
  for (const Layer& layer : layers_) matrices.insert(matrices.end(), {&layer.gate, &layer.up, &layer.down});
  measure_fetch_distance(matrices, team_);
}

void CpuStageRunner::enter(std::span<const PathUpdate> updates, std::span<const Row> rows) {
  for (const PathUpdate& update : updates) paths_.apply(update);
  for (const Row& row : rows) paths_.enter(row);
}

void CpuStageRunner::run(std::span<const Row> rows, std::span<float> states) {
  SLUICE_CHECK(static_cast<int64_t>(rows.size()) <= options_.max_rows, "a batch is wider than max_rows");
  SLUICE_CHECK(states.size() == rows.size() * static_cast<size_t>(h_.d_model), "hidden states of another size");
  if (rows.empty()) return;
  float* const hidden = states.data();
  n_rows_ = static_cast<int64_t>(rows.size());
  rows_in_taps_ = rows.size();
  for (size_t i = 0; i < rows.size(); ++i) paths_.find(rows[i], row_paths_[i]);
  find_tiles();
  for (LayerPieces& pieces : pieces_) pieces.restart();
  team_.run([&](int thread) {
    begin_rows(rows, hidden, thread);
    if (inputs_are_own()) team_.barrier();  // else each thread goes on with the rows that it began
    for (int32_t i = 0; i < options_.range.count(); ++i) {
      keep_tap(options_.range.first + i, hidden, thread);
      compute_layer(layers_[static_cast<size_t>(i)], pieces_[i % 2], rows, hidden, thread);
    }
    keep_tap(options_.range.last, hidden, thread);
  });
  forget_embedding(rows.size());
}

// Neighbours that have the same committed cells.
void CpuStageRunner::find_tiles() {
  tiles_.clear();
  const auto committed = [&](int64_t row) { return row_paths_[static_cast<size_t>(row)].committed.data(); };
  for (int64_t row = 0; row < n_rows_; ++row) {
    const bool fits = !tiles_.empty() && row - tiles_.back().begin < TreeAttention::kRows;
    if (fits && committed(row) == committed(tiles_.back().begin)) {
      tiles_.back().end = row + 1;
    } else {
      tiles_.push_back({row, row + 1});
    }
  }
}

// Each row that is read of the embedding brings its neighbours into memory, and a long prompt all of it.
void CpuStageRunner::forget_embedding(size_t n_read) {
  constexpr size_t kMostRows = 64;
  rows_embedded_ += n_read;
  const bool is_head_too = head_ && !head_->output.is_packed();  // then its pages are read all the time
  if (!options_.with_embedding || is_head_too || rows_embedded_ < kMostRows) return;
  weights_.release(weights_.token_embedding);
  rows_embedded_ = 0;
}

void CpuStageRunner::begin_rows(std::span<const Row> rows, float* hidden, int thread) {
  const auto d = static_cast<size_t>(h_.d_model), angles = static_cast<size_t>(rope_.size());
  const Part mine = rows_of(thread);
  for (auto i = static_cast<size_t>(mine.begin); i < static_cast<size_t>(mine.end); ++i) {
    if (options_.with_embedding) embed(rows[i].token, {hidden + i * d, d});
    rope_.angles(rows[i].position, {angles_.as<float>() + i * angles, angles});
  }
}

void CpuStageRunner::embed(Token token, std::span<float> out) const {
  if (options_.foreign_tokens && token >= weights_.token_embedding.ne[1])
    std::fill(out.begin(), out.end(), 0.0f);
  else
    copy_row_f32(weights_.token_embedding, token, out);
}

// Every thread keeps the rows that it finished itself or that a barrier has made visible.
void CpuStageRunner::keep_tap(int32_t layer, const float* hidden, int thread) {
  for (size_t i = 0; i < taps_.size(); ++i) {
    if (options_.taps[i] != layer) continue;
    const Part mine = rows_of(thread);
    std::copy(hidden + mine.begin * h_.d_model, hidden + mine.end * h_.d_model,
              taps_[i].as<float>() + mine.begin * h_.d_model);
  }
}

void CpuStageRunner::compute_layer(Layer& layer, LayerPieces& pieces, std::span<const Row> rows, float* hidden,
                                   int thread) {
  normalise(layer.attention_norm, layer.qkv_formats, hidden, thread);
  input_ready();
  project_qkv(layer, pieces.qkv, thread);
  team_.barrier();
  if (thread == 0) pieces_[&pieces == pieces_ ? 1 : 0].restart();  // of the layer before, which all have left
  turn_and_store(layer, rows, thread);
  team_.barrier();
  attend(layer, pieces.attention, thread);
  team_.barrier();
  store_rows(layer.attention_out_formats, attended_.as<float>(), q_width(), thread);
  input_ready();
  add_product(layer.attention_out, pieces.attention_out, hidden, thread);
  team_.barrier();
  normalise(layer.ffn_norm, layer.ffn_formats, hidden, thread);
  input_ready();
  feed_forward(layer, pieces.feed_forward, thread);
  team_.barrier();
  store_rows(layer.down_formats, gate_.as<float>(), h_.d_ff, thread);
  input_ready();
  add_product(layer.down, pieces.down, hidden, thread);
  team_.barrier();
}

void CpuStageRunner::normalise(const std::vector<float>& weight, FormatSet formats, const float* hidden, int thread) {
  std::vector<float>& normed = normed_[static_cast<size_t>(thread)];
  const Part mine = input_rows_of(thread);
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    kernels_.rms_norm(hidden + i * h_.d_model, weight.data(), h_.d_model, h_.norm_epsilon, normed.data());
    input(thread).store(formats, i, normed);
  }
}

// The outputs of the three lie one after another, each from a multiple of the grain on.
void CpuStageRunner::project_qkv(const Layer& layer, Pieces& pieces, int thread) {
  float* q = qkv_.as<float>();
  float* k = q + q_width();
  float* v = k + shape_.kv_width();
  const std::pair<const Linear*, float*> products[] = {{&layer.q, q}, {&layer.k, k}, {&layer.v, v}};
  const auto room_of = [](const Linear& linear) {
    return (linear.n_out() + Linear::kGrain - 1) / Linear::kGrain * Linear::kGrain;
  };
  divide_outputs(pieces, room_of(layer.q) + room_of(layer.k) + room_of(layer.v), [&](Part outputs) {
    for (const auto& [linear, y] : products) {
      const Part own{std::max<int64_t>(outputs.begin, 0), std::min(outputs.end, linear->n_out())};
      linear->multiply(input(thread), n_rows_, own, {y, qkv_width()});
      outputs = {outputs.begin - room_of(*linear), outputs.end - room_of(*linear)};
    }
  });
}

void CpuStageRunner::turn_and_store(Layer& layer, std::span<const Row> rows, int thread) {
  const auto angles = static_cast<size_t>(rope_.size());
  const Part mine = rows_of(thread);
  for (auto i = static_cast<size_t>(mine.begin); i < static_cast<size_t>(mine.end); ++i) {
    float* q = qkv_.as<float>() + static_cast<int64_t>(i) * qkv_width();
    float* k = q + q_width();
    const std::span<const float> turn{angles_.as<float>() + i * angles, angles};
    const auto finish = [&](float* heads, int32_t n, const std::vector<float>& norm) {
      for (int32_t head = 0; head < n; ++head) {
        float* one = heads + head * shape_.head_dim;
        if (!norm.empty()) kernels_.rms_norm(one, norm.data(), shape_.head_dim, h_.norm_epsilon, one);
        rope_.turn(turn, one);
      }
    };
    finish(q, shape_.n_heads, layer.q_norm);
    finish(k, shape_.n_kv_heads, layer.k_norm);
    layer.kv.write(rows[i].cell, k, k + shape_.kv_width());
  }
}

// Several rows: tiles of neighbours, which share most of their paths, by kv head. One row: its heads are divided.
void CpuStageRunner::attend(const Layer& layer, Pieces& pieces, int thread) {
  const int64_t group = shape_.n_heads / shape_.n_kv_heads;
  AttentionRow tile[TreeAttention::kRows];
  const auto run = [&](int64_t first, int64_t n, Part heads) {
    for (int64_t i = 0; i < n; ++i) {
      tile[i] = {&row_paths_[static_cast<size_t>(first + i)], qkv_.as<float>() + (first + i) * qkv_width(),
                 attended_.as<float>() + (first + i) * q_width()};
    }
    attention_.run(layer.kv, {tile, static_cast<size_t>(n)}, heads, scratch_[static_cast<size_t>(thread)]);
  };
  if (n_rows_ == 1) {
    const Part mine = part_of(shape_.n_heads, 1, thread, team_.size());
    for (int64_t head = mine.begin; head < mine.end;) {
      const int64_t end = std::min(mine.end, (head / group + 1) * group);
      run(0, 1, {head, end});
      head = end;
    }
    return;
  }
  divide(pieces, std::ssize(tiles_) * shape_.n_kv_heads, 1, [&](Part units) {
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const Part rows = tiles_[static_cast<size_t>(unit / shape_.n_kv_heads)];
      const int64_t kv_head = unit % shape_.n_kv_heads;
      run(rows.begin, rows.end - rows.begin, {kv_head * group, (kv_head + 1) * group});
    }
  });
}

// gate = silu(gate) * up, each thread on the outputs that it computed itself.
void CpuStageRunner::feed_forward(const Layer& layer, Pieces& pieces, int thread) {
  divide_outputs(pieces, h_.d_ff, [&](Part outputs) {
    layer.gate.multiply(input(thread), n_rows_, outputs, {gate_.as<float>(), h_.d_ff});
    layer.up.multiply(input(thread), n_rows_, outputs, {up_.as<float>(), h_.d_ff});
    for (int64_t i = 0; i < n_rows_; ++i) {
      const int64_t at = i * h_.d_ff + outputs.begin;
      kernels_.silu_times(gate_.as<float>() + at, up_.as<float>() + at, outputs.end - outputs.begin);
    }
  });
}

void CpuStageRunner::store_rows(FormatSet formats, const float* from, int64_t width, int thread) {
  const Part mine = input_rows_of(thread);
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    input(thread).store(formats, i, {from + i * width, static_cast<size_t>(width)});
  }
}

void CpuStageRunner::add_product(const Linear& linear, Pieces& pieces, float* hidden, int thread) {
  divide_outputs(pieces, linear.n_out(), [&](Part outputs) {
    linear.multiply(input(thread), n_rows_, outputs, {hidden, h_.d_model, /*add=*/true});
  });
}

void CpuStageRunner::logits(std::span<const float> hidden, std::span<float> logits) {
  SLUICE_CHECK(head_.has_value(), "logits of a stage without a head");
  const auto n = std::ssize(hidden) / h_.d_model;
  SLUICE_CHECK(std::ssize(hidden) == n * h_.d_model && std::ssize(logits) == n * n_logits_,
               "hidden states or logits of another size");
  for (int64_t first = 0; first < n; first += options_.max_rows) {
    n_rows_ = std::min<int64_t>(n - first, options_.max_rows);
    head_pieces_.restart();
    team_.run([&](int thread) {
      normalise(head_->norm, head_->formats, hidden.data() + first * h_.d_model, thread);
      input_ready();
      divide_outputs(head_pieces_, head_->output.n_out(), [&](Part outputs) {
        head_->output.multiply(input(thread), n_rows_, outputs, {logits.data() + first * n_logits_, n_logits_});
      });
    });
  }
}

Spread CpuStageRunner::spread() {
  return {static_cast<size_t>(team_.size()), [this](size_t n, const Spread::Part& part) {
            Pieces pieces;
            team_.run([&](int thread) {
              const auto next = [&] { return pieces.take(static_cast<int64_t>(n), 1, static_cast<int64_t>(n)); };
              for (Part piece = next(); !piece.empty(); piece = next())
                part(static_cast<size_t>(piece.begin), static_cast<size_t>(thread));
            });
          }};
}

}  // namespace

Result<std::unique_ptr<StageRunner>> make_cpu_stage_runner(const ModelFile& model, const StageOptions& options) {
  return CpuStageRunner::create(model, options);
}

}  // namespace sluice
