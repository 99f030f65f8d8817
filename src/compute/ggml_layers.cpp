#include "compute/ggml_layers.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "compute/block.h"
#include "compute/layer.h"

namespace sluice {

namespace {

// Rows of a pass with a lock, if bits hold: many keep a GPU busy, and a processor long, also where a prompt is short.
constexpr int32_t kWidest = 128, kWidestOfProcessor = 32;
constexpr int64_t kGatherRoom = int64_t{1} << 28;  // bytes that keys and values of all paths of a pass may take

constexpr int32_t kLeastCells = 256;  // kernels share out cells in such numbers
constexpr int64_t kDoubledUpTo = 2048;
constexpr size_t kNodesOfGroup = 8;  // of queries
constexpr size_t kNodesOfLayer = 128, kNodesOfExpert = 2, kNodes = 64;

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Whose rows nobody reads: of rows that fill a pass up, and what rows find behind the end of their paths.
int32_t spare_cell(const StageOptions& options) { return options.n_cells; }

// The spare one, too. Without a lock attention goes over all of them, whole tiles.
int32_t all_cells(const StageOptions& options) {
  const int64_t n = int64_t{options.n_cells} + 1;
  return static_cast<int32_t>(options.width_lock > 0 ? n : round_up(n, kLeastCells));
}

size_t numbers(size_t rows, int32_t width) { return rows * static_cast<size_t>(width); }

}  // namespace

int32_t ggml_attended_cells(int64_t n) {
  int64_t cells = kLeastCells;
  while (cells < n && cells < kDoubledUpTo) cells *= 2;
  return static_cast<int32_t>(cells >= n ? cells : round_up(n, kDoubledUpTo));
}

int32_t ggml_pass_rows(int64_t n) {
  return static_cast<int32_t>(n <= 8 ? n : n <= 64 ? round_up(n, 8) : round_up(n, 32));
}

Result<std::unique_ptr<GgmlLayers>> GgmlLayers::create(const ModelFile& model, const StageOptions& options,
                                                       std::vector<GgmlPart> parts) {
  if (options.kv == KvType::kQ8_0)
    return input_error(options.device + ": --kv q8_0 is for processors: f16 or f32 here");
  SLUICE_TRY(GgmlDevice device, GgmlDevice::open(options.device, options.threads));
  SLUICE_TRY(const StageWeights weights, model.map(options.range, /*with_embedding=*/false, options.with_head));
  std::unique_ptr<GgmlLayers> layers(new GgmlLayers(std::move(device), model, options, std::move(parts)));
  Status ready;
  layers->device_.use([&] {
    ready = layers->load(weights);
    if (ready) ready = layers->make_room();
  });
  if (!ready) return tl::unexpected(ready.error());
  return layers;
}

GgmlLayers::GgmlLayers(GgmlDevice device, const ModelFile& model, const StageOptions& options,
                       std::vector<GgmlPart> parts)
    : device_(std::move(device)),
      h_(model.hparams()),
      options_(options),
      parts_(std::move(parts)),
      n_logits_(options.n_logits > 0 ? std::min(options.n_logits, model.n_logits()) : model.n_logits()),
      widths_{options.width_lock},
      passes_(parts_.size()) {}

GgmlLayers::~GgmlLayers() {
  if (!device_.is_lost()) return;
  static_cast<void>(buffer_.release());
  static_cast<void>(allocator_.release());
  device_.let_go();
}

std::string GgmlLayers::what() const {
  return "layers " + std::to_string(options_.range.first) + " to " + std::to_string(options_.range.last) + " with " +
         std::to_string(options_.n_cells) + " cells";
}

// --- weights

ggml_tensor* GgmlLayers::declare_matrix(const Tensor& matrix) {
  if (!matrix) return nullptr;
  ggml_tensor* made = ggml_new_tensor_3d(tensors_.get(), matrix.type, matrix.ne[0], matrix.ne[1], matrix.n_matrices);
  matrices_.emplace_back(made, matrix);
  return made;
}

ggml_tensor* GgmlLayers::declare_vector(const Tensor& vector) {
  if (!vector) return nullptr;
  ggml_tensor* made = ggml_new_tensor_1d(tensors_.get(), GGML_TYPE_F32, vector.ne[0]);
  vectors_.emplace_back(made, vector);
  return made;
}

GgmlLinear GgmlLayers::declare(const Tensor& weight, const Tensor& bias) {
  return {declare_matrix(weight), declare_vector(bias)};
}

GgmlNormsBesideDense GgmlLayers::declare_norms_beside_dense(const LayerWeights& w) {
  return {.router = declare_vector(w.router_norm),
          .experts = declare_vector(w.experts_norm),
          .experts_post = declare_vector(w.experts_post_norm),
          .dense_post = declare_vector(w.dense_post_norm)};
}

GgmlMixture GgmlLayers::declare_mixture(const LayerWeights& w) {
  const auto declare_experts = [this](const Tensor& matrices, const Tensor& biases) {
    return GgmlLinear{declare_matrix(matrices), declare_matrix(biases)};
  };
  return {.router = declare(w.router, w.router_logit_bias),
          .gate = declare_experts(w.gate_experts, w.gate_expert_biases),
          .up = declare_experts(w.up_experts, w.up_expert_biases),
          .down = declare_experts(w.down_experts, w.down_expert_biases),
          .gate_up = declare_experts(w.gate_up_experts, {}),
          .scales = declare_vector(w.expert_scales),
          .biases = declare_vector(w.router_share_bias),
          .shared_router = declare(w.shared_router),
          .gate_shared = declare(w.gate_shared),
          .up_shared = declare(w.up_shared),
          .down_shared = declare(w.down_shared),
          .beside_dense = h_.mixture.beside_dense ? std::optional(declare_norms_beside_dense(w)) : std::nullopt};
}

GgmlLatentAttention GgmlLayers::declare_latent_attention(const LayerWeights& w) {
  return {.q_a = declare(w.q_a),
          .q = declare(w.q_a ? w.q_b : w.q),
          .kv_a = declare(w.kv_a),
          .q_a_norm = declare_vector(w.q_a_norm),
          .kv_a_norm = declare_vector(w.kv_a_norm),
          .k_b = declare_matrix(w.k_b),
          .v_b = declare_matrix(w.v_b)};
}

GgmlDeltaNet GgmlLayers::declare_delta_net(const LayerWeights& w) {
  return {.mixed = declare(w.mixed),
          .output_gate = declare(w.output_gate),
          .intake = declare(w.intake_and_keep ? w.intake_and_keep : w.intake),
          .keep = declare(w.keep)};
}

GgmlPerLayerInput GgmlLayers::declare_per_layer_input(const StageWeights& weights, size_t at) {
  const LayerWeights& w = weights.layers[at];
  const int64_t n = h_.d_per_layer, layer = weights.range.first + static_cast<int64_t>(at);
  return {.at = at,
          .projection = declare(weights.per_layer_projection.rows(layer * n, n)),
          .gate = declare(w.per_layer_gate),
          .out = declare(w.per_layer_out),
          .norm = declare_vector(weights.per_layer_norm),
          .post_norm = declare_vector(w.per_layer_post_norm)};
}

GgmlLayer GgmlLayers::declare(const LayerWeights& w) {
  const int32_t layer = options_.range.first + static_cast<int32_t>(layers_.size()), kv_layer = h_.kv_layer_of(layer);
  const GgmlLayer* const shared =
      kv_layer == layer ? nullptr : &layers_[static_cast<size_t>(kv_layer - options_.range.first)];
  const auto cells = [&] {
    const auto type = options_.kv == KvType::kF16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
    const int64_t width = int64_t{h_.kv_heads_of(layer)} * h_.head_dim_of(layer);
    return ggml_new_tensor_2d(tensors_.get(), type, width, all_cells(options_));
  };
  return {.attention_norm = declare_vector(w.attention_norm),
          .ffn_norm = declare_vector(w.ffn_norm),
          .q_norm = declare_vector(w.q_norm),
          .k_norm = shared != nullptr ? nullptr : declare_vector(w.k_norm),
          .attention_post_norm = declare_vector(w.attention_post_norm),
          .ffn_post_norm = declare_vector(w.ffn_post_norm),
          .sinks = declare_vector(w.sinks),
          .has_window = h_.window_of(layer) > 0,
          .head_dim = h_.head_dim_of(layer),
          .n_kv_heads = h_.kv_heads_of(layer),
          .q = w.kv_a ? GgmlLinear() : declare(w.q, w.q_bias),
          .k = shared != nullptr ? GgmlLinear() : declare(w.k, w.k_bias),
          .v = shared != nullptr ? GgmlLinear() : declare(w.v, w.v_bias),
          .latent = w.kv_a ? std::optional(declare_latent_attention(w)) : std::nullopt,
          .delta = w.mixed ? std::optional(declare_delta_net(w)) : std::nullopt,
          .attention_out = declare(w.attention_out, w.attention_out_bias),
          .gate = declare(w.gate, w.gate_bias),
          .up = declare(w.up, w.up_bias),
          .down = declare(w.down, w.down_bias),
          .mixture = w.router ? std::optional(declare_mixture(w)) : std::nullopt,
          .output_scale = w.output_scale ? to_f32_vector(w.output_scale).front() : 1.0F,
          .keys = shared != nullptr ? shared->keys
                  : w.mixed         ? nullptr
                                    : cells(),
          .values = shared != nullptr      ? shared->values
                    : w.mixed || h_.latent ? nullptr
                                           : cells()};
}

Status GgmlLayers::load(const StageWeights& weights) {
  constexpr size_t kTensorsOfLayer = 48, kOthers = 8;
  tensors_.reset(
      ggml_init({ggml_tensor_overhead() * (kTensorsOfLayer * weights.layers.size() + kOthers), nullptr, true}));
  for (const LayerWeights& layer : weights.layers) layers_.push_back(declare(layer));
  if (h_.d_per_layer > 0)
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i].per_layer = declare_per_layer_input(weights, i);
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
    const size_t row = ggml_row_size(matrix.type, matrix.ne[0]);
    SLUICE_CHECK(matrix.row_bytes == row, "rows of a matrix lie side by side");
    ggml_backend_tensor_set(to, matrix.data, 0, matrix.bytes());
    weights.release(matrix);
  }
  for (const auto& [to, vector] : vectors_) {
    const std::vector<float> values = to_f32_vector(vector);
    ggml_backend_tensor_set(to, values.data(), 0, values.size() * sizeof(float));
  }
  const size_t first = is_locked() ? static_cast<size_t>(spare_cell(options_)) : 0;
  for (const GgmlLayer& layer : layers_)  // a masked number must be a number
    for (ggml_tensor* cells : {layer.keys, layer.values}) {
      if (cells == nullptr) continue;
      const size_t begin = cells->nb[1] * first;
      ggml_backend_tensor_memset(cells, 0, begin, ggml_nbytes(cells) - begin);
    }
  matrices_.clear();
  vectors_.clear();
  return {};
}

// --- passes

std::unique_ptr<GgmlLayers::Pass> GgmlLayers::build(const GgmlPart& part, Shape shape) {
  const size_t groups = is_locked() ? static_cast<size_t>(queries(shape) / together(shape.cells)) : 1;
  const size_t of_layer =
      kNodesOfLayer + kNodesOfExpert * static_cast<size_t>(h_.mixture.n_used) + kNodesOfGroup * groups;
  auto pass = std::make_unique<Pass>(of_layer * static_cast<size_t>(part.range.count()) + kNodes);
  GgmlGraph& graph = pass->graph;
  pass->inputs = {
      .hidden = graph.input(GGML_TYPE_F32, h_.d_model, shape.rows),
      .positions = graph.input(GGML_TYPE_I32, shape.rows),
      .written = graph.input(GGML_TYPE_I64, shape.rows),
      .paths = is_locked() ? graph.input(GGML_TYPE_I32, int64_t{shape.cells} * (shape.is_chain ? 1 : queries(shape)))
                           : nullptr,
      .is_chain = shape.is_chain,
      .together = together(shape.cells),
      .gathers_pairs = gathers_pairs_,
      .mask = is_locked() ? graph.input(GGML_TYPE_F16, shape.cells, 1, 1, queries(shape))
                          : graph.input(GGML_TYPE_F16, shape.cells, shape.rows),
      .window_mask = h_.window == 0 ? nullptr
                     : is_locked()  ? graph.input(GGML_TYPE_F16, shape.cells, 1, 1, queries(shape))
                                    : graph.input(GGML_TYPE_F16, shape.cells, shape.rows),
      .attended = part.begins_folded ? graph.input(GGML_TYPE_F32, h_.delta.value_width(), shape.rows) : nullptr,
      .queries = queries(shape) > shape.rows ? graph.input(GGML_TYPE_I32, queries(shape)) : nullptr};
  if (h_.d_per_layer > 0) {
    pass->inputs.begins = graph.input(GGML_TYPE_F32, h_.d_model, shape.rows);
    pass->inputs.tables = graph.input(GGML_TYPE_F32, h_.d_per_layer, std::ssize(layers_), shape.rows);
  }
  GgmlBlock operations(graph, h_, pass->inputs, rope_factors_);
  ggml_tensor* x = pass->inputs.hidden;
  for (int32_t l = part.range.first; l < part.range.last; ++l) {
    GgmlLayer& layer = layers_[static_cast<size_t>(l - options_.range.first)];
    if (!layer.delta) {
      block(operations, layer, &x);
    } else if (part.begins_folded && l == part.range.first) {
      operations.go_on_after_folding(layer, &x);
    } else {
      pass->projected = operations.projected(layer, &x);
      graph.keep(pass->projected);
    }
  }
  graph.end(x);
  return pass;
}

std::unique_ptr<GgmlLayers::Pass> GgmlLayers::build_head(int32_t n_rows) {
  auto pass = std::make_unique<Pass>(kNodes);
  GgmlGraph& graph = pass->graph;
  pass->inputs.hidden = graph.input(GGML_TYPE_F32, h_.d_model, n_rows);
  GgmlBlock operations(graph, h_, pass->inputs, nullptr);
  ggml_tensor* x = pass->inputs.hidden;
  operations.normalise(&x, output_norm_);
  graph.end(operations.capped(operations.product(output_), h_.logit_cap));
  return pass;
}

bool GgmlLayers::gathers_pairs() {
  if (!is_locked() || options_.kv != KvType::kF16) return false;
  GgmlGraph graph(kNodes);
  ggml_tensor* pairs = graph.input(GGML_TYPE_I32, int64_t{h_.n_kv_heads} * h_.head_dim / 2, all_cells(options_));
  return device_.supports(ggml_get_rows(graph.context(), pairs, graph.input(GGML_TYPE_I32, kLeastCells)));
}

// The largest of each kind, so that no later one fails for want of memory.
Status GgmlLayers::make_room() {
  allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(device_.backend())));
  const bool is_limited = 0 < options_.longest_path && options_.longest_path < options_.n_cells;
  largest_ = {
      is_locked() ? std::max(options_.width_lock, device_.is_processor() ? kWidestOfProcessor : kWidest)
                  : most_head_rows(),
      is_locked() ? ggml_attended_cells(is_limited ? options_.longest_path : options_.n_cells) : all_cells(options_)};
  gathers_pairs_ = gathers_pairs();
  std::vector<Shape> shapes = {{largest_.rows, largest_.cells, is_locked()}};
  if (is_locked()) {
    shapes.push_back({options_.width_lock, largest_.cells});
    for (int32_t cells = kLeastCells; cells < largest_.cells && rows_with_room(cells) > options_.width_lock; cells *= 2)
      shapes.push_back({rows_with_room(cells), cells});
  }
  std::vector<GgmlGraph*> graphs;
  for (size_t i = 0; i < parts_.size(); ++i)
    for (const Shape shape : shapes) graphs.push_back(&(passes_[i][shape] = build(parts_[i], shape))->graph);
  if (options_.with_head) graphs.push_back(&(heads_[most_head_rows()] = build_head(most_head_rows()))->graph);
  for (GgmlGraph* graph : graphs) {
    SLUICE_TRY_STATUS(graph->check(device_));
    if (!graph->reserve(allocator_.get())) return device_.too_little_memory("passes of " + what());
  }
  return {};
}

int32_t GgmlLayers::pass_rows(size_t n) const {
  const auto rows = static_cast<int32_t>(n);
  return is_locked() ? *std::ranges::lower_bound(widths_, rows) : ggml_pass_rows(rows);
}

// Whose paths there is room for, as a power of two times the lock.
int32_t GgmlLayers::rows_with_room(int32_t cells) const {
  int64_t values = 0;  // of a cell in a layer
  for (int32_t l = options_.range.first; l < options_.range.last; ++l) values = std::max(values, h_.values_of_cell(l));
  const int64_t a_row =
      cells * values * static_cast<int64_t>(options_.kv == KvType::kF32 ? sizeof(float) : sizeof(Half));
  int32_t rows = options_.width_lock;
  while (2 * rows <= largest_.rows && 2 * rows * a_row <= kGatherRoom) rows *= 2;
  return rows;
}

int32_t GgmlLayers::most_rows(int32_t cells) const {
  if (!is_locked()) return ggml_pass_rows(options_.max_rows);
  return *std::prev(std::ranges::upper_bound(widths_, rows_with_room(cells)));
}

int32_t GgmlLayers::together(int32_t cells) const {
  const auto found = together_.find(cells);
  return found == together_.end() ? options_.width_lock : found->second;
}

int32_t GgmlLayers::queries(Shape shape) const {
  return is_locked() ? static_cast<int32_t>(round_up(shape.rows, options_.width_lock)) : shape.rows;
}

bool GgmlLayers::are_chain(std::span<const BlockRow> rows) const {
  const BlockRow& end = *std::ranges::max_element(rows, {}, [](const BlockRow& row) { return row.path.size(); });
  return is_locked() && std::ranges::all_of(rows, [&](const BlockRow& row) { return begins_with(end.path, row.path); });
}

GgmlLayers::Shape GgmlLayers::shape_of(std::span<const BlockRow> rows) const {
  int64_t n = rows.front().path.size();
  if (!is_locked())
    for (const BlockRow& row : rows)
      for (int64_t at = 0; at < row.path.size(); ++at) n = std::max(n, int64_t{row.path[at].value} + 1);
  const int32_t cells = ggml_attended_cells(n);
  return {pass_rows(rows.size()), is_locked() ? cells : std::min(cells, largest_.cells), are_chain(rows)};
}

// Before its inputs are sent. All share the allocator's memory: where a pass makes that grow, which it hardly ever
// does, the others have lost their places, and are built anew.
void GgmlLayers::place(Pass& pass) {
  const auto room = [&] { return ggml_gallocr_get_buffer_size(allocator_.get(), 0); };
  const size_t before = room();
  pass.graph.place(allocator_.get());
  if (room() == before) return;
  const auto is_another = [&](const auto& entry) { return entry.second.get() != &pass; };
  for (auto& of_part : passes_) std::erase_if(of_part, is_another);
  std::erase_if(heads_, is_another);
}

// Unless no operation reads it: then it has no place.
template <class T>
void GgmlLayers::send(ggml_tensor* to, const std::vector<T>& values) const {
  if (to == nullptr || to->buffer == nullptr) return;
  device_.send(to, values.data(), values.size() * sizeof(T));
}

// By way of `room`. values: [rows, width]; rows that are missing are as the last one: whoever else it would be, it
// would choose experts of its own. Without values there are zeros.
void GgmlLayers::send_floats(ggml_tensor* to, std::span<const float> values, int32_t n_rows,
                             std::vector<float>& room) const {
  if (to == nullptr) return;
  room.assign(static_cast<size_t>(ggml_nelements(to)), 0.0F);
  auto end = std::ranges::copy(values, room.begin()).out;
  const auto width = static_cast<ptrdiff_t>(room.size() / static_cast<size_t>(n_rows));
  if (!values.empty())
    while (end != room.end()) end = std::copy_n(end - width, width, end);
  send(to, room);
}

void GgmlLayers::send_rows(const Pass& pass, std::span<const BlockRow> rows, Shape shape) {
  const auto n_rows = static_cast<size_t>(shape.rows), n = static_cast<size_t>(shape.cells);
  const auto n_queries = static_cast<size_t>(queries(shape));
  const int32_t spare = spare_cell(options_);
  const ggml_fp16_t seen = ggml_fp32_to_fp16(0.0F);
  positions_.resize(n_rows);
  written_.assign(n_rows, spare);
  mask_.assign(n_queries * n, ggml_fp32_to_fp16(-std::numeric_limits<float>::infinity()));
  window_mask_.assign(h_.window > 0 ? mask_.size() : 0, mask_.front());
  if (is_locked()) paths_.assign(shape.is_chain ? n : n_queries * n, spare);
  for (size_t i = 0; i < n_queries; ++i) {
    const BlockRow& row = rows[std::min(i, rows.size() - 1)];  // whoever fills up is as the last one
    if (i < n_rows) positions_[i] = row.position;
    if (i < rows.size()) written_[i] = row.cell.value;
    const int64_t size = row.path.size();
    for (int64_t at = 0; at < size; ++at) {
      const auto place = i * n + static_cast<size_t>(is_locked() ? at : row.path[at].value);
      mask_[place] = seen;
      if (h_.window > 0 && at >= size - h_.window) window_mask_[place] = seen;
      if (is_locked()) paths_[shape.is_chain ? static_cast<size_t>(at) : place] = row.path[at].value;
    }
  }
  send(pass.inputs.positions, positions_);
  send(pass.inputs.written, written_);
  send(pass.inputs.mask, mask_);
  send(pass.inputs.window_mask, window_mask_);
  if (is_locked()) send(pass.inputs.paths, paths_);
  if (pass.inputs.queries == nullptr) return;
  queries_.assign(n_queries, shape.rows - 1);
  std::iota(queries_.begin(), queries_.begin() + shape.rows, 0);
  send(pass.inputs.queries, queries_);
}

void GgmlLayers::run(size_t part, std::span<const BlockRow> rows, std::span<float> hidden, const GgmlBesides& besides) {
  SLUICE_CHECK(rows.size() <= static_cast<size_t>(largest_.rows) && hidden.size() == numbers(rows.size(), h_.d_model),
               "rows of a pass, and their states");
  const Shape shape = shape_of(rows);
  SLUICE_CHECK(shape.cells <= largest_.cells, "a path is longer than longest_path");
  std::unique_ptr<Pass>& pass = passes_[part][shape];
  if (!pass) pass = build(parts_[part], shape);
  device_.use([&] {
    place(*pass);
    send_floats(pass->inputs.hidden, hidden, shape.rows, hidden_);
    send_floats(pass->inputs.attended, besides.attended, shape.rows, attended_);
    send_floats(pass->inputs.begins, besides.begins.empty() ? hidden : besides.begins, shape.rows, begins_);
    send_floats(pass->inputs.tables, besides.tables, shape.rows, tables_);
    send_rows(*pass, rows, shape);
    pass->graph.compute(device_);
    if (pass->projected != nullptr)
      device_.fetch(pass->projected, besides.projected.data(), besides.projected.size_bytes());
    if (pass->graph.output() != pass->inputs.hidden)
      device_.fetch(pass->graph.output(), hidden.data(), hidden.size_bytes());
    device_.wait();
  });
}

void GgmlLayers::logits(std::span<const float> hidden, std::span<float> logits) {
  const size_t n = hidden.size() / static_cast<size_t>(h_.d_model);
  SLUICE_CHECK(options_.with_head, "logits of a stage without a head");
  SLUICE_CHECK(n <= static_cast<size_t>(most_head_rows()), "rows of a pass");
  const int32_t n_rows = pass_rows(n);
  std::unique_ptr<Pass>& pass = heads_[n_rows];
  if (!pass) pass = build_head(n_rows);
  device_.use([&] {
    place(*pass);
    send_floats(pass->inputs.hidden, hidden, n_rows, hidden_);
    pass->graph.compute(device_);
    device_.fetch(pass->graph.output(), logits.data(), logits.size_bytes());
    device_.wait();
  });
}

}  // namespace sluice
