#include <algorithm>

#include "bench.h"
#include "difference.h"

namespace gpu {
namespace {

struct Sizes {
  int in, out, experts = 0, used = 0;
};

// The sizes of the products of a shape's layers.
std::vector<Sizes> sizes_of(const Shape& shape) {
  const int q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  std::vector<Sizes> sizes = {{shape.d, q}, {shape.d, kv}};
  for (const auto& [in, out] : {std::pair{shape.d, shape.ff}, std::pair{shape.ff, shape.d}}) {
    sizes.push_back({in, out, shape.experts, shape.used});
  }
  return sizes;
}

// Rows that enter a product: their numbers, and with experts the ones that each takes.
struct Rows {
  std::vector<float> x;
  std::vector<int32_t> chosen;
};

class Product {
 public:
  Product(const Device& device, ggml_type type, const Sizes& sizes)
      : device_(device), sizes_(sizes), weights_(device, 1) {
    weight_ = sizes.experts > 0 ? ggml_new_tensor_3d(weights_.context(), type, sizes.in, sizes.out, sizes.experts)
                                : ggml_new_tensor_2d(weights_.context(), type, sizes.in, sizes.out);
    weights_.allocate();
    Noise noise(11);
    WeightSource().fill(weight_, noise);
  }

  // Makes ready for passes of so many rows.
  void set_width(int width) {
    width_ = width;
    inputs_ = std::make_unique<Tensors>(device_, 2);
    ggml_context* c = inputs_->context();
    const bool moe = sizes_.experts > 0;
    x_ = ggml_new_tensor_3d(c, GGML_TYPE_F32, sizes_.in, moe ? 1 : width, moe ? width : 1);
    chosen_ = moe ? ggml_new_tensor_2d(c, GGML_TYPE_I32, sizes_.used, width) : nullptr;
    inputs_->allocate();
    graph_ = std::make_unique<Graph>(device_, false, 64);
    out_ =
        moe ? ggml_mul_mat_id(graph_->context(), weight_, x_, chosen_) : ggml_mul_mat(graph_->context(), weight_, x_);
    ggml_set_output(out_);
    graph_->add(out_);
    graph_->allocate();
  }

  // What comes out for one of the rows.
  std::vector<float> run(const Rows& rows, int place) {
    ggml_backend_tensor_set(x_, rows.x.data(), 0, ggml_nbytes(x_));
    if (chosen_ != nullptr) ggml_backend_tensor_set(chosen_, rows.chosen.data(), 0, ggml_nbytes(chosen_));
    graph_->run();
    const size_t n = static_cast<size_t>(sizes_.out) * static_cast<size_t>(std::max(1, sizes_.used));
    return read(out_, n * static_cast<size_t>(place), n);
  }

  Rows random_rows(int width, Noise& noise, float scale) const {
    Rows rows;
    rows.x.resize(static_cast<size_t>(width) * static_cast<size_t>(sizes_.in));
    noise.fill(rows.x, scale);
    for (int i = 0; i < width && sizes_.experts > 0; ++i) {
      const std::vector<int32_t> order = noise.permutation(sizes_.experts);
      rows.chosen.insert(rows.chosen.end(), order.begin(), order.begin() + sizes_.used);
    }
    return rows;
  }

  // Puts row `from` of `source` into place `to` of `target`.
  void put(const Rows& source, int from, Rows& target, int to) const {
    std::copy_n(source.x.begin() + static_cast<ptrdiff_t>(from) * sizes_.in, sizes_.in,
                target.x.begin() + static_cast<ptrdiff_t>(to) * sizes_.in);
    std::copy_n(source.chosen.begin() + static_cast<ptrdiff_t>(from) * sizes_.used, sizes_.used,
                target.chosen.begin() + static_cast<ptrdiff_t>(to) * sizes_.used);
  }
  int width() const { return width_; }

 private:
  const Device& device_;
  Sizes sizes_;
  int width_ = 0;
  Tensors weights_;
  ggml_tensor *weight_, *x_ = nullptr, *chosen_ = nullptr, *out_ = nullptr;
  std::unique_ptr<Tensors> inputs_;
  std::unique_ptr<Graph> graph_;
};

Record record(const std::string& what, const std::string& type, const Sizes& sizes) {
  Record made(what);
  made.set("type", type).set("in", sizes.in).set("out", sizes.out);
  if (sizes.experts > 0) made.set("experts", sizes.experts).set("used", sizes.used);
  return made;
}

// One row, first among ever more others.
void by_width(Product& product, const Rows& rows, Record& into) {
  Series series;
  for (int width = 1; width <= 64; ++width) {
    product.set_width(width);
    series.add(width, product.run(rows, 0));
  }
  for (int width : {96, 128, 192, 256, 512}) {
    product.set_width(width);
    series.add(width, product.run(rows, 0));
  }
  series.into(into);
}

// One row among others that differ from trial to trial, in their size too, at one place after the other.
Comparison at_width(Product& product, const Rows& rows, int trials, bool move) {
  const int width = product.width();
  Comparison comparison;
  std::vector<float> reference;
  for (int i = 0; i < std::max(trials, move ? width : 0); ++i) {
    Noise noise(static_cast<uint64_t>(i) + 100);
    constexpr float kScales[] = {1, 100, 0, 1};
    Rows trial = product.random_rows(width, noise, kScales[i % 4]);
    const int place = move ? i % width : 0;
    product.put(rows, 0, trial, place);
    const std::vector<float> out = product.run(trial, place);
    if (reference.empty()) {
      reference = out;
    } else {
      comparison.add(reference, out);
    }
  }
  return comparison;
}

void bits_of(const Device& device, const std::string& type, const Sizes& sizes, int trials, Results& results) {
  Product product(device, type_named(type), sizes);
  Noise noise(5);
  const Rows rows = product.random_rows(512, noise, 1);
  Record widths = record("product_by_width", type, sizes);
  by_width(product, rows, widths);
  results.write(widths);
  for (int width : {1, 4, 8, 16, 32, 64, 128}) {
    product.set_width(width);
    for (bool move : {false, true}) {
      if (move && width == 1) continue;
      Record made = record("product_at_width", type, sizes);
      made.set("width", width).set("varied", move ? "other rows and places" : "other rows");
      results.write(at_width(product, rows, trials, move).into(made));
    }
  }
}

}  // namespace

void product_bits(const Device& device, const Options& options, Results& results) {
  for (const std::string& type : options.types) {
    for (const std::string& shape : options.shapes) {
      for (const Sizes& sizes : sizes_of(shape_named(shape))) bits_of(device, type, sizes, options.trials, results);
    }
  }
}

}  // namespace gpu
