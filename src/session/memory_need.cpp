#include "session/memory_need.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/half.h"

namespace sluice {

namespace {

// A head that guesses several tokens numbers more cells than that, but not so many.
constexpr int64_t kMostCells = std::numeric_limits<int32_t>::max() - 65536;

int64_t memory_bytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

}  // namespace

int64_t bytes_of_cell(const HyperParameters& h, KvType kv, int32_t n_stages) {
  constexpr int64_t kBookkeeping = 64;  // of a stage: the cell's parent, position and place in paths
  const int64_t width = int64_t{2} * h.n_kv_heads * h.head_dim;
  return h.n_layers * width * static_cast<int64_t>(kv == KvType::kF32 ? sizeof(float) : sizeof(Half)) +
         n_stages * kBookkeeping;
}

Status MemoryNeed::check(int32_t n_requests) const {
  const int64_t most = std::min(kMostCells, memory_bytes() / bytes) - kDraftedAhead;
  const int64_t needed = n_requests * cells;
  if (needed <= most) return {};
  const bool several = n_requests > 1;
  std::string text = "--context " + std::to_string(context);
  if (several) text += " with --concurrency " + std::to_string(n_requests);
  const int64_t gib = ((needed * bytes) >> 30) + 1, less = most / n_requests - (cells - context);
  text += " needs a KV cache of " + std::to_string(needed) + " cells, " + std::to_string(gib) + " GiB; there may be " +
          std::to_string(kMostCells - kDraftedAhead) + " cells, and this machine has " +
          std::to_string(memory_bytes() >> 30) + " GiB";
  if (less >= 2) text += ": give --context " + std::to_string(less) + " at most";
  if (several && most >= cells)
    text += std::string(less >= 2 ? ", or" : ": give") + " --concurrency " + std::to_string(most / cells) + " at most";
  return input_error(text);
}

}  // namespace sluice
