// What answers requests, wherever it runs: jobs go in, what comes to their answers goes out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/step_log.h"
#include "serve/api_error.h"
#include "serve/tally.h"

namespace sluice {

struct Usage {
  int64_t prompt_tokens = 0, reused_tokens = 0, completion_tokens = 0;  // those behind a stop string not counted
  std::string method, source;
  uint64_t seed = 0;
  int64_t drafted = 0, accepted = 0, flushes = 0;
  double equivalent_acceptance_length = 0, tokens_per_second = 0, prefill_seconds = 0, decode_seconds = 0;
};

struct AnswerEnd {
  Finish finish = Finish::kNone;  // kStop also for a stop string
  Usage usage;
  ApiError error;         // if it failed
  std::string stop = {};  // the stop string that ended it; empty: none did
};

// Tokens of an answer, in how many batches of the target they came, and which of the engine's requests it is.
struct Arrival {
  int32_t tokens = 0, batches = 0, request = 0;
};

// What has come to one of a job's answers. The first news of a job that the engine has taken in is of nothing.
struct AnswerNews {
  int32_t choice = 0;
  std::string text;  // whole characters
  std::optional<AnswerEnd> end;
  // If the spec asks for log-probabilities: the tokens that have come but for one that ends the answer, also those of
  // which nothing is said yet.
  std::vector<Token> tokens;
  std::vector<Logprobs> logprobs;
  Arrival arrived = {};          // since the news before
  std::vector<Token> said = {};  // the same tokens, that one too, asked for or not: JobAnswer::said grows by them
};

// Of an answer that has failed.
AnswerNews failed_news(ApiError error);
// 503: the engine can't, for now or for good.
ApiError unavailable(const std::string& why);

// What is known of one of a job's answers before it is given to an engine.
struct JobAnswer {
  std::vector<Token> said;  // by another engine
  bool ended = false;       // there is nothing left to say
};

struct Job {
  RequestSpec spec;
  int32_t choices = 1;  // answers, each with its own seed: the spec's, that plus 1, …
  std::string method;   // as it was asked for
  std::vector<std::string> stops;
  std::vector<Token> shown = {};        // control tokens whose texts are told
  std::string form_param = {};          // which parameter says in which form the answers are; empty: none
  std::vector<JobAnswer> answers = {};  // by choice; empty: all begin
  bool taken_in = false;                // by another engine: its place in the queue it has
};

// Thread safety: any thread.
class AnswerEngine {
 public:
  using JobId = uint64_t;
  // Gets what comes to a job's answers, of any thread; it must not wait. After an answer that failed there is no other
  // news.
  using Tell = std::function<void(AnswerNews)>;

  virtual ~AnswerEngine() = default;

  // A job that is refused ends with an error: 400 for what the engine can't do, 429 where too many wait, 503 where
  // stages are lost or the engine has failed.
  virtual JobId submit(Job job, Tell tell) = 0;
  // A no-op for one that has ended. What was on its way is still told.
  virtual void cancel(JobId job) = 0;

  struct Load {
    size_t running = 0, waiting = 0;
    std::string trouble;  // why nothing can be answered now; empty: it can
    bool operator==(const Load&) const = default;
  };
  virtual Load load() const = 0;
  // Has `tell` called once, between two batches, or at once if the engine has failed.
  virtual void look(std::function<void(const EngineReport&)> tell) = 0;
  // As look(), without slots and with what the engine has done since the call before. It is recorded from the first
  // call on, and no longer than until unwatch().
  virtual void watch(std::function<void(const EngineReport&, Steps)> tell) = 0;
  virtual void unwatch() = 0;
};

}  // namespace sluice
