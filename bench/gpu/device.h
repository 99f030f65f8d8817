// A device of ggml's, what is computed on it, and the random numbers that it is fed with. ggml's public API only.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpu {

// What the user can mend: a line that names the thing and the remedy. Ends the program with status 1.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <auto free_it>
struct Deleter {
  template <class T>
  void operator()(T* what) const {
    free_it(what);
  }
};
using BackendPtr = std::unique_ptr<ggml_backend, Deleter<ggml_backend_free>>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, Deleter<ggml_backend_buffer_free>>;
using ContextPtr = std::unique_ptr<ggml_context, Deleter<ggml_free>>;
using AllocatorPtr = std::unique_ptr<ggml_gallocr, Deleter<ggml_gallocr_free>>;
using SchedulerPtr = std::unique_ptr<ggml_backend_sched, Deleter<ggml_backend_sched_free>>;

// Numbers that are the same in every run: a pool of standard normal ones, handed out from seeded places.
class Noise {
 public:
  explicit Noise(uint64_t seed);
  uint64_t next();  // 64 random bits
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  void fill(std::span<float> out, float scale = 1.0F);
  void fill_f16(std::span<ggml_fp16_t> out);
  std::vector<int32_t> permutation(int n);
  std::vector<int32_t> rising(int n, int below);  // n of [0, below), rising

 private:
  uint64_t state_;
};

// Memory that a device copies from and to at full speed, if it has such, else plain memory.
class HostMemory {
 public:
  HostMemory(ggml_backend_dev_t device, size_t bytes, bool pinned);
  void* data() { return buffer_ ? ggml_backend_buffer_get_base(buffer_.get()) : plain_.data(); }
  bool pinned() const { return buffer_ != nullptr; }

 private:
  BufferPtr buffer_;
  std::vector<char> plain_;
};

class Device {
 public:
  // Throws Refusal if ggml knows no device of that name.
  explicit Device(const std::string& name, int threads);
  static std::string list();

  ggml_backend_t backend() const { return backend_.get(); }
  ggml_backend_t cpu() const { return cpu_ ? cpu_.get() : backend_.get(); }
  ggml_backend_dev_t device() const { return device_; }
  std::string name() const { return ggml_backend_dev_name(device_); }
  std::string description() const { return ggml_backend_dev_description(device_); }
  size_t free_memory() const;
  void wait() const { ggml_backend_synchronize(backend_.get()); }

 private:
  ggml_backend_dev_t device_;
  BackendPtr backend_, cpu_;
};

// Tensors that stay on a device: declared first, then allocated together.
class Tensors {
 public:
  Tensors(const Device& device, int capacity);
  ggml_context* context() { return context_.get(); }
  void allocate();  // throws Refusal if the device has too little memory
  void clear() { ggml_backend_buffer_clear(buffer_.get(), 0); }

 private:
  const Device& device_;
  ContextPtr context_;
  BufferPtr buffer_;
};

// A graph over tensors that are on a device already. `scheduled`: run by ggml's scheduler, which lets a backend know
// that a graph is the same as before without comparing it node by node.
class Graph {
 public:
  Graph(const Device& device, bool scheduled, int capacity = 4096);
  ggml_context* context() { return context_.get(); }
  ggml_cgraph* graph() { return graph_; }
  // Every result must have been added by `add`. Throws Refusal for an operation that the device lacks.
  void add(ggml_tensor* result);
  void allocate();
  void start();  // returns before it is done
  void run() { start(), device_.wait(); }
  int nodes() const { return ggml_graph_n_nodes(graph_); }

 private:
  const Device& device_;
  ContextPtr context_;
  ggml_cgraph* graph_;
  AllocatorPtr allocator_;
  SchedulerPtr scheduler_;
};

// Random weights of a type, quantised once and repeated: what is timed is their size, not their values.
class WeightSource {
 public:
  void fill(ggml_tensor* tensor, Noise& noise);

 private:
  struct Pool {
    ggml_type type;
    std::vector<char> bytes;  // whole blocks of 4096 weights
    size_t block;             // bytes of those
  };
  const Pool& pool(ggml_type type);
  std::vector<Pool> pools_;
};

std::vector<float> read(const ggml_tensor* tensor, size_t offset_elements, size_t n);
inline std::vector<float> read(const ggml_tensor* tensor) { return read(tensor, 0, ggml_nelements(tensor)); }

double now();  // seconds

}  // namespace gpu
