#include <bit>

#include "compute/kernels/dots.h"
#include "compute/kernels/grids.h"
#include "compute/kernels/packed.h"
#include "compute/kernels/parts.h"
#include "compute/kernels/simd.h"
#include "compute/kernels/tiles.h"
#include "compute/kernels/unpack.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// --- What a block's codes are worth. ---

// Of the rows from `row` on.
template <class Scales>
inline Rows scales_of(const Scales& s, int row, int block) {
  const Rows d = load_rows(s.d + row);
  if constexpr (!kHasHalves<Scales> && requires { s.scale; })
    return mul_rows(d, load_rows(s.scale[block] + row));
  else
    return d;
}

template <class Scales>
inline constexpr bool kHasMin = false;
template <>
inline constexpr bool kHasMin<ScaleAndMin> = true;
template <>
inline constexpr bool kHasMin<SuperScaleAndMin> = true;

inline Rows mins_of(const ScaleAndMin& s, int row, int) { return load_rows(s.m + row); }
inline Rows mins_of(const SuperScaleAndMin& s, int row, int block) {
  return mul_rows(mul_rows(load_rows(s.dmin + row), splat_rows(-1.0f)), load_rows(s.min[block] + row));
}

template <class P>
inline constexpr bool kScaledHalves = kHasHalves<typename P::Scales>;

// What the codes' sums are too large by.
template <class P, int N, int C>
inline void subtract_surplus(const BlockInput* x, IntRows (&sums)[N][C]) {
  constexpr int kSurplus = P::kOffset + kBias<typename P::Codes>;
  if constexpr (kSurplus != 0) {
    for (int c = 0; c < C; ++c) {
      const int32_t surplus = kSurplus * (x[c].half_sums[0] + x[c].half_sums[1]);
      for (int part = 0; part < N; ++part) sums[part][c] = subtract(sums[part][c], surplus);
    }
  }
}

#if SLUICE_SIMD_AVX512

// Of a block of each of the groups.
template <int G, class P, int C>
inline void sums_of(const P* const (&packed)[G], int block, const BlockInput* x, IntRows (&sums)[G][C]) {
  const typename P::Codes* codes[G];
  for (int group = 0; group < G; ++group) codes[group] = &packed[group]->codes[block];
  if constexpr (kScaledHalves<P>) {
    HalfFactors factors[G];
    for (int group = 0; group < G; ++group) factors[group] = factors_of(packed[group]->scales.scale[block]);
    scaled_sums(codes, factors, x, sums);
  } else {
    block_sums(codes, x, sums);
    subtract_surplus<P>(x, sums);
  }
}

#else

// Of N parts of a group from `row` on.
template <class P, int N, int C>
inline void sums_of(const P& packed, int row, int block, const BlockInput* x, IntRows (&sums)[N][C]) {
  if constexpr (kScaledHalves<P>) {
    scaled_sums(packed.codes[block], row, packed.scales.scale[block], x, sums);
  } else {
    block_sums(packed.codes[block], row, x, sums);
    subtract_surplus<P>(x, sums);
  }
}

#endif

// --- A tile: a few groups of rows of weights by C rows of x. The sums: y[part][c], part by part of kRows rows. ---

template <int N, int C>
inline void clear(Rows (&y)[N][C]) {
  for (int part = 0; part < N; ++part) {
    for (int c = 0; c < C; ++c) y[part][c] = zero_rows();
  }
}
template <int N, int C>
inline void add(const Rows (&more)[N][C], Rows (&y)[N][C]) {
  for (int part = 0; part < N; ++part) {
    for (int c = 0; c < C; ++c) y[part][c] = add_rows(y[part][c], more[part][c]);
  }
}

// Keeps the compiler from fetching what the next part needs before this one is done: there are no registers for it.
inline void next_part() { asm volatile("" ::: "memory"); }

// What lies `p.ahead` bytes behind these. The processor's own prefetching stops at every page.
inline void fetch_ahead(const Product& p, const void* at, size_t bytes) {
  constexpr size_t kLine = 64;
  const char* from = static_cast<const char*>(at) + p.ahead;
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i);
}

// The groups of a tile, one after another. Only the first tile that needs them fetches ahead.
struct Groups {
  const std::byte* at;
  size_t group_bytes;
  bool first;
  const std::byte* group(int g) const { return at + static_cast<size_t>(g) * group_bytes; }
};

// As many rows of x, at most a panel, as the vector registers hold sums for, and of quantised weights as many groups.
#if SLUICE_SIMD_AVX512
constexpr int kDenseRows = 8, kQuantisedRows = 8, kQuantisedGroups = 2;
#elif SLUICE_SIMD_X86
constexpr int kDenseRows = 4, kQuantisedRows = 8, kQuantisedGroups = 1;
#else
constexpr int kDenseRows = 4, kQuantisedRows = 4, kQuantisedGroups = 1;
#endif

template <class P>
struct QuantisedTile {
  using Block = P;
  using Input = BlockInput;
  static constexpr int kInputs = P::kInputs, kInputBlock = kBlock, kGroups = kQuantisedGroups;

  // x: the panel's blocks, from the tile's first row on.
  template <int G, int C>
  static inline void run(const Product& p, const Groups& groups, const BlockInput* x, Rows (&y)[G * kParts][C]) {
    constexpr size_t kBlockBytes = sizeof(P) / P::Scales::kBlocks;  // with its share of the scales
    const P* packed[G];
    for (int g = 0; g < G; ++g) packed[g] = reinterpret_cast<const P*>(groups.group(g));
    size_t at = 0;  // bytes of a group
    for (int64_t input = 0; input < p.n_in; input += kInputs) {
      for (int block = 0; block < P::Scales::kBlocks; ++block, x += kPanel, at += kBlockBytes) {
        if (groups.first) {  // not more at once: a burst stops everything
          const size_t others = at + p.ahead < groups.group_bytes ? 0 : (G - 1) * groups.group_bytes;
          for (int g = 0; g < G; ++g) fetch_ahead(p, groups.group(g) + at + others, kBlockBytes);
        }
        add_block<G>(packed, block, x, y);
      }
      for (int g = 0; g < G; ++g) ++packed[g];
    }
  }

#if SLUICE_SIMD_AVX512

  template <int G, int C>
  static inline void add_block(const P* const (&packed)[G], int block, const BlockInput* x, Rows (&y)[G][C]) {
    IntRows sums[G][C];
    sums_of(packed, block, x, sums);
    for (int g = 0; g < G; ++g) add_sums(*packed[g], 0, block, x, sums[g], y[g]);
    next_part();
  }

#else

  template <int G, int C>
  static inline void add_block(const P* const (&packed)[G], int block, const BlockInput* x, Rows (&y)[kParts][C]) {
    constexpr int kAtOnce = C <= kColumnsForAllParts<typename P::Codes> ? kParts : 1;
    for (int first = 0; first < kParts; first += kAtOnce) {
      IntRows sums[kAtOnce][C];
      sums_of(*packed[0], first * kRows, block, x, sums);
      for (int i = 0; i < kAtOnce; ++i) {
        const int part = first + i;
        add_sums(*packed[0], part * kRows, block, x, sums[i], y[part]);
      }
      next_part();
    }
  }

#endif

  // What a block's integer sums are worth: of the rows from `row` on.
  template <int C>
  static inline void add_sums(const P& packed, int row, int block, const BlockInput* x, const IntRows (&sums)[C],
                              Rows (&y)[C]) {
    const Rows scale = scales_of(packed.scales, row, block);
    for (int c = 0; c < C; ++c) y[c] = fma_rows(mul_rows(scale, splat_rows(x[c].scale)), to_float(sums[c]), y[c]);
    if constexpr (kHasMin<typename P::Scales>) {
      const Rows min = mins_of(packed.scales, row, block);
      for (int c = 0; c < C; ++c) y[c] = fma_rows(min, splat_rows(x[c].scaled_sum), y[c]);
    }
    if constexpr (kHasMinHalves<typename P::Scales>) add_mins_of_halves(packed.scales, row, block, x, y);
  }

  // Sums of small integers, exact in float.
  template <int C>
  static inline void add_mins_of_halves(const typename P::Scales& s, int row, int block, const BlockInput* x,
                                        Rows (&y)[C]) {
    const Rows dmin = mul_rows(load_rows(s.dmin + row), splat_rows(-1.0f));
    const HalfMins mins = mins_of_halves(s.scale[block] + row);
    for (int c = 0; c < C; ++c) {
      const Rows of_first = mul_rows(mins.first, splat_rows(static_cast<float>(x[c].half_sums[0])));
      const Rows sums = fma_rows(mins.second, splat_rows(static_cast<float>(x[c].half_sums[1])), of_first);
      y[c] = fma_rows(mul_rows(dmin, splat_rows(x[c].scale)), sums, y[c]);
    }
  }
};

template <class DenseBlock>
struct DenseTile {
  using Block = DenseBlock;
  using Input = DenseInput;
  static constexpr int kInputs = kDenseBlock, kInputBlock = kDenseBlock, kGroups = 1;

  template <int G, int C>
  static inline void run(const Product& p, const Groups& groups, const DenseInput* x, Rows (&y)[kParts][C]) {
    const Block* block = reinterpret_cast<const Block*>(groups.at);
    const Block* end = block + (p.n_in + kDenseBlock - 1) / kDenseBlock;
    while (block < end) {
      Rows of_runs[kParts][C];
      clear(of_runs);
      for (int run = 0; run < kDenseRun && block < end; ++run) {
        Rows of_blocks[kParts][C];
        clear(of_blocks);
        for (int i = 0; i < kDenseRun && block < end; ++i, ++block, x += kPanel) {
          if constexpr (C == 1) fetch_ahead(p, block, sizeof *block);
          add_block(*block, x, of_blocks);
        }
        add(of_blocks, of_runs);
      }
      add(of_runs, y);
    }
  }

  // All parts at once: each value of x is fetched for all rows of the group.
  template <int C>
  static inline void add_block(const Block& block, const DenseInput* x, Rows (&y)[kParts][C]) {
    Rows first[kParts][C], second[kParts][C];
    sum_half<0>(block, x, first);
    sum_half<1>(block, x, second);
    add(second, first);
    add(first, y);
  }

  template <int Half, int C>
  static inline void sum_half(const Block& block, const DenseInput* x, Rows (&sums)[kParts][C]) {
    constexpr int kFirst = Half * kDenseBlock / 2;
#pragma GCC unroll 4
    for (int k = kFirst; k < kFirst + kDenseBlock / 2; ++k) {
      Rows w[kParts];
      for (int part = 0; part < kParts; ++part) w[part] = load_rows(block.w[k] + part * kRows);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const Rows in = splat_rows(x[c].x[k]);
        for (int part = 0; part < kParts; ++part) {
          sums[part][c] = k == kFirst ? mul_rows(w[part], in) : fma_rows(w[part], in, sums[part][c]);
          if (k % 2 == 1) pin(sums[part][c]);
        }
      }
    }
  }
};

struct BFloatTile {
  using Block = DenseBF16;
  using Input = BFloatInput;
  static constexpr int kInputs = kBFloatBlock, kInputBlock = kBFloatBlock, kGroups = 1;

  template <int G, int C>
  static inline void run(const Product& p, const Groups& groups, const BFloatInput* x, Rows (&y)[kParts][C]) {
    const Block* block = reinterpret_cast<const Block*>(groups.at);
    const Block* end = block + (p.n_in + kInputs - 1) / kInputs;
    for (; block < end; ++block, x += kPanel) {
      if constexpr (C <= 2) fetch_ahead(p, block, sizeof *block);
      Rows sums[kParts][C];
      clear(sums);
#pragma GCC unroll 16
      for (int pair = 0; pair < kInputs / 2; ++pair) {
        RowPairs w[kParts];
        for (int part = 0; part < kParts; ++part) w[part] = load_pairs(block->w[pair] + part * kRows);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          const RowPairs in = splat_pair(x[c].x + 2 * pair);
          for (int part = 0; part < kParts; ++part) {
            sums[part][c] = fma_pairs(w[part], in, sums[part][c]);
            pin(sums[part][c]);
          }
        }
      }
      add(sums, y);
    }
  }
};

// --- Over the rectangle. ---

void put(const Product& p, int64_t output, int64_t row, Rows value) {
  if (p.bias) value = add_rows(value, load_rows(p.bias + output));
  float* y = p.y + row * p.stride + output;
  if (output + kRows <= p.n_out) {
    store_rows(y, p.add ? add_rows(load_rows(y), value) : value);
    return;
  }
  float values[kRows];
  store_rows(values, value);
  for (int64_t i = 0; i < p.n_out - output; ++i) y[i] = p.add ? y[i] + values[i] : values[i];
}

template <class Tile, int G, int C>
void tile(const Product& p, const Groups& groups, int64_t output, int64_t row) {
  const int64_t panel_inputs = (p.n_in + Tile::kInputBlock - 1) / Tile::kInputBlock * kPanel;
  const auto* x = reinterpret_cast<const typename Tile::Input*>(p.x) + row / kPanel * panel_inputs + row % kPanel;
  Rows y[G * kParts][C];
  clear(y);
  Tile::template run<G>(p, groups, x, y);
  for (int part = 0; part < G * kParts; ++part) {
    for (int c = 0; c < C; ++c) put(p, output + part * kRows, row + c, y[part][c]);
  }
}

// A tile of up to C rows.
template <class Tile, int G, int C>
void tile_of(const Product& p, const Groups& groups, int64_t output, int64_t row) {
  if (p.row_end - row >= C) return tile<Tile, G, C>(p, groups, output, row);
  if constexpr (C > 1) tile_of<Tile, G, C - 1>(p, groups, output, row);
}

// Tiles of G groups, from `output` on as many as there are; where the rest begins.
template <class Tile, int G, int Widest>
int64_t multiply_groups(const Product& p, int64_t output) {
  const size_t group_bytes =
      static_cast<size_t>((p.n_in + Tile::kInputs - 1) / Tile::kInputs) * sizeof(typename Tile::Block);
  for (; output + (G - 1) * kGroup < p.output_end; output += G * kGroup) {
    const std::byte* at = p.weights + static_cast<size_t>(output / kGroup) * group_bytes;
    for (int64_t row = p.row; row < p.row_end; row += Widest) {
      tile_of<Tile, G, Widest>(p, {at, group_bytes, row == p.row}, output, row);
    }
  }
  return output;
}

template <class Tile, int Widest>
void multiply(const Product& p) {
  int64_t output = p.output;
  if constexpr (Tile::kGroups > 1) {
    if (p.row_end - p.row >= kRowsForTwoGroups) output = multiply_groups<Tile, Tile::kGroups, Widest>(p, output);
  }
  multiply_groups<Tile, 1, Widest>(p, output);
}

#if SLUICE_SIMD_AMX

// --- Panels of x by AMX: codes become bytes once for all of them, a chunk of blocks at a time, which stays in L1. ---

constexpr int kChunk = 8, kMostPanels = 8;

template <class P>
constexpr int kTileInputs = kScaledHalves<P> ? kBlock / 2 : kBlock;

template <class P>
struct Panels {
  static constexpr int kTiles = kBlock / kTileInputs<P>;  // of a block
  TileWeights weights[kChunk];
  TileSums sums[kChunk][kTiles];
  Rows y[kMostPanels][kPanel];

  // The group by `n` rows of x from the beginning of a panel on.
  void multiply(const Product& p, const std::byte* group, int64_t output, int64_t row, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i / kPanel][i % kPanel] = zero_rows();
    const int64_t blocks = p.n_in / kBlock;
    const auto* x = reinterpret_cast<const BlockInput*>(p.x) + row / kPanel * blocks * kPanel;
    for (int64_t first = 0; first < blocks; first += kChunk) {
      const int count = static_cast<int>(blocks - first < kChunk ? blocks - first : kChunk);
      unpack_chunk(p, group, first, count);
      for (int64_t panel = 0; panel * kPanel < n; ++panel) {
        const BlockInput* in = x + (panel * blocks + first) * kPanel;
        multiply_tiles<kTileInputs<P>>(weights, in, count, sums);
        add_chunk<kPanel>(group, first, count, in, y[panel], n - panel * kPanel);
      }
    }
    for (int64_t i = 0; i < n; ++i) put(p, output, row + i, y[i / kPanel][i % kPanel]);
  }

  static const P& packed_of(const std::byte* group, int64_t block) {
    return reinterpret_cast<const P*>(group)[block / P::Scales::kBlocks];
  }

  void unpack_chunk(const Product& p, const std::byte* group, int64_t first, int count) {
    constexpr size_t kBlockBytes = sizeof(P) / P::Scales::kBlocks;
    for (int i = 0; i < count; ++i) {
      fetch_ahead(p, group + static_cast<size_t>(first + i) * kBlockBytes, kBlockBytes);
      unpack<P::kOffset>(packed_of(group, first + i).codes[(first + i) % P::Scales::kBlocks], weights[i]);
    }
  }

  // Up to C rows of a panel. Of the others nothing is used.
  template <int C>
  void add_chunk(const std::byte* group, int64_t first, int count, const BlockInput* x, Rows* y_panel, int64_t n) {
    if constexpr (C > 1) {
      if (n < C) return add_chunk<C - 1>(group, first, count, x, y_panel, n);
    }
    Rows y_rows[C];
    for (int c = 0; c < C; ++c) y_rows[c] = y_panel[c];
    for (int i = 0; i < count; ++i, x += kPanel) {
      const P& packed = packed_of(group, first + i);
      const int block = static_cast<int>((first + i) % P::Scales::kBlocks);
      IntRows of_block[C];
      load_sums(packed, block, sums[i], of_block);
      QuantisedTile<P>::add_sums(packed, 0, block, x, of_block, y_rows);
    }
    for (int c = 0; c < C; ++c) y_panel[c] = y_rows[c];
  }

  template <int C>
  static void load_sums(const P& packed, int block, const TileSums (&tiles)[kTiles], IntRows (&sums)[C]) {
    for (int c = 0; c < C; ++c) sums[c].v = load64(tiles[0].of[c]);
    if constexpr (kScaledHalves<P>) {
      const HalfFactors factors = factors_of(packed.scales.scale[block]);
      for (int c = 0; c < C; ++c) sums[c] = scaled_sum(sums[c], {load64(tiles[1].of[c])}, factors);
    }
  }
};

// Less than a panel isn't worth the bytes.
template <class P>
void multiply_quantised(const Product& p) {
  if (p.row_end - p.row < kPanel) return multiply<QuantisedTile<P>, kQuantisedRows>(p);
  const TilesInUse<kTileInputs<P>> in_use;
  Panels<P> panels;
  constexpr int64_t kMostRows = kMostPanels * kPanel;
  const size_t group_bytes = static_cast<size_t>(p.n_in / P::kInputs) * sizeof(P);
  for (int64_t output = p.output; output < p.output_end; output += kGroup) {
    const std::byte* group = p.weights + static_cast<size_t>(output / kGroup) * group_bytes;
    for (int64_t row = p.row; row < p.row_end; row += kMostRows) {
      const int64_t n = p.row_end - row;
      panels.multiply(p, group, output, row, n < kMostRows ? n : kMostRows);
    }
  }
}

template <class P>
constexpr auto quantised = multiply_quantised<P>;

#else

template <class P>
constexpr auto quantised = multiply<QuantisedTile<P>, kQuantisedRows>;

#endif

// --- Weights by indices into grids. ---

// A super-block becomes bytes, once for all rows of x, and they go the way of codes.
template <class P>
struct GridRows {
  using Bytes = typename P::Unpacked;
  using Tile = QuantisedTile<Bytes>;
  static constexpr int64_t kMost = 64;
  Bytes bytes;
  Rows y[kMost][kParts];

  // The group by `n` rows of x from the beginning of a panel on.
  void multiply(const Product& p, const P* packed, const int8_t* grid, int64_t output, int64_t row, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      for (Rows& part : y[i]) part = zero_rows();
    }
    const int64_t panel_blocks = p.n_in / kBlock * kPanel;
    const auto* x = reinterpret_cast<const BlockInput*>(p.x) + row / kPanel * panel_blocks;
    for (int64_t input = 0; input < p.n_in; input += kSuperBlock, ++packed, x += kSuperBlock / kBlock * kPanel) {
      unpack(p, *packed, grid);
      for (int64_t i = 0; i < n; i += kQuantisedRows)
        add<kQuantisedRows>(x + i / kPanel * panel_blocks + i % kPanel, y + i, n - i);
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int part = 0; part < kParts; ++part) put(p, output + part * kRows, row + i, y[i][part]);
    }
  }

  void unpack(const Product& p, const P& packed, const int8_t* grid) {
    for (int row = 0; row < kGroup; ++row) unpack_scales(packed, row, bytes.scales);
    constexpr int kBlocks = kSuperBlock / kBlock;
    constexpr size_t kBlockBytes = sizeof(P) / kBlocks;
    for (int block = 0; block < kBlocks; ++block) {
      fetch_ahead(p, reinterpret_cast<const std::byte*>(&packed) + static_cast<size_t>(block) * kBlockBytes,
                  kBlockBytes);
      unpack_block(packed, grid, block, bytes.codes[block]);
    }
  }

  // A super-block by up to C rows.
  template <int C>
  void add(const BlockInput* x, Rows (*sums)[kParts], int64_t n) {
    if constexpr (C > 1) {
      if (n < C) return add<C - 1>(x, sums, n);
    }
    Rows of_rows[kParts][C];
    for (int c = 0; c < C; ++c) {
      for (int part = 0; part < kParts; ++part) of_rows[part][c] = sums[c][part];
    }
    const Bytes* const at[] = {&bytes};
    for (int block = 0; block < kSuperBlock / kBlock; ++block, x += kPanel)
      Tile::template add_block<1>(at, block, x, of_rows);
    for (int c = 0; c < C; ++c) {
      for (int part = 0; part < kParts; ++part) sums[c][part] = of_rows[part][c];
    }
  }
};

template <class P, WeightForm Form>
void by_grid(const Product& p) {
  GridRows<P> rows;
  const int8_t* const grid = grid_of(Form);
  for (int64_t output = p.output; output < p.output_end; output += kGroup) {
    const P* group = reinterpret_cast<const P*>(p.weights) + output / kGroup * (p.n_in / kSuperBlock);
    for (int64_t row = p.row; row < p.row_end; row += GridRows<P>::kMost) {
      const int64_t n = p.row_end - row;
      rows.multiply(p, group, grid, output, row, n < GridRows<P>::kMost ? n : GridRows<P>::kMost);
    }
  }
}

template <class Block>
constexpr auto dense = multiply<DenseTile<Block>, kDenseRows>;

void multiply_bfloats(const Product& p) {
  const SubnormalsAreZero guard;
  multiply<BFloatTile, kDenseRows>(p);
}

}  // namespace

void set_products(Kernels& kernels) {
  const auto set = [&](WeightForm form, void (*fn)(const Product&)) { kernels.multiply[static_cast<int>(form)] = fn; };
  set(WeightForm::kF32, dense<DenseF32>);
  set(WeightForm::kF16, dense<DenseF16>);
  set(WeightForm::kBF16, multiply_bfloats);
  set(WeightForm::kQ4_0, quantised<PackedQ4_0>);
  set(WeightForm::kQ4_1, quantised<PackedQ4_1>);
  set(WeightForm::kQ5_0, quantised<PackedQ5_0>);
  set(WeightForm::kQ5_1, quantised<PackedQ5_1>);
  set(WeightForm::kQ8_0, quantised<PackedQ8_0>);
  set(WeightForm::kQ4_K, quantised<PackedQ4_K>);
  set(WeightForm::kQ5_K, quantised<PackedQ5_K>);
  set(WeightForm::kQ6_K, quantised<PackedQ6_K>);
  set(WeightForm::kIQ4_NL, quantised<PackedIQ4_NL>);
  set(WeightForm::kIQ4_XS, quantised<PackedIQ4_XS>);
  set(WeightForm::kMXFP4, quantised<PackedMXFP4>);
  set(WeightForm::kQ2_K, quantised<PackedQ2_K>);
  set(WeightForm::kQ3_K, quantised<PackedQ3_K>);
  set(WeightForm::kTQ1_0, quantised<PackedTernary>);
  set(WeightForm::kTQ2_0, quantised<PackedTernary>);
  set(WeightForm::kQ1_0, quantised<PackedQ1_0>);
  set(WeightForm::kQ2_0, quantised<PackedQ2_0>);
  set(WeightForm::kIQ1_S, quantised<PackedIQ1>);
  set(WeightForm::kIndexedIQ1_S, by_grid<IndexedIQ1_S, WeightForm::kIndexedIQ1_S>);
  set(WeightForm::kIQ1_M, quantised<PackedIQ1>);
  set(WeightForm::kIndexedIQ1_M, by_grid<IndexedIQ1_M, WeightForm::kIndexedIQ1_M>);
  set(WeightForm::kIQ2_XXS, quantised<PackedIQ2>);
  set(WeightForm::kIndexedIQ2_XXS, by_grid<IndexedIQ2_XXS, WeightForm::kIndexedIQ2_XXS>);
  set(WeightForm::kIQ2_XS, quantised<PackedIQ2>);
  set(WeightForm::kIndexedIQ2_XS, by_grid<IndexedIQ2_XS, WeightForm::kIndexedIQ2_XS>);
  set(WeightForm::kIQ2_S, quantised<PackedIQ2>);
  set(WeightForm::kIndexedIQ2_S, by_grid<IndexedIQ2_S, WeightForm::kIndexedIQ2_S>);
  set(WeightForm::kIQ3_XXS, quantised<PackedIQ3_XXS>);
  set(WeightForm::kIndexedIQ3_XXS, by_grid<IndexedIQ3_XXS, WeightForm::kIndexedIQ3_XXS>);
  set(WeightForm::kIQ3_S, quantised<PackedIQ3_S>);
  set(WeightForm::kIndexedIQ3_S, by_grid<IndexedIQ3_S, WeightForm::kIndexedIQ3_S>);
}

void quantise(const float* x, int64_t n, std::byte* out) {
  auto* in = reinterpret_cast<BlockInput*>(out);
  for (int64_t at = 0; at < n; at += kBlock, x += kBlock, in += kPanel) {
    F32x8 most = abs8(load8(x));
    for (int k = kLanes; k < kBlock; k += kLanes) most = max8(most, abs8(load8(x + k)));
    const float largest = largest8(most);
    const float per_value = largest > 1e-30f ? 127.0f / largest : 0.0f;
    // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even, and leaves that in the lowest bits; what is no
    // number leaves any.
    constexpr float kRound = 12582912.0f;
    int32_t sums[2] = {};
    for (int half = 0; half < 2; ++half) {
      for (int k = 16 * half; k < 16 * half + 16; ++k) {
        const uint32_t q = std::bit_cast<uint32_t>(x[k] * per_value + kRound) - std::bit_cast<uint32_t>(kRound);
        in->q[k] = static_cast<int8_t>(q);
        sums[half] += in->q[k];
      }
    }
    in->scale = largest / 127.0f;
    in->scaled_sum = in->scale * static_cast<float>(sums[0] + sums[1]);
    in->half_sums[0] = sums[0];
    in->half_sums[1] = sums[1];
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
