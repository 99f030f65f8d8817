// The inner loops, on every instruction set that this processor runs: right, and with the bits of plain C++.
#include "compute/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "compute/decoding.h"
#include "compute/kernels/amx.h"
#include "compute/kernels/packed.h"

namespace sluice::test {
namespace {

using kernels::Kernels;

void on_every_instruction_set(const std::function<void(const Kernels&)>& check) {
  for (const Kernels* kernels : kernels::runnable_kernels()) {
    SCOPED_TRACE(kernels->name);
    check(*kernels);
  }
}

TEST(Kernels, RmsNormAgreesWithDoublePrecision) {
  on_every_instruction_set([](const Kernels& k) {
    for (const size_t n : {1u, 7u, 8u, 64u, 577u}) {
      const std::vector<float> x = Dice(n).normals(n), weight = Dice(n + 1).normals(n);
      double squares = 0.0;
      for (const float v : x) squares += static_cast<double>(v) * v;
      std::vector<float> out(n);
      k.rms_norm(x.data(), weight.data(), static_cast<int64_t>(n), 1e-5f, out.data());
      for (size_t i = 0; i < n; ++i) {
        EXPECT_NEAR(out[i], x[i] * weight[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5), 1e-5);
      }
    }
  });
}

TEST(Kernels, SiluTimesAgreesWithDoublePrecisionAlsoFarFromZero) {
  on_every_instruction_set([](const Kernels& k) {
    std::vector<float> gate = {0, 1, -1, 20, -20, 90, -90, 1000, -1000, 0.5f};
    const std::vector<float> before = gate, up = Dice(1).normals(gate.size());
    k.silu_times(gate.data(), up.data(), static_cast<int64_t>(gate.size()));
    for (size_t i = 0; i < gate.size(); ++i) {
      EXPECT_NEAR(gate[i], before[i] / (1.0 + std::exp(-static_cast<double>(before[i]))) * up[i],
                  1e-6 * std::fabs(before[i]) + 1e-6);
    }
  });
}

TEST(Kernels, ClampedSiluTimesAgreesWithDoublePrecision) {
  on_every_instruction_set([](const Kernels& k) {
    std::vector<float> gate = {0, 1, -1, 6.9f, 7.1f, 90, -90, 1000, -1000, 0.5f};
    std::vector<float> up = {0, -3, 7.5f, -8, 2, -1, 1, 1000, -1000, 6.5f};
    const std::vector<float> before = gate;
    k.clamped_silu_times(gate.data(), up.data(), static_cast<int64_t>(gate.size()));
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = std::min(7.0, static_cast<double>(before[i])), u = std::clamp<double>(up[i], -7.0, 7.0);
      EXPECT_NEAR(gate[i], g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0), 1e-5);
    }
  });
}

TEST(Kernels, GeluTimesAgreesWithDoublePrecision) {
  on_every_instruction_set([](const Kernels& k) {
    std::vector<float> gate = Dice(3).normals(100), up = Dice(4).normals(100);
    for (const float x : {0.0f, 1e-6f, 5.0f, -5.0f, 12.0f, -12.0f, 1e6f, -1e6f}) {
      gate.push_back(x);
      up.push_back(2.0f);
    }
    const std::vector<float> before = gate;
    k.gelu_times(gate.data(), up.data(), static_cast<int64_t>(gate.size()));
    for (size_t i = 0; i < gate.size(); ++i) {
      const double x = before[i], z = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      EXPECT_NEAR(gate[i], 0.5 * x * (1.0 + std::tanh(z)) * up[i], 1e-6 * std::fabs(x * up[i])) << x;
    }
  });
}

TEST(Kernels, SoftCapAgreesWithDoublePrecision) {
  on_every_instruction_set([](const Kernels& k) {
    std::vector<float> x = {0, 1e-5f, 1, -1, 29, -29, 31, 300, -1e9f, 1e30f, 7.5f};
    const std::vector<float> before = x;
    k.soft_cap(x.data(), static_cast<int64_t>(x.size()), 30.0f);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], 30.0 * std::tanh(before[i] / 30.0), 1e-5) << before[i];
  });
}

TEST(Kernels, SoftmaxAgreesWithDoublePrecision) {
  on_every_instruction_set([](const Kernels& k) {
    for (const size_t n : {1u, 5u, 8u, 29u, 1000u}) {
      std::vector<float> x = Dice(n).normals(n);
      double sum = 0.0;
      for (const float v : x) sum += std::exp(static_cast<double>(v));
      const std::vector<float> before = x;
      k.softmax(x.data(), static_cast<int64_t>(n));
      for (size_t i = 0; i < n; ++i) EXPECT_NEAR(x[i], std::exp(static_cast<double>(before[i])) / sum, 1e-6);
    }
  });
}

// Every 16-bit pattern and many floats, against the processor-independent conversions of ggml.
TEST(Kernels, SigmoidTimesAgreesWithDoublePrecision) {
  on_every_instruction_set([](const Kernels& k) {
    const std::vector<float> gate = {0, 1e-5f, 1, -1, 29, -29, 200, -200, 0.3f, -0.7f, 7.5f};
    std::vector<float> x = Dice(1).normals(gate.size());
    const std::vector<float> before = x;
    k.sigmoid_times(gate.data(), x.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(x[i], before[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))), 1e-6 * std::fabs(before[i]));
  });
}

TEST(Kernels, ShortConvolutionAgreesWithDoublePrecision) {
  on_every_instruction_set([](const Kernels& k) {
    constexpr size_t kTaps = 4, kWidth = 24, kStride = 40;
    const std::vector<float> weights = Dice(1).normals(kTaps * kStride), x = Dice(2).normals(kTaps * kWidth);
    std::vector<const float*> inputs;
    for (size_t j = 0; j < kTaps; ++j) inputs.push_back(&x[j * kWidth]);
    std::vector<float> out(kWidth);
    k.short_convolution(inputs.data(), kTaps, weights.data(), kStride, kWidth, out.data());
    for (size_t i = 0; i < kWidth; ++i) {
      double sum = 0.0;
      for (size_t j = 0; j < kTaps; ++j) sum += static_cast<double>(weights[j * kStride + i]) * x[j * kWidth + i];
      EXPECT_NEAR(out[i], sum / (1.0 + std::exp(-sum)), 2e-6);
    }
  });
}

TEST(Kernels, DeltaStepAgreesWithDoublePrecisionAndAKnownChangeGivesTheSameBits) {
  on_every_instruction_set([](const Kernels& k) {
    for (const size_t n : {8u, 24u, 128u}) {
      const std::vector<float> from = Dice(n).normals(n * n), key = Dice(1).normals(n), query = Dice(2).normals(n),
                               value = Dice(3).normals(n);
      std::vector<float> to(n * n), change(n), out(n), again(n * n), in_place = from;
      const kernels::DeltaStep step{key.data(), query.data(), value.data(), 0.7f, 0.9f, change.data(), out.data()};
      const auto length = static_cast<int64_t>(n);
      k.delta_step(from.data(), to.data(), length, step);
      k.delta_update(from.data(), again.data(), length, key.data(), change.data(), step.keep);
      k.delta_step(in_place.data(), in_place.data(), length, step);
      EXPECT_EQ(again, to);
      EXPECT_EQ(in_place, to);
      const double bound = 1e-5 * static_cast<double>(n);
      for (size_t v = 0; v < n; ++v) {
        double known = 0.0, sum = 0.0;
        for (size_t i = 0; i < n; ++i) known += 0.9 * from[v * n + i] * key[i];
        EXPECT_NEAR(change[v], 0.7 * (value[v] - known), bound);
        for (size_t i = 0; i < n; ++i) {
          const double state = 0.9 * from[v * n + i] + static_cast<double>(change[v]) * key[i];
          EXPECT_NEAR(to[v * n + i], state, 1e-5);
          sum += state * query[i];
        }
        EXPECT_NEAR(out[v], sum, bound * 10);
      }
    }
  });
}

TEST(Kernels, HalvesConvertExactlyAndRoundToEven) {
  std::vector<Half> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  Dice dice(3);
  std::vector<float> values = dice.normals(10007);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::ldexp(1.0f, static_cast<int>(i % 60) - 40);
  for (const Half h : all) {  // and ties between neighbours
    const float x = ggml_fp16_to_fp32(h.bits);
    if (std::isfinite(x)) values.insert(values.end(), {x, x * (1.0f + 0x1p-11f), x * (1.0f + 0x1p-12f)});
  }
  on_every_instruction_set([&](const Kernels& k) {
    std::vector<float> wide(all.size());
    k.from_halves(all.data(), static_cast<int64_t>(all.size()), wide.data());
    for (size_t i = 0; i < all.size(); ++i) {
      const float expected = ggml_fp16_to_fp32(all[i].bits);
      EXPECT_TRUE(wide[i] == expected || (std::isnan(wide[i]) && std::isnan(expected))) << i;
      EXPECT_EQ(std::signbit(wide[i]), std::signbit(expected)) << i;
    }
    std::vector<Half> narrow(values.size());
    k.to_halves(values.data(), static_cast<int64_t>(values.size()), narrow.data());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(narrow[i].bits, ggml_fp32_to_fp16(values[i])) << values[i];
  });
}

// Half a step of 127 off, and what rounding the step to f16 adds; blocks of zeros, of one value, of very small ones.
TEST(Kernels, BytesInBlocksAreAsNearAsTheirScaleAllows) {
  constexpr size_t kLength = 32 * 40 + 13;
  std::vector<float> values = Dice(5).normals(kLength);
  for (size_t i = 0; i < kLength; ++i) values[i] *= std::ldexp(1.0f, static_cast<int>(i / 32 % 20) - 2);
  for (size_t i = 0; i < 32; ++i) values[i] = 0.0f;
  for (size_t i = 33; i < 64; ++i) values[i] = 0.0f;
  on_every_instruction_set([&](const Kernels& k) {
    std::vector<int8_t> bytes(kLength);
    std::vector<Half> scales(41);
    std::vector<float> back(kLength);
    k.to_bytes(values.data(), kLength, bytes.data(), scales.data());
    k.from_bytes(bytes.data(), scales.data(), kLength, back.data());
    for (size_t first = 0; first < kLength; first += 32) {
      float largest = 0.0f;
      for (size_t i = first; i < std::min(first + 32, kLength); ++i) largest = std::max(largest, std::fabs(values[i]));
      for (size_t i = first; i < std::min(first + 32, kLength); ++i)
        EXPECT_NEAR(back[i], values[i], largest * (0.501f / 127.0f + 0x1p-11f)) << i;
    }
    EXPECT_EQ(back[0], 0.0f);
    EXPECT_EQ(bytes[32], values[32] > 0.0f ? 127 : -127);
  });
}

template <class T>
std::vector<uint8_t> bytes_of(const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

// Results of every kernel but the products (linear_test.cpp) on random input of many lengths.
std::vector<std::vector<uint8_t>> results(const Kernels& k) {
  std::vector<std::vector<uint8_t>> all;
  for (const size_t n : {1u, 3u, 8u, 13u, 32u, 100u, 577u}) {
    const auto length = static_cast<int64_t>(n);
    const std::vector<float> x = Dice(n).normals(n), y = Dice(n + 1).normals(n);
    std::vector<float> out(n), gate = x, clamped = x, gelu = x, capped = x, shares = x;
    k.rms_norm(x.data(), y.data(), length, 1e-6f, out.data());
    k.silu_times(gate.data(), y.data(), length);
    k.clamped_silu_times(clamped.data(), y.data(), length);
    k.gelu_times(gelu.data(), y.data(), length);
    k.soft_cap(capped.data(), length, 1.5f);
    std::vector<float> gated = x;
    k.sigmoid_times(y.data(), gated.data(), length);
    all.push_back(bytes_of(gated));
    k.softmax(shares.data(), length);
    std::vector<Half> halves(n);
    k.to_halves(x.data(), length, halves.data());
    std::vector<int8_t> bytes(n);
    std::vector<Half> scales((n + 31) / 32);
    std::vector<float> back(n);
    k.to_bytes(x.data(), length, bytes.data(), scales.data());
    k.from_bytes(bytes.data(), scales.data(), length, back.data());
    for (const auto& floats : {out, gate, clamped, gelu, capped, shares, back}) all.push_back(bytes_of(floats));
    all.push_back(bytes_of(halves));
  }
  for (const size_t padded : {8u, 24u, 64u, 128u, 136u}) {
    const auto width = static_cast<int64_t>(padded);
    const std::vector<float> query = Dice(padded).normals(padded), keys = Dice(padded + 1).normals(8 * padded);
    std::vector<float> scores(16), totals = keys;  // queries: the first rows of the keys
    k.scores(query.data(), 1, keys.data(), width, scores.data(), 8);
    k.scores(keys.data(), 2, keys.data(), width, scores.data(), 8);
    for (const int64_t count : {1, 5, 8}) k.gather(scores.data(), 8, 2, keys.data(), width, count, totals.data());
    all.push_back(bytes_of(scores));
    all.push_back(bytes_of(totals));
  }
  for (const size_t n : {8u, 40u, 128u}) {
    const auto length = static_cast<int64_t>(n);
    const std::vector<float> rows = Dice(n).normals(4 * n);
    std::vector<float> state = Dice(n + 1).normals(n * n), change(n), out(n);
    k.delta_step(state.data(), state.data(), length,
                 {&rows[0], &rows[n], &rows[2 * n], 0.3f, 0.8f, change.data(), out.data()});
    k.delta_update(state.data(), state.data(), length, &rows[3 * n], change.data(), 0.6f);
    for (const auto& floats : {state, change, out}) all.push_back(bytes_of(floats));
    const float* const inputs[] = {&rows[0], &rows[2 * n], &rows[n]};
    k.short_convolution(inputs, 3, state.data(), length, length, out.data());
    all.push_back(bytes_of(out));
  }
  for (const size_t n : {32u, 96u, 2048u}) {
    std::vector<float> x = Dice(n).normals(n);
    for (size_t i = 0; i < 32; ++i) x[i] = n == 96 ? 0.0f : x[i] * 1e-20f;
    std::vector<std::byte> out(n / 32 * sizeof(kernels::BlockInput) * kernels::kPanel);
    k.quantise(x.data(), static_cast<int64_t>(n), out.data());
    all.push_back(bytes_of(out));
  }
  return all;
}

TEST(Kernels, GiveTheSameBitsOnEveryInstructionSet) {
  const std::vector<std::vector<uint8_t>> expected = results(*kernels::runnable_kernels().front());
  on_every_instruction_set([&](const Kernels& k) {
    const std::vector<std::vector<uint8_t>> found = results(k);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found[i], expected[i]) << "result " << i;
  });
}

#if defined(__x86_64__)
TEST(Kernels, WrongProductsByTilesAreSeen) {
  using kernels::WeightForm;
  const Kernels& plain = *kernels::runnable_kernels().front();
  on_every_instruction_set([&](const Kernels& k) { EXPECT_TRUE(kernels::tiles_are_right(k, plain)); });
  for (const WeightForm form : {WeightForm::kQ8_0, WeightForm::kQ6_K}) {
    Kernels wrong = plain;
    wrong.multiply[static_cast<int>(form)] = [](const kernels::Product& product) {
      std::fill_n(product.y, product.row_end * product.stride, 1.0f);
    };
    EXPECT_FALSE(kernels::tiles_are_right(wrong, plain));
  }
}
#endif

}  // namespace
}  // namespace sluice::test
