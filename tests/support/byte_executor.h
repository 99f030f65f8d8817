// An executor whose every message travels as bytes, and is checked like what comes from another process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/executor.h"
#include "support/harness.h"

namespace sluice::test {

// Of all messages, as they leave: from whom to whom, in words, and the bytes, which it may change.
using Tamper = std::function<void(const std::string& way, std::vector<std::byte>& bytes)>;

// Stages that are made of recipes alone, one thread. A message is encoded where it leaves; what is decoded and passes
// the check is believed. Which of those under way arrives next is drawn from `seed`: each link is FIFO, and no link is
// faster than another, so that amendments overtake batches and states of heads come late. A stage that is sent what it
// must not be, or sends it, is named by a WorkerFailed. A pass takes a millisecond.
//
// setup: its stages or cuts, drafts, head, activations and n_cells count. REQUIRES: they are those of the engine;
// n_cells > 0.
std::unique_ptr<Executor> make_byte_executor(const Opened& opened, const PipelineSpec& setup, uint64_t seed,
                                             Tamper tamper = {});

}  // namespace sluice::test
