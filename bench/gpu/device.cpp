#include "device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

namespace gpu {
namespace {

constexpr size_t kPool = 1 << 22;

uint64_t mix(uint64_t& state) {  // SplitMix64
  uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

struct NormalPool {
  std::vector<float> f32 = std::vector<float>(kPool);
  std::vector<ggml_fp16_t> f16 = std::vector<ggml_fp16_t>(kPool);
  NormalPool() {
    uint64_t state = 1;
    for (size_t i = 0; i < kPool; i += 2) {  // Box and Muller
      const double u = static_cast<double>((mix(state) >> 11) + 1) * 0x1p-53;
      const double v = static_cast<double>(mix(state) >> 11) * 0x1p-53;
      const double r = std::sqrt(-2 * std::log(u));
      f32[i] = static_cast<float>(r * std::cos(2 * M_PI * v));
      f32[i + 1] = static_cast<float>(r * std::sin(2 * M_PI * v));
    }
    ggml_fp32_to_fp16_row(f32.data(), f16.data(), kPool);
  }
};

const NormalPool& normal() {
  static const NormalPool pool;
  return pool;
}

// Copies n numbers of the pool in stretches from random places.
template <class T>
void copy_stretches(const std::vector<T>& pool, std::span<T> out, uint64_t& state) {
  constexpr size_t kStretch = 1024;
  for (size_t at = 0; at < out.size(); at += kStretch) {
    const size_t n = std::min(kStretch, out.size() - at);
    std::copy_n(pool.begin() + static_cast<ptrdiff_t>(mix(state) % (kPool - kStretch)), n, out.begin() + at);
  }
}

std::string megabytes(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Noise::Noise(uint64_t seed) : state_(seed * 0x2545f4914f6cdd1dU + 12345) {}

uint64_t Noise::next() { return mix(state_); }

void Noise::fill(std::span<float> out, float scale) {
  copy_stretches(normal().f32, out, state_);
  if (scale != 1.0F) {
    for (float& x : out) x *= scale;
  }
}

void Noise::fill_f16(std::span<ggml_fp16_t> out) { copy_stretches(normal().f16, out, state_); }

std::vector<int32_t> Noise::permutation(int n) {
  std::vector<int32_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  for (int i = n - 1; i > 0; --i) std::swap(out[static_cast<size_t>(i)], out[static_cast<size_t>(below(i + 1))]);
  return out;
}

std::vector<int32_t> Noise::rising(int n, int below) {
  std::vector<int32_t> out = permutation(below);
  out.resize(static_cast<size_t>(n));
  std::sort(out.begin(), out.end());
  return out;
}

HostMemory::HostMemory(ggml_backend_dev_t device, size_t bytes, bool pinned) {
  ggml_backend_buffer_type_t type = pinned ? ggml_backend_dev_host_buffer_type(device) : nullptr;
  if (type != nullptr) buffer_.reset(ggml_backend_buft_alloc_buffer(type, bytes));
  if (!buffer_) plain_.resize(bytes);
}

Device::Device(const std::string& name, int threads) : device_(ggml_backend_dev_by_name(name.c_str())) {
  if (device_ == nullptr) throw Refusal("no device " + name + "; ggml has: " + list());
  backend_.reset(ggml_backend_dev_init(device_, nullptr));
  if (!backend_) throw Refusal("device " + name + " does not start; another program may hold it");
  if (ggml_backend_dev_type(device_) != GGML_BACKEND_DEVICE_TYPE_CPU) {
    cpu_.reset(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
  }
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu()));
  auto set_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads"));
  if (set_threads != nullptr) set_threads(cpu(), threads);
}

std::string Device::list() {
  std::string names;
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    names += (i > 0 ? ", " : "") + std::string(ggml_backend_dev_name(device)) + " (" +
             ggml_backend_dev_description(device) + ", " + megabytes(total) + ")";
  }
  return names;
}

size_t Device::free_memory() const {
  size_t free = 0, total = 0;
  ggml_backend_dev_memory(device_, &free, &total);
  return free;
}

Tensors::Tensors(const Device& device, int capacity)
    : device_(device), context_(ggml_init({ggml_tensor_overhead() * static_cast<size_t>(capacity), nullptr, true})) {}

void Tensors::allocate() {
  buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), device_.backend()));
  if (!buffer_) {
    throw Refusal(device_.name() + " has too little memory (" + megabytes(device_.free_memory()) +
                  " free); take fewer --layers or another --shape");
  }
  ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);  // so the scheduler keeps to it
}

Graph::Graph(const Device& device, bool scheduled, int capacity)
    : device_(device),
      context_(ggml_init({ggml_tensor_overhead() * static_cast<size_t>(capacity) +
                              ggml_graph_overhead_custom(static_cast<size_t>(capacity), false),
                          nullptr, true})),
      graph_(ggml_new_graph_custom(context_.get(), static_cast<size_t>(capacity), false)) {
  if (scheduled) {
    ggml_backend_t backends[] = {device.backend(), device.cpu()};
    const int n = device.cpu() == device.backend() ? 1 : 2;
    scheduler_.reset(
        ggml_backend_sched_new(backends, nullptr, n, static_cast<size_t>(capacity), /*parallel=*/false, false));
  } else {
    allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(device.backend())));
  }
}

void Graph::add(ggml_tensor* result) { ggml_build_forward_expand(graph_, result); }

void Graph::allocate() {
  for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph_, i);
    if (!ggml_backend_supports_op(device_.backend(), node)) {
      throw Refusal(device_.name() + " lacks " + ggml_op_desc(node) + " of " + ggml_type_name(node->type) +
                    "; leave that type or kind of attention out");
    }
  }
  const bool done = scheduler_ ? ggml_backend_sched_alloc_graph(scheduler_.get(), graph_)
                               : ggml_gallocr_alloc_graph(allocator_.get(), graph_);
  if (!done) throw Refusal(device_.name() + " has too little memory for a pass; take fewer --rows or --layers");
}

void Graph::start() {
  const ggml_status status = scheduler_ ? ggml_backend_sched_graph_compute_async(scheduler_.get(), graph_)
                                        : ggml_backend_graph_compute_async(device_.backend(), graph_);
  if (status != GGML_STATUS_SUCCESS)
    throw Refusal(device_.name() + " failed in a pass: " + ggml_status_to_string(status));
}

const WeightSource::Pool& WeightSource::pool(ggml_type type) {
  for (const Pool& pool : pools_) {
    if (pool.type == type) return pool;
  }
  constexpr int64_t kRow = 4096, kRows = 512, kRepeats = 6;
  std::vector<float> values(kRow * kRows);
  Noise(7).fill(values, 0.02F);
  const size_t block = ggml_row_size(type, kRow);
  std::vector<char> once(block * kRows), bytes;
  ggml_quantize_chunk(type, values.data(), once.data(), 0, kRows, kRow, nullptr);
  Noise order(8);
  for (int i = 0; i < kRows * kRepeats; ++i) {
    const auto from = once.begin() + static_cast<ptrdiff_t>(block) * order.below(kRows);
    bytes.insert(bytes.end(), from, from + static_cast<ptrdiff_t>(block));
  }
  pools_.push_back({type, std::move(bytes), block});
  return pools_.back();
}

void WeightSource::fill(ggml_tensor* tensor, Noise& noise) {
  const Pool& from = pool(tensor->type);
  const size_t all = ggml_nbytes(tensor), chunk = from.bytes.size() / 2;
  for (size_t at = 0; at < all; at += chunk) {
    const size_t start = from.block * static_cast<size_t>(noise.below(static_cast<int>(chunk / from.block)));
    ggml_backend_tensor_set(tensor, from.bytes.data() + start, at, std::min(chunk, all - at));
  }
}

std::vector<float> read(const ggml_tensor* tensor, size_t offset_elements, size_t n) {
  std::vector<float> out(n);
  ggml_backend_tensor_get(tensor, out.data(), offset_elements * sizeof(float), n * sizeof(float));
  return out;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace gpu
