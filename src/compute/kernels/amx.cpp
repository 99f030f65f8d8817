#include "compute/kernels/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "compute/kernels/packed.h"

namespace sluice::kernels {
namespace {

// Bits of the register that says which state the operating system saves.
constexpr unsigned kTileShapes = 1u << 17, kTileData = 1u << 18;

unsigned saved_state() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kOsXsave = 1u << 27;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & kOsXsave) == 0) return 0;
  asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

// Two panels of x by a group of weights; codes are any bytes, and so are activations.
struct Sample {
  static constexpr int64_t kInputs = PackedQ6_K::kInputs, kBlocks = kInputs / kBlock, kRows = int64_t{2} * kPanel;
  BlockInput x[kRows / kPanel][kBlocks][kPanel];
  PackedQ8_0 q8_0[kBlocks];
  PackedQ6_K q6_k;

  Sample() {
    auto* bytes = reinterpret_cast<uint8_t*>(this);
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof *this; ++i) {
      state = state * 1664525 + 1013904223;
      bytes[i] = static_cast<uint8_t>(state >> 24);
    }
    for (auto& panel : x) {
      for (auto& block : panel) {
        for (BlockInput& in : block) complete(in);
      }
    }
    constexpr Half kOne{0x3C00};
    for (int row = 0; row < kGroup; ++row) {
      for (PackedQ8_0& block : q8_0) block.scales.d[row] = kOne;
      q6_k.scales.d[row] = kOne;
    }
  }

  static void complete(BlockInput& in) {
    in.half_sums[0] = in.half_sums[1] = 0;
    for (int k = 0; k < kBlock; ++k) {
      in.q[k] = std::max<int8_t>(in.q[k], -127);
      in.half_sums[k / 16] += in.q[k];
    }
    in.scale = 0.5f;
    in.scaled_sum = in.scale * static_cast<float>(in.half_sums[0] + in.half_sums[1]);
  }

  void multiply(const Kernels& kernels, WeightForm form, const void* weights, float (&y)[kRows * kGroup]) const {
    Product product;
    product.weights = static_cast<const std::byte*>(weights);
    product.n_in = kInputs;
    product.n_out = product.stride = product.output_end = kGroup;
    product.x = reinterpret_cast<const std::byte*>(x);
    product.y = y;
    product.row_end = kRows;
    kernels.multiply[static_cast<int>(form)](product);
  }

  bool same(const Kernels& a, const Kernels& b, WeightForm form, const void* weights) const {
    float of_a[kRows * kGroup], of_b[kRows * kGroup];
    multiply(a, form, weights, of_a);
    multiply(b, form, weights, of_b);
    return std::equal(std::begin(of_a), std::end(of_a), of_b);
  }
};

}  // namespace

bool may_use_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kTiles = 1u << 24, kBytes = 1u << 25;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (edx & kTiles) == 0 || (edx & kBytes) == 0) return false;
  if ((saved_state() & kTileShapes) == 0 || (saved_state() & kTileData) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileDataNumber = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileDataNumber) == 0;
}

// Q8_0's tiles span a block, Q6_K's half of one.
bool tiles_are_right(const Kernels& kernels, const Kernels& plain) {
  const auto sample = std::make_unique<Sample>();
  return sample->same(kernels, plain, WeightForm::kQ8_0, sample->q8_0) &&
         sample->same(kernels, plain, WeightForm::kQ6_K, &sample->q6_k);
}

}  // namespace sluice::kernels
