// Tree attention: each row attends to the cells of its own path, wherever they lie.
//
// Exactness: the output of a row depends on its query and on the keys and values along its path alone: each sum runs in
// the order of the positions with lanes that depend on the position only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/linear.h"
#include "compute/paths.h"
#include "compute/thread_team.h"
#include "wire/recipe.h"

namespace sluice {

struct AttentionShape {
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float scale = 0.0f;  // scores are multiplied by it; 0: 1 / sqrt(head_dim)
  float cap = 0.0f;    // scores come to cap * tanh(score / cap); 0: as they are
  // Values are the first so many of a key's, and nothing is kept besides; 0: they are as wide, and kept.
  int32_t value_in_key = 0;
  int32_t q_width() const { return n_heads * head_dim; }
  int32_t kv_width() const { return n_kv_heads * head_dim; }
  int32_t qkv_width() const { return q_width() + 2 * kv_width(); }
  int32_t value_dim() const { return value_in_key > 0 ? value_in_key : head_dim; }
  int32_t attended_width() const { return n_heads * value_dim(); }
  // So many heads at most, all of one kv head, go through attention together.
  int32_t heads_together() const {
    constexpr int32_t kMost = 16;
    return n_heads / n_kv_heads < kMost ? n_heads / n_kv_heads : kMost;
  }
};

// Bytes of so many values of a cell, all heads of a layer together.
int64_t kv_bytes(KvType type, int64_t values);

// Keys and values of one layer: [n_kv_heads][n_cells][head_dim] each: a head's lie side by side, so that a pass over
// them runs through memory in order. Behind those of q8_0 stand the scales of their blocks,
// [n_kv_heads][n_cells][blocks of a head]. Cells that are never written cost nothing.
class KvLayer {
 public:
  KvLayer(const AttentionShape& shape, int32_t n_cells, KvType type);

  // k and v: [n_kv_heads * head_dim]. v isn't read where values lie in keys.
  void write(Cell cell, const float* k, const float* v);

  enum class Part { kKeys, kValues };

  // One head's keys or values of the cells first … first + n - 1, as f32 to [n][head_dim].
  void read(Part part, Cell first, int64_t n, int32_t kv_head, float* out) const;

  // Nobody reads those of the cells first … first + n - 1 any more before they are written anew: whole pages of them
  // are given back.
  void forget(Cell first, int64_t n);

  // Those of one cell will soon be read.
  void fetch(Part part, Cell cell, int32_t kv_head) const;

 private:
  size_t place(Cell cell, int32_t kv_head) const;  // of its first value
  Half* scales(const Memory& of, Cell cell, int32_t kv_head) const;
  int64_t blocks_of_head() const;
  void write(const Memory& to, Cell cell, int32_t kv_head, const float* head);
  const Memory& memory(Part part) const { return part == Part::kKeys || shape_.value_in_key > 0 ? keys_ : values_; }
  AttentionShape shape_;
  int32_t n_cells_;
  KvType type_;
  Memory keys_, values_;
};

// One row's part in an attention: its path, its query [n_heads * head_dim], and where its output goes, [n_heads *
// value_dim].
struct AttentionRow {
  const Path* path = nullptr;
  const float* q = nullptr;
  float* out = nullptr;
};

// What rows have in common besides their layer.
struct AttentionOf {
  int64_t shared = 0;                 // so many positions, the first ones, of all of them lie in the same cells
  int32_t window = 0;                 // a row sees so many positions, its own the last; 0: all
  std::span<const float> sinks = {};  // [n_heads], a score that takes its share and has no value; or empty
};

// What one thread needs besides its input.
class AttentionScratch {
 public:
  // For attention of all these shapes.
  AttentionScratch(std::span<const AttentionShape> shapes, int32_t longest_path);
  AttentionScratch(const AttentionShape& shape, int32_t longest_path)
      : AttentionScratch(std::span(&shape, 1), longest_path) {}

 private:
  friend class TreeAttention;
  void begin(const AttentionShape& shape);
  float* scores(int64_t query) const { return scores_.as<float>() + query * longest_; }
  float* query(int64_t query) const { return queries_.as<float>() + query * padded_head_; }
  float* staged(int64_t i) const { return block_.as<float>() + i * padded_head_; }

  int64_t padded_head_ = 0, longest_ = 0;  // the former of the shape at hand
  Memory scores_;                          // [queries][longest_path], padded
  Memory queries_;                         // [queries][padded head_dim]; later the outputs
  Memory block_;                           // [8][padded head_dim]: keys or values of eight positions
  std::vector<Cell> cells_;                // whose keys or values these are
};

class TreeAttention {
 public:
  // So many rows at most share a pass over keys and values that their paths have in common.
  static constexpr int64_t kRows = 8;

  explicit TreeAttention(const AttentionShape& shape) : shape_(shape) {}

  // Heads [heads.begin, heads.end), all of one kv head and at most heads_together(), of up to kRows rows. Keys and
  // values of positions that all of them share are read once, unless there is a window.
  void run(const KvLayer& kv, std::span<const AttentionRow> rows, const AttentionOf& of, Part heads,
           AttentionScratch& scratch) const;

 private:
  // Calls use(row, n_rows, first, begin, end) with the keys or values of positions first + begin to first + end - 1
  // staged at places `begin` to `end` - 1, which these rows have in common; for each row, position by position in
  // order.
  template <class Use>
  void walk(const KvLayer& kv, KvLayer::Part part, std::span<const AttentionRow> rows, const AttentionOf& of,
            int32_t kv_head, AttentionScratch& scratch, Use use) const;
  static int64_t first_seen(const AttentionRow& row, const AttentionOf& of);
  // Stages position first + i at place i, for i < count.
  void stage(const KvLayer& kv, KvLayer::Part part, const Path& path, int64_t first, int64_t count, int32_t kv_head,
             AttentionScratch& scratch) const;
  AttentionShape shape_;
};

}  // namespace sluice
