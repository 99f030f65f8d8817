#include "compute/ggml_graph.h"

#include <stdexcept>
#include <string>

namespace sluice {

GgmlGraph::GgmlGraph(size_t capacity)
    : context_(ggml_init({ggml_tensor_overhead() * capacity + ggml_graph_overhead_custom(capacity, false), nullptr,
                          /*no_alloc=*/true})),
      graph_(ggml_new_graph_custom(context_.get(), capacity, false)) {}

ggml_tensor* GgmlGraph::input(ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
  ggml_tensor* tensor = ggml_new_tensor_4d(context_.get(), type, ne0, ne1, ne2, ne3);
  ggml_set_input(tensor);
  return tensor;
}

void GgmlGraph::keep(ggml_tensor* output) {
  ggml_set_output(output);
  ggml_build_forward_expand(graph_, output);
}

void GgmlGraph::end(ggml_tensor* output) {
  output_ = output;
  keep(output);
}

Status GgmlGraph::check(const GgmlDevice& device) const {
  for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph_, i);
    if (device.supports(node)) continue;
    const ggml_tensor* of = node->src[0] != nullptr ? node->src[0] : node;
    return input_error("device " + device.name() + " does not compute this model: it has no " + ggml_op_desc(node) +
                       " of " + ggml_type_name(of->type) + " with rows of " + std::to_string(of->ne[0]) +
                       "; take another --device or another quantisation");
  }
  return {};
}

void GgmlGraph::place(ggml_gallocr_t allocator) {
  if (is_placed_) return;
  if (!ggml_gallocr_alloc_graph(allocator, graph_))
    throw std::runtime_error("a device has too little memory for a pass");
  is_placed_ = true;
}

void GgmlGraph::compute(const GgmlDevice& device) {
  const ggml_status status = ggml_backend_graph_compute_async(device.backend(), graph_);
  if (status != GGML_STATUS_SUCCESS)
    throw std::runtime_error(std::string("a pass on ") + device.name() + " came to nothing, " +
                             ggml_status_to_string(status));
}

}  // namespace sluice
