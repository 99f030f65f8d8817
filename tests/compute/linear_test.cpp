#include "compute/linear.h"

#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compute/decoding.h"
#include "compute/fetch_distance.h"
#include "compute/kernels/kernels.h"
#include "compute/kernels/pack.h"

#if defined(__x86_64__)
namespace sluice::kernels::plain_amx {
Kernels table();
}
#endif

namespace sluice::test {
namespace {

// Those that this processor runs; and amx, with its tile instructions in plain C++, if it runs the others.
std::vector<const kernels::Kernels*> instruction_sets() {
  const auto runnable = kernels::runnable_kernels();
  std::vector<const kernels::Kernels*> sets(runnable.begin(), runnable.end());
#if defined(__x86_64__)
  const auto is_avx512 = [](const kernels::Kernels* k) { return std::string_view(k->name) == "avx512"; };
  if (std::any_of(runnable.begin(), runnable.end(), is_avx512)) {  // which making the table needs too
    static const kernels::Kernels plain_amx = kernels::plain_amx::table();
    sets.push_back(&plain_amx);
  }
#endif
  return sets;
}

// Made of grids. To make them from values ggml takes seconds; but any bytes are such weights.
const std::vector<ggml_type> kGridTypes = {GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M,   GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS,
                                           GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S};
const std::vector<ggml_type> kTypes = [] {
  std::vector<ggml_type> types = {GGML_TYPE_F32,   GGML_TYPE_F16,   GGML_TYPE_BF16,  GGML_TYPE_Q4_0,   GGML_TYPE_Q4_1,
                                  GGML_TYPE_Q5_0,  GGML_TYPE_Q5_1,  GGML_TYPE_Q8_0,  GGML_TYPE_Q2_K,   GGML_TYPE_Q3_K,
                                  GGML_TYPE_Q4_K,  GGML_TYPE_Q5_K,  GGML_TYPE_Q6_K,  GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS,
                                  GGML_TYPE_MXFP4, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0, GGML_TYPE_Q1_0,   GGML_TYPE_Q2_0,
                                  GGML_TYPE_NVFP4};
  types.insert(types.end(), kGridTypes.begin(), kGridTypes.end());
  return types;
}();

// A random matrix of some type, and what its values are.
struct Matrix {
  Matrix(ggml_type type, int64_t n_in, int64_t n_out, uint64_t seed) : n_in(n_in), n_out(n_out) {
    bytes.resize(ggml_row_size(type, n_in) * static_cast<size_t>(n_out));
    if (std::ranges::count(kGridTypes, type) > 0) {
      fill_grid_blocks(type, seed);
    } else {
      const std::vector<float> values = Dice(seed).normals(static_cast<size_t>(n_in * n_out));
      const std::vector<float> importance(static_cast<size_t>(n_in), 1.0f);
      ggml_quantize_chunk(type, values.data(), bytes.data(), 0, n_out, n_in, importance.data());
    }
    tensor = {"w", type, {n_in, n_out}, bytes.data(), ggml_row_size(type, n_in)};
    bias = Dice(seed + 1).normals(static_cast<size_t>(n_out));
    bias_tensor = {"b", GGML_TYPE_F32, {n_out, 1}, reinterpret_cast<const std::byte*>(bias.data()), 0};
  }
  // Any bytes, with a factor of 2^-7 to 2^-5 in each block: its first half-precision number; IQ1_M's is the high
  // nibbles of the last four.
  void fill_grid_blocks(ggml_type type, uint64_t seed) {
    Dice dice(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(dice.below(256));
    const size_t block = ggml_type_size(type);
    for (size_t end = block; end <= bytes.size(); end += block) {
      std::byte& exponent = bytes[type == GGML_TYPE_IQ1_M ? end - 1 : end - block + 1];
      exponent = (exponent & std::byte{0x0F}) | std::byte{0x20};
    }
  }
  Linear linear(const Tensor& bias_or_none) const {
    ThreadTeam team(2);
    return *Linear::create(tensor, bias_or_none, memory, team);
  }
  int64_t n_in, n_out;
  mutable Arena memory;
  std::vector<std::byte> bytes;
  std::vector<float> bias;
  Tensor tensor, bias_tensor;
};

// y: [rows, n_out] by a team of threads.
std::vector<float> multiply(const Linear& linear, std::span<const float> x, int64_t rows, int n_threads) {
  FormatSet formats;
  formats.add(linear.format());
  LinearInput input(rows);
  input.reserve(formats, linear.n_in());
  const auto width = static_cast<size_t>(linear.n_in());
  for (int64_t i = 0; i < rows; ++i) input.store(formats, i, x.subspan(static_cast<size_t>(i) * width, width));
  std::vector<float> y(static_cast<size_t>(rows * linear.n_out()), -1.0f);
  ThreadTeam team(n_threads);
  team.run([&](int thread) {
    const Part mine = part_of(linear.n_out(), Linear::kGrain, thread, n_threads);
    linear.multiply(input, {0, rows}, mine, {y.data(), linear.n_out()});
  });
  return y;
}

TEST(Linear, AgreesWithTheProductInDoublePrecision) {
  for (const ggml_type type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    for (const int64_t n_out : {1, 13, 40}) {
      const Matrix m(type, ggml_blck_size(type) == 1 ? 71 : 512, n_out, 11);
      const Linear linear = m.linear(m.bias_tensor);
      const int64_t rows = 5;
      const std::vector<float> x = Dice(5).normals(static_cast<size_t>(rows * m.n_in));
      const std::vector<float> y = multiply(linear, x, rows, 1);
      std::vector<float> weights(static_cast<size_t>(m.n_in));
      for (int64_t output = 0; output < n_out; ++output) {
        copy_row_f32(m.tensor, output, weights);
        for (int64_t row = 0; row < rows; ++row) {
          double expected = m.bias[static_cast<size_t>(output)], scale = 0.0;
          for (size_t k = 0; k < weights.size(); ++k) {
            const double term = static_cast<double>(weights[k]) * x[static_cast<size_t>(row) * weights.size() + k];
            expected += term;
            scale += term * term;
          }
          // Activations of 8 bits are off by up to 1/254 of the largest in their block, in bfloat16 by 1/256 of
          // themselves.
          const double tolerance = linear.format() == InputFormat::kF32    ? 1e-5
                                   : linear.format() == InputFormat::kBF16 ? 1e-2
                                                                           : 3e-2;
          EXPECT_NEAR(y[static_cast<size_t>(row * n_out + output)], expected, tolerance * std::sqrt(scale) + 1e-6);
        }
      }
    }
  }
}

// As rows of experts do: gathered from another input, and multiplied from a later row on.
TEST(Linear, GivesTheSameBitsForRowsThatWereCopiedToOtherPlaces) {
  constexpr int64_t kRows = 11, kFirst = 2 * Linear::kRowGrain;
  for (const ggml_type type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    const Matrix m(type, 256, 43, 3);
    const Linear linear = m.linear(m.bias_tensor);
    const std::vector<float> x = Dice(9).normals(static_cast<size_t>(kRows * m.n_in));
    const std::vector<float> expected = multiply(linear, x, kRows, 1);
    FormatSet formats;
    formats.add(linear.format());
    LinearInput from(kRows), to(kFirst + kRows);
    from.reserve(formats, m.n_in);
    to.reserve(formats, m.n_in);
    for (int64_t row = 0; row < kRows; ++row)
      from.store(formats, row, std::span(x).subspan(static_cast<size_t>(row * m.n_in), static_cast<size_t>(m.n_in)));
    for (int64_t row = 0; row < kRows; ++row) to.copy(formats, kFirst + row, from, kRows - 1 - row, m.n_in);
    std::vector<float> y(static_cast<size_t>((kFirst + kRows) * m.n_out));
    linear.multiply(to, {kFirst, kFirst + kRows}, {0, m.n_out}, {y.data(), m.n_out});
    for (int64_t row = 0; row < kRows; ++row)
      EXPECT_TRUE(std::equal(y.begin() + (kFirst + row) * m.n_out, y.begin() + (kFirst + row + 1) * m.n_out,
                             expected.begin() + (kRows - 1 - row) * m.n_out))
          << "row " << row;
  }
}

TEST(Linear, GivesTheSameBitsAtEveryWidthAndNumberOfThreads) {
  constexpr int64_t kWidest = 256;
  for (const ggml_type type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    const Matrix m(type, 256, 43, 3);
    const Linear linear = m.linear(m.bias_tensor);
    const std::vector<float> x = Dice(9).normals(static_cast<size_t>(kWidest * m.n_in));
    const std::vector<float> all = multiply(linear, x, kWidest, 1);
    for (const int64_t width : {1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 65, 100, 255}) {
      for (const int threads : {1, 2, 3}) {
        const int64_t first = kWidest - width;  // other neighbours, other places
        const std::vector<float> some =
            multiply(linear, std::span(x).subspan(static_cast<size_t>(first * m.n_in)), width, threads);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * m.n_out))
            << width << " rows, " << threads << " threads";
      }
    }
  }
}

TEST(Linear, GivesTheSameBitsOnEveryInstructionSet) {
  const kernels::Kernels& best = kernels::kernels();
  for (const ggml_type type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    for (const int64_t n_out : {1, 16, 43}) {
      const int64_t block = ggml_blck_size(type);
      const Matrix m(type, block == 1 ? 133 : block == 32 ? 352 : 512, n_out, 3);
      const Linear linear = m.linear(m.bias_tensor);
      const std::vector<float> x = Dice(9).normals(static_cast<size_t>(37 * m.n_in));
      kernels::use_kernels(*kernels::runnable_kernels().front());
      const std::vector<float> expected = multiply(linear, x, 37, 1);
      for (const kernels::Kernels* kernels : instruction_sets()) {
        SCOPED_TRACE(kernels->name);
        kernels::use_kernels(*kernels);
        for (const int64_t width : {1, 2, 3, 5, 7, 8, 11, 16, 37}) {
          const std::vector<float> some = multiply(linear, x, width, 2);
          EXPECT_TRUE(std::equal(some.begin(), some.end(), expected.begin())) << width << " rows";
        }
      }
      kernels::use_kernels(best);
    }
  }
}

// Types with grids by their codes, and by a file's indices.
TEST(Linear, GivesTheSameBitsByIndicesAndTakesNoMoreMemoryThanTheFile) {
  const kernels::Kernels& best = kernels::kernels();
  for (const ggml_type type : kGridTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    for (const int64_t n_out : {1, 16, 43}) {
      const Matrix m(type, 512, n_out, 7);
      const std::vector<float> x = Dice(6).normals(static_cast<size_t>(100 * m.n_in));
      const Linear by_codes = m.linear(m.bias_tensor);
      const std::vector<float> expected = multiply(by_codes, x, 100, 1);
      std::vector<float> row(static_cast<size_t>(m.n_in)), same = row;
      copy_row_f32(m.tensor, 0, row);

      kernels::keep_indices(true);
      const Linear by_indices = m.linear(m.bias_tensor);
      copy_row_f32(m.tensor, 0, same);
      kernels::keep_indices(false);
      EXPECT_EQ(same, row);
      if (n_out == 16) {
        EXPECT_LE(static_cast<double>(by_indices.packed_bytes()), 1.1 * static_cast<double>(m.bytes.size()));
        EXPECT_GT(by_codes.packed_bytes(), m.bytes.size() * 5 / 4);
      }
      for (const kernels::Kernels* kernels : instruction_sets()) {
        SCOPED_TRACE(kernels->name);
        kernels::use_kernels(*kernels);
        for (const int64_t width : {1, 2, 3, 5, 8, 11, 16, 64, 65, 100}) {
          const std::vector<float> some = multiply(by_indices, x, width, 2);
          EXPECT_TRUE(std::equal(some.begin(), some.end(), expected.begin())) << width << " rows";
        }
      }
      kernels::use_kernels(best);
    }
  }
}

// What a file says, as ggml reads it: exact up to the rounding of products and sums.
TEST(Linear, ReadsRowsOfWeightsAsGgmlDoes) {
  for (const ggml_type type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    const Matrix m(type, ggml_blck_size(type) == 1 ? 71 : 768, 3, 8);
    std::vector<float> expected(static_cast<size_t>(m.n_in)), found = expected;
    const std::byte* last = m.bytes.data() + 2 * m.tensor.row_bytes;
    if (type == GGML_TYPE_F32) {
      std::copy(last, last + m.tensor.row_bytes, reinterpret_cast<std::byte*>(expected.data()));
    } else {
      ggml_get_type_traits(type)->to_float(last, expected.data(), m.n_in);
    }
    copy_row_f32(m.tensor, 2, found);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
  }
}

TEST(Linear, ReadsWeightsAtAnyAddressAndNoRowsAtAll) {
  for (const ggml_type type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    if (!kernels::packed_form(type)) continue;  // ggml's kernel wants alignment
    Matrix m(type, ggml_blck_size(type) == 1 ? 9 : 256, 17, 5);
    const std::vector<float> x = Dice(4).normals(static_cast<size_t>(3 * m.n_in));
    const std::vector<float> expected = multiply(m.linear({}), x, 3, 1);
    m.bytes.insert(m.bytes.begin(), 3, std::byte{0});
    m.tensor.data = m.bytes.data() + 3;
    const Linear linear = m.linear({});
    EXPECT_EQ(multiply(linear, x, 3, 2), expected);
    EXPECT_TRUE(multiply(linear, {}, 0, 2).empty());
  }
}

// Root of the mean square error against the product in double precision, of ours and of ggml's row kernel.
TEST(Linear, IsAtLeastAsAccurateAsGgml) {
  ggml_cpu_init();
  for (const ggml_type type : kTypes) {
    for (const int64_t n_in : {576, 1536, 8960}) {
      if (n_in != 1536 && type != GGML_TYPE_F32) continue;  // else the errors are those of rounded inputs
      SCOPED_TRACE(std::string(ggml_type_name(type)) + ", " + std::to_string(n_in));
      constexpr int64_t kRows = 48, kOut = 48;
      const Matrix m(type, n_in, kOut, 21);
      const std::vector<float> x = Dice(22).normals(static_cast<size_t>(kRows * n_in));
      const std::vector<float> y = multiply(m.linear({}), x, kRows, 1);
      const ggml_type_traits_cpu& traits = *ggml_get_type_traits_cpu(type);
      const ggml_type_traits_cpu& input = *ggml_get_type_traits_cpu(traits.vec_dot_type);
      std::vector<std::byte> converted(ggml_row_size(traits.vec_dot_type, n_in));
      std::vector<float> weights(static_cast<size_t>(n_in));
      double ours = 0.0, theirs = 0.0;
      for (int64_t row = 0; row < kRows; ++row) {
        const float* in = x.data() + row * n_in;
        if (traits.vec_dot_type == GGML_TYPE_F32) {
          std::copy(in, in + n_in, reinterpret_cast<float*>(converted.data()));
        } else {
          input.from_float(in, converted.data(), n_in);
        }
        for (int64_t output = 0; output < kOut; ++output) {
          copy_row_f32(m.tensor, output, weights);
          double exact = 0.0;
          for (int64_t k = 0; k < n_in; ++k) exact += static_cast<double>(weights[static_cast<size_t>(k)]) * in[k];
          float ggml = 0.0f;
          const std::byte* of_file = m.bytes.data() + static_cast<size_t>(output) * m.tensor.row_bytes;
          traits.vec_dot(static_cast<int>(n_in), &ggml, 0, of_file, 0, converted.data(), 0, 1);
          ours += std::pow(y[static_cast<size_t>(row * kOut + output)] - exact, 2);
          theirs += std::pow(ggml - exact, 2);
        }
      }
      const auto rms = [](double squares) { return std::sqrt(squares / (kRows * kOut)); };
      EXPECT_LE(rms(ours), 1.01 * rms(theirs));  // 2,304 products: as many as tell 1 % apart, errors being correlated
    }
  }
}

TEST(Linear, AddsToWhatIsThere) {
  const Matrix m(GGML_TYPE_Q4_1, 64, 20, 1);
  const Linear linear = m.linear({});
  const std::vector<float> x = Dice(2).normals(64);
  const std::vector<float> y = multiply(linear, x, 1, 1);
  FormatSet formats;
  formats.add(linear.format());
  LinearInput input(1);
  input.reserve(formats, 64);
  input.store(formats, 0, x);
  std::vector<float> sum(20, 2.0f);
  linear.multiply(input, {0, 1}, {0, 20}, {sum.data(), 20, /*add=*/true});
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], 2.0f + y[i]);
}

// The value of an output as kernels/table.h defines it, one row of weights by one of x, from ggml's reading of the
// file.
float by_definition(const Matrix& m, int64_t output, const float* x) {
  const auto form = *kernels::packed_form(m.tensor.type);
  std::vector<float> weights(static_cast<size_t>(m.n_in));
  copy_row_f32(m.tensor, output, weights);
  float y = 0.0f;
  const auto weight = [&](int64_t k) { return k < m.n_in ? weights[static_cast<size_t>(k)] : 0.0f; };
  if (kernels::input_form(form) == kernels::InputForm::kBFloats) {
    const auto in = [&](int64_t k) { return k < m.n_in ? to_f32(to_bfloat16(x[k])) : 0.0f; };
    for (int64_t block = 0; block < m.n_in; block += 32) {
      float sum = 0.0f;
      for (int64_t k = block; k < block + 32; k += 2) {
        sum = std::fma(weight(k + 1), in(k + 1), sum);
        sum = std::fma(weight(k), in(k), sum);
      }
      y += sum;
    }
    return y;
  }
  if (kernels::input_form(form) == kernels::InputForm::kFloats) {
    for (int64_t runs = 0; runs < m.n_in; runs += 128) {
      float of_runs = 0.0f;
      for (int64_t run = runs; run < std::min(runs + 128, m.n_in); run += 32) {
        float of_blocks = 0.0f;
        for (int64_t at = run; at < std::min(run + 32, m.n_in); at += 8) {
          float halves[2] = {};
          for (const int64_t half : {0, 1}) {
            for (int64_t k = at + 4 * half; k < std::min(at + 4 * half + 4, m.n_in); ++k) {
              halves[half] = std::fma(weights[static_cast<size_t>(k)], x[k], halves[half]);
            }
          }
          of_blocks += halves[0] + halves[1];
        }
        of_runs += of_blocks;
      }
      y += of_runs;
    }
    return y;
  }
  ADD_FAILURE() << "not dense";
  return y;
}

TEST(Linear, DenseProductsAreSummedInBlocksAsDefined) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16}) {
    for (const int64_t n_in : {1, 15, 16, 33, 71, 128, 201, 300}) {
      const Matrix m(type, n_in, 19, 4);
      const Linear linear = m.linear({});
      const std::vector<float> x = Dice(6).normals(static_cast<size_t>(n_in));
      const std::vector<float> y = multiply(linear, x, 1, 1);
      for (int64_t output = 0; output < 19; ++output) {
        EXPECT_EQ(y[static_cast<size_t>(output)], by_definition(m, output, x.data()));
      }
    }
  }
}

// The definition in kernels/table.h, in plain C++.
TEST(Linear, Q8_0IsTheExactIntegerSumOfEachBlockScaledInOrder) {
  const Matrix m(GGML_TYPE_Q8_0, 96, 9, 4);
  const Linear linear = m.linear({});
  const std::vector<float> x = Dice(6).normals(96);
  const std::vector<float> y = multiply(linear, x, 1, 1);
  for (int64_t output = 0; output < 9; ++output) {
    const std::byte* row = m.bytes.data() + static_cast<size_t>(output) * m.tensor.row_bytes;
    float expected = 0.0f;
    for (size_t block = 0; block < 3; ++block) {
      const std::byte* w = row + block * 34;
      float largest = 0.0f;
      for (size_t k = 0; k < 32; ++k) largest = std::max(largest, std::fabs(x[block * 32 + k]));
      int32_t sum = 0;
      for (size_t k = 0; k < 32; ++k) {
        const auto q = static_cast<int32_t>(std::nearbyint(x[block * 32 + k] * (127.0f / largest)));
        sum += q * static_cast<int8_t>(w[2 + k]);
      }
      ggml_fp16_t d;
      std::copy(w, w + 2, reinterpret_cast<std::byte*>(&d));
      expected = std::fma(ggml_fp16_to_fp32(d) * (largest / 127.0f), static_cast<float>(sum), expected);
    }
    EXPECT_EQ(y[static_cast<size_t>(output)], expected);
  }
}

// Q2_K, whose scales and minima are those of halves of a block.
TEST(Linear, Q2_KIsTheExactIntegerSumsOfHalvesAndTheirMinimaScaledInOrder) {
  const Matrix m(GGML_TYPE_Q2_K, 512, 9, 4);
  const Linear linear = m.linear({});
  const std::vector<float> x = Dice(6).normals(512);
  const std::vector<float> y = multiply(linear, x, 1, 1);
  for (size_t output = 0; output < 9; ++output) {
    float expected = 0.0f;
    for (size_t block = 0; block < 16; ++block) {
      const auto* w = reinterpret_cast<const uint8_t*>(m.bytes.data()) + output * m.tensor.row_bytes + block / 8 * 84;
      const std::span in = std::span(x).subspan(block * 32, 32);
      float largest = 0.0f;
      for (const float value : in) largest = std::max(largest, std::fabs(value));
      int32_t sum = 0, mins = 0;
      for (size_t k = 0; k < 32; ++k) {
        const auto q = static_cast<int32_t>(std::nearbyint(in[k] * (127.0f / largest)));
        const size_t b = block % 8;
        const uint8_t scale_and_min = w[2 * b + k / 16];
        const int code = w[16 + b / 4 * 32 + k] >> (2 * (b % 4)) & 3;
        sum += q * code * (scale_and_min & 15);
        mins += q * (scale_and_min >> 4);
      }
      ggml_fp16_t d[2];
      std::copy(w + 80, w + 84, reinterpret_cast<uint8_t*>(d));
      const float d_x = largest / 127.0f;
      expected = std::fma(ggml_fp16_to_fp32(d[0]) * d_x, static_cast<float>(sum), expected);
      expected = std::fma(-ggml_fp16_to_fp32(d[1]) * d_x, static_cast<float>(mins), expected);
    }
    EXPECT_EQ(y[output], expected);
  }
}

TEST(FetchDistance, IsMeasuredOnMoreThanCachesHoldAndChangesNoOutput) {
  const std::vector<float> x = Dice(6).normals(size_t{4} * 256);
  ThreadTeam team(2);
  const Matrix m(GGML_TYPE_Q4_0, 256, 64, 4);
  const Linear few = m.linear({});
  const std::vector<float> before = multiply(few, x, 4, 1);
  const int64_t guess = fetch_distance();
  std::vector<const Linear*> matrices = {&few};
  measure_fetch_distance(matrices, team);
  EXPECT_EQ(fetch_distance(), guess);
  matrices.assign((size_t{64} << 20) / few.packed_bytes() + 1, &few);
  measure_fetch_distance(matrices, team);
  EXPECT_GE(fetch_distance(), 2048);
  EXPECT_LE(fetch_distance(), 12288);
  EXPECT_EQ(multiply(few, x, 4, 1), before);
}

}  // namespace
}  // namespace sluice::test
