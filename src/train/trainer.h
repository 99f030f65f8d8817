// The training loop, the same for every kind of head.
#pragma once

#include <functional>

#include "train/options.h"
#include "train/train.h"
#include "train/trainee.h"

namespace sluice {

// Trains until options.tokens, or until an interrupt, which leaves a checkpoint. The folder options.out holds
// checkpoint.gguf and log.jsonl; a run that finds a checkpoint there goes on from it, to the same losses as if it had
// never stopped. `write_head` is called after every evaluation, so that a head can be tried while it is still trained.
//
// Errors: a loss that is not finite (the last checkpoint stays), a checkpoint of other options, no space (what was
// there stays).
Result<TrainFigures> train(Trainee& trainee, const ModelFile& model, const Corpus& corpus, const TrainOptions& options,
                           const TrainHooks& hooks, const std::function<Status()>& write_head = {});

// The learning rate after a share of the tokens: a linear rise, then a linear decay to 0.
double learning_rate(const TrainOptions& options, double share);

// Which example is the i-th that is trained on: each epoch has an order of its own.
size_t example_at(uint64_t i, size_t n, uint64_t seed);

}  // namespace sluice
