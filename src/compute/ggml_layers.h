// Layers [a, b) of a model on a device of ggml's, with the cells of their keys and values and the output head: weights
// are the file's own bytes, copied there once.
//
// Exactness: a kernel's sums depend on how many rows and cells it is given. So every pass has kGgmlPassRows rows,
// filled up with rows of nothing, and goes over a number of cells that depends on a row's position alone; a row's keys
// and values come in the order of its path. Then a row's bits depend on its path alone, as far as the device's kernels
// let other rows be, which holds_still() tries.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/cpu_block.h"
#include "compute/ggml_block.h"
#include "compute/ggml_device.h"
#include "compute/ggml_graph.h"
#include "model/model_file.h"
#include "wire/recipe.h"

namespace sluice {

// Rows of every pass. Trees send about as many, and ggml's CUDA kernels take 9 to 16 in the time of 16.
inline constexpr int32_t kGgmlPassRows = 16;

// Cells that attention goes over for a row that sees n.
int32_t ggml_attended_cells(int64_t n);

// Thread safety: none.
class GgmlLayers {
 public:
  // `parts`: options.range cut into one or more, none of them empty; what comes between two is the caller's. Errors
  // name the device: weights or cells that it has no room for, and operations that it lacks.
  static Result<std::unique_ptr<GgmlLayers>> create(const ModelFile& model, const StageOptions& options,
                                                    std::vector<LayerRange> parts);

  // One pass through a part. hidden: [rows, d_model], read and overwritten. REQUIRES: rows.size() <= kGgmlPassRows; of
  // all rows ggml_attended_cells() is the same; a row's parent is among them or has passed before. Throws
  // std::runtime_error, which names the device, if that fails.
  void run(size_t part, std::span<const BlockRow> rows, std::span<float> hidden);
  // hidden: [rows, d_model]; logits: [rows, n_logits]. REQUIRES: with_head, and rows as in run().
  void logits(std::span<const float> hidden, std::span<float> logits);

  // Whether rows came out to the last bit as they had alone, when they passed together, among others, at other places
  // and in other cells. REQUIRES: before any row has passed.
  bool holds_still();

  int32_t n_logits() const { return n_logits_; }

 private:
  class Probe;
  struct Pass {
    explicit Pass(size_t capacity) : graph(capacity) {}
    GgmlGraph graph;
    GgmlInputs inputs;
  };

  GgmlLayers(GgmlDevice device, const ModelFile& model, const StageOptions& options, std::vector<LayerRange> parts);
  Status load(const StageWeights& weights);
  GgmlLayer declare(const LayerWeights& weights);
  GgmlLinear declare(const Tensor& weight, const Tensor& bias);
  ggml_tensor* declare_matrix(const Tensor& matrix);
  ggml_tensor* declare_vector(const Tensor& vector);
  Status make_room();
  std::unique_ptr<Pass> build(LayerRange part, int32_t n_attended);
  void build_head();
  void fill_in(std::span<const BlockRow> rows, int32_t n_attended);
  std::string what() const;  // it holds, in words

  GgmlDevice device_;
  HyperParameters h_;
  StageOptions options_;
  std::vector<LayerRange> parts_;
  int32_t n_logits_;

  GgmlContextPtr tensors_;
  std::vector<std::pair<ggml_tensor*, const Tensor*>> matrices_, vectors_;  // to be filled, while loading
  GgmlBufferPtr buffer_;
  std::vector<GgmlLayer> layers_;
  ggml_tensor *rope_factors_ = nullptr, *output_norm_ = nullptr;
  GgmlLinear output_;

  GgmlAllocatorPtr allocator_;
  std::vector<std::map<int32_t, std::unique_ptr<Pass>>> passes_;  // [part], by cells
  std::unique_ptr<Pass> head_;

  // What is sent with a pass.
  std::vector<float> hidden_;       // [kGgmlPassRows, d_model]
  std::vector<int32_t> positions_;  // as in GgmlInputs
  std::vector<int64_t> written_;
  std::vector<int32_t> paths_;
  std::vector<ggml_fp16_t> mask_;
};

}  // namespace sluice
