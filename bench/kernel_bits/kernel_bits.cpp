// What the kernels compute, to the last bit: for each case a line with its name and a hash of the results of the best
// instruction set of this processor. All sets that the processor can run compute every case; on stderr stands which
// these are, and where one differs from scalar code. No argument, file, clock or libm has a say in what is printed.
//
// Exit status: 0; 1 if two sets differ.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "compute/kernels/grids.h"
#include "compute/kernels/kernels.h"
#include "compute/kernels/pack.h"
#include "compute/kernels/packed.h"

namespace sluice::kernels {

// In place of ggml's grids: some of the values that they hold.
const int8_t* grid_of(WeightForm form) {
  static const std::vector<int8_t> small{-9, -7, -1, 1, 7, 9}, eights{8, 25, 43}, odd{1, 3, 5, 7, 9, 11, 13, 15};
  static const std::vector<int8_t> fours{4, 12, 20, 28, 36, 44, 52, 62};
  if (form >= WeightForm::kIndexedIQ1_S)
    return grid_of(static_cast<WeightForm>(static_cast<int>(form) - static_cast<int>(WeightForm::kIndexedIQ1_S) +
                                           static_cast<int>(WeightForm::kIQ1_S)));
  const bool one = form == WeightForm::kIQ1_S || form == WeightForm::kIQ1_M;
  const auto& values = one ? small : form == WeightForm::kIQ3_XXS ? fours : form == WeightForm::kIQ3_S ? odd : eights;
  static std::vector<int8_t> grids[kWeightForms];
  std::vector<int8_t>& grid = grids[static_cast<int>(form)];
  if (grid.empty()) {
    constexpr size_t kMost = 4096 * 8;
    for (size_t i = 0; i < kMost; ++i) grid.push_back(values[(i * 7 + i / 11) % values.size()]);
  }
  return grid.data();
}

namespace {

// --- Input: the same on every machine, without NaN. ---

class Random {
 public:
  uint32_t bits() {
    state_ += 0x9E3779B97F4A7C15;
    const uint64_t mixed = (state_ ^ state_ >> 31) * 0xBF58476D1CE4E5B9;
    return static_cast<uint32_t>((mixed ^ mixed >> 29) >> 32);
  }
  uint32_t below(uint32_t n) { return bits() % n; }
  // Of either sign, with an exponent below 2^high; one in 16 has all exponents down to subnormal numbers.
  float value(int high = 3) {
    const uint32_t top = static_cast<uint32_t>(high + 127), span = below(16) == 0 ? top : 12;
    const uint32_t exponent = top - 1 - below(span);
    return std::bit_cast<float>((bits() & 0x807FFFFF) | exponent << 23);
  }
  Half half() {
    const uint32_t exponent = below(16) == 0 ? 0 : 5 + below(10);
    return {static_cast<uint16_t>((bits() & 0x83FF) | exponent << 10)};
  }
  std::vector<float> values(int64_t n, int high = 3) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = value(high);
    return out;
  }

 private:
  uint64_t state_ = 1;
};

Random random_bits;

// --- Output. ---

// FNV-1a.
class Hash {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    for (const std::byte byte : std::as_bytes(std::span(values))) {
      value_ = (value_ ^ static_cast<uint64_t>(byte)) * 0x100000001B3;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325;
};

bool all_agree = true;

// compute: from Kernels to the vector of results.
template <class Compute>
void report(const std::string& name, Compute compute) {
  uint64_t first = 0, last = 0;
  for (const Kernels* const set : runnable_kernels()) {
    Hash hash;
    hash.add(compute(*set));
    last = hash.value();
    if (set == runnable_kernels().front()) first = last;
    if (last == first) continue;
    std::fprintf(stderr, "%s: %s differs from scalar\n", name.c_str(), set->name);
    all_agree = false;
  }
  std::printf("%s %016llx\n", name.c_str(), static_cast<unsigned long long>(last));
}

// --- Weights as files hold them. ---

struct FileType {
  const char* name;
  WeightForm form;
  int inputs, bytes;        // of a block
  std::vector<int> halves;  // where in a block its scales stand that are Half
};

const FileType kFileTypes[] = {
    {"f32", WeightForm::kF32, 1, 4, {}},
    {"f16", WeightForm::kF16, 1, 2, {0}},
    {"bf16", WeightForm::kBF16, 1, 2, {}},
    {"q4_0", WeightForm::kQ4_0, 32, 18, {0}},
    {"q4_1", WeightForm::kQ4_1, 32, 20, {0, 2}},
    {"q5_0", WeightForm::kQ5_0, 32, 22, {0}},
    {"q5_1", WeightForm::kQ5_1, 32, 24, {0, 2}},
    {"q8_0", WeightForm::kQ8_0, 32, 34, {0}},
    {"q4_k", WeightForm::kQ4_K, 256, 144, {0, 2}},
    {"q5_k", WeightForm::kQ5_K, 256, 176, {0, 2}},
    {"q6_k", WeightForm::kQ6_K, 256, 210, {208}},
    {"iq4_nl", WeightForm::kIQ4_NL, 32, 18, {0}},
    {"iq4_xs", WeightForm::kIQ4_XS, 256, 136, {0}},
    {"mxfp4", WeightForm::kMXFP4, 32, 17, {}},
    {"q2_k", WeightForm::kQ2_K, 256, 84, {80, 82}},
    {"q3_k", WeightForm::kQ3_K, 256, 110, {108}},
    {"tq1_0", WeightForm::kTQ1_0, 256, 54, {52}},
    {"tq2_0", WeightForm::kTQ2_0, 256, 66, {64}},
    {"q1_0", WeightForm::kQ1_0, 128, 18, {0}},
    {"q2_0", WeightForm::kQ2_0, 64, 18, {0}},
    {"iq1_s", WeightForm::kIQ1_S, 256, 50, {0}},
    {"iq1_m", WeightForm::kIQ1_M, 256, 56, {}},
    {"iq2_xxs", WeightForm::kIQ2_XXS, 256, 66, {0}},
    {"iq2_xs", WeightForm::kIQ2_XS, 256, 74, {0}},
    {"iq2_s", WeightForm::kIQ2_S, 256, 82, {0}},
    {"iq3_xxs", WeightForm::kIQ3_XXS, 256, 98, {0}},
    {"iq3_s", WeightForm::kIQ3_S, 256, 110, {0}},
    {"iq1_s by indices", WeightForm::kIndexedIQ1_S, 256, 50, {0}},
    {"iq1_m by indices", WeightForm::kIndexedIQ1_M, 256, 56, {}},
    {"iq2_xxs by indices", WeightForm::kIndexedIQ2_XXS, 256, 66, {0}},
    {"iq2_xs by indices", WeightForm::kIndexedIQ2_XS, 256, 74, {0}},
    {"iq2_s by indices", WeightForm::kIndexedIQ2_S, 256, 82, {0}},
    {"iq3_xxs by indices", WeightForm::kIndexedIQ3_XXS, 256, 98, {0}},
    {"iq3_s by indices", WeightForm::kIndexedIQ3_S, 256, 110, {0}},
};
static_assert(std::size(kFileTypes) == kWeightForms);

struct Matrix {
  const FileType* type;
  int64_t n_in, n_out;
  size_t row_bytes;
  std::vector<std::byte> file, packed;
};

// The codes of a block, and the scales between them: at random, or a byte as far from others as there are.
void fill_block(const FileType& type, bool extreme, std::byte* block) {
  constexpr uint8_t kExtremes[] = {0x00, 0xFF, 0x80, 0x7F, 0x88, 0x77, 0x0F, 0xF0};
  const uint8_t same = kExtremes[random_bits.below(std::size(kExtremes))];
  for (int i = 0; i < type.bytes; ++i) {
    block[i] = static_cast<std::byte>(extreme ? same : random_bits.bits() >> 24);
  }
  for (const int at : type.halves) {
    const Half scale = random_bits.half();
    std::memcpy(block + at, &scale, sizeof scale);
  }
  if (type.form == WeightForm::kMXFP4) {
    block[0] = static_cast<std::byte>(random_bits.below(16) == 0 ? random_bits.below(3) : 118 + random_bits.below(12));
  } else if (type.form == WeightForm::kIQ1_M ||
             type.form == WeightForm::kIndexedIQ1_M) {  // the factor's sign and exponent: small
    block[55] = (block[55] & std::byte{0x8F}) | std::byte{0x20};
  } else if (type.form == WeightForm::kF32) {
    const float value = random_bits.value();
    std::memcpy(block, &value, sizeof value);
  } else if (type.form == WeightForm::kBF16) {
    const auto high = static_cast<uint16_t>(std::bit_cast<uint32_t>(random_bits.value()) >> 16);
    std::memcpy(block, &high, sizeof high);
  }
}

Matrix make_matrix(const FileType& type, int64_t n_in, int64_t n_out, bool extreme = false) {
  Matrix matrix{&type, n_in, n_out, static_cast<size_t>(n_in / type.inputs * type.bytes), {}, {}};
  matrix.file.resize(matrix.row_bytes * static_cast<size_t>(n_out));
  for (size_t at = 0; at < matrix.file.size(); at += static_cast<size_t>(type.bytes)) {
    fill_block(type, extreme, matrix.file.data() + at);
  }
  matrix.packed.resize(packed_bytes(type.form, n_in, n_out));
  pack_groups(type.form, {matrix.file.data(), matrix.row_bytes, n_in, n_out}, 0, (n_out + kGroup - 1) / kGroup,
              matrix.packed.data());
  return matrix;
}

// --- Products. ---

// Panels of a matrix of `rows` rows of n_in values.
std::vector<std::byte> make_panels(const Kernels& kernels, WeightForm form, const std::vector<float>& x, int64_t n_in) {
  const int64_t rows = static_cast<int64_t>(x.size()) / n_in, panels = (rows + kPanel - 1) / kPanel;
  struct Layout {
    int64_t block;
    size_t bytes;  // of a block
  };
  const InputForm read = input_form(form);
  const Layout layout = read == InputForm::kFloats    ? Layout{kDenseBlock, sizeof(DenseInput)}
                        : read == InputForm::kBFloats ? Layout{kBFloatBlock, sizeof(BFloatInput)}
                                                      : Layout{kBlock, sizeof(BlockInput)};
  const int64_t blocks = (n_in + layout.block - 1) / layout.block;
  const size_t panel_bytes = static_cast<size_t>(blocks) * kPanel * layout.bytes;
  std::vector<std::byte> out(static_cast<size_t>(panels) * panel_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x.data() + row * n_in;
    std::byte* to =
        out.data() + static_cast<size_t>(row / kPanel) * panel_bytes + static_cast<size_t>(row % kPanel) * layout.bytes;
    if (read == InputForm::kBlocks) {
      kernels.quantise(from, n_in, to);
      continue;
    }
    for (int64_t k = 0; k < n_in; ++k) {
      const int64_t at = k / layout.block * kPanel, i = k % layout.block;
      if (read == InputForm::kFloats) reinterpret_cast<DenseInput*>(to)[at].x[i] = from[k];
      if (read == InputForm::kBFloats) reinterpret_cast<BFloatInput*>(to)[at].x[i] = to_bfloat16(from[k]);
    }
  }
  return out;
}

// The part of the product that begins at the output and the row; replacing what is there, or added to it.
struct Rectangle {
  int64_t output = 0, row = 0;
  bool add = false, bias = false;
};

void report_product(const std::string& kind, const Matrix& w, const std::vector<float>& x, Rectangle part = {}) {
  const int64_t rows = static_cast<int64_t>(x.size()) / w.n_in, stride = w.n_out + 3;
  const std::vector<float> before = random_bits.values(rows * stride);
  const std::vector<float> bias = random_bits.values((w.n_out + kGroup - 1) / kGroup * kGroup);
  const std::string name = std::string(w.type->name) + " " + kind + " " + std::to_string(w.n_in) + "x" +
                           std::to_string(w.n_out) + " width " + std::to_string(rows);
  report(name, [&](const Kernels& kernels) {
    const std::vector<std::byte> panels = make_panels(kernels, w.type->form, x, w.n_in);
    std::vector<float> y = before;
    Product product;
    product.weights = w.packed.data();
    product.n_in = w.n_in;
    product.n_out = w.n_out;
    product.bias = part.bias ? bias.data() : nullptr;
    product.x = panels.data();
    product.y = y.data();
    product.stride = stride;
    product.add = part.add;
    product.output = part.output;
    product.output_end = w.n_out;
    product.row = part.row;
    product.row_end = rows;
    kernels.multiply[static_cast<int>(w.type->form)](product);
    return y;
  });
}

// All values of a row +1 or -1: codes of activations as large as there are.
std::vector<float> extreme_rows(int64_t rows, int64_t n_in) {
  std::vector<float> x(static_cast<size_t>(rows * n_in));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int64_t>(i) / n_in % 2 == 0 ? 1.0f : -1.0f;
  return x;
}

void report_products(const FileType& type) {
  const bool dense = input_form(type.form) != InputForm::kBlocks;
  const Matrix common = make_matrix(type, dense ? 71 : 256, 43), whole = make_matrix(type, 512, 16);
  const Matrix least = make_matrix(type, type.inputs, 1);
  for (const Matrix* const matrix : {&common, &whole, &least}) {
    for (const int64_t width : {1, 2, 3, 4, 5, 6, 7, 8, 13, 37}) {
      report_product("product", *matrix, random_bits.values(width * matrix->n_in));
    }
  }
  report_product("part", common, random_bits.values(13 * common.n_in), {16, 8, true, true});
  // More rows of x, and more blocks, than any set takes at once, and a part of as many of both.
  const Matrix longer = make_matrix(type, dense ? 71 : type.inputs == 32 ? 352 : 512, 17);
  report_product("many rows", longer, random_bits.values(77 * longer.n_in), {0, 8, true, true});
  report_product("extremes", make_matrix(type, 512, 43, true), extreme_rows(9, 512));

  report(std::string(type.name) + " to floats", [&](const Kernels&) {
    std::vector<float> out(static_cast<size_t>(whole.n_in * whole.n_out));
    for (int64_t row = 0; row < whole.n_out; ++row) {
      row_to_floats(type.form, whole.file.data() + static_cast<size_t>(row) * whole.row_bytes,
                    std::span(out).subspan(static_cast<size_t>(row * whole.n_in), static_cast<size_t>(whole.n_in)));
    }
    return out;
  });
}

// --- The other kernels. ---

void report_quantise() {
  std::vector<float> x = random_bits.values(512);
  for (size_t i = 0; i < 32; ++i) x[i] = 0.0f;
  for (size_t i = 32; i < 64; ++i) x[i] = 1e-31f * static_cast<float>(i);
  for (size_t i = 64; i < 96; ++i) x[i] = i == 64 ? -127.0f : static_cast<float>(i) - 80.5f;  // ties
  report("quantise 512", [&](const Kernels& kernels) { return make_panels(kernels, WeightForm::kQ8_0, x, 512); });
}

void report_rows() {
  for (const int64_t n : {1, 7, 8, 9, 24, 57, 71, 128, 200, 301, 512, 576}) {
    const std::vector<float> x = random_bits.values(n), weight = random_bits.values(n);
    const std::vector<float> wide = random_bits.values(n, 8);  // up to 256, where e^x is no float any more
    const std::string size = " " + std::to_string(n);
    report("rms_norm" + size, [&](const Kernels& kernels) {
      std::vector<float> out(x.size());
      kernels.rms_norm(x.data(), weight.data(), n, 1e-5f, out.data());
      return out;
    });
    report("silu_times" + size, [&](const Kernels& kernels) {
      std::vector<float> gate = wide;
      kernels.silu_times(gate.data(), x.data(), n);
      return gate;
    });
    report("clamped_silu_times" + size, [&](const Kernels& kernels) {
      std::vector<float> gate = wide;
      kernels.clamped_silu_times(gate.data(), x.data(), n);
      return gate;
    });
    report("gelu_times" + size, [&](const Kernels& kernels) {
      std::vector<float> gate = wide;
      kernels.gelu_times(gate.data(), x.data(), n);
      return gate;
    });
    report("soft_cap" + size, [&](const Kernels& kernels) {
      std::vector<float> capped = wide;
      kernels.soft_cap(capped.data(), n, 30.0f);
      return capped;
    });
    for (const auto& [name, in] : {std::pair("softmax", &x), std::pair("softmax of wide range", &wide)}) {
      report(name + size, [&, values = in](const Kernels& kernels) {
        std::vector<float> out = *values;
        kernels.softmax(out.data(), n);
        return out;
      });
    }
  }
}

void report_attention() {
  constexpr int64_t kQueries = 3, kStride = 40;
  for (const int64_t padded : {8, 64, 72, 200}) {
    const std::vector<float> queries = random_bits.values(kQueries * padded), rows = random_bits.values(37 * padded);
    const std::vector<float> shares = random_bits.values(kQueries * kStride);
    const std::string size = " " + std::to_string(padded);
    report("scores" + size, [&](const Kernels& kernels) {
      std::vector<float> scores(kQueries * kStride);
      kernels.scores(queries.data(), kQueries, rows.data(), padded, scores.data(), kStride);
      return scores;
    });
    for (const int64_t count : {1, 5, 37}) {
      report("gather" + size + " of " + std::to_string(count), [&](const Kernels& kernels) {
        std::vector<float> totals = queries;
        kernels.gather(shares.data(), kStride, kQueries, rows.data(), padded, count, totals.data());
        return totals;
      });
    }
  }
}

void report_halves() {
  constexpr uint32_t kInfinity = 0x7C00;
  std::vector<Half> halves;  // all that are numbers
  for (const uint32_t sign : {0x8000u, 0u}) {
    for (uint32_t bits = 0; bits <= kInfinity; ++bits) halves.push_back({static_cast<uint16_t>(sign | bits)});
  }
  report("from_halves", [&](const Kernels& kernels) {
    std::vector<float> out(halves.size());
    kernels.from_halves(halves.data(), static_cast<int64_t>(halves.size()), out.data());
    return out;
  });

  // Each, and the floats beside the middle between it and the next. Not the middle itself: Bochs 2.7 rounds ties up.
  std::vector<float> x = random_bits.values(1000, 20);
  for (size_t i = 0; i + 1 < halves.size(); ++i) {
    const float a = to_f32(halves[i]), b = to_f32(halves[i + 1]);
    if (std::isinf(a) || std::isinf(b)) continue;
    const float middle = (a + b) / 2.0f;
    x.insert(x.end(), {a, std::nextafter(middle, 1e9f), std::nextafter(middle, -1e9f)});
  }
  x.insert(x.end(), {65519.0f, 65521.0f, -65521.0f, 1e30f, INFINITY, -INFINITY});
  report("to_halves", [&](const Kernels& kernels) {
    std::vector<Half> out(x.size());
    kernels.to_halves(x.data(), static_cast<int64_t>(x.size()), out.data());
    return out;
  });
}

int report_all() {
  std::fprintf(stderr, "instruction sets:");
  for (const Kernels* const set : runnable_kernels()) std::fprintf(stderr, " %s", set->name);
  std::fprintf(stderr, "; best: %s\n", kernels().name);
  for (const FileType& type : kFileTypes) report_products(type);
  report_quantise();
  report_rows();
  report_attention();
  report_halves();
  return all_agree ? 0 : 1;
}

}  // namespace
}  // namespace sluice::kernels

int main() { return sluice::kernels::report_all(); }
