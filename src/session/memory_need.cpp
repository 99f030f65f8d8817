#include "session/memory_need.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/machine_memory.h"
#include "compute/packed_size.h"
#include "engine/scheduler.h"
#include "session/cuts.h"
#include "session/policy.h"

namespace sluice {

namespace {

// A head that guesses several tokens numbers more cells than that, but not so many.
constexpr int64_t kMostCells = std::numeric_limits<int32_t>::max() - 65536;

}  // namespace

int32_t default_context(const HyperParameters& hparams) {
  return std::min(policy::kDefaultContext, hparams.context_length);
}

int64_t cells_of_request(int32_t context, int32_t n_stages, const MethodOptions& method) {
  const int64_t budget = Scheduler::Options().row_budget;
  const int64_t rows = std::min(int64_t{method.width} * method.levels, budget);
  return context + std::max(rows * (n_stages + 2), budget);
}

Status MemoryNeed::check(int32_t n_requests) const {
  const int64_t memory = machine_memory();
  if (folded > memory)
    return input_error("the states of this model's layers without attention need " +
                       std::to_string((folded >> 30) + 1) + " GiB; this machine has " + std::to_string(memory >> 30) +
                       " GiB: give its layers to several machines (--hosts)");
  const bool several = n_requests > 1;  // and short texts may hold as many cells in windows as elsewhere
  const int64_t held = folded + (several ? 0 : in_windows), a_cell = bytes - (several ? 0 : windowed);
  const int64_t most = std::min(kMostCells, (memory - held) / a_cell) - policy::kDraftedAhead;
  const int64_t needed = n_requests * cells;
  if (needed <= most) return {};
  std::string text = "--context " + std::to_string(context);
  if (several) text += " with --concurrency " + std::to_string(n_requests);
  const int64_t gib = ((needed * a_cell + held - folded) >> 30) + 1, less = most / n_requests - (cells - context);
  text += " needs a KV cache of " + std::to_string(needed) + " cells, " + std::to_string(gib) + " GiB; there may be " +
          std::to_string(kMostCells - policy::kDraftedAhead) + " cells, and this machine has " +
          std::to_string(memory >> 30) + " GiB";
  if (less >= 2) text += ": give --context " + std::to_string(less) + " at most";
  if (several && most >= cells)
    text += std::string(less >= 2 ? ", or" : ": give") + " --concurrency " + std::to_string(most / cells) + " at most";
  return input_error(text);
}

Result<std::vector<StageMemory>> stage_memory(const ModelFile& model, int32_t n_stages) {
  const SessionOptions options{.stages = n_stages};
  SLUICE_TRY(const auto cuts, choose_cuts(model, options, std::nullopt));
  const HyperParameters& h = model.hparams();
  const int64_t cells = cells_of_request(default_context(h), n_stages, options.request.method_options);
  const double growth = packed_growth(model);
  std::vector<StageMemory> stages;
  for (const LayerRange& layers : cuts) {
    StageMemory stage{.layers = layers};
    for (int32_t l = layers.first; l < layers.last; ++l) stage.weights += static_cast<int64_t>(model.layer_bytes(l));
    if (layers.last == h.n_layers) stage.weights += static_cast<int64_t>(model.head_bytes());
    stage.weights = static_cast<int64_t>(static_cast<double>(stage.weights) * growth);
    const WindowMemory windows = window_memory(h, options.kv, layers, cells, cells - default_context(h));
    stage.cells = cells * (bytes_of_cell(h, options.kv, layers) - windows.bytes_of_cell) + windows.bytes() +
                  folded_bytes(h, layers);
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace sluice
