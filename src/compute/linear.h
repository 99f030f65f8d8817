// All matrix products of a layer and the head: y = x W^T + b.
//
// Exactness: each output depends on its row of weights and its row of x alone, to the last bit: not on how many rows x
// has, and not on how the outputs are divided among threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/kernels/table.h"
#include "compute/memory.h"
#include "compute/thread_team.h"
#include "model/model_file.h"

namespace sluice {

// The form in which a kernel reads its input.
enum class InputFormat : uint8_t {
  kF32,       // panels of DenseInput; beyond the last value stand zeros
  kBF16,      // panels of BFloatInput, the same
  kQ8,        // panels of BlockInput: see kernels/packed.h
  kGgmlQ8_0,  // what ggml's vec_dot of the remaining type, NVFP4, reads
};
inline constexpr int kInputFormats = 4;

// A set of formats, so that the matrices that read the same input share its conversion.
class FormatSet {
 public:
  void add(InputFormat f) { bits_ |= 1u << static_cast<int>(f); }
  void add(FormatSet other) { bits_ |= other.bits_; }
  bool has(InputFormat f) const { return (bits_ >> static_cast<int>(f)) & 1u; }

 private:
  uint32_t bits_ = 0;
};

// Rows of activations in every format that their readers want. Reused for one input after another.
class LinearInput {
 public:
  explicit LinearInput(int64_t max_rows) : max_rows_(max_rows) {}

  // Makes room for rows of `n_in` values in these formats.
  void reserve(FormatSet formats, int64_t n_in);

  // Row `row` becomes x: [n_in]. Rows may be stored by several threads at once. REQUIRES: reserved.
  void store(FormatSet formats, int64_t row, std::span<const float> x);

  // Row `row` becomes row `other` of another input, n_in values wide. REQUIRES: reserved, and stored there.
  void copy(FormatSet formats, int64_t row, const LinearInput& from, int64_t other, int64_t n_in);

  // All rows, n_in values wide, in a format in which they were stored.
  const std::byte* rows(InputFormat format) const { return rows_[static_cast<int>(format)].data(); }

 private:
  int64_t max_rows_;
  Memory rows_[kInputFormats];
};

// One weight matrix, prepared for its kernel. Thread safety: const methods may be called from several threads at once.
class Linear {
 public:
  // Where the products go: y[row * stride + output], replaced or added to.
  struct Target {
    float* y = nullptr;
    int64_t stride = 0;
    bool add = false;
  };
  // Threads divide the outputs in multiples of this.
  static constexpr int64_t kGrain = 16;

  Linear() = default;

  // `weight` [n_out, n_in] and `bias` [n_out] or empty. Types with a packed form are copied into `memory` by `team`;
  // of the others the tensor must outlive this. `memory` must outlive this.
  static Result<Linear> create(const Tensor& weight, const Tensor& bias, Arena& memory, ThreadTeam& team);

  // The same, but a type with a packed form waits in the file: it has no place, and is not packed. `weight` must
  // outlive this, or the last packing.
  static Result<Linear> waiting(const Tensor& weight, const Tensor& bias);
  const Tensor& waiting() const { return rows_; }
  // Where it is to be packed, packed_bytes() from there on; any earlier place is forgotten.
  void place(std::byte* at) { packed_ = at; }
  // Packs these of its grains of outputs. May be called for different ones by several threads at once.
  int64_t n_grains() const { return (n_out_ + kGrain - 1) / kGrain; }
  void pack(Part grains) const;

  // Whether the tensor that it was made of is no longer needed.
  bool is_packed() const { return form_.has_value(); }
  size_t packed_bytes() const;                                    // 0 if it isn't
  bool is_there() const { return !form_ || packed_ != nullptr; }  // else it waits for a place

  int64_t n_in() const { return n_in_; }
  int64_t n_out() const { return n_out_; }
  InputFormat format() const { return format_; }

  // Rows of x are multiplied from a multiple of this on.
  static constexpr int64_t kRowGrain = 8;

  // These outputs of these rows of x. REQUIRES: outputs.begin a multiple of kGrain, rows.begin one of kRowGrain.
  void multiply(const LinearInput& x, Part rows, Part outputs, Target target) const;

 private:
  int64_t n_in_ = 0, n_out_ = 0;
  InputFormat format_ = InputFormat::kF32;
  void multiply_by_vec_dot(const LinearInput& x, Part outputs, Part rows, Target target) const;

  std::optional<kernels::WeightForm> form_;  // of packed_
  std::byte* packed_ = nullptr;
  Tensor rows_;              // the file's, of types without a packed form, and of what waits
  std::vector<float> bias_;  // padded to whole grains
};

// A vector of weights (norm, bias) as f32. A row of a matrix of any type as f32, for the types with a packed form with
// the same bits on every machine. REQUIRES: 0 <= row < tensor.ne[1].
std::vector<float> to_f32_vector(const Tensor& tensor);
void copy_row_f32(const Tensor& tensor, int64_t row, std::span<float> out);

}  // namespace sluice
