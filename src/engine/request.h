// A request: a prompt, how to go on from it, and everything that is known of the answer so far.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/wire.h"
#include "method/method.h"
#include "source/source.h"
#include "tree/residency.h"
#include "tree/token_tree.h"

namespace sluice {

using RequestId = Id<struct RequestTag>;

enum class Finish : uint8_t {
  kNone,       // still running
  kStop,       // the model ended its answer
  kLength,     // max_tokens or the context was reached
  kCancelled,  // stopped from outside
};
const char* name(Finish finish);

struct RequestSpec {
  std::vector<Token> prompt;  // at least one token
  SamplingParams sampling;
  int32_t max_tokens = 256;
  std::string method = "specpipe";
  std::vector<std::string> sources;  // of the method, if it speculates; several are fused
  MethodOptions method_options;
  bool ignore_end = false;  // tokens that end generation are like any others
  // Goes on in the sequence of this finished request: what its committed tokens share with `prompt` is not computed
  // again.
  std::optional<RequestId> continues;
};

// Counts and times of one request; seconds on the executor's clock.
struct RequestStats {
  double submitted = 0, first_token = 0, last_token = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0;
  int64_t drafted = 0;   // nodes that entered the pipeline, roots of flushes and the first root not counted
  int64_t accepted = 0;  // tokens that the tree held when the target named them
  int64_t flushes = 0;   // tokens that it did not hold, the last one of an answer cut short by its length not counted
};

struct Request {
  Request(RequestId id, SequenceId sequence, RequestSpec spec);

  RequestId id;
  SequenceId sequence;
  RequestSpec spec;
  RequestStats stats;
  Finish finish = Finish::kNone;

  std::vector<Token> tokens;  // the prompt, then the answer; the last one is the tree's root
  std::vector<Cell> cells;    // of the tokens that entered as prompt or were verified: cells[i] holds tokens[i]
  size_t n_prompt() const { return spec.prompt.size(); }
  size_t n_answer() const { return tokens.size() - spec.prompt.size(); }
  size_t reserved_cells = 0;     // promised to it, for its committed tokens and the root
  size_t cells_to_come() const;  // of them, how many it has not taken yet
  // The prompt but for its last token is entered as prompt rows; that last token is the first root.
  size_t prompt_rows_left() const { return cells.size() + 1 < n_prompt() ? n_prompt() - 1 - cells.size() : 0; }

  Speculation speculation;
  std::unique_ptr<Method> method;
  std::unique_ptr<Source> source;  // empty if the method doesn't speculate
  BatchId first_batch;             // verdicts on older batches concern what the sequence was before
};

}  // namespace sluice
