// An engine put together from opened files.
#pragma once

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
  SessionOptions options;  // with what was chosen for them; where stages run and how, and what drafts give
  const ModelFile* model = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::vector<const ModelFile*> drafts;  // the smallest first
  const HeadFile* head = nullptr;        // may be none
  std::optional<HostOptions> head_host;  // none: it is in this process
  std::vector<LayerRange> cuts;          // of the model
  std::optional<Secret> secret;          // for hosts
  int32_t host_threads = 0;              // a stage there; 0: as the host likes
  std::optional<Profile> profile;        // the costs of a simulated clock, the pace of the real one
  Jitter jitter;                         // of the simulated clock
  Faults faults;                         // likewise
  std::shared_ptr<Memo> memo;            // lazy if there is one, stored on the real clock
  int32_t n_draft_cells = 0;             // of each draft model and head
  int32_t longest_path = 0;              // of the target, StageOptions::longest_path
  int32_t kept_behind = kKeptBehind;     // StageOptions::kept_behind
  EngineOptions engine;                  // its drafts, cuts and cost are filled in
};

struct Assembly {
  std::unique_ptr<Executor> executor;
  EngineOptions engine;
};

// The workers of the model, its drafts and the head on an executor, and what an engine must know of them.
// REQUIRES: a profile where the clock is simulated.
Result<Assembly> assemble(const Parts& parts);

}  // namespace sluice
