#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "bench.h"
#include "difference.h"

namespace gpu {
namespace {

constexpr int kOwn = 200;  // cells of the probed row's path

// Where the path's cells lie, and what else is in a pass.
struct Setting {
  std::vector<int32_t> cells;  // of the path, in its order
  uint64_t foreign = 1;        // seed of what is in the other cells
  uint64_t others = 1;         // seed of the other rows and of what they see
  int place = 0;
};

class AttentionPass {
 public:
  AttentionPass(const Device& device, const Shape& shape, bool flash, int rows, int cells)
      : shape_(shape), rows_(rows), cells_(cells), inputs_(device, 4), graph_(device, false, 64) {
    ggml_context* c = inputs_.context();
    const int64_t hd = shape.head_dim;
    q_ = ggml_new_tensor_3d(c, GGML_TYPE_F32, hd, shape.heads, rows);
    k_ = ggml_new_tensor_3d(c, GGML_TYPE_F16, hd, shape.kv_heads, cells);
    v_ = ggml_new_tensor_3d(c, GGML_TYPE_F16, hd, shape.kv_heads, cells);
    mask_ = ggml_new_tensor_2d(c, GGML_TYPE_F16, cells, rows);
    inputs_.allocate();
    build(flash);
  }

  std::vector<float> run(const Setting& setting) {
    upload_cells(k_, 1, setting);
    upload_cells(v_, 2, setting);
    const size_t d = static_cast<size_t>(shape_.heads) * static_cast<size_t>(shape_.head_dim);
    std::vector<float> q(d * static_cast<size_t>(rows_));
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-std::numeric_limits<float>::infinity());
    std::vector<ggml_fp16_t> mask(static_cast<size_t>(rows_) * static_cast<size_t>(cells_), hidden);
    Noise(setting.others + 1000).fill(q);
    Noise seen(setting.others + 2000);
    for (int row = 0; row < rows_; ++row) {
      ggml_fp16_t* of_row = mask.data() + static_cast<ptrdiff_t>(row) * cells_;
      for (int n = 1 + seen.below(cells_); n > 0; --n) of_row[seen.below(cells_)] = 0;
    }
    Noise(3).fill(std::span(q).subspan(d * static_cast<size_t>(setting.place), d));
    ggml_fp16_t* own = mask.data() + static_cast<ptrdiff_t>(setting.place) * cells_;
    std::fill_n(own, cells_, hidden);
    for (int32_t cell : setting.cells) own[cell] = 0;
    ggml_backend_tensor_set(q_, q.data(), 0, ggml_nbytes(q_));
    ggml_backend_tensor_set(mask_, mask.data(), 0, ggml_nbytes(mask_));
    graph_.run();
    return read(out_, d * static_cast<size_t>(setting.place), d);
  }

 private:
  void build(bool flash) {
    ggml_context* c = graph_.context();
    const float scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    ggml_tensor* q = ggml_permute(c, q_, 0, 2, 1, 3);
    ggml_tensor* k = ggml_permute(c, k_, 0, 2, 1, 3);
    ggml_tensor* v = ggml_permute(c, v_, 0, 2, 1, 3);
    if (flash) {
      out_ = ggml_flash_attn_ext(c, q, k, v, mask_, scale, 0, 0);
      ggml_prec_set_acc(out_, GGML_PREC_F32);
    } else {
      ggml_tensor* kq = ggml_mul_mat(c, k, q);
      ggml_prec_set_acc(kq, GGML_PREC_F32);
      kq = ggml_soft_max_ext(c, kq, mask_, scale, 0);
      out_ = ggml_mul_mat(c, ggml_cont(c, ggml_transpose(c, v)), kq);
      out_ = ggml_cont(c, ggml_permute(c, out_, 0, 2, 1, 3));
    }
    ggml_set_output(out_);
    graph_.add(out_);
    graph_.allocate();
  }

  // Random numbers everywhere; in the path's cells those that belong to its tokens.
  void upload_cells(ggml_tensor* tensor, uint64_t which, const Setting& setting) const {
    const size_t row = static_cast<size_t>(shape_.kv_heads) * static_cast<size_t>(shape_.head_dim);
    std::vector<ggml_fp16_t> values(row * static_cast<size_t>(cells_));
    Noise(setting.foreign * 10 + which).fill_f16(values);
    Noise own(which);
    for (int32_t cell : setting.cells) own.fill_f16(std::span(values).subspan(row * static_cast<size_t>(cell), row));
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
  }

  const Shape& shape_;
  int rows_, cells_;
  Tensors inputs_;
  Graph graph_;
  ggml_tensor *q_, *k_, *v_, *mask_, *out_ = nullptr;
};

std::vector<int32_t> first_cells() {
  std::vector<int32_t> cells(kOwn);
  std::iota(cells.begin(), cells.end(), 0);
  return cells;
}

// What may be otherwise in another run, for the same row and the same path.
Setting varied(const std::string& what, int trial, int rows, int cells) {
  Noise noise(static_cast<uint64_t>(trial) + 77);
  Setting setting{first_cells()};
  const uint64_t seed = static_cast<uint64_t>(trial) + 2;
  if (what == "other rows") setting.others = seed;
  if (what == "other rows and places") setting.others = seed, setting.place = trial % rows;
  if (what == "foreign cells' contents") setting.foreign = seed;
  if (what == "foreign cells in front") {
    const int offset = 1 + noise.below(cells - kOwn);
    for (int32_t& cell : setting.cells) cell += offset;
  }
  if (what == "256 foreign cells in front") {
    for (int32_t& cell : setting.cells) cell += 256 * (1 + trial % ((cells - kOwn) / 256));
  }
  if (what == "foreign cells in between") setting.cells = noise.rising(kOwn, cells);
  if (what == "another order of cells") {
    const std::vector<int32_t> order = noise.permutation(kOwn);
    std::copy(order.begin(), order.end(), setting.cells.begin());
  }
  return setting;
}

constexpr const char* kVaried[] = {"other rows",
                                   "other rows and places",
                                   "foreign cells' contents",
                                   "foreign cells in front",
                                   "256 foreign cells in front",
                                   "foreign cells in between",
                                   "another order of cells"};

Record record(const std::string& what, const Shape& shape, bool flash) {
  return Record(what).set("shape", shape.name).set("attention", flash ? "flash" : "plain");
}

void by_rows(const Device& device, const Shape& shape, bool flash, int cells, Results& results) {
  Series series;
  for (int rows = 1; rows <= 72; ++rows) {
    series.add(rows, AttentionPass(device, shape, flash, rows, cells).run({first_cells()}));
  }
  for (int rows : {96, 128, 129, 192, 256, 512}) {
    series.add(rows, AttentionPass(device, shape, flash, rows, cells).run({first_cells()}));
  }
  Record made = record("attention_by_rows", shape, flash);
  results.write(series.into(made.set("cells", cells)));
}

void by_cells(const Device& device, const Shape& shape, bool flash, int rows, Results& results) {
  Series series;
  for (int cells = 256; cells <= 8192; cells += 256) {
    series.add(cells, AttentionPass(device, shape, flash, rows, cells).run({first_cells()}));
  }
  Record made = record("attention_by_cells", shape, flash);
  results.write(series.into(made.set("rows", rows)));
}

void at_rows(const Device& device, const Shape& shape, bool flash, int rows, int cells, int trials, Results& results) {
  AttentionPass pass(device, shape, flash, rows, cells);
  const std::vector<float> reference = pass.run({first_cells()});
  for (const std::string what : kVaried) {
    if (rows == 1 && what.starts_with("other rows")) continue;
    Comparison comparison;
    const int n = what == "other rows and places" ? std::max(trials, rows) : trials;
    for (int i = 0; i < n; ++i) comparison.add(reference, pass.run(varied(what, i, rows, cells)));
    Record made = record("attention_at_rows", shape, flash);
    results.write(comparison.into(made.set("rows", rows).set("cells", cells).set("varied", what)));
  }
}

}  // namespace

void attention_bits(const Device& device, const Options& options, Results& results) {
  for (const std::string& shape_name : options.shapes) {
    const Shape& shape = shape_named(shape_name);
    for (const std::string& attention : options.attentions) {
      if (attention == "gathered") continue;
      const bool flash = attention == "flash";
      by_rows(device, shape, flash, options.cells, results);
      for (int rows : {1, 4, 8, 16, 32, 64}) by_cells(device, shape, flash, rows, results);
      for (int rows : {1, 4, 8, 16, 32, 64}) {
        at_rows(device, shape, flash, rows, options.cells, options.trials, results);
      }
    }
  }
}

}  // namespace gpu
