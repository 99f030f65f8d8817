#include "stage.h"

#include <cmath>
#include <limits>

namespace gpu {
namespace {

constexpr float kEpsilon = 1e-5F, kRopeBase = 500000.0F;

template <class T>
void upload(ggml_tensor* tensor, const std::vector<T>& data) {
  if (tensor != nullptr) ggml_backend_tensor_set(tensor, data.data(), 0, data.size() * sizeof(T));
}

}  // namespace

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"1b", 2048, 8192, 32, 8, 64, 0, 0, false, 128256},        // Llama-3.2-1B
      {"8b", 4096, 14336, 32, 8, 128, 0, 0, false, 128256},      // Llama-3-8B
      {"70b", 8192, 28672, 64, 8, 128, 0, 0, false, 128256},     // Llama-3-70B
      {"30b-a3b", 2048, 768, 32, 4, 128, 128, 8, true, 151936},  // Qwen3-30B-A3B
      {"tiny", 512, 1024, 8, 2, 64, 0, 0, false, 4096},          // to try the program
      {"tiny-moe", 512, 256, 8, 2, 64, 16, 4, true, 4096},
  };
  return all;
}

const Shape& shape_named(const std::string& name) {
  std::string names;
  for (const Shape& shape : shapes()) {
    if (name == shape.name) return shape;
    names += std::string(names.empty() ? "" : ", ") + shape.name;
  }
  throw Refusal("no shape " + name + "; there are " + names);
}

const char* name_of(Attention attention) {
  return attention == Attention::kFlash ? "flash" : attention == Attention::kPlain ? "plain" : "gathered";
}

Attention attention_named(const std::string& name) {
  for (Attention attention : {Attention::kFlash, Attention::kPlain, Attention::kGathered}) {
    if (name == name_of(attention)) return attention;
  }
  throw Refusal("no attention " + name + "; there are flash, plain, gathered");
}

Stage::Stage(const Device& device, const Shape& shape, ggml_type type, int layers, int cells, uint64_t seed)
    : device_(device), shape_(shape), cells_(cells), tensors_(device, 16 * layers + 16) {
  declare(type, layers);
  tensors_.allocate();
  fill(seed);
}

void Stage::declare(ggml_type type, int layers) {
  ggml_context* c = tensors_.context();
  const int64_t d = shape_.d, ff = shape_.ff, hd = shape_.head_dim, e = shape_.experts;
  const int64_t q = shape_.heads * hd, kv = shape_.kv_heads * hd;
  const auto norm = [&](int64_t n) { return ggml_new_tensor_1d(c, GGML_TYPE_F32, n); };
  const auto weight = [&](int64_t in, int64_t out) {
    ggml_tensor* made = e > 0 && (in == ff || out == ff) ? ggml_new_tensor_3d(c, type, in, out, e)
                                                         : ggml_new_tensor_2d(c, type, in, out);
    weight_bytes_ += ggml_nbytes(made);
    return made;
  };
  for (int i = 0; i < layers; ++i) {
    Layer l{};
    l.attention_norm = norm(d);
    l.ffn_norm = norm(d);
    l.q = weight(d, q), l.k = weight(d, kv), l.v = weight(d, kv), l.o = weight(q, d);
    if (shape_.qwen) l.q_norm = norm(hd), l.k_norm = norm(hd);
    if (e > 0) l.router = ggml_new_tensor_2d(c, GGML_TYPE_F32, d, e);
    l.gate = weight(d, ff), l.up = weight(d, ff), l.down = weight(ff, d);
    l.keys = ggml_new_tensor_2d(c, GGML_TYPE_F16, kv, cells_);
    l.values = ggml_new_tensor_2d(c, GGML_TYPE_F16, kv, cells_);
    layers_.push_back(l);
  }
}

void Stage::fill(uint64_t seed) {
  Noise noise(seed);
  WeightSource weights;
  std::vector<float> values;
  for (const Layer& l : layers_) {
    for (ggml_tensor* t : {l.q, l.k, l.v, l.o, l.gate, l.up, l.down}) weights.fill(t, noise);
    for (ggml_tensor* t : {l.attention_norm, l.ffn_norm, l.q_norm, l.k_norm}) {
      if (t != nullptr) upload(t, std::vector<float>(static_cast<size_t>(t->ne[0]), 1.0F));
    }
    if (l.router != nullptr) {
      values.resize(static_cast<size_t>(ggml_nelements(l.router)));
      noise.fill(values, 0.05F);
      upload(l.router, values);
    }
  }
  fill_cache(seed + 1);
}

void Stage::fill_cache(uint64_t seed) {
  Noise noise(seed);
  std::vector<ggml_fp16_t> values(static_cast<size_t>(ggml_nelements(layers_[0].keys)));
  for (const Layer& l : layers_) {
    for (ggml_tensor* t : {l.keys, l.values}) noise.fill_f16(values), upload(t, values);
  }
}

PassInput::PassInput(int rows, int d, int cells)
    : hidden(static_cast<size_t>(rows) * static_cast<size_t>(d)),
      positions(static_cast<size_t>(rows)),
      written(static_cast<size_t>(rows)),
      mask(static_cast<size_t>(rows) * static_cast<size_t>(cells),
           ggml_fp32_to_fp16(-std::numeric_limits<float>::infinity())),
      path(static_cast<size_t>(cells)) {
  for (int i = 0; i < cells; ++i) path[static_cast<size_t>(i)] = i;
}

Pass::Pass(const Stage& stage, int rows, Attention attention, bool scheduled)
    : stage_(stage), rows_(rows), inputs_(stage.device(), 8), graph_(stage.device(), scheduled) {
  ggml_context* c = inputs_.context();
  ends_.hidden = ggml_new_tensor_2d(c, GGML_TYPE_F32, stage.shape().d, rows);
  ends_.positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, rows);
  ends_.written = ggml_new_tensor_1d(c, GGML_TYPE_I64, rows);
  ends_.mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, stage.cells(), rows);
  if (attention == Attention::kGathered) ends_.path = ggml_new_tensor_1d(c, GGML_TYPE_I32, stage.cells());
  inputs_.allocate();
  build(attention);
  graph_.allocate();
}

void Pass::set(const PassInput& input) {
  upload(ends_.hidden, input.hidden);
  upload(ends_.positions, input.positions);
  upload(ends_.written, input.written);
  upload(ends_.mask, input.mask);
  upload(ends_.path, input.path);
}

void Pass::build(Attention attention) {
  ggml_context* c = graph_.context();
  ggml_tensor* x = ends_.hidden;
  for (const Stage::Layer& l : stage_.layers()) {
    x = ggml_add(c, x, attend(l, ggml_mul(c, ggml_rms_norm(c, x, kEpsilon), l.attention_norm), attention));
    x = ggml_add(c, x, feed_forward(l, ggml_mul(c, ggml_rms_norm(c, x, kEpsilon), l.ffn_norm)));
  }
  output_ = x;
  ggml_set_output(x);
  graph_.add(x);
}

ggml_tensor* Pass::attend(const Stage::Layer& l, ggml_tensor* x, Attention attention) {
  ggml_context* c = graph_.context();
  const Shape& s = stage_.shape();
  const int64_t hd = s.head_dim, n_cells = stage_.cells();
  const auto rotate = [&](ggml_tensor* t, ggml_tensor* norm) {
    if (norm != nullptr) t = ggml_mul(c, ggml_rms_norm(c, t, kEpsilon), norm);
    return ggml_rope_ext(c, t, ends_.positions, nullptr, static_cast<int>(hd),
                         s.qwen ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, 8192, kRopeBase, 1, 0, 1, 32, 1);
  };
  ggml_tensor* q = rotate(ggml_reshape_3d(c, ggml_mul_mat(c, l.q, x), hd, s.heads, rows_), l.q_norm);
  ggml_tensor* k = rotate(ggml_reshape_3d(c, ggml_mul_mat(c, l.k, x), hd, s.kv_heads, rows_), l.k_norm);
  ggml_tensor* v = ggml_mul_mat(c, l.v, x);
  graph_.add(q);  // in this order, as llama.cpp has it, so that kernels are fused as there
  graph_.add(v);
  k = ggml_view_2d(c, k, hd * s.kv_heads, rows_, k->nb[2], 0);
  ggml_tensor* keys = ggml_set_rows(c, l.keys, k, ends_.written);
  ggml_tensor* values = ggml_set_rows(c, l.values, v, ends_.written);
  graph_.add(keys);
  graph_.add(values);
  if (attention == Attention::kGathered) {  // ggml_get_rows gives f32
    keys = ggml_cast(c, ggml_get_rows(c, keys, ends_.path), GGML_TYPE_F16);
    values = ggml_cast(c, ggml_get_rows(c, values, ends_.path), GGML_TYPE_F16);
  }
  const auto by_head = [&](ggml_tensor* t) {  // [hd, cells, kv_heads]
    return ggml_permute(c, ggml_reshape_3d(c, t, hd, s.kv_heads, n_cells), 0, 2, 1, 3);
  };
  const float scale = 1.0F / std::sqrt(static_cast<float>(hd));
  q = ggml_permute(c, q, 0, 2, 1, 3);  // [hd, rows, heads]
  if (attention == Attention::kPlain)
    return ggml_mul_mat(c, l.o, attend_plain(q, by_head(keys), by_head(values), scale));
  ggml_tensor* out = ggml_flash_attn_ext(c, q, by_head(keys), by_head(values), ends_.mask, scale, 0, 0);
  ggml_prec_set_acc(out, GGML_PREC_F32);
  return ggml_mul_mat(c, l.o, ggml_reshape_2d(c, out, hd * s.heads, rows_));
}

ggml_tensor* Pass::attend_plain(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, float scale) {
  ggml_context* c = graph_.context();
  ggml_tensor* kq = ggml_mul_mat(c, k, q);  // [cells, rows, heads]
  ggml_prec_set_acc(kq, GGML_PREC_F32);
  kq = ggml_soft_max_ext(c, kq, ends_.mask, scale, 0);
  ggml_tensor* out = ggml_mul_mat(c, ggml_cont(c, ggml_transpose(c, v)), kq);  // [hd, rows, heads]
  return ggml_cont_2d(c, ggml_permute(c, out, 0, 2, 1, 3), out->ne[0] * out->ne[2], rows_);
}

ggml_tensor* Pass::feed_forward(const Stage::Layer& l, ggml_tensor* x) {
  ggml_context* c = graph_.context();
  if (stage_.shape().experts > 0) return mix_experts(l, x);
  ggml_tensor* up = ggml_mul_mat(c, l.up, x);
  ggml_tensor* gate = ggml_mul_mat(c, l.gate, x);
  return ggml_mul_mat(c, l.down, ggml_swiglu_split(c, gate, up));
}

ggml_tensor* Pass::mix_experts(const Stage::Layer& l, ggml_tensor* x) {
  ggml_context* c = graph_.context();
  const Shape& s = stage_.shape();
  ggml_tensor* odds = ggml_soft_max(c, ggml_mul_mat(c, l.router, x));  // [experts, rows]
  ggml_tensor* chosen = ggml_argsort_top_k(c, odds, s.used);           // [used, rows]
  ggml_tensor* share = ggml_get_rows(c, ggml_reshape_3d(c, odds, 1, s.experts, rows_), chosen);
  share = ggml_reshape_2d(c, share, s.used, rows_);
  share = ggml_div(c, share, ggml_clamp(c, ggml_sum_rows(c, share), 6.1e-5F, INFINITY));
  share = ggml_reshape_3d(c, share, 1, s.used, rows_);
  graph_.add(share);
  x = ggml_reshape_3d(c, x, s.d, 1, rows_);
  ggml_tensor* up = ggml_mul_mat_id(c, l.up, x, chosen);  // [ff, used, rows]
  ggml_tensor* gate = ggml_mul_mat_id(c, l.gate, x, chosen);
  ggml_tensor* down = ggml_mul_mat_id(c, l.down, ggml_swiglu_split(c, gate, up), chosen);
  down = ggml_mul(c, down, share);  // [d, used, rows]
  graph_.add(down);
  ggml_tensor* sum = nullptr;
  for (int i = 0; i < s.used; ++i) {
    ggml_tensor* one = ggml_view_2d(c, down, s.d, rows_, down->nb[2], static_cast<size_t>(i) * down->nb[1]);
    sum = sum == nullptr ? one : ggml_add(c, sum, one);
  }
  return sum;
}

}  // namespace gpu
