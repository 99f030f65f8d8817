#include "compute/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/kernels/kernels.h"
#include "compute/kernels/packed.h"

namespace sluice {
namespace {

constexpr int64_t kBlock = 8;  // positions at a time
constexpr int64_t kLanes = 8;
// Of every head begin on a page, if they are as wide as they mostly are.
constexpr int32_t kTogether = 32;

size_t value_bytes(KvType type) {  // without scales
  switch (type) {
    case KvType::kF16:
      return sizeof(Half);
    case KvType::kF32:
      return sizeof(float);
    case KvType::kQ8_0:
      break;
  }
  return sizeof(int8_t);
}

int64_t round_up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

}  // namespace

int64_t kv_bytes(KvType type, int64_t values) {
  switch (type) {
    case KvType::kF16:
      return values * static_cast<int64_t>(sizeof(Half));
    case KvType::kF32:
      return values * static_cast<int64_t>(sizeof(float));
    case KvType::kQ8_0:
      break;
  }
  return values + (values + kernels::kBlock - 1) / kernels::kBlock * static_cast<int64_t>(sizeof(Half));
}

KvLayer::KvLayer(const AttentionShape& shape, int32_t n_cells, KvType type)
    : shape_(shape), n_cells_((n_cells + kTogether - 1) / kTogether * kTogether), type_(type) {
  const size_t heads = static_cast<size_t>(n_cells_) * static_cast<size_t>(shape.n_kv_heads);
  size_t bytes = heads * static_cast<size_t>(shape.head_dim) * value_bytes(type);
  if (type == KvType::kQ8_0) bytes += heads * static_cast<size_t>(blocks_of_head()) * sizeof(Half);
  keys_ = Memory(bytes);
  if (shape.value_in_key == 0) values_ = Memory(bytes);
}

void KvLayer::write(Cell cell, const float* k, const float* v) {
  for (int32_t head = 0; head < shape_.n_kv_heads; ++head) {
    write(keys_, cell, head, k + head * shape_.head_dim);
    if (shape_.value_in_key == 0) write(values_, cell, head, v + head * shape_.head_dim);
  }
}

size_t KvLayer::place(Cell cell, int32_t kv_head) const {
  return (static_cast<size_t>(kv_head) * static_cast<size_t>(n_cells_) + static_cast<size_t>(cell.value)) *
         static_cast<size_t>(shape_.head_dim);
}

int64_t KvLayer::blocks_of_head() const { return (shape_.head_dim + kernels::kBlock - 1) / kernels::kBlock; }

Half* KvLayer::scales(const Memory& of, Cell cell, int32_t kv_head) const {
  const size_t values = place(Cell(0), shape_.n_kv_heads);  // of all cells
  const size_t block =
      place(cell, kv_head) / static_cast<size_t>(shape_.head_dim) * static_cast<size_t>(blocks_of_head());
  return reinterpret_cast<Half*>(of.data() + values) + block;
}

void KvLayer::write(const Memory& to, Cell cell, int32_t kv_head, const float* head) {
  const size_t at = place(cell, kv_head);
  switch (type_) {
    case KvType::kF16:
      return kernels::kernels().to_halves(head, shape_.head_dim, to.as<Half>() + at);
    case KvType::kF32:
      std::copy(head, head + shape_.head_dim, to.as<float>() + at);
      return;
    case KvType::kQ8_0:
      return kernels::kernels().to_bytes(head, shape_.head_dim, to.as<int8_t>() + at, scales(to, cell, kv_head));
  }
}

void KvLayer::read(Part part, Cell first, int64_t n, int32_t kv_head, float* out) const {
  const Memory& from = memory(part);
  const size_t at = place(first, kv_head);
  const int64_t values = n * shape_.head_dim;
  switch (type_) {
    case KvType::kF16:
      return kernels::kernels().from_halves(from.as<Half>() + at, values, out);
    case KvType::kF32:
      std::copy(from.as<float>() + at, from.as<float>() + at + values, out);
      return;
    case KvType::kQ8_0: {  // of whole blocks alone the next cell's follow
      const int64_t at_once = shape_.head_dim % kernels::kBlock == 0 ? n : 1;
      for (int64_t i = 0; i < n; i += at_once)
        kernels::kernels().from_bytes(from.as<int8_t>() + at + i * shape_.head_dim,
                                      scales(from, first, kv_head) + i * blocks_of_head(), at_once * shape_.head_dim,
                                      out + i * shape_.head_dim);
      return;
    }
  }
}

// Of q8_0 the scales stay.
void KvLayer::forget(Cell first, int64_t n) {
  const size_t bytes = static_cast<size_t>(n * shape_.head_dim) * value_bytes(type_);
  for (int32_t head = 0; head < shape_.n_kv_heads; ++head)
    for (Memory* of : {&keys_, &values_})
      if (of->size() > 0) of->forget(place(first, head) * value_bytes(type_), bytes);
}

void KvLayer::fetch(Part part, Cell cell, int32_t kv_head) const {
  constexpr size_t kLine = 64;
  const size_t bytes = static_cast<size_t>(shape_.head_dim) * value_bytes(type_);
  const std::byte* at = memory(part).data() + place(cell, kv_head) * value_bytes(type_);
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(at + i);
  if (type_ == KvType::kQ8_0) __builtin_prefetch(scales(memory(part), cell, kv_head));
  asm volatile("");  // or GCC takes the function for one without effect and leaves the call out
}

AttentionScratch::AttentionScratch(std::span<const AttentionShape> shapes, int32_t longest_path)
    : longest_(round_up(longest_path + 1)) {  // a sink is a score, too
  int64_t queries = 0, values = 0, widest = 0;
  for (const AttentionShape& shape : shapes) {
    const int64_t together = TreeAttention::kRows * shape.heads_together(), width = round_up(shape.head_dim);
    queries = std::max(queries, together);
    values = std::max(values, together * width);
    widest = std::max(widest, width);
  }
  scores_ = Memory(static_cast<size_t>(queries * longest_) * sizeof(float));
  queries_ = Memory(static_cast<size_t>(values) * sizeof(float));
  block_ = Memory(static_cast<size_t>(kBlock * widest) * sizeof(float));
}

// Beyond head_dim stand zeros.
void AttentionScratch::begin(const AttentionShape& shape) {
  padded_head_ = round_up(shape.head_dim);
  for (int64_t i = 0; i < kBlock; ++i) std::fill(staged(i) + shape.head_dim, staged(i) + padded_head_, 0.0f);
}

// The first position that a row sees.
int64_t TreeAttention::first_seen(const AttentionRow& row, const AttentionOf& of) {
  return of.window == 0 ? 0 : std::max<int64_t>(0, row.path->size() - of.window);
}

void TreeAttention::run(const KvLayer& kv, std::span<const AttentionRow> rows, const AttentionOf& of, Part heads,
                        AttentionScratch& scratch) const {
  const kernels::Kernels& kernels = kernels::kernels();
  scratch.begin(shape_);
  const auto n_rows = static_cast<int64_t>(rows.size()), n_heads = heads.end - heads.begin;
  const int64_t head_dim = shape_.head_dim, padded = scratch.padded_head_;
  const auto kv_head = static_cast<int32_t>(heads.begin / (shape_.n_heads / shape_.n_kv_heads));
  const float scale =
      shape_.scale > 0.0f ? shape_.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  for (int64_t i = 0; i < n_rows * n_heads; ++i) {
    const float* q = rows[static_cast<size_t>(i / n_heads)].q + (heads.begin + i % n_heads) * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) scratch.query(i)[d] = q[d] * scale;
    std::fill(scratch.query(i) + head_dim, scratch.query(i) + padded, 0.0f);
  }
  walk(kv, KvLayer::Part::kKeys, rows, of, kv_head, scratch,
       [&](int64_t row, int64_t n, int64_t first, int64_t, int64_t) {
         // Behind the last position and before the first stand old keys; those scores are never read.
         const int64_t query = row * n_heads;
         kernels.scores(scratch.query(query), n * n_heads, scratch.staged(0), padded, scratch.scores(query) + first,
                        scratch.longest_);
       });
  for (int64_t i = 0; i < n_rows * n_heads; ++i) {
    const AttentionRow& row = rows[static_cast<size_t>(i / n_heads)];
    const int64_t first = first_seen(row, of), size = row.path->size();
    float* const scores = scratch.scores(i);
    if (shape_.cap > 0.0f) kernels.soft_cap(scores + first, size - first, shape_.cap);
    if (!of.sinks.empty()) scores[size] = of.sinks[static_cast<size_t>(heads.begin + i % n_heads)];
    kernels.softmax(scores + first, size - first + (of.sinks.empty() ? 0 : 1));
    std::fill(scratch.query(i), scratch.query(i) + padded, 0.0f);
  }
  walk(kv, KvLayer::Part::kValues, rows, of, kv_head, scratch,
       [&](int64_t row, int64_t n, int64_t first, int64_t begin, int64_t end) {
         const int64_t query = row * n_heads;
         kernels.gather(scratch.scores(query) + first + begin, scratch.longest_, n * n_heads, scratch.staged(begin),
                        padded, end - begin, scratch.query(query));
       });
  for (int64_t i = 0; i < n_rows * n_heads; ++i) {
    float* out = rows[static_cast<size_t>(i / n_heads)].out + (heads.begin + i % n_heads) * shape_.value_dim();
    std::copy(scratch.query(i), scratch.query(i) + shape_.value_dim(), out);
  }
}

template <class Use>
void TreeAttention::walk(const KvLayer& kv, KvLayer::Part part, std::span<const AttentionRow> rows,
                         const AttentionOf& of, int32_t kv_head, AttentionScratch& scratch, Use use) const {
  const auto n_rows = static_cast<int64_t>(rows.size());
  int64_t longest = 0, earliest = std::numeric_limits<int64_t>::max();
  for (const AttentionRow& row : rows) {
    longest = std::max(longest, row.path->size());
    earliest = std::min(earliest, first_seen(row, of));
  }
  // Windows end at other places for other rows.
  const int64_t shared = of.window == 0 ? of.shared / kBlock * kBlock : earliest / kBlock * kBlock;
  for (int64_t first = 0; of.window == 0 && first < shared; first += kBlock) {
    stage(kv, part, *rows[0].path, first, kBlock, kv_head, scratch);
    use(0, n_rows, first, 0, kBlock);
  }
  for (int64_t first = shared; first < longest; first += kBlock) {
    scratch.cells_.assign(kBlock, Cell());
    for (int64_t row = 0; row < n_rows; ++row) {
      const AttentionRow& one = rows[static_cast<size_t>(row)];
      const Path& path = *one.path;
      const int64_t begin = std::max<int64_t>(0, first_seen(one, of) - first);
      const int64_t end = std::min(kBlock, path.size() - first);
      for (int64_t i = begin; i < end; ++i) {  // what the row before has staged is often the same
        const Cell cell = path[first + i];
        Cell& staged = scratch.cells_[static_cast<size_t>(i)];
        if (staged == cell) continue;
        staged = cell;
        kv.read(part, cell, 1, kv_head, scratch.staged(i));
      }
      if (begin < end) use(row, 1, first, begin, end);
    }
  }
}

void TreeAttention::stage(const KvLayer& kv, KvLayer::Part part, const Path& path, int64_t first, int64_t count,
                          int32_t kv_head, AttentionScratch& scratch) const {
  constexpr int64_t kAhead = 32;  // positions: the processor's own prefetching stops wherever cells do
  const int64_t end = std::min(first + kAhead + count, path.size());
  for (int64_t i = first == 0 ? count : first + kAhead; i < end; ++i) kv.fetch(part, path[i], kv_head);
  const bool side_by_side = scratch.padded_head_ == shape_.head_dim;
  for (int64_t i = 0; i < count;) {
    int64_t n = 1;  // cells in a row, as a prompt's mostly are
    while (side_by_side && i + n < count && path[first + i + n].value == path[first + i].value + n) ++n;
    kv.read(part, path[first + i], n, kv_head, scratch.staged(i));
    i += n;
  }
}

}  // namespace sluice
