// An engine put together from opened files.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/profile.h"
#include "engine/engine.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "pipeline/executor.h"
#include "session/options.h"
#include "transport/secret.h"

namespace sluice {

// The files outlive what is made of them.
struct Parts {
  const ModelFile* model = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::vector<const ModelFile*> drafts;  // the smallest first
  const HeadFile* head = nullptr;        // may be none
  std::vector<LayerRange> cuts;          // of the model
  ExecutorKind executor = ExecutorKind::kThreads;
  std::vector<HostOptions> hosts;        // of the model's stages; empty: they are in this process
  std::vector<HostOptions> draft_hosts;  // of the first drafts; likewise
  std::optional<Secret> secret;          // for them
  std::shared_ptr<MpiJob> job;           // whose ranks the hosts are; null: reached over TCP
  std::vector<HostAddress> spares;       // who takes the stages of one that is lost
  double patience = policy::kPatience;   // seconds that a silent host is given
  std::function<void(const std::string&)> on_host = [](const std::string&) {};  // lines of what becomes of them
  std::function<bool(uint64_t, uint64_t)> on_weights_sent;  // to them: blocks so far, and in all; false: stop
  int32_t host_threads = 0;                                 // a stage there; 0: as the host likes
  std::optional<Profile> profile;                           // the costs of a simulated clock, the pace of the real one
  Jitter jitter;                                            // of the simulated clock
  Faults faults;                                            // likewise
  std::shared_ptr<Memo> memo;                               // lazy if there is one, stored on the real clock
  std::string memo_file;                                    // the same, on the last stage\'s host
  KvType kv = KvType::kF16;
  Activations activations = Activations::kF32;  // between the model's stages
  int32_t threads = 1;                          // a stage
  int32_t n_draft_cells = 0;                    // of each draft model and head
  int32_t candidates = 16;                      // that a draft model or head gives for a node
  int32_t draft_vocab = 0;                      // tokens that draft models guess among, the first ones; 0: all
  int32_t head_guesses = 1;                     // tokens in a row, of a head that guesses several
  EngineOptions engine;                         // its drafts, cuts and cost are filled in
};

struct Assembly {
  std::unique_ptr<Executor> executor;
  EngineOptions engine;
};

// The workers of the model, its drafts and the head on an executor, and what an engine must know of them.
// REQUIRES: a profile where the clock is simulated.
Result<Assembly> assemble(const Parts& parts);

}  // namespace sluice
