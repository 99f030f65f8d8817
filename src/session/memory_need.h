// Whether the cells of an engine can be numbered, and their keys and values be held in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/layer_range.h"
#include "base/result.h"
#include "compute/stage_runner.h"
#include "method/options.h"
#include "model/model_file.h"
#include "pipeline/stage_memory.h"

namespace sluice {

// The context that a model gets unless another is asked for, in tokens.
int32_t default_context(const HyperParameters& hparams);

// Cells of a request in the target: its context, a step's rows in every stage, those that wait and those that have just
// come out; and at least a batch of them, since chains and static trees enter as a whole, whatever the width.
int64_t cells_of_request(int32_t context, int32_t n_stages, const MethodOptions& method);

struct MemoryNeed {
  int32_t context = 0;  // tokens of a request
  int64_t cells = 0;    // of the target, for a request
  int64_t bytes = 0;    // of a cell in all models together
  int64_t folded = 0;   // of what is held besides where models fold what they know of a sequence
  // Of layers with windows that hold but a part of one request: bytes of a cell, and of that part.
  int64_t windowed = 0, in_windows = 0;

  // For so many requests at a time. The error names --context and --concurrency, and what would be right.
  Status check(int32_t n_requests) const;
};

// What a stage holds when the context is full: its weights, and the keys and values of its layers, or their states.
struct StageMemory {
  LayerRange layers;
  int64_t weights = 0, cells = 0;  // bytes
  int64_t bytes() const { return weights + cells; }
};
// Of a model of so many equal stages, for one request with the default options.
Result<std::vector<StageMemory>> stage_memory(const ModelFile& model, int32_t n_stages);

}  // namespace sluice
