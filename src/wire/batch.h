// What travels from the coordinator to the workers, and from stage to stage. Flat data, no pointers: the same structs
// cross a queue inside a process and a network.
//
// Order is meaning. From the coordinator to stage 0 and from each stage to the next, batches travel in FIFO order, and
// everything that changes what a cell or a sequence means (openings, forks, prompt rows, commits, truncations) travels
// inside them. Only an `Amendment` may overtake.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/half.h"
#include "base/ids.h"
#include "wire/draws.h"
#include "wire/sampling.h"

namespace sluice {

// Rows of a batch at most, unless an engine is given another budget. A trade-off of its own: wider batches hardly make
// products faster, and everybody's verdict waits for them.
inline constexpr int32_t kMostRows = 256;

// One token to be computed.
struct Row {
  enum class Kind : uint8_t {
    kPrompt,  // it is on the path whatever happens: committed as it passes, never verified
    kNode,    // a node of the tree: the last worker verifies it if its branch is alive
  };
  SequenceId sequence;
  Token token = kNoToken;
  int32_t position = 0;  // of the token in its sequence, from 0
  Cell cell;             // where its keys and values go
  Cell parent;           // the cell of the token before it; none at position 0
  Kind kind = Kind::kNode;
  uint16_t index = 0;  // its number in the batch as submitted; stays when other rows are dropped
  bool tapped = true;  // of the target: a head may ask for its states
};

// A sequence begins, with empty path. Layers that fold what they know of a path keep, when it is `checkpoint` tokens
// long, what they know then: to so many it can be cut later. 0: nowhere, and what was kept stays. So with the next two.
struct Open {
  SequenceId sequence;
  SamplingParams sampling;
  int32_t checkpoint = 0;
};
// A sequence begins with the first `length` tokens of what another has committed, in the same cells: they are not
// computed again. A cell belongs to kMostHolders sequences at most.
struct Fork {
  SequenceId sequence;
  SequenceId from;
  int32_t length = 0;
  SamplingParams sampling;
  int32_t checkpoint = 0;
};
inline constexpr int32_t kMostHolders = 256;
// The token in `cell` is the next one of the committed path.
struct Commit {
  SequenceId sequence;
  Cell cell;
};
// The committed path is cut to its first `length` tokens; then prompt rows or nodes go on from there, drawn by
// `sampling`.
struct Truncate {
  SequenceId sequence;
  int32_t length = 0;
  SamplingParams sampling;
  int32_t checkpoint = 0;
};
// The sequence is forgotten.
struct Close {
  SequenceId sequence;
};
using PathUpdate = std::variant<Open, Fork, Commit, Truncate, Close>;

// Whose path changes.
inline SequenceId sequence_of(const PathUpdate& update) {
  return std::visit([](const auto& held) { return held.sequence; }, update);
}

// How its tokens are to be drawn from now on; null if the update does not say.
inline const SamplingParams* sampling_of(const PathUpdate& update) {
  return std::visit(
      [](const auto& held) -> const SamplingParams* {
        if constexpr (requires { held.sampling; }) return &held.sampling;
        return nullptr;
      },
      update);
}

// What a row of a head takes of the target: the states of the token in the target's `cell`.
struct Feature {
  uint16_t row = 0;   // Row::index, in the head's batch
  Cell cell;          // the target's
  int32_t depth = 0;  // SPD: how many of the target's n stages it has passed
  bool last = false;  // nobody will ask for these states again
};

// A token that has entered a head has got further in the target: what the head keeps of it is computed again.
struct Refresh {
  SequenceId sequence;
  Token token = kNoToken;
  int32_t position = 0;
  Cell own;  // the head's cell of the token
  Cell cell;
  int32_t depth = 0;
  bool last = false;
};

// Rows that go through the stages together. Parents come before their children.
struct Batch {
  BatchId id;
  std::vector<PathUpdate> updates;  // in order, applied before the rows
  std::vector<Row> rows;
  std::vector<Draws> draws;        // of rows among them
  std::vector<Feature> features;   // of a head's rows, at most one each
  std::vector<Refresh> refreshes;  // of a head: before the rows
  std::vector<float> hidden;       // [rows, d_model], empty on the way into the first stage
  std::vector<Half> halves;        // between processes, if states travel as f16: instead of `hidden`
  double after = 0;  // between processes: seconds since its sender sent the one before, on the sender's clock
};

// What has changed about batches that are under way. It overtakes them, and is forgotten once they have passed.
struct Amendment {
  // Its branch is dead: workers need not compute it. Final.
  struct DeadRow {
    BatchId batch;
    uint16_t row = 0;  // Row::index
  };
  std::vector<DeadRow> dead;
  // Children that were drawn, or entered, after their parents: a batch's draws that come after it. A row whose draws
  // come too late is verified by the target's own draw, which under rule `reject` keeps the distribution as well.
  struct LateDraws {
    BatchId batch;
    Draws draws;
  };
  std::vector<LateDraws> late_draws;
};

}  // namespace sluice
