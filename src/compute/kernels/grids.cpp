#include "compute/kernels/grids.h"

#include <array>

#include "compute/kernels/grid_files.h"

namespace sluice::kernels {
namespace {

// By ggml's reading of blocks that have an index in front, a factor of 1 and no signs: its products are then exact, and
// so are these quotients.
template <class File>
const int8_t* read_grid() {
  using P = typename File::Indexed;
  constexpr int kEntries = 1 << (8 + P::kHighBits);
  static const auto values = [] {
    std::array<int8_t, kEntries * P::kTogether> all;
    for (int index = 0; index < kEntries; ++index) {
      File block{};
      block.set_factor({0x3C00});
      block.set_first_index(index);
      float inputs[kSuperBlock];
      ggml_get_type_traits(File::kType)->to_float(&block, inputs, kSuperBlock);
      for (int i = 0; i < P::kTogether; ++i)
        all[static_cast<size_t>(index * P::kTogether + i)] = static_cast<int8_t>(inputs[i] / P::kUnit);
    }
    return all;
  }();
  return values.data();
}

}  // namespace

const int8_t* grid_of(WeightForm form) {
  switch (form) {
    case WeightForm::kIQ1_S:
    case WeightForm::kIndexedIQ1_S:
    case WeightForm::kIQ1_M:
    case WeightForm::kIndexedIQ1_M:
      return read_grid<FileIQ1_S>();
    case WeightForm::kIQ2_XXS:
    case WeightForm::kIndexedIQ2_XXS:
      return read_grid<FileIQ2_XXS>();
    case WeightForm::kIQ2_XS:
    case WeightForm::kIndexedIQ2_XS:
      return read_grid<FileIQ2_XS>();
    case WeightForm::kIQ2_S:
    case WeightForm::kIndexedIQ2_S:
      return read_grid<FileIQ2_S>();
    case WeightForm::kIQ3_XXS:
    case WeightForm::kIndexedIQ3_XXS:
      return read_grid<FileIQ3_XXS>();
    case WeightForm::kIQ3_S:
    case WeightForm::kIndexedIQ3_S:
      return read_grid<FileIQ3_S>();
    default:
      return nullptr;
  }
}

}  // namespace sluice::kernels
