// A pipeline stage of a transformer with random weights, and its pass over a given number of rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device.h"

namespace gpu {

struct Shape {
  const char* name;
  int d, ff, heads, kv_heads, head_dim;
  int experts = 0, used = 0;  // of `ff` each; 0: one dense network
  bool qwen = false;          // norms of q and k, and its way of rotating
  int vocabulary = 0;
};

const std::vector<Shape>& shapes();
const Shape& shape_named(const std::string& name);  // throws Refusal

enum class Attention {
  kFlash,     // ggml_flash_attn_ext over the cache as it lies
  kPlain,     // two products and a softmax over it
  kGathered,  // ggml_flash_attn_ext over cells brought into the order of the path first
};
const char* name_of(Attention attention);
Attention attention_named(const std::string& name);  // throws Refusal

class Stage {
 public:
  Stage(const Device& device, const Shape& shape, ggml_type type, int layers, int cells, uint64_t seed = 1);

  struct Layer {
    ggml_tensor *attention_norm, *q, *k, *v, *q_norm, *k_norm, *o, *ffn_norm, *router, *gate, *up, *down;
    ggml_tensor *keys, *values;  // [kv_heads * head_dim, cells] f16
  };
  const Device& device() const { return device_; }
  const Shape& shape() const { return shape_; }
  const std::vector<Layer>& layers() const { return layers_; }
  int cells() const { return cells_; }
  size_t weight_bytes() const { return weight_bytes_; }
  void fill_cache(uint64_t seed);  // with what some other sequence might have left there

 private:
  void declare(ggml_type type, int layers);
  void fill(uint64_t seed);

  const Device& device_;
  const Shape& shape_;
  int cells_;
  Tensors tensors_;
  std::vector<Layer> layers_;
  size_t weight_bytes_ = 0;
};

// What a pass is given. Cell c is seen by row i if mask[i * cells + c] is 0, not if it is minus infinity.
struct PassInput {
  std::vector<float> hidden;       // [rows, d]
  std::vector<int32_t> positions;  // [rows]
  std::vector<int64_t> written;    // [rows] the cells that the rows' keys and values go to
  std::vector<ggml_fp16_t> mask;   // [rows, cells]
  std::vector<int32_t> path;       // [cells] the order in which kGathered brings cells
  PassInput(int rows, int d, int cells);
  void see(int row, int cell) { mask[static_cast<size_t>(row) * path.size() + static_cast<size_t>(cell)] = 0; }
};

class Pass {
 public:
  Pass(const Stage& stage, int rows, Attention attention, bool scheduled);

  void set(const PassInput& input);  // waits
  std::vector<float> output() const { return read(output_); }
  std::vector<float> output(int row) const {
    return read(output_, static_cast<size_t>(row) * static_cast<size_t>(output_->ne[0]),
                static_cast<size_t>(output_->ne[0]));
  }
  Graph& graph() { return graph_; }
  // The tensors of a pass, for whoever times the ways there and back.
  struct Ends {
    ggml_tensor *hidden, *positions, *written, *mask, *path;
  };
  const Ends& ends() const { return ends_; }
  ggml_tensor* result() const { return output_; }

 private:
  void build(Attention attention);
  ggml_tensor* attend(const Stage::Layer& layer, ggml_tensor* x, Attention attention);
  ggml_tensor* attend_plain(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, float scale);
  ggml_tensor* feed_forward(const Stage::Layer& layer, ggml_tensor* x);
  ggml_tensor* mix_experts(const Stage::Layer& layer, ggml_tensor* x);

  const Stage& stage_;
  int rows_;
  Tensors inputs_;
  Ends ends_{};
  Graph graph_;
  ggml_tensor* output_ = nullptr;
};

}  // namespace gpu
