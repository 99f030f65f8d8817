#include "compute/linear.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>

#include "compute/linear_kernels.h"

namespace sluice {
namespace {

// The ggml type of a format that ggml converts to.
ggml_type ggml_format(InputFormat format) {
  switch (format) {
    case InputFormat::kGgmlQ8_0:
      return GGML_TYPE_Q8_0;
    case InputFormat::kGgmlQ8_1:
      return GGML_TYPE_Q8_1;
    case InputFormat::kGgmlQ8K:
      return GGML_TYPE_Q8_K;
    case InputFormat::kGgmlF16:
      return GGML_TYPE_F16;
    case InputFormat::kGgmlBf16:
      return GGML_TYPE_BF16;
    default:
      return GGML_TYPE_F32;
  }
}

bool is_dense(ggml_type type) { return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16; }

const ggml_type_traits_cpu& cpu_traits(ggml_type type) {
  static const bool ready = (ggml_cpu_init(), true);  // fills ggml's conversion tables
  static_cast<void>(ready);
  return *ggml_get_type_traits_cpu(type);
}

// The format that a weight type's kernel reads; an error if there is no kernel.
Result<InputFormat> format_of(const Tensor& weight) {
  if (is_dense(weight.type)) return InputFormat::kF32;
  if (weight.type == GGML_TYPE_Q4_1) return InputFormat::kQ8;
  if (weight.type == GGML_TYPE_Q8_0) return InputFormat::kQ8Wide;
  const ggml_type_traits_cpu& traits = cpu_traits(weight.type);
  for (const InputFormat format : {InputFormat::kGgmlQ8_0, InputFormat::kGgmlQ8_1, InputFormat::kGgmlQ8K}) {
    const ggml_type type = ggml_format(format);
    if (traits.vec_dot && traits.vec_dot_type == type && weight.ne[0] % ggml_blck_size(type) == 0) return format;
  }
  return input_error("tensor " + weight.name + ": no product for weights of type " + ggml_type_name(weight.type));
}

void to_f32(ggml_type type, const std::byte* row, std::span<float> out) {
  if (type == GGML_TYPE_F32) {
    std::memcpy(out.data(), row, out.size_bytes());
  } else {
    cpu_traits(type);
    ggml_get_type_traits(type)->to_float(row, out.data(), static_cast<int64_t>(out.size()));
  }
}

}  // namespace

size_t input_row_bytes(InputFormat format, int64_t n) {
  const auto values = static_cast<size_t>(n);
  size_t bytes = 0;
  switch (format) {
    case InputFormat::kF32:
      bytes = values * sizeof(float);
      break;
    case InputFormat::kQ8:
      bytes = values / 32 * sizeof(kernels::BlockScale) + values;
      break;
    case InputFormat::kQ8Wide:
      bytes = values / 32 * sizeof(kernels::BlockScale) + 2 * values;
      break;
    default:
      bytes = ggml_row_size(ggml_format(format), n);
  }
  return (bytes + 63) / 64 * 64;
}

void LinearInput::reserve(FormatSet formats, int64_t n_in) {
  for (int f = 0; f < kInputFormats; ++f) {
    if (!formats.has(static_cast<InputFormat>(f))) continue;
    const size_t bytes = input_row_bytes(static_cast<InputFormat>(f), n_in) * static_cast<size_t>(max_rows_);
    if (rows_[f].size() < bytes) rows_[f] = Memory(bytes);
  }
}

void LinearInput::store(FormatSet formats, int64_t row, std::span<const float> x) {
  const auto n = static_cast<int64_t>(x.size());
  for (int f = 0; f < kInputFormats; ++f) {
    const auto format = static_cast<InputFormat>(f);
    if (!formats.has(format)) continue;
    std::byte* out = rows_[f].data() + static_cast<size_t>(row) * input_row_bytes(format, n);
    switch (format) {
      case InputFormat::kF32:
        std::memcpy(out, x.data(), x.size_bytes());
        break;
      case InputFormat::kQ8:
        kernels::quantise<int8_t>(x.data(), n, out);
        break;
      case InputFormat::kQ8Wide:
        kernels::quantise<int16_t>(x.data(), n, out);
        break;
      default:
        cpu_traits(ggml_format(format)).from_float(x.data(), out, n);
    }
  }
}

const std::byte* LinearInput::row(InputFormat format, int64_t row, int64_t n_in) const {
  return rows_[static_cast<int>(format)].data() + static_cast<size_t>(row) * input_row_bytes(format, n_in);
}

Result<Linear> Linear::create(const Tensor& weight, const Tensor& bias) {
  SLUICE_TRY(const InputFormat format, format_of(weight));
  Linear linear;
  linear.n_in_ = weight.ne[0];
  linear.n_out_ = weight.ne[1];
  linear.type_ = weight.type;
  linear.format_ = format;
  linear.rows_ = weight.data;
  linear.row_bytes_ = weight.row_bytes;
  if (kernels::packs(weight.type)) {
    linear.packed_ = Memory(kernels::packed_bytes(weight.type, weight.ne[0], weight.ne[1]));
    kernels::pack(weight, linear.packed_.data());
    linear.rows_ = linear.packed_.data();
  }
  if (bias) {
    linear.bias_ = to_f32_vector(bias);
    linear.bias_.resize(static_cast<size_t>((weight.ne[1] + kGrain - 1) / kGrain * kGrain), 0.0f);
  }
  return linear;
}

Result<Linear> Linear::create(const StageWeights& weights, const Tensor& weight, const Tensor& bias) {
  SLUICE_TRY(Linear linear, create(weight, bias));
  if (linear.packed_.data()) weights.release(weight);
  return linear;
}

void Linear::multiply(const LinearInput& x, int64_t n_rows, Part outputs, Target target) const {
  if (outputs.empty()) return;
  const kernels::Product product{rows_,
                                 row_bytes_,
                                 type_,
                                 n_in_,
                                 n_out_,
                                 bias_.empty() ? nullptr : bias_.data(),
                                 x.row(format_, 0, n_in_),
                                 input_row_bytes(format_, n_in_),
                                 target};
  constexpr int64_t kRowsInCache = 64;  // of x: they stay in L2 while the weights pass by
  for (int64_t row = 0; row < n_rows; row += kRowsInCache) {
    const Part rows{row, std::min(n_rows, row + kRowsInCache)};
    if (packed_.data()) {
      kernels::multiply_packed(product, outputs, rows);
    } else if (is_dense(type_)) {
      kernels::multiply_dense(product, outputs, rows);
    } else {
      kernels::multiply_by_vec_dot(product, outputs, rows);
    }
  }
}

std::vector<float> to_f32_vector(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.ne[0]));
  to_f32(tensor.type, tensor.data, out);
  return out;
}

void copy_row_f32(const Tensor& tensor, int64_t row, std::span<float> out) {
  to_f32(tensor.type, tensor.data + static_cast<size_t>(row) * tensor.row_bytes, out);
}

}  // namespace sluice
