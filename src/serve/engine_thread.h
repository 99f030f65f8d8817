// The thread that owns the engine: requests of all clients go in, what comes to their answers goes out.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "chat/stop_strings.h"
#include "engine/step_log.h"
#include "serve/api_error.h"
#include "serve/tally.h"
#include "session/auto_trial.h"
#include "session/session.h"

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
  Arrival arrived = {};  // since the news before
};

struct Job {
  RequestSpec spec;
  int32_t choices = 1;  // answers, each with its own seed: the spec's, that plus 1, …
  std::string method;   // as it was asked for
  std::vector<std::string> stops;
  std::vector<Token> shown = {};  // control tokens whose texts are told
  std::string form_param = {};    // which parameter says in which form the answers are; empty: none
  // Of the engine's thread, or of who submits it; it must not wait. After an answer that failed there is no other news.
  std::function<void(AnswerNews)> tell;
};

class EngineThread {
 public:
  using JobId = uint64_t;

  // most_waiting: requests that may wait for room beside those that run. broken: the engine has failed for good, and
  // all answers with it; of the engine's thread. REQUIRES: the session outlives it.
  EngineThread(const Session& session, std::unique_ptr<Engine> engine, size_t most_waiting,
               std::function<void(const Error&)> broken);
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  // Ends all answers.
  ~EngineThread();

  // From any thread, as all that follows. A job that is refused ends with an error: 400 for what the engine can't do,
  // 429 where too many wait, 503 where stages are lost or the engine has failed.
  JobId submit(Job job);
  // A no-op for one that has ended. What was on its way is still told.
  void cancel(JobId job);

  struct Load {
    size_t running = 0, waiting = 0;
    std::string trouble;  // why nothing can be answered now; empty: it can
  };
  Load load() const;
  // Has `tell` called once, by the engine's thread between two batches, or at once if the engine has failed.
  void look(std::function<void(const EngineReport&)> tell);
  // As look(), without slots and with what the engine has done since the call before. It is recorded from the first
  // call on, and no longer than until unwatch().
  void watch(std::function<void(const EngineReport&, Steps)> tell);
  void unwatch();

 private:
  struct TalkId {
    JobId job;
    int32_t choice = 0;
    auto operator<=>(const TalkId&) const = default;
  };
  struct Talk {
    std::shared_ptr<const Job> job;
    RequestId request;
    TextStream text;
    StopStrings stops;
    std::optional<AutoTrial> trial;
    int64_t n_tokens = 0;
    int64_t told_tokens = 0, told_batches = 0;  // of them, what news have told
    std::optional<double> last_came = {};       // when the newest tokens did
  };
  struct Begin {
    JobId id;
    Job job;
  };
  struct Cancel {
    JobId id;
  };
  struct Look {
    std::function<void(const EngineReport&)> tell;
  };
  struct Watch {
    std::function<void(const EngineReport&, Steps)> tell;
  };
  struct Unwatch {};
  using Order = std::variant<Begin, Cancel, Look, Watch, Unwatch>;

  void run();
  bool ending() const;
  std::deque<Order> orders();
  void obey(Begin& order);
  void obey(const Cancel& cancel);
  void obey(const Look& look) { look.tell(report()); }
  void obey(const Watch& watch);
  void obey(const Unwatch&);
  Status step();
  Status begin(TalkId id, const std::shared_ptr<const Job>& job);
  Status take(const Progress& news);
  Status end(TalkId id, Finish finish, AnswerNews news);
  ApiError failure_of(const Talk& talk, Finish finish) const;
  void came(Talk& talk, size_t n_tokens);
  Arrival arrived(Talk& talk) const;
  void forget(TalkId id, Finish finish);
  void cancel_all(JobId job);
  void break_down(const Error& error);
  std::optional<RequestId> with_most_in_common(const std::vector<Token>& prompt) const;
  Usage usage_of(const Talk& talk) const;
  Slot slot_of(const Talk& talk) const;
  EngineReport report(bool with_slots = true) const;
  void publish();

  const Session& session_;
  std::unique_ptr<Engine> engine_;
  const size_t most_waiting_;
  const std::function<void(const Error&)> broken_;

  // Of the engine's thread.
  std::map<TalkId, Talk> talks_;
  std::map<RequestId, TalkId> speaking_;
  std::deque<RequestId> kept_;  // that have ended, the oldest first
  StepLog steps_;               // of who watches
  EngineReport tally_;          // what was counted of requests that have ended, and of tokens

  mutable std::mutex mutex_;
  std::condition_variable ordered_;
  std::deque<Order> orders_;
  std::optional<Error> failed_;
  EngineReport last_report_;  // if it has failed
  bool ending_ = false;
  JobId next_job_ = 0;
  Load load_;
  std::thread thread_;
};

}  // namespace sluice
