#include "serve/engine_process.h"

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>
#include <variant>

#include "serve/engine_life.h"
#include "serve/policy.h"

namespace sluice {

namespace {

constexpr const char* kStarting = "the engine has ended, and another one is being started: ask again in a moment";

}  // namespace

Result<std::unique_ptr<EngineProcess>> EngineProcess::open(const Session& session, int32_t concurrency,
                                                           size_t most_waiting, Hooks hooks) {
  SLUICE_TRY(auto nursery, EngineNursery::start([&session, concurrency, most_waiting](int socket) {
               live_as_engine(session, concurrency, most_waiting, socket);
             }));
  std::unique_ptr<EngineProcess> engine(new EngineProcess(session, std::move(nursery), std::move(hooks)));
  SLUICE_TRY_STATUS(engine->open_first());
  return engine;
}

Status EngineProcess::open_first() {
  SLUICE_TRY(const EngineNursery::Born born, nursery_.next());
  listen_to(born);
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  const auto known = [this] { return has_opened_ || failed_; };
  while (!changed_.wait_for(lock, policy::kLookWhetherDone, known))
    if (hooks_.interrupted()) return tl::unexpected<Error>(Error{ErrorKind::kInterrupted, "interrupted"});
  return has_opened_ ? Status() : tl::unexpected<Error>(*failed_);
}

EngineProcess::~EngineProcess() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (channel_) channel_->shut();
    if (!has_opened_ && pid_ > 0) ::kill(pid_, SIGKILL);  // it would not hear
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

AnswerEngine::JobId EngineProcess::submit(Job job, Tell tell) {
  std::unique_lock lock(mutex_);
  const JobId id = next_job_++;
  if (failed_) {
    const std::string why = failed_->message;
    lock.unlock();
    tell(failed_news(unavailable(why)));
    return id;
  }
  job.answers.resize(static_cast<size_t>(job.choices));
  send(JobGiven{id, job});
  jobs_[id] = std::make_shared<Kept>(Kept{.job = std::move(job), .tell = std::move(tell)});
  return id;
}

void EngineProcess::cancel(JobId job) {
  const std::lock_guard lock(mutex_);
  if (jobs_.erase(job) > 0) send(JobCancelled{job});
}

AnswerEngine::Load EngineProcess::load() const {
  const std::lock_guard lock(mutex_);
  Load load = load_;
  if (failed_) load.trouble = failed_->message;
  return load;
}

void EngineProcess::look(std::function<void(const EngineReport&)> tell) {
  ask({.watch = false, .tell = [tell = std::move(tell)](const EngineReport& report, const Steps&) { tell(report); }});
}

void EngineProcess::watch(std::function<void(const EngineReport&, Steps)> tell) {
  ask({.watch = true, .tell = std::move(tell)});
}

void EngineProcess::unwatch() {
  const std::lock_guard lock(mutex_);
  if (!failed_) send(WatchEnded{});
}

void EngineProcess::ask(Look look) {
  std::unique_lock lock(mutex_);
  if (failed_) {
    const EngineReport report = last_report_;
    lock.unlock();
    return look.tell(report, {});
  }
  send(LookAsked{look.watch});
  looks_.push_back(std::move(look));
}

// REQUIRES: mutex_ is held.
void EngineProcess::send(const ToEngine& message) { channel_->send(bytes_of(message)); }

// Of the thread that listens, as all that follows.
void EngineProcess::run() {
  for (;;) {
    const std::optional<Error> said = listen();
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
    }
    if (!replace(said)) return;
  }
}

// What this engine says, until it ends; then why, if it has said so.
std::optional<Error> EngineProcess::listen() {
  while (const auto frame = channel_->receive()) {
    auto message = from_engine(*frame);
    if (!message) return message.error();
    if (auto why = std::visit([this](auto& one) { return hear(one); }, *message)) return why;
  }
  return std::nullopt;
}

std::optional<Error> EngineProcess::hear(EngineOpened& opened) {
  const std::lock_guard lock(mutex_);
  opened_ = std::move(opened);
  has_opened_ = true;
  load_.trouble.clear();
  changed_.notify_all();
  return std::nullopt;
}

std::optional<Error> EngineProcess::hear(EngineFailed& failed) { return failed.error; }

std::optional<Error> EngineProcess::hear(LoadChanged& changed) {
  const std::lock_guard lock(mutex_);
  load_ = std::move(changed.load);
  return std::nullopt;
}

std::optional<Error> EngineProcess::hear(JobTold& told) {
  AnswerNews& news = told.news;
  const bool comes_on = !news.said.empty() || news.end;
  std::shared_ptr<Kept> kept;
  {
    const std::lock_guard lock(mutex_);
    const auto at = jobs_.find(told.id);
    if (at == jobs_.end()) return std::nullopt;  // it was cancelled
    kept = at->second;
    auto& answers = kept->job.answers;
    if (static_cast<size_t>(news.choice) >= answers.size()) return std::nullopt;
    JobAnswer& answer = answers[static_cast<size_t>(news.choice)];
    answer.said.insert(answer.said.end(), news.said.begin(), news.said.end());
    answer.ended = answer.ended || news.end;
    came_on_ = came_on_ || comes_on;
    kept->came_on = kept->came_on || comes_on;
    const bool failed = news.end && news.end->finish == Finish::kFailed;
    if (failed || std::ranges::all_of(answers, &JobAnswer::ended)) jobs_.erase(at);
    if (!comes_on && std::exchange(kept->job.taken_in, true)) return std::nullopt;
  }
  kept->tell(std::move(news));
  return std::nullopt;
}

std::optional<Error> EngineProcess::hear(LookTold& told) {
  Look look;
  {
    const std::lock_guard lock(mutex_);
    if (looks_.empty()) return std::nullopt;
    look = std::move(looks_.front());
    looks_.pop_front();
    told.report.restarts = restarts_;
    last_report_ = told.report;
  }
  look.tell(told.report, std::move(told.steps));
  return std::nullopt;
}

// Whether there is another engine, which goes on where this one was.
bool EngineProcess::replace(const std::optional<Error>& said) {
  std::unique_lock lock(mutex_);
  const bool first = restarts_ == 0 && !has_opened_;
  fruitless_ends_ = came_on_ || (has_opened_ && jobs_.empty()) ? 0 : fruitless_ends_ + 1;
  if (first || fruitless_ends_ >= policy::kMostEnds) {
    lock.unlock();
    const std::string why = first ? "the engine's process has ended before it was ready"
                                  : "the engine's process has ended, and so have those before it";
    give_up(said.value_or(Error{ErrorKind::kRuntime, why}));
    return false;
  }
  if (const Status same = session_.files().look(); !same) {  // any other would end so too
    lock.unlock();
    return give_up(same.error()), false;
  }
  load_ = {.trouble = kStarting};
  if (fruitless_ends_ > 0) {
    const auto wait = std::min(policy::kStartAgain * (1 << (fruitless_ends_ - 1)), policy::kStartAgainAtMost);
    if (changed_.wait_for(lock, wait, [this] { return ending_; })) return false;
  }
  lock.unlock();
  const auto born = nursery_.next();
  if (!born) return give_up(born.error()), false;
  lock.lock();
  listen_to(*born);
  const auto fruitless = drop_fruitless();
  give_all();
  ++restarts_;
  const size_t n = jobs_.size();
  lock.unlock();
  const std::string why = said ? said->message : born->last_end;
  for (const auto& kept : fruitless)
    kept->tell(failed_news({.status = 500,
                            .message = "the engine has ended " + std::to_string(policy::kMostEndsOfARequest) +
                                       " times without coming on with this request, the last time by: " + why,
                            .param = "",
                            .code = "engine_ended"}));
  hooks_.restarted("the engine has ended (" + why + "); another one goes on with " + std::to_string(n) + " request" +
                   (n == 1 ? "" : "s"));
  return true;
}

// REQUIRES: mutex_ is held, until that engine has all jobs: what is given meanwhile would be given twice.
void EngineProcess::listen_to(const EngineNursery::Born& born) {
  channel_ = std::make_unique<FrameChannel>(born.socket);
  if (ending_) channel_->shut();
  pid_ = born.pid;
  has_opened_ = came_on_ = false;
}

// REQUIRES: mutex_ is held.
std::vector<std::shared_ptr<EngineProcess::Kept>> EngineProcess::drop_fruitless() {
  std::vector<std::shared_ptr<Kept>> fruitless;
  std::erase_if(jobs_, [&](const auto& entry) {
    Kept& kept = *entry.second;
    kept.fruitless_ends = std::exchange(kept.came_on, false) ? 0 : kept.fruitless_ends + 1;
    if (kept.fruitless_ends < policy::kMostEndsOfARequest) return false;
    fruitless.push_back(entry.second);
    return true;
  });
  return fruitless;
}

// REQUIRES: mutex_ is held.
void EngineProcess::give_all() {
  for (const auto& [id, kept] : jobs_) send(JobGiven{id, kept->job});
  for (const Look& look : looks_) send(LookAsked{look.watch});
}

void EngineProcess::give_up(const Error& error) {
  std::map<JobId, std::shared_ptr<Kept>> jobs;
  std::deque<Look> looks;
  {
    const std::lock_guard lock(mutex_);
    failed_ = error;
    last_report_.trouble = error.message;
    jobs = std::exchange(jobs_, {});
    looks = std::exchange(looks_, {});
  }
  changed_.notify_all();
  hooks_.broken(error);
  for (const auto& [id, kept] : jobs) kept->tell(failed_news(unavailable(error.message)));
  for (const Look& look : looks) look.tell(last_report_, {});
}

}  // namespace sluice
