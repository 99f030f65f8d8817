// Tree attention: each row attends to the cells of its own path, wherever they lie.
//
// Exactness: the output of a row depends on its query and on the keys and values along its path alone: each sum runs in
// the order of the positions with lanes that depend on the position only.
#pragma once

#include <cstdint>
#include <span>

#include "compute/linear.h"
#include "compute/paths.h"
#include "compute/thread_team.h"

namespace sluice {

struct AttentionShape {
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int32_t kv_width() const { return n_kv_heads * head_dim; }
};

// Keys and values of one layer: [n_cells][n_kv_heads][head_dim] each, as f16 or f32. Cells that are never written cost
// nothing.
class KvLayer {
 public:
  KvLayer(const AttentionShape& shape, int32_t n_cells, bool half);

  // k and v: [n_kv_heads * head_dim].
  void write(Cell cell, const float* k, const float* v);

  // One head's key and value of a cell as f32, to [head_dim].
  void read_key(Cell cell, int32_t kv_head, float* out) const { read(keys_, cell, kv_head, out); }
  void read_value(Cell cell, int32_t kv_head, float* out) const { read(values_, cell, kv_head, out); }

 private:
  void read(const Memory& from, Cell cell, int32_t kv_head, float* out) const;
  AttentionShape shape_;
  bool half_;
  Memory keys_, values_;
};

// What one thread needs besides its input.
class AttentionScratch {
 public:
  AttentionScratch(const AttentionShape& shape, int32_t longest_path);

 private:
  friend class TreeAttention;
  int64_t padded_head_ = 0, longest_ = 0;
  Memory scores_;  // [n_heads / n_kv_heads][longest_path], padded
  Memory block_;   // [8][padded head_dim]: keys or values of eight positions
  Memory query_;   // [n_heads / n_kv_heads][padded head_dim]
};

class TreeAttention {
 public:
  explicit TreeAttention(const AttentionShape& shape) : shape_(shape) {}

  // Heads [heads.begin, heads.end) of one row. q, out: [n_heads * head_dim].
  void run(const KvLayer& kv, const Path& path, const float* q, Part heads, AttentionScratch& scratch,
           float* out) const;

 private:
  void score(const KvLayer& kv, const Path& path, int32_t kv_head, int32_t n, AttentionScratch& scratch) const;
  void gather(const KvLayer& kv, const Path& path, int32_t kv_head, int32_t n, AttentionScratch& scratch,
              float* out) const;
  AttentionShape shape_;
};

}  // namespace sluice
