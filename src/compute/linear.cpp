#include "compute/linear.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>

#include "compute/fetch_distance.h"
#include "compute/kernels/kernels.h"
#include "compute/kernels/pack.h"
#include "compute/kernels/packed.h"

namespace sluice {
namespace {

const ggml_type_traits_cpu& cpu_traits(ggml_type type) {
  static const bool ready = (ggml_cpu_init(), true);  // fills ggml's conversion tables
  static_cast<void>(ready);
  return *ggml_get_type_traits_cpu(type);
}

InputFormat input_format(kernels::InputForm form) {
  if (form == kernels::InputForm::kBlocks) return InputFormat::kQ8;
  return form == kernels::InputForm::kFloats ? InputFormat::kF32 : InputFormat::kBF16;
}

// The format that a weight type's kernel reads; an error if there is no kernel.
Result<InputFormat> format_of(const Tensor& weight) {
  if (const auto form = kernels::packed_form(weight.type)) return input_format(kernels::input_form(*form));
  const ggml_type_traits_cpu& traits = cpu_traits(weight.type);
  if (traits.vec_dot && traits.vec_dot_type == GGML_TYPE_Q8_0) return InputFormat::kGgmlQ8_0;
  return input_error("tensor " + weight.name + ": no product for weights of type " + ggml_type_name(weight.type));
}

// Bytes of a row of n values. In panels, those of the other rows lie between its blocks.
size_t row_bytes(InputFormat format, int64_t n) {
  const auto blocks = [n](int64_t block) { return static_cast<size_t>((n + block - 1) / block); };
  switch (format) {
    case InputFormat::kF32:
      return blocks(kernels::kDenseBlock) * sizeof(kernels::DenseInput);
    case InputFormat::kBF16:
      return blocks(kernels::kBFloatBlock) * sizeof(kernels::BFloatInput);
    case InputFormat::kQ8:
      return blocks(kernels::kBlock) * sizeof(kernels::BlockInput);
    case InputFormat::kGgmlQ8_0:
      return ggml_row_size(GGML_TYPE_Q8_0, n);
  }
  return 0;
}

// Block by block of a panel's row, each value by convert(); beyond the last one zeros.
template <class Block, class Convert>
void store_blocks(std::span<const float> x, Convert convert, Block* out) {
  constexpr size_t kBlock = std::size(Block{}.x);
  for (size_t at = 0; at < x.size(); at += kBlock, out += kernels::kPanel) {
    const size_t n = std::min(kBlock, x.size() - at);
    for (size_t i = 0; i < n; ++i) out->x[i] = convert(x[at + i]);
    std::fill(out->x + n, out->x + kBlock, convert(0.0f));
  }
}

}  // namespace

void LinearInput::reserve(FormatSet formats, int64_t n_in) {
  const auto rows = static_cast<size_t>((max_rows_ + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel);
  for (int f = 0; f < kInputFormats; ++f) {
    if (!formats.has(static_cast<InputFormat>(f))) continue;
    const size_t bytes = row_bytes(static_cast<InputFormat>(f), n_in) * rows;
    if (rows_[f].size() < bytes) rows_[f] = Memory(bytes);
  }
}

void LinearInput::store(FormatSet formats, int64_t row, std::span<const float> x) {
  const auto n = static_cast<int64_t>(x.size());
  for (int f = 0; f < kInputFormats; ++f) {
    const auto format = static_cast<InputFormat>(f);
    if (!formats.has(format)) continue;
    const size_t bytes = row_bytes(format, n);
    std::byte* rows = rows_[f].data();
    std::byte* panel = rows + static_cast<size_t>(row / kernels::kPanel * kernels::kPanel) * bytes;
    const auto in_panel = static_cast<size_t>(row % kernels::kPanel);
    switch (format) {
      case InputFormat::kF32:
        store_blocks(
            x, [](float value) { return value; }, reinterpret_cast<kernels::DenseInput*>(panel) + in_panel);
        break;
      case InputFormat::kBF16:
        store_blocks(
            x, [](float value) { return to_bfloat16(value); },
            reinterpret_cast<kernels::BFloatInput*>(panel) + in_panel);
        break;
      case InputFormat::kQ8:
        kernels::kernels().quantise(x.data(), n, panel + in_panel * sizeof(kernels::BlockInput));
        break;
      case InputFormat::kGgmlQ8_0:
        cpu_traits(GGML_TYPE_Q8_0).from_float(x.data(), rows + static_cast<size_t>(row) * bytes, n);
    }
  }
}

void LinearInput::copy(FormatSet formats, int64_t row, const LinearInput& from, int64_t other, int64_t n_in) {
  // In panels the blocks of a row lie a panel's width of them apart.
  const auto copy_blocks = [&](InputFormat format, size_t block) {
    const auto at = [&](std::byte* rows, int64_t which) {
      const auto panel = static_cast<size_t>(which / kernels::kPanel * kernels::kPanel);
      return rows + panel * row_bytes(format, n_in) + static_cast<size_t>(which % kernels::kPanel) * block;
    };
    std::byte* to = at(rows_[static_cast<int>(format)].data(), row);
    const std::byte* source = at(from.rows_[static_cast<int>(format)].data(), other);
    const size_t stride = kernels::kPanel * block;
    for (size_t n = row_bytes(format, n_in) / block; n > 0; --n, to += stride, source += stride)
      std::memcpy(to, source, block);
  };
  for (int f = 0; f < kInputFormats; ++f) {
    const auto format = static_cast<InputFormat>(f);
    if (!formats.has(format)) continue;
    switch (format) {
      case InputFormat::kF32:
        copy_blocks(format, sizeof(kernels::DenseInput));
        break;
      case InputFormat::kBF16:
        copy_blocks(format, sizeof(kernels::BFloatInput));
        break;
      case InputFormat::kQ8:
        copy_blocks(format, sizeof(kernels::BlockInput));
        break;
      case InputFormat::kGgmlQ8_0: {
        const size_t bytes = row_bytes(format, n_in);
        std::memcpy(rows_[f].data() + static_cast<size_t>(row) * bytes,
                    from.rows_[f].data() + static_cast<size_t>(other) * bytes, bytes);
      }
    }
  }
}

Result<Linear> Linear::create(const Tensor& weight, const Tensor& bias, Arena& memory, ThreadTeam& team) {
  SLUICE_TRY(Linear linear, waiting(weight, bias));
  if (!linear.form_) return linear;
  linear.place(memory.take(linear.packed_bytes()));
  team.run([&](int thread) { linear.pack(part_of(linear.n_grains(), 1, thread, team.size())); });
  linear.rows_ = {};
  return linear;
}

Result<Linear> Linear::waiting(const Tensor& weight, const Tensor& bias) {
  SLUICE_TRY(const InputFormat format, format_of(weight));
  Linear linear;
  linear.n_in_ = weight.ne[0];
  linear.n_out_ = weight.ne[1];
  linear.format_ = format;
  linear.form_ = kernels::packed_form(weight.type);
  linear.rows_ = weight;
  if (bias) {
    linear.bias_ = to_f32_vector(bias);
    linear.bias_.resize(static_cast<size_t>((weight.ne[1] + kGrain - 1) / kGrain * kGrain), 0.0f);
  }
  return linear;
}

void Linear::pack(Part grains) const {
  const kernels::FileRows rows{rows_.data, rows_.row_bytes, n_in_, n_out_};
  kernels::pack_groups(*form_, rows, grains.begin, grains.end, packed_);
}

size_t Linear::packed_bytes() const { return form_ ? kernels::packed_bytes(*form_, n_in_, n_out_) : 0; }

static_assert(Linear::kRowGrain == kernels::kPanel);

void Linear::multiply(const LinearInput& x, Part all_rows, Part outputs, Target target) const {
  if (outputs.empty()) return;
  constexpr int64_t kRowsInCache = 64;  // of x: they stay in L2 while the weights pass by
  for (int64_t row = all_rows.begin; row < all_rows.end; row += kRowsInCache) {
    const Part rows{row, std::min(all_rows.end, row + kRowsInCache)};
    if (!form_) {
      multiply_by_vec_dot(x, outputs, rows, target);
      continue;
    }
    kernels::Product product;
    product.weights = packed_;
    product.n_in = n_in_;
    product.n_out = n_out_;
    product.bias = bias_.empty() ? nullptr : bias_.data();
    product.x = x.rows(format_);
    product.y = target.y;
    product.stride = target.stride;
    product.add = target.add;
    product.ahead = fetch_distance();
    product.output = outputs.begin;
    product.output_end = outputs.end;
    product.row = rows.begin;
    product.row_end = rows.end;
    kernels::kernels().multiply[static_cast<int>(*form_)](product);
  }
}

// One row of x at a time, so that no other kernel is chosen at another width.
void Linear::multiply_by_vec_dot(const LinearInput& x, Part outputs, Part rows, Target target) const {
  const auto dot = cpu_traits(rows_.type).vec_dot;
  for (int64_t first = outputs.begin; first < outputs.end; first += kGrain) {  // rows of weights that stay in cache
    const int64_t last = std::min(outputs.end, first + kGrain);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const std::byte* in = x.rows(format_) + static_cast<size_t>(row) * row_bytes(format_, n_in_);
      for (int64_t output = first; output < last; ++output) {
        float value = 0.0f;
        const std::byte* weights = rows_.data + static_cast<size_t>(output) * rows_.row_bytes;
        dot(static_cast<int>(n_in_), &value, 0, weights, 0, in, 0, 1);
        if (!bias_.empty()) value += bias_[static_cast<size_t>(output)];
        float& y = target.y[row * target.stride + output];
        y = target.add ? y + value : value;
      }
    }
  }
}

std::vector<float> to_f32_vector(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.ne[0]));
  copy_row_f32(tensor, 0, out);
  return out;
}

void copy_row_f32(const Tensor& tensor, int64_t row, std::span<float> out) {
  SLUICE_CHECK(0 <= row && row < tensor.ne[1], "a row of the matrix");
  const std::byte* from = tensor.data + static_cast<size_t>(row) * tensor.row_bytes;
  if (const auto form = kernels::packed_form(tensor.type)) {
    kernels::row_to_floats(*form, from, out);
  } else {
    cpu_traits(tensor.type);
    ggml_get_type_traits(tensor.type)->to_float(from, out.data(), static_cast<int64_t>(out.size()));
  }
}

}  // namespace sluice
