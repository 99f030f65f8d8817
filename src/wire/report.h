// What workers say: to the heads, and to the coordinator.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "wire/batch.h"
#include "wire/draws.h"

namespace sluice {

// States that a stage of the target has computed and heads read.
struct Taps {
  BatchId batch;
  StageId stage;
  std::vector<Row> rows;        // that were computed
  std::vector<int32_t> layers;  // l: after layer l
  std::vector<float> states;    // [layers, rows, d_model]
};

// The taps of a batch have come to the head: from its process, wherever that is.
struct TapsArrived {
  BatchId batch;
  StageId stage;
};

// The natural log of a token's probability before sampling parameters: of the softmax of the raw logits.
struct TokenLogprob {
  Token token = kNoToken;
  float logprob = 0.0f;
};

// What the last worker found out: the node in `cell` is on the path, and the target's own next token after it is
// `next`.
struct Accepted {
  SequenceId sequence;
  Cell cell;
  Token next = kNoToken;
  float logprob = 0.0f;  // natural log of next's probability before sampling parameters (softmax of the raw logits)
  std::vector<BendOdds> odds;     // by kBends, where Draws asked for it
  std::vector<TokenLogprob> top;  // the likeliest first, SamplingParams::top_logprobs of them
  bool form_failed = false;       // of the answer's grammar, which can't be followed any further: `next` ends it
};

// What a draft model says of the tokens after a row, likeliest first.
struct Drafted {
  uint16_t row = 0;   // Row::index
  int32_t depth = 0;  // of a head that guesses several tokens at once: after so many first choices below the row
  std::vector<Candidate> candidates;
};

// A batch came out of a model's last stage. Of the target: `accepted`, in path order for each sequence; empty when no
// alive row was in it. Of a draft model: `drafted`, for every row that is no prompt row and was not dropped.
struct Outcome {
  BatchId batch;
  std::vector<Accepted> accepted;
  std::vector<Drafted> drafted;
  ModelId model = kTarget;
};

// Where results are kept by path: those that were asked for, and those among them that had to be computed.
struct Lookups {
  uint32_t asked = 0, missed = 0;
};

// A stage has finished a batch and is free again unless more is queued.
struct StageReport {
  StageId stage;
  BatchId batch;
  double begin = 0, end = 0;   // seconds on the executor's clock
  uint16_t rows_computed = 0;  // after amendments
  ModelId model = kTarget;
  // How the batch came, in durations of the receiver's: clocks of two hosts are never compared.
  double waited = 0;           // seconds that it lay in front of the stage
  double received = 0;         // seconds that it occupied the link to the stage
  uint16_t rows_received = 0;  // with which it did so
  // Of a stage that keeps a pace: seconds that it computed, of those from `begin` to `end`.
  double computed = 0;
  Lookups lookups;
  uint64_t out_of_range = 0;  // numbers of states that f16 can't hold, where they are rounded to it
};

// A worker is gone, and with it what it held of every sequence.
struct WorkerFailed {
  Error error;
};

}  // namespace sluice
