// Devices that ggml computes on, by name: "ggml:cpu", "ggml:cuda0", "ggml:vulkan0" … as ggml lists them, in any case.
//
// "ggml:cpu" is always there. ggml brings others if it was built with them, or as shared libraries (libggml-cuda.so)
// that are loaded while the program runs: from the folder that SLUICE_GGML names, else from the program's own.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

inline constexpr const char* kGgmlPrefix = "ggml:";

// Calls `work`, in which ggml would end the program where a GPU's driver reports an error: instead it throws
// std::runtime_error, with the device's name and what ggml has said. What ggml then holds of the device can't be freed.
void guard_ggml(const std::string& device, const std::function<void()>& work);

template <auto free_it>
struct GgmlDeleter {
  template <class T>
  void operator()(T* what) const {
    free_it(what);
  }
};
using GgmlBackendPtr = std::unique_ptr<ggml_backend, GgmlDeleter<ggml_backend_free>>;
using GgmlBufferPtr = std::unique_ptr<ggml_backend_buffer, GgmlDeleter<ggml_backend_buffer_free>>;
using GgmlContextPtr = std::unique_ptr<ggml_context, GgmlDeleter<ggml_free>>;
using GgmlAllocatorPtr = std::unique_ptr<ggml_gallocr, GgmlDeleter<ggml_gallocr_free>>;

// One that is there, in words.
struct GgmlDeviceText {
  std::string name;                     // with the prefix, in lower case
  std::string description;              // whose it is, as "NVIDIA H100 80GB HBM3"
  int64_t memory = 0, memory_free = 0;  // bytes; 0: it doesn't say
};
std::vector<GgmlDeviceText> ggml_devices();

// One device at work for one stage. Thread safety: none.
class GgmlDevice {
 public:
  // threads: of a processor. Errors: kInput, no such device, and names those that are there; kRuntime, it does not
  // start.
  static Result<GgmlDevice> open(const std::string& name, int32_t threads);

  const std::string& name() const { return name_; }  // with the prefix
  bool is_processor() const;
  ggml_backend_t backend() const { return backend_.get(); }
  // Work on it, and in between. Throws std::runtime_error, which names it, where it fails for good: then it is lost.
  void use(const std::function<void()>& work);
  bool is_lost() const { return is_lost_; }
  // What is lost can't be given back.
  void let_go() { static_cast<void>(backend_.release()); }
  // Queued: what is sent must stay, and what is fetched is not there, until wait() has returned.
  void send(ggml_tensor* to, const void* values, size_t bytes) const {
    ggml_backend_tensor_set_async(backend_.get(), to, values, 0, bytes);
  }
  void fetch(const ggml_tensor* from, void* values, size_t bytes) const {
    ggml_backend_tensor_get_async(backend_.get(), from, values, 0, bytes);
  }
  void wait() const { ggml_backend_synchronize(backend_.get()); }
  bool supports(const ggml_tensor* operation) const { return ggml_backend_supports_op(backend_.get(), operation); }

  // Room for a context's tensors; null if there are none. Errors (kRuntime) name the device, `what` they are, and how
  // much memory is free.
  Result<GgmlBufferPtr> allocate(ggml_context* tensors, const std::string& what) const;
  tl::unexpected<Error> too_little_memory(const std::string& what) const;

 private:
  GgmlDevice(std::string name, GgmlBackendPtr backend) : name_(std::move(name)), backend_(std::move(backend)) {}

  std::string name_;
  GgmlBackendPtr backend_;
  bool is_lost_ = false;
};

}  // namespace sluice
