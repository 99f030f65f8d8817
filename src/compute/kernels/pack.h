// From a model file's weights to the kernels' layout.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "compute/kernels/table.h"

namespace sluice::kernels {

// From now on types whose codes come from grids (IQ1, IQ2, IQ3) keep a file's indices, if `keep`: at most 1.1 of their
// bytes in the file instead of 1.3 to 2.3, and the same bits of every product; but few rows at a time take longer.
void keep_indices(bool keep);
bool indices_are_kept();

// The packed form of a type, if there is one.
std::optional<WeightForm> packed_form(ggml_type type);

// What the products of a form read: panels of DenseInput, BFloatInput or BlockInput; see packed.h.
enum class InputForm : uint8_t { kFloats, kBFloats, kBlocks };
InputForm input_form(WeightForm form);

// Rows of weights as in a file, n_in values each. n_in is a multiple of the type's block.
struct FileRows {
  const std::byte* data = nullptr;
  size_t row_bytes = 0;
  int64_t n_in = 0, n_out = 0;
};

size_t packed_bytes(WeightForm form, int64_t n_in, int64_t n_out);

// Packs the groups of 16 rows [first, last). out: packed_bytes of the whole matrix, zero.
void pack_groups(WeightForm form, const FileRows& rows, int64_t first, int64_t last, std::byte* out);

// A row as floats: product of scale and code, plus the minimum; the same bits on every machine. out: [n_in].
void row_to_floats(WeightForm form, const std::byte* row, std::span<float> out);

}  // namespace sluice::kernels
