// An engine in a process of its own: when it ends, another one goes on where it was.
#pragma once

#include <sys/types.h>

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
#include <vector>

#include "serve/answer_engine.h"
#include "serve/engine_nursery.h"
#include "serve/engine_wire.h"
#include "serve/frame_channel.h"
#include "session/session.h"

namespace sluice {

// It keeps of each job what has been said; a job whose engine has ended is given to the next one with that, and comes
// to the same tokens (under Rule::kMatch). A job that several engines in a row have not brought on is given up, and
// after some that have brought on none there is no other.
class EngineProcess : public AnswerEngine {
 public:
  struct Hooks {
    std::function<void(const Error&)> broken;           // there will be no other; of any thread
    std::function<void(const std::string&)> restarted;  // what to tell the user
    std::function<bool()> interrupted;                  // asked now and then while the first one opens
  };
  // When the first engine has opened. REQUIRES: the process has one thread; the session outlives it.
  static Result<std::unique_ptr<EngineProcess>> open(const Session& session, int32_t concurrency, size_t most_waiting,
                                                     Hooks hooks);
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;
  // Ends all answers.
  ~EngineProcess() override;

  const EngineOpened& opened() const { return opened_; }

  JobId submit(Job job, Tell tell) override;
  void cancel(JobId job) override;
  Load load() const override;
  void look(std::function<void(const EngineReport&)> tell) override;
  void watch(std::function<void(const EngineReport&, Steps)> tell) override;
  void unwatch() override;

 private:
  struct Kept {
    Job job;
    Tell tell;
    bool came_on = true;     // since it was given to this engine
    int fruitless_ends = 0;  // of engines in a row that have not brought it on
  };
  struct Look {
    bool watch = false;
    std::function<void(const EngineReport&, Steps)> tell;
  };

  EngineProcess(const Session& session, EngineNursery nursery, Hooks hooks)
      : session_(session), nursery_(std::move(nursery)), hooks_(std::move(hooks)) {}
  Status open_first();
  void ask(Look look);
  void send(const ToEngine& message);
  void run();
  std::optional<Error> listen();
  std::optional<Error> hear(EngineOpened& opened);
  std::optional<Error> hear(EngineFailed& failed);
  std::optional<Error> hear(LoadChanged& changed);
  std::optional<Error> hear(JobTold& told);
  std::optional<Error> hear(LookTold& told);
  bool replace(const std::optional<Error>& said);
  void listen_to(const EngineNursery::Born& born);
  std::vector<std::shared_ptr<Kept>> drop_fruitless();
  void give_all();
  void give_up(const Error& error);

  const Session& session_;
  EngineNursery nursery_;  // of who opens, then of the thread that listens
  const Hooks hooks_;
  EngineOpened opened_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<FrameChannel> channel_;  // to the engine that there is
  pid_t pid_ = -1;                         // its process
  std::map<JobId, std::shared_ptr<Kept>> jobs_;
  std::deque<Look> looks_;  // that are not answered, in their order
  JobId next_job_ = 0;
  Load load_;
  EngineReport last_report_;
  std::optional<Error> failed_;
  bool ending_ = false;
  bool has_opened_ = false, came_on_ = false;  // this engine has opened, and has brought a job on
  int fruitless_ends_ = 0;                     // in a row
  uint64_t restarts_ = 0;
  std::thread thread_;
};

}  // namespace sluice
