// Whether the cells of an engine can be numbered, and their keys and values be held in memory.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compute/stage_runner.h"
#include "model/hyperparameters.h"

namespace sluice {

// Drafting runs ahead of what enters the target: a draft model has so many cells more.
inline constexpr int32_t kDraftedAhead = 1024;

// Bytes of a token's keys and values in all layers of a model, with what a stage keeps of the cell besides.
int64_t bytes_of_cell(const HyperParameters& hparams, KvType kv, int32_t n_stages = 1);

struct MemoryNeed {
  int32_t context = 0;  // tokens of a request
  int64_t cells = 0;    // of the target, for a request
  int64_t bytes = 0;    // of a cell in all models together

  // For so many requests at a time. The error names --context and --concurrency, and what would be right.
  Status check(int32_t n_requests) const;
};

}  // namespace sluice
