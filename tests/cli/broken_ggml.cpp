// A ggml whose device is broken, to be loaded before the real one (LD_PRELOAD). How, the environment says:
//   BROKEN_GGML=bits        in every other pass the last bits of what comes out are others
//   BROKEN_GGML=compute N   the N-th pass fails, and all that come after it
//   BROKEN_GGML=memory      nothing finds room
#include <dlfcn.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

const char* how() {
  const char* asked = std::getenv("BROKEN_GGML");
  return asked == nullptr ? "" : asked;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, ggml_cgraph* graph) {
  static int n_passes = 0;
  ++n_passes;
  if (std::strncmp(how(), "compute ", 8) == 0 && n_passes >= std::atoi(how() + 8)) return GGML_STATUS_FAILED;
  const ggml_status status =
      real<decltype(ggml_backend_graph_compute_async)>("ggml_backend_graph_compute_async")(backend, graph);
  if (std::strcmp(how(), "bits") != 0 || n_passes % 2 == 0) return status;
  const ggml_tensor* out = ggml_graph_node(graph, -1);
  for (size_t at = 0; out->type == GGML_TYPE_F32 && at < ggml_nbytes(out); at += sizeof(float))
    static_cast<char*>(out->data)[at] ^= 1;
  return status;
}

ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(ggml_context* context, ggml_backend_t backend) {
  if (std::strcmp(how(), "memory") == 0) return nullptr;
  return real<decltype(ggml_backend_alloc_ctx_tensors)>("ggml_backend_alloc_ctx_tensors")(context, backend);
}

}  // extern "C"
