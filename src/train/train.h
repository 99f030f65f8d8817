// Training heads, as the command line sees it. In the program `sluice` each function here becomes the program
// `sluice-trainer`, or, in a build without libtorch, an error that says so.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "model/model_file.h"
#include "train/corpus.h"
#include "train/options.h"

namespace sluice {

struct TrainFigures {
  int64_t tokens = 0;                       // answer tokens trained on, those before a checkpoint included
  double seconds = 0, capture_seconds = 0;  // of this run
  nlohmann::json evaluation;                // the last one
};

struct TrainHooks {
  std::function<bool()> interrupted;
  std::function<void(double share, const std::string& note)> progress;
};

Result<TrainFigures> train_spd(const ModelFile& model, const SpdOptions& head, const TrainOptions& options,
                               const TrainHooks& hooks);

Result<TrainFigures> train_eagle3(const ModelFile& model, const Eagle3Options& head, const TrainOptions& options,
                                  const TrainHooks& hooks);

Result<TrainFigures> train_shallow(const ModelFile& model, const ShallowOptions& head, const TrainOptions& options,
                                   const TrainHooks& hooks);
Result<TrainFigures> train_p_eagle(const ModelFile& model, const PEagleOptions& head, const TrainOptions& options,
                                   const TrainHooks& hooks);

}  // namespace sluice
