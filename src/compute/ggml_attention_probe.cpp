// Whether it matters at which place a query goes through a device's attention, as it does where kernels cut the work of
// all queries into equal parts, wherever one ends. Fewer at a time, or few cells, are then cut otherwise.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "base/random.h"
#include "compute/ggml_layers.h"

namespace sluice {

namespace {

constexpr size_t kNodes = 64;

// Some thousand random numbers over and over, from another place for each choice.
std::vector<float> noise(size_t n, uint32_t choice) {
  constexpr size_t kNumbers = 65521;
  static const std::vector<float> numbers = [] {
    std::vector<float> made(kNumbers);
    for (size_t i = 0; i < kNumbers; ++i)
      made[i] = static_cast<float>(gumbel({.choice = 8, .purpose = Purpose::kTest}, static_cast<uint32_t>(i)));
    return made;
  }();
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = numbers[(i + 7919 * size_t{choice}) % kNumbers];
  return out;
}

}  // namespace

// `together` queries over `cells` cells of noise, in a layer of one kind.
class GgmlLayers::AttentionProbe {
 public:
  AttentionProbe(GgmlLayers& layers, const GgmlLayer& layer, int32_t cells, int32_t together)
      : layers_(layers),
        n_(static_cast<size_t>(together)),
        cells_(cells),
        window_(layer.has_window ? layers.h_.window : cells),
        width_(static_cast<size_t>(layer.head_dim) * static_cast<size_t>(layers.h_.n_heads)),
        graph_(kNodes),
        allocator_(ggml_gallocr_new(ggml_backend_get_default_buffer_type(layers.device_.backend()))) {
    const ggml_type type = layer.keys->type;
    inputs_ = {.positions = graph_.input(GGML_TYPE_I32, together),
               .paths = graph_.input(GGML_TYPE_I32, cells),
               .is_chain = true,
               .together = together,
               .gathers_pairs = layers.gathers_pairs_,
               .mask = graph_.input(GGML_TYPE_F16, cells, 1, 1, together)};
    inputs_.window_mask = inputs_.mask;
    queries_ = graph_.input(GGML_TYPE_F32, static_cast<int64_t>(width_), together);
    keys_ = graph_.input(type, layer.keys->ne[0], cells);
    values_ = layer.values == nullptr ? keys_ : graph_.input(type, layer.values->ne[0], cells);
    GgmlBlock operations(graph_, layers.h_, inputs_, nullptr);
    graph_.end(operations.attention(layer, queries_, keys_, values_));
  }

  // Throws std::runtime_error if the device fails.
  bool places_matter() {
    if (!graph_.reserve(allocator_.get())) return true;
    graph_.place(allocator_.get());
    const std::vector<float> asked = noise(width_, 3);
    for (const int32_t seen : {cells_, cells_ * 3 / 4 - 5}) {
      std::vector<float> queries;
      for (size_t i = 0; i < n_; ++i) queries.insert(queries.end(), asked.begin(), asked.end());
      const std::vector<float> alike = run(queries, std::vector<int32_t>(n_, seen));
      for (size_t place = 0; place < n_; ++place)
        if (!same(alike, place, alike, 0)) return true;
      for (const size_t place : {size_t{0}, n_ / 2, n_ - 1}) {
        std::vector<float> others = noise(n_ * width_, 4);
        std::vector<int32_t> lengths(n_);
        for (size_t i = 0; i < n_; ++i) lengths[i] = 1 + static_cast<int32_t>(i * 997) % cells_;
        lengths[place] = seen;
        std::ranges::copy(asked, others.begin() + static_cast<ptrdiff_t>(place * width_));
        if (!same(run(others, lengths), place, alike, 0)) return true;
      }
    }
    return false;
  }

 private:
  // Noise of the cells' type.
  static std::vector<std::byte> contents(const ggml_tensor* cells, uint32_t choice) {
    const std::vector<float> values = noise(static_cast<size_t>(ggml_nelements(cells)), choice);
    std::vector<std::byte> made(ggml_nbytes(cells));
    if (cells->type == GGML_TYPE_F32)
      std::memcpy(made.data(), values.data(), made.size());
    else
      ggml_fp32_to_fp16_row(values.data(), reinterpret_cast<ggml_fp16_t*>(made.data()), std::ssize(values));
    return made;
  }

  template <class T>
  void send(ggml_tensor* to, const std::vector<T>& values) const {
    layers_.device_.send(to, values.data(), values.size() * sizeof(T));
  }

  // lengths: of each query the cells that it sees, from the first on. [queries, width of what is attended to]
  std::vector<float> run(const std::vector<float>& queries, const std::vector<int32_t>& lengths) {
    if (in_keys_.empty()) in_keys_ = contents(keys_, 1), in_values_ = contents(values_, 2);
    std::vector<ggml_fp16_t> mask(n_ * static_cast<size_t>(cells_), ggml_fp32_to_fp16(-INFINITY));
    for (size_t i = 0; i < n_; ++i)
      std::fill_n(mask.begin() + static_cast<ptrdiff_t>(i) * cells_ + std::max(0, lengths[i] - window_),
                  std::min(window_, lengths[i]), ggml_fp32_to_fp16(0.0F));
    std::vector<int32_t> path(static_cast<size_t>(cells_));
    for (int32_t i = 0; i < cells_; ++i) path[static_cast<size_t>(i)] = i;
    send(inputs_.paths, path);
    send(inputs_.mask, mask);
    send(queries_, queries);
    send(keys_, in_keys_);  // whose place another tensor may have taken
    if (values_ != keys_) send(values_, in_values_);
    graph_.compute(layers_.device_);
    std::vector<float> out(static_cast<size_t>(ggml_nelements(graph_.output())));
    layers_.device_.fetch(graph_.output(), out.data(), out.size() * sizeof(float));
    layers_.device_.wait();
    return out;
  }

  bool same(const std::vector<float>& a, size_t at, const std::vector<float>& b, size_t other) const {
    const size_t width = a.size() / n_;
    return std::memcmp(&a[at * width], &b[other * width], width * sizeof(float)) == 0;
  }

  GgmlLayers& layers_;
  size_t n_;
  int32_t cells_, window_;
  size_t width_;  // of a query
  GgmlGraph graph_;
  GgmlAllocatorPtr allocator_;
  GgmlInputs inputs_;
  ggml_tensor *queries_, *keys_, *values_;
  std::vector<std::byte> in_keys_, in_values_;  // what is in them
};

int32_t GgmlLayers::find_together(int32_t cells) {
  std::vector<const GgmlLayer*> kinds;
  const auto kind = [](const GgmlLayer& layer) {
    return std::tuple(layer.has_window, layer.sinks != nullptr, layer.head_dim, layer.n_kv_heads);
  };
  for (const GgmlLayer& layer : layers_)
    if (layer.keys != nullptr &&
        std::ranges::none_of(kinds, [&](const GgmlLayer* other) { return kind(*other) == kind(layer); }))
      kinds.push_back(&layer);
  int32_t together = options_.width_lock;
  const auto matters = [&](const GgmlLayer* layer) {
    bool yes = false;
    device_.use([&] { yes = AttentionProbe(*this, *layer, cells, together).places_matter(); });
    return yes;
  };
  while (together > 1 && std::ranges::any_of(kinds, matters)) together = together % 2 == 0 ? together / 2 : 1;
  return together;
}

}  // namespace sluice
