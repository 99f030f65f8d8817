// The thread that owns the engine: requests of all clients go in, what comes to their answers goes out.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "chat/stop_strings.h"
#include "serve/answer_engine.h"
#include "session/auto_trial.h"
#include "session/session.h"

namespace sluice {

class EngineThread : public AnswerEngine {
 public:
  struct Hooks {
    std::function<void(const Error&)> broken;         // the engine has failed for good, and all answers will with it
    std::function<void(const Load&)> load = nullptr;  // it is another one by now
  };
  // most_waiting: requests that may wait for room beside those that run. Hooks are called by the engine's thread, as
  // all that is told. REQUIRES: the session outlives it.
  EngineThread(const Session& session, std::unique_ptr<Engine> engine, size_t most_waiting, Hooks hooks);
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  // Ends all answers.
  ~EngineThread() override;

  JobId submit(Job job, Tell tell) override;
  // By a number of the caller's. REQUIRES: no job has had it.
  void submit(JobId id, Job job, Tell tell);
  void cancel(JobId job) override;
  Load load() const override;
  void look(std::function<void(const EngineReport&)> tell) override;
  void watch(std::function<void(const EngineReport&, Steps)> tell) override;
  void unwatch() override;

 private:
  struct TalkId {
    JobId job;
    int32_t choice = 0;
    auto operator<=>(const TalkId&) const = default;
  };
  struct Told {
    Job job;
    Tell tell;
  };
  struct Talk {
    std::shared_ptr<const Told> told;
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
    Told told;
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

  bool is_preparing(JobId id) const;
  void queue(Begin begin, bool prepared);
  void run();
  bool ending() const;
  std::deque<Order> orders();
  void obey(Begin& order);
  void obey(const Cancel& cancel);
  void obey(const Look& look) { look.tell(report()); }
  void obey(const Watch& watch);
  void obey(const Unwatch&);
  Status step();
  // like_it: a request of whose cells it may have some.
  Result<RequestId> begin(TalkId id, const std::shared_ptr<const Told>& told, std::optional<RequestId> like_it);
  void take_up(Talk& talk, const std::vector<Token>& said);
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
  const Hooks hooks_;

  // Of the engine's thread.
  std::map<TalkId, Talk> talks_;
  std::map<RequestId, TalkId> speaking_;
  std::deque<RequestId> kept_;  // that have ended, the oldest first
  StepLog steps_;               // of who watches
  EngineReport tally_;          // what was counted of requests that have ended, and of tokens

  mutable std::mutex mutex_;
  std::condition_variable ordered_;
  std::set<JobId> preparing_;  // that wait for their grammar
  std::deque<Order> orders_;
  std::optional<Error> failed_;
  EngineReport last_report_;  // if it has failed
  bool ending_ = false;
  JobId next_job_ = 0;
  Load load_;
  std::thread thread_;
  boost::asio::thread_pool compiling_{1};  // grammars, which takes seconds
};

}  // namespace sluice
