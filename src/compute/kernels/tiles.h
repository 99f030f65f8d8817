// Integer sums by AMX: tiles of a panel of x by a group of weights, over a block or half of one. They are exact, as all
// integer sums are, so that what is computed from them has the bits of every other instruction set.
#pragma once

#include "compute/kernels/dots.h"

#if SLUICE_SIMD_AMX

#ifdef SLUICE_PLAIN_TILES  // a header with the instructions in plain C++, for tests
#include SLUICE_PLAIN_TILES
#endif

namespace sluice::kernels::SLUICE_ISA {

// A block's values, less the type's offset. A row of a tile of weights is a step.
struct alignas(64) TileWeights {
  int8_t q[kSteps][kGroup][4];
};
struct alignas(64) TileSums {
  int32_t of[kPanel][kGroup];
};

template <int Offset, class Codes>
inline void unpack(const Codes& codes, TileWeights& out) {
  const __m512i surplus = bytes(static_cast<int8_t>(Offset + kBias<Codes>));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const StepPair w = steps(codes, i);
    _mm512_store_si512(out.q[i], _mm512_sub_epi8(w.first, surplus));
    _mm512_store_si512(out.q[i + 4], _mm512_sub_epi8(w.second, surplus));
  }
}

// As the processor reads it.
struct alignas(64) TileShapes {
  uint8_t palette, first_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

// Registers 0 and 1 are sums, 2 and 3 x, 4 and 5 weights.
template <int Inputs>
constexpr TileShapes shapes_for() {
  TileShapes shapes{};
  shapes.palette = 1;
  for (int set = 0; set < 2; ++set) {
    shapes.rows[set] = kPanel;
    shapes.row_bytes[set] = sizeof(int32_t) * kGroup;
    shapes.rows[2 + set] = kPanel;
    shapes.row_bytes[2 + set] = Inputs;
    shapes.rows[4 + set] = Inputs / 4;
    shapes.row_bytes[4 + set] = 4 * kGroup;
  }
  return shapes;
}

// While it lives, this thread's tile registers are for products over `Inputs` inputs. Then they hold nothing again:
// what they hold is saved at every switch between threads.
template <int Inputs>
class TilesInUse {
 public:
  TilesInUse() { _tile_loadconfig(&kShapes); }
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

 private:
  static constexpr TileShapes kShapes = shapes_for<Inputs>();
};

// x: the inputs of the panel's first row. Two sets of registers, so that a product need not wait for the one before.
template <int Set>
inline void multiply_tile(const int8_t* x, const int8_t* weights, TileSums& sums) {
  if constexpr (Set == 0) {
    _tile_zero(0);
    _tile_loadd(2, x, sizeof(BlockInput));
    _tile_loadd(4, weights, 4 * kGroup);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, sums.of, sizeof sums.of[0]);
  } else {
    _tile_zero(1);
    _tile_loadd(3, x, sizeof(BlockInput));
    _tile_loadd(5, weights, 4 * kGroup);
    _tile_dpbssd(1, 3, 5);
    _tile_stored(1, sums.of, sizeof sums.of[0]);
  }
}

// sums[block][part]: of each of the blocks' parts of `Inputs` inputs. x: the panel's blocks.
template <int Inputs>
inline void multiply_tiles(const TileWeights* weights, const BlockInput* x, int blocks,
                           TileSums (*sums)[kBlock / Inputs]) {
  constexpr int kTiles = kBlock / Inputs;
  asm volatile("" ::: "memory");  // the weights are there: GCC's tile loads don't say that they read memory
  const auto multiply = [&]<int Set>(int part) {
    const int block = part / kTiles, step = part % kTiles * Inputs / 4;
    multiply_tile<Set>(x[block * kPanel].q + 4 * step, weights[block].q[step][0], sums[block][part % kTiles]);
  };
  for (int part = 0; part < blocks * kTiles; part += 2) {
    multiply.template operator()<0>(part);
    if (part + 1 < blocks * kTiles) multiply.template operator()<1>(part + 1);
  }
}

}  // namespace sluice::kernels::SLUICE_ISA

#endif
