#include "compute/stage_runner.h"

#include <algorithm>
#include <string>
#include <vector>

#include "compute/cpu_stage_runner.h"
#include "compute/ggml_stage_runner.h"

namespace sluice {
namespace {

Status check_options(const ModelFile& model, const StageOptions& o) {
  const int32_t n_layers = model.hparams().n_layers;
  const std::string of = model.path() + ": ";
  if (o.range.first < 0 || o.range.first > o.range.last || o.range.last > n_layers) {
    return input_error(of + "a stage must lie within layers 0 to " + std::to_string(n_layers));
  }
  if (o.n_cells < 1 || o.max_rows < 1 || o.threads < 1 || o.n_logits < 0) {
    return input_error(of + "cells, rows and threads of a stage must be at least 1");
  }
  if (o.width_lock < 0 || o.width_lock > kMostWidthLock)
    return input_error(of + "the width lock of a stage must be at most " + std::to_string(kMostWidthLock) + " rows");
  if (const int32_t layer = model.hparams().parted_by(o.range.first); layer >= 0 && layer < o.range.last)
    return input_error(of + "no stage may begin with layer " + std::to_string(o.range.first) + ": layer " +
                       std::to_string(layer) + " reads keys and values of layer " +
                       std::to_string(model.hparams().kv_layer_of(layer)));
  std::vector<int32_t> taps = o.taps;
  std::ranges::sort(taps);
  if (std::ranges::adjacent_find(taps) != taps.end()) return input_error(of + "a layer is tapped twice");
  for (const int32_t tap : taps) {
    if (tap < o.range.first || tap > o.range.last) {
      return input_error(of + "tap " + std::to_string(tap) + " is not in layers " + std::to_string(o.range.first) +
                         " to " + std::to_string(o.range.last));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<StageRunner>> make_stage_runner(const ModelFile& model, const StageOptions& options) {
  SLUICE_TRY_STATUS(check_options(model, options));
  if (options.device == kCpuDevice) return make_cpu_stage_runner(model, options);
  return make_ggml_stage_runner(model, options);
}

}  // namespace sluice
