// The tile instructions in plain C++, as their manual describes them, so that the code around them runs on processors
// without AMX. What they forbid ends the program.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace sluice::kernels::SLUICE_ISA {

struct PlainTiles {
  static constexpr int kRegisters = 8, kMostRows = 16, kMostBytes = 64;
  bool configured;
  int rows[kRegisters], row_bytes[kRegisters];
  int8_t data[kRegisters][kMostRows][kMostBytes];
};
inline thread_local PlainTiles plain_tiles;

inline void require(bool what) {
  if (!what) std::abort();
}
inline void require_shape(int tile) { require(plain_tiles.configured && plain_tiles.rows[tile] > 0); }

inline void plain_loadconfig(const void* from) {
  uint8_t shapes[64];
  std::memcpy(shapes, from, sizeof shapes);
  require(shapes[0] == 1);
  for (int i = 1; i < 16; ++i) require(shapes[i] == 0);
  plain_tiles = {};
  plain_tiles.configured = true;
  for (int tile = 0; tile < 16; ++tile) {
    const int rows = shapes[48 + tile], row_bytes = shapes[16 + 2 * tile] | shapes[17 + 2 * tile] << 8;
    require(rows <= PlainTiles::kMostRows && row_bytes <= PlainTiles::kMostBytes && (rows == 0) == (row_bytes == 0));
    require(tile < PlainTiles::kRegisters || rows == 0);
    if (rows == 0) continue;
    plain_tiles.rows[tile] = rows;
    plain_tiles.row_bytes[tile] = row_bytes;
  }
}
inline void plain_release() { plain_tiles.configured = false; }

inline void plain_zero(int tile) {
  require_shape(tile);
  std::memset(plain_tiles.data[tile], 0, sizeof plain_tiles.data[tile]);
}
inline void plain_loadd(int tile, const void* from, int64_t stride) {
  plain_zero(tile);
  for (int row = 0; row < plain_tiles.rows[tile]; ++row) {
    const auto bytes = static_cast<size_t>(plain_tiles.row_bytes[tile]);
    std::memcpy(plain_tiles.data[tile][row], static_cast<const char*>(from) + row * stride, bytes);
  }
}
inline void plain_stored(int tile, void* to, int64_t stride) {
  require_shape(tile);
  for (int row = 0; row < plain_tiles.rows[tile]; ++row) {
    const auto bytes = static_cast<size_t>(plain_tiles.row_bytes[tile]);
    std::memcpy(static_cast<char*>(to) + row * stride, plain_tiles.data[tile][row], bytes);
  }
}

// c += a b, of signed bytes.
inline void plain_dpbssd(int c, int a, int b) {
  PlainTiles& tiles = plain_tiles;
  require_shape(a);
  require_shape(b);
  require_shape(c);
  require(a != b && b != c && a != c && tiles.rows[c] == tiles.rows[a] && tiles.row_bytes[c] == tiles.row_bytes[b]);
  require(tiles.row_bytes[a] == 4 * tiles.rows[b]);
  for (int m = 0; m < tiles.rows[c]; ++m) {
    for (int n = 0; n < tiles.row_bytes[c]; n += 4) {
      int32_t sum;
      std::memcpy(&sum, tiles.data[c][m] + n, sizeof sum);
      for (int k = 0; k < tiles.row_bytes[a]; ++k) sum += tiles.data[a][m][k] * tiles.data[b][k / 4][n + k % 4];
      std::memcpy(tiles.data[c][m] + n, &sum, sizeof sum);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_ISA

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#define _tile_loadconfig plain_loadconfig
#define _tile_release plain_release
#define _tile_loadd plain_loadd
#define _tile_stored plain_stored
#define _tile_zero plain_zero
#define _tile_dpbssd plain_dpbssd
