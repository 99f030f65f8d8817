// Layers [a, b) of a model on a device of ggml's, with the cells of their keys and values and the output head: weights
// are the file's own bytes, copied there once.
//
// Exactness: a kernel's sums depend on how many rows and cells it is given. So every pass has options.width_lock rows,
// filled up with rows of nothing, and goes over a number of cells that depends on a row's position alone; a row's keys
// and values come in the order of its path. Then a row's bits depend on its path alone, as far as the device's kernels
// let other rows be, which holds_still() tries. It also finds narrower widths at which all but attention comes to the
// same bits, as kernels are chosen by a few classes of widths: passes of few rows take those. Attention, whose kernels
// look at more than widths, keeps to the lock. Without a lock (0) a pass has the rows that come, up to the next of a
// few widths, and goes over all cells up to the last that one of them sees.
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

// Cells that attention goes over for a row that sees n.
int32_t ggml_attended_cells(int64_t n);

// Rows of a pass for n of them, without a lock: not many numbers, as each has a graph of its own.
int32_t ggml_pass_rows(int64_t n);

// Layers that a device goes through at a time. Of one that folds its past it computes products alone, what its rows
// attend to is found elsewhere, and so such a layer is the last one of a part and the first of the next.
struct GgmlPart {
  LayerRange range;
  bool begins_folded = false;   // the first layer goes on from what its rows attend to
  bool ends_projected = false;  // the last one ends with what its products give
};

// What some layers are given with a pass, and give, besides the states.
struct GgmlBesides {
  // Of those that fold their past:
  std::span<const float> attended;  // [rows, value_width], of a part that begins folded
  std::span<float> projected;       // [rows, projected_width], of one that ends projected
  // Of those that tokens have embeddings for (compute/per_layer_embedding.h):
  std::span<const float> begins;  // [rows, d_model]: the states that rows begin with; empty: those that come
  std::span<const float> tables;  // [rows, the stage's layers, d_per_layer]: sqrt(n) t_l; empty: zeros
};

// Thread safety: none.
class GgmlLayers {
 public:
  // `parts`: options.range cut into one or more, none of them empty; what comes between two is the caller's. Errors
  // name the device: weights or cells that it has no room for, and operations that it lacks.
  static Result<std::unique_ptr<GgmlLayers>> create(const ModelFile& model, const StageOptions& options,
                                                    std::vector<GgmlPart> parts);
  ~GgmlLayers();

  bool is_locked() const { return options_.width_lock > 0; }
  // Of one pass, of rows that see so many cells: those of any paths, and those that are a chain, each of which goes on
  // from the one before.
  int32_t most_rows(int32_t cells) const;
  int32_t most_chained() const { return is_locked() ? widths_.back() : ggml_pass_rows(options_.max_rows); }
  // And of the head.
  int32_t most_head_rows() const { return is_locked() ? options_.width_lock : ggml_pass_rows(options_.max_rows); }

  // One pass through a part. hidden: [rows, d_model], read and overwritten. REQUIRES: no more rows than there may be;
  // if locked, of all rows ggml_attended_cells() is the same; a row's parent is among them or has passed before. Throws
  // std::runtime_error, which names the device, if that fails.
  void run(size_t part, std::span<const BlockRow> rows, std::span<float> hidden, const GgmlBesides& besides = {});
  // hidden: [rows, d_model]; logits: [rows, n_logits]. REQUIRES: with_head, no more rows than there may be.
  void logits(std::span<const float> hidden, std::span<float> logits);

  // Whether rows came out to the last bit as they had alone, when they passed together, among others, at other places
  // and in other cells. If so, and they did in narrower or wider passes, too, those are used from now on. REQUIRES:
  // is_locked(), and before any row has passed.
  bool holds_still();

  // Of passes with a lock, which is one of them, ascending.
  const std::vector<int32_t>& widths() const { return widths_; }

  int32_t n_logits() const { return n_logits_; }

 private:
  class Probe;
  class AttentionProbe;
  struct Shape {
    int32_t rows = 0, cells = 0;  // cells that attention goes over
    bool is_chain = false;
    auto operator<=>(const Shape&) const = default;
  };
  struct Pass {
    explicit Pass(size_t capacity) : graph(capacity) {}
    GgmlGraph graph;
    GgmlInputs inputs;
    ggml_tensor* projected = nullptr;  // as in GgmlBesides
  };

  GgmlLayers(GgmlDevice device, const ModelFile& model, const StageOptions& options, std::vector<GgmlPart> parts);
  Status load(const StageWeights& weights);
  GgmlLayer declare(const LayerWeights& weights);
  GgmlNormsBesideDense declare_norms_beside_dense(const LayerWeights& weights);
  GgmlMixture declare_mixture(const LayerWeights& weights);
  GgmlLatentAttention declare_latent_attention(const LayerWeights& weights);
  GgmlDeltaNet declare_delta_net(const LayerWeights& weights);
  GgmlPerLayerInput declare_per_layer_input(const StageWeights& weights, size_t at);
  GgmlLinear declare(const Tensor& weight, const Tensor& bias = {});
  ggml_tensor* declare_matrix(const Tensor& matrix);
  ggml_tensor* declare_vector(const Tensor& vector);
  Status make_room();
  Shape shape_of(std::span<const BlockRow> rows) const;
  int32_t pass_rows(size_t n) const;
  int32_t rows_with_room(int32_t cells) const;
  std::unique_ptr<Pass> build(const GgmlPart& part, Shape shape);
  std::unique_ptr<Pass> build_head(int32_t n_rows);
  void place(Pass& pass);
  template <class T>
  void send(ggml_tensor* to, const std::vector<T>& values) const;
  void send_floats(ggml_tensor* to, std::span<const float> values, int32_t n_rows, std::vector<float>& room) const;
  void send_rows(const Pass& pass, std::span<const BlockRow> rows, Shape shape);
  int32_t queries(Shape shape) const;
  int32_t together(int32_t cells) const;
  int32_t find_together(int32_t cells);
  bool are_chain(std::span<const BlockRow> rows) const;
  bool gathers_pairs();
  std::string what() const;  // it holds, in words

  GgmlDevice device_;
  HyperParameters h_;
  StageOptions options_;
  std::vector<GgmlPart> parts_;
  int32_t n_logits_;

  GgmlContextPtr tensors_;
  std::vector<std::pair<ggml_tensor*, Tensor>> matrices_, vectors_;  // to be filled, while loading
  GgmlBufferPtr buffer_;
  std::vector<GgmlLayer> layers_;
  bool gathers_pairs_ = false;  // as in GgmlInputs
  ggml_tensor *rope_factors_ = nullptr, *output_norm_ = nullptr;
  GgmlLinear output_;

  GgmlAllocatorPtr allocator_;
  Shape largest_;
  std::vector<int32_t> widths_;
  // Queries that go through attention at a time, by the cells that it goes over. Where there is none: the lock.
  std::map<int32_t, int32_t> together_;
  std::vector<std::map<Shape, std::unique_ptr<Pass>>> passes_;  // [part]
  std::map<int32_t, std::unique_ptr<Pass>> heads_;              // by rows

  // What is sent with a pass.
  std::vector<float> hidden_;    // [rows, d_model]
  std::vector<float> attended_;  // as GgmlBesides
  std::vector<float> begins_, tables_;
  std::vector<int32_t> positions_;  // as in GgmlInputs
  std::vector<int64_t> written_;
  std::vector<int32_t> paths_, queries_;
  std::vector<ggml_fp16_t> mask_, window_mask_;
};

}  // namespace sluice
