// What travels between the coordinator and the workers, and from stage to stage. Flat data, no pointers: the same
// structs cross a queue inside a process and a network.
//
// Order is meaning. From the coordinator to stage 0 and from each stage to the next, batches travel in FIFO order, and
// everything that changes what a cell or a sequence means (opening, prompt rows, commits, truncations) travels inside
// them. Only a `Cancel` may overtake.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sluice {

// How guesses are verified.
enum class Rule : uint8_t {
  kMatch,   // the target draws its own token and the tree holds it or not: one seed, one text, whatever the method
  kReject,  // speculative sampling: guesses drawn from q are accepted with p / q; keeps the distribution, not the bits
  // Lossy (SpecPipe section 3.4): another text than the target's own.
  kRelaxed,  // of the children that have entered, the one that the target holds likeliest
  kTopP,     // of those among the target's likeliest tokens that add up to `accept_p`, the one likeliest by its source
};
inline bool is_lossy(Rule rule) { return rule == Rule::kRelaxed || rule == Rule::kTopP; }

// How the next token is drawn from the logits. The order is: repetition penalty, logit bias, temperature, top-k, top-p,
// min-p.
struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // 1: off
  float min_p = 0.0f;        // 0: off
  float repeat_penalty = 1.0f;
  uint64_t seed = 0;
  uint32_t choice = 0;                              // which of n answers to the same prompt
  std::vector<std::pair<Token, float>> logit_bias;  // added to the logit
  Rule rule = Rule::kMatch;
  float accept_p = 0.9f;  // rule kTopP
  bool operator==(const SamplingParams&) const = default;
};

// A guess at the token after a node.
struct Candidate {
  Token token = kNoToken;
  float probability = 0.0f;  // the source's own estimate that the target says this token, given that the node is right
};

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

// A sequence begins, with empty path.
struct Open {
  SequenceId sequence;
  SamplingParams sampling;
};
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
};
// The sequence is forgotten.
struct Close {
  SequenceId sequence;
};
using PathUpdate = std::variant<Open, Commit, Truncate, Close>;

// SAGUARO sampling (SSD): the `f` likeliest tokens count only `c` times, 0 < c <= 1, so that what the target draws
// after a rejection is more often among them.
struct Saguaro {
  double c = 1.0;
  int32_t f = 0;
  bool odds = false;  // the verification is to say what every c of kSaguaroChoices would come to
};
inline constexpr std::array<double, 8> kSaguaroChoices = {1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05};

// What one drawn token would come to with another c.
struct SaguaroOdds {
  double accepted = 0.0;  // the probability that it is accepted
  double hit = 0.0;       // and, if not, that the target's own is one of the f likeliest others
};

// Under rule `reject`: the children of a row as they were drawn. Under a lossy rule: those that have entered, with what
// their source says of them in q.
struct Draws {
  uint16_t row = 0;           // Row::index of the parent
  std::vector<Candidate> q;   // what they were drawn from
  std::vector<Token> tokens;  // in the order of drawing; with replacement a token may come again
  bool replacement = false;
  Saguaro saguaro;  // by which q was bent
};

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
};

// States that a stage of the target has computed and heads read.
struct Taps {
  BatchId batch;
  StageId stage;
  std::vector<Row> rows;        // that were computed
  std::vector<int32_t> layers;  // l: after layer l
  std::vector<float> states;    // [layers, rows, d_model]
};

// What overtakes batches. These rows are dead: workers need not compute them. Final.
struct Cancel {
  struct Entry {
    BatchId batch;
    uint16_t row = 0;  // Row::index
  };
  std::vector<Entry> rows;
  // Children that were drawn, or entered, after their parents: a batch's draws that come after it. A row whose draws
  // come too late is verified by the target's own draw, which under rule `reject` keeps the distribution as well.
  struct LateDraws {
    BatchId batch;
    Draws draws;
  };
  std::vector<LateDraws> draws;
};

// What the last worker found out: the node in `cell` is on the path, and the target's own next token after it is
// `next`.
struct Accepted {
  SequenceId sequence;
  Cell cell;
  Token next = kNoToken;
  float logprob = 0.0f;  // natural log of next's probability before sampling parameters (softmax of the raw logits)
  std::vector<SaguaroOdds> odds;  // by kSaguaroChoices, where Draws asked for it
};

// What a draft model says of the tokens after a row, likeliest first.
struct Drafted {
  uint16_t row = 0;   // Row::index
  int32_t depth = 0;  // of a head that guesses several tokens at once: after so many first choices below the row
  std::vector<Candidate> candidates;
};

// A batch came out of a model's last stage. Of the target: `accepted`, in path order for each sequence; empty when no
// alive row was in it. Of a draft model: `drafted`, for every row that is no prompt row and was not cancelled.
struct Outcome {
  BatchId batch;
  std::vector<Accepted> accepted;
  std::vector<Drafted> drafted;
  ModelId model = kTarget;
};

// The taps of a batch have come to all heads.
struct TapsArrived {
  BatchId batch;
  StageId stage;
};

// A stage has finished a batch and is free again unless more is queued.
struct StageReport {
  StageId stage;
  BatchId batch;
  double begin = 0, end = 0;   // seconds on the executor's clock
  uint16_t rows_computed = 0;  // after cancels
  ModelId model = kTarget;
};

}  // namespace sluice
