// What processes say to each other before they work together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "wire/recipe.h"

namespace sluice {

// The first message of a connection, each way.
struct Hello {
  enum class Role : uint8_t {
    kControl,  // the coordinator, to a stage: what it is made of, amendments; reports, verdicts and taps come back
    kBatches,  // whoever comes before it, to a stage: batches
    kRelay,    // the coordinator, to a stage that can't reach the next one: what goes there goes by this connection
    kSpare,    // the coordinator, to who may have to stand in for another: the recipe of a stage whose files it is to
               // have at hand
    kTaps,     // a stage of the target, to a head: states that it reads
  };
  uint64_t epoch = 0;       // of a pipeline, drawn by its coordinator: what belongs to another one is refused
  ModelId model = kTarget;  // of the stage
  StageId stage;            // that is spoken to
  Role role = Role::kControl;
};

// From the coordinator: what a stage is to be.
struct StageSetup {
  ModelId model = kTarget;  // that it is of
  StageRecipe recipe;       // threads 0: as many as the stage's host gives
  std::string next;         // where the next stage listens, HOST:PORT; empty: it is the last
  double patience = 5.0;    // seconds without a sign of life after which a peer counts as gone
  std::string pace;         // a profile as JSON: the stage's passes take at least its time; empty: as long as they take
  std::vector<LayerRange> cuts;  // of all stages, which the profile is applied to
  std::string memo;              // of a last stage of Kind::kStored: the file on its host
  bool replaces = false;         // a pipeline that is lost: then spares take stages too
  bool relay = false;            // the coordinator comes for what goes to the next stage, which is not to be tried
  double connect = 5.0;          // seconds for the next stage to answer, and for the head
  std::string taps_to;           // where the head listens that reads its states; empty: they go to the coordinator
  ModelId head = kTarget;        // that head
};

// From a stage that can't reach the next one: the coordinator may come for what goes there (Hello::Role::kRelay).
struct NextUnreachable {
  Error error;
};

// From the stage, once it is made and has reached the next one.
struct StageReady {
  uint8_t exactness = 0;     // compute/stage_runner.h
  std::string instructions;  // that ggml's kernels use there
  uint64_t bytes = 0;        // of memory, at most
  std::string cut_off;       // why it can't reach the head: its states go to the coordinator; empty: it can
};

}  // namespace sluice
