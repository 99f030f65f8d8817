// A graph of operations over tensors that are on a device: built once, computed often.
#pragma once

#include <cstdint>

#include "compute/ggml_device.h"

namespace sluice {

class GgmlGraph {
 public:
  // Of so many operations and inputs at most.
  explicit GgmlGraph(size_t capacity);

  ggml_context* context() { return context_.get(); }
  ggml_tensor* input(ggml_type type, int64_t ne0, int64_t ne1 = 1, int64_t ne2 = 1, int64_t ne3 = 1);
  void end(ggml_tensor* output);
  // What comes next in the order of operations: kernels that do several at once look for them side by side.
  void put_next(ggml_tensor* tensor) { ggml_build_forward_expand(graph_, tensor); }
  // Another output, before the end.
  void keep(ggml_tensor* output);

  // Whether the device has all its operations. The error (kInput) names one that it lacks.
  Status check(const GgmlDevice& device) const;
  // Makes `allocator` large enough for it.
  bool reserve(ggml_gallocr_t allocator) { return ggml_gallocr_reserve(allocator, graph_); }

  // Gives its tensors their places, which graphs of one allocator share, before it is computed the first time: inputs
  // are set after this, and the output is read before another of them is computed. REQUIRES: reserve() of it or a
  // larger one.
  void place(ggml_gallocr_t allocator);
  // Queues it, as GgmlDevice::send(). Throws std::runtime_error if that fails.
  void compute(const GgmlDevice& device);

  ggml_tensor* output() const { return output_; }

 private:
  GgmlContextPtr context_;
  ggml_cgraph* graph_;
  ggml_tensor* output_ = nullptr;
  bool is_placed_ = false;
};

}  // namespace sluice
