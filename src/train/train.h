// Training heads, as the command line sees it. In the program `sluice` train_head() becomes the program
// `sluice-trainer`, or, in a build without libtorch, an error that says so.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "model/model_file.h"
#include "train/corpus.h"
#include "train/options.h"

namespace sluice {

// Which head, and what it is to be like.
using HeadOptions = std::variant<SpdOptions, Eagle3Options, PEagleOptions, ShallowOptions>;

struct TrainFigures {
  int64_t tokens = 0;                       // answer tokens trained on, those before a checkpoint included
  double seconds = 0, capture_seconds = 0;  // of this run
  nlohmann::json evaluation;                // the last one
};

struct TrainHooks {
  std::function<bool()> interrupted;
  std::function<void(double share, const std::string& note)> progress;
};

// Errors: as train() of trainer.h, a corpus that can't be read, a head of --from that is none of this model.
Result<TrainFigures> train_head(const ModelFile& model, const HeadOptions& head, const TrainOptions& options,
                                const TrainHooks& hooks);

}  // namespace sluice
