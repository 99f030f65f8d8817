#include "compute/ggml_layers.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compute/block.h"
#include "compute/layer.h"

namespace sluice {

namespace {

constexpr int32_t kLeastCells = 256;  // kernels share out cells in such numbers
constexpr int64_t kDoubledUpTo = 2048;
constexpr size_t kNodesOfLayer = 64, kNodes = 64;

// Whose rows nobody reads: of rows that fill a pass up, and what rows find behind the end of their paths.
int32_t spare_cell(const StageOptions& options) { return options.n_cells; }

template <class T>
void send(ggml_tensor* to, const std::vector<T>& values) {
  ggml_backend_tensor_set(to, values.data(), 0, values.size() * sizeof(T));
}

size_t numbers(size_t rows, int32_t width) { return rows * static_cast<size_t>(width); }

}  // namespace

int32_t ggml_attended_cells(int64_t n) {
  int64_t cells = kLeastCells;
  while (cells < n && cells < kDoubledUpTo) cells *= 2;
  return static_cast<int32_t>(cells >= n ? cells : (n + kDoubledUpTo - 1) / kDoubledUpTo * kDoubledUpTo);
}

Result<std::unique_ptr<GgmlLayers>> GgmlLayers::create(const ModelFile& model, const StageOptions& options,
                                                       std::vector<LayerRange> parts) {
  SLUICE_TRY(GgmlDevice device, GgmlDevice::open(options.device, options.threads));
  SLUICE_TRY(const StageWeights weights, model.map(options.range, /*with_embedding=*/false, options.with_head));
  std::unique_ptr<GgmlLayers> layers(new GgmlLayers(std::move(device), model, options, std::move(parts)));
  SLUICE_TRY_STATUS(layers->load(weights));
  SLUICE_TRY_STATUS(layers->make_room());
  return layers;
}

GgmlLayers::GgmlLayers(GgmlDevice device, const ModelFile& model, const StageOptions& options,
                       std::vector<LayerRange> parts)
    : device_(std::move(device)),
      h_(model.hparams()),
      options_(options),
      parts_(std::move(parts)),
      n_logits_(options.n_logits > 0 ? std::min(options.n_logits, model.n_logits()) : model.n_logits()),
      passes_(parts_.size()),
      hidden_(numbers(kGgmlPassRows, h_.d_model)),
      positions_(kGgmlPassRows),
      written_(kGgmlPassRows) {}

std::string GgmlLayers::what() const {
  return "layers " + std::to_string(options_.range.first) + " to " + std::to_string(options_.range.last) + " with " +
         std::to_string(options_.n_cells) + " cells";
}

// --- weights

ggml_tensor* GgmlLayers::declare_matrix(const Tensor& matrix) {
  if (!matrix) return nullptr;
  ggml_tensor* made = ggml_new_tensor_2d(tensors_.get(), matrix.type, matrix.ne[0], matrix.ne[1]);
  matrices_.emplace_back(made, &matrix);
  return made;
}

ggml_tensor* GgmlLayers::declare_vector(const Tensor& vector) {
  if (!vector) return nullptr;
  ggml_tensor* made = ggml_new_tensor_1d(tensors_.get(), GGML_TYPE_F32, vector.ne[0]);
  vectors_.emplace_back(made, &vector);
  return made;
}

GgmlLinear GgmlLayers::declare(const Tensor& weight, const Tensor& bias) {
  return {declare_matrix(weight), declare_vector(bias)};
}

GgmlLayer GgmlLayers::declare(const LayerWeights& w) {
  const auto cells = [&] {
    const auto type = options_.kv == KvType::kF16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
    return ggml_new_tensor_2d(tensors_.get(), type, int64_t{h_.n_kv_heads} * h_.head_dim, options_.n_cells + 1);
  };
  return {.attention_norm = declare_vector(w.attention_norm),
          .ffn_norm = declare_vector(w.ffn_norm),
          .q_norm = declare_vector(w.q_norm),
          .k_norm = declare_vector(w.k_norm),
          .q = declare(w.q, w.q_bias),
          .k = declare(w.k, w.k_bias),
          .v = declare(w.v, w.v_bias),
          .attention_out = declare(w.attention_out, w.attention_out_bias),
          .gate = declare(w.gate, w.gate_bias),
          .up = declare(w.up, w.up_bias),
          .down = declare(w.down, w.down_bias),
          .keys = cells(),
          .values = cells()};
}

Status GgmlLayers::load(const StageWeights& weights) {
  constexpr size_t kTensorsOfLayer = 24, kOthers = 8;
  tensors_.reset(
      ggml_init({ggml_tensor_overhead() * (kTensorsOfLayer * weights.layers.size() + kOthers), nullptr, true}));
  for (const LayerWeights& layer : weights.layers) layers_.push_back(declare(layer));
  rope_factors_ = declare_vector(weights.rope_factors);
  Tensor output = weights.output, bias = weights.output_bias;
  if (options_.with_head) {
    output.ne[1] = n_logits_;
    if (bias) bias.ne[0] = n_logits_;
    output_norm_ = declare_vector(weights.output_norm);
    output_ = declare(output, bias);
  }
  SLUICE_TRY(buffer_, device_.allocate(tensors_.get(), what()));
  for (const auto& [to, matrix] : matrices_) {
    const size_t row = ggml_row_size(matrix->type, matrix->ne[0]);
    SLUICE_CHECK(matrix->row_bytes == row, "rows of a matrix lie side by side");
    ggml_backend_tensor_set(to, matrix->data, 0, row * static_cast<size_t>(matrix->ne[1]));
    weights.release(*matrix);
  }
  for (const auto& [to, vector] : vectors_) {
    send(to, to_f32_vector(*vector));
  }
  for (const GgmlLayer& layer : layers_)  // a masked number must be a number
    for (ggml_tensor* cells : {layer.keys, layer.values})
      ggml_backend_tensor_memset(cells, 0, cells->nb[1] * static_cast<size_t>(spare_cell(options_)), cells->nb[1]);
  matrices_.clear();
  vectors_.clear();
  return {};
}

// --- passes

std::unique_ptr<GgmlLayers::Pass> GgmlLayers::build(LayerRange part, int32_t n_attended) {
  auto pass = std::make_unique<Pass>(kNodesOfLayer * static_cast<size_t>(part.count()) + kNodes);
  GgmlGraph& graph = pass->graph;
  pass->inputs = {.hidden = graph.input(GGML_TYPE_F32, h_.d_model, kGgmlPassRows),
                  .positions = graph.input(GGML_TYPE_I32, kGgmlPassRows),
                  .written = graph.input(GGML_TYPE_I64, kGgmlPassRows),
                  .paths = graph.input(GGML_TYPE_I32, int64_t{n_attended} * kGgmlPassRows),
                  .mask = graph.input(GGML_TYPE_F16, n_attended, 1, 1, kGgmlPassRows)};
  GgmlBlock operations(graph.context(), h_, pass->inputs, rope_factors_);
  ggml_tensor* x = pass->inputs.hidden;
  for (int32_t l = part.first; l < part.last; ++l)
    block(operations, layers_[static_cast<size_t>(l - options_.range.first)], &x);
  graph.end(x);
  return pass;
}

void GgmlLayers::build_head() {
  head_ = std::make_unique<Pass>(kNodes);
  GgmlGraph& graph = head_->graph;
  head_->inputs.hidden = graph.input(GGML_TYPE_F32, h_.d_model, kGgmlPassRows);
  GgmlBlock operations(graph.context(), h_, head_->inputs, nullptr);
  ggml_tensor* x = head_->inputs.hidden;
  operations.normalise(&x, output_norm_);
  graph.end(operations.product(output_));
}

// The largest of each kind, so that no later one fails for want of memory.
Status GgmlLayers::make_room() {
  allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(device_.backend())));
  const bool is_limited = 0 < options_.longest_path && options_.longest_path < options_.n_cells;
  const int32_t most = ggml_attended_cells(is_limited ? options_.longest_path : options_.n_cells);
  std::vector<GgmlGraph*> graphs;
  for (size_t i = 0; i < parts_.size(); ++i) graphs.push_back(&(passes_[i][most] = build(parts_[i], most))->graph);
  if (options_.with_head) {
    build_head();
    graphs.push_back(&head_->graph);
  }
  for (GgmlGraph* graph : graphs) {
    SLUICE_TRY_STATUS(graph->check(device_));
    if (!graph->reserve(allocator_.get())) return device_.too_little_memory("passes of " + what());
  }
  return {};
}

void GgmlLayers::fill_in(std::span<const BlockRow> rows, int32_t n_attended) {
  const auto n = static_cast<size_t>(n_attended);
  const int32_t spare = spare_cell(options_);
  const ggml_fp16_t seen = ggml_fp32_to_fp16(0.0F);
  positions_.assign(kGgmlPassRows, 0);
  written_.assign(kGgmlPassRows, spare);
  paths_.assign(n * kGgmlPassRows, spare);
  mask_.assign(n * kGgmlPassRows, ggml_fp32_to_fp16(-std::numeric_limits<float>::infinity()));
  for (size_t i = 0; i < kGgmlPassRows; ++i) mask_[i * n] = seen;
  for (size_t i = 0; i < rows.size(); ++i) {
    const BlockRow& row = rows[i];
    positions_[i] = row.position;
    written_[i] = row.cell.value;
    for (int64_t at = 0; at < row.path.size(); ++at) paths_[i * n + static_cast<size_t>(at)] = row.path[at].value;
    std::fill_n(mask_.begin() + static_cast<ptrdiff_t>(i * n), row.path.size(), seen);
  }
}

void GgmlLayers::run(size_t part, std::span<const BlockRow> rows, std::span<float> hidden) {
  SLUICE_CHECK(!rows.empty() && rows.size() <= kGgmlPassRows && hidden.size() == numbers(rows.size(), h_.d_model),
               "rows of a pass, and their states");
  const int32_t n_attended = ggml_attended_cells(rows.front().path.size());
  SLUICE_CHECK(n_attended <= passes_[part].rbegin()->first, "a path is longer than longest_path");
  std::unique_ptr<Pass>& pass = passes_[part][n_attended];
  if (!pass) pass = build(parts_[part], n_attended);
  pass->graph.place(allocator_.get());
  std::fill(std::ranges::copy(hidden, hidden_.begin()).out, hidden_.end(), 0.0F);
  fill_in(rows, n_attended);
  send(pass->inputs.hidden, hidden_);
  send(pass->inputs.positions, positions_);
  send(pass->inputs.written, written_);
  send(pass->inputs.paths, paths_);
  send(pass->inputs.mask, mask_);
  pass->graph.compute(device_);
  ggml_backend_tensor_get(pass->graph.output(), hidden.data(), 0, hidden.size_bytes());
}

void GgmlLayers::logits(std::span<const float> hidden, std::span<float> logits) {
  SLUICE_CHECK(head_ != nullptr, "logits of a stage without a head");
  SLUICE_CHECK(hidden.size() <= hidden_.size(), "rows of a pass");
  head_->graph.place(allocator_.get());
  std::fill(std::ranges::copy(hidden, hidden_.begin()).out, hidden_.end(), 0.0F);
  send(head_->inputs.hidden, hidden_);
  head_->graph.compute(device_);
  ggml_backend_tensor_get(head_->graph.output(), logits.data(), 0, logits.size_bytes());
}

}  // namespace sluice
