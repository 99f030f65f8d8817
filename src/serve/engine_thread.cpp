#include "serve/engine_thread.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "grammar/grammars.h"
#include "serve/policy.h"

namespace sluice {

namespace {

ApiError refusal_of(const Error& error) {
  if (error.kind != ErrorKind::kInput) return unavailable(error.message);
  return {.status = 400, .message = error.message, .param = "method", .code = "invalid_value"};
}

}  // namespace

EngineThread::EngineThread(const Session& session, std::unique_ptr<Engine> engine, size_t most_waiting, Hooks hooks)
    : session_(session),
      engine_(std::move(engine)),
      most_waiting_(most_waiting),
      hooks_(std::move(hooks)),
      steps_(policy::kMostSteps),
      thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    preparing_.clear();
  }
  compiling_.join();
  ordered_.notify_one();
  thread_.join();
}

AnswerEngine::JobId EngineThread::submit(Job job, Tell tell) {
  const JobId id = [this] {
    const std::lock_guard lock(mutex_);
    return next_job_++;
  }();
  submit(id, std::move(job), std::move(tell));
  return id;
}

// The engine waits for no grammar: it is compiled before.
void EngineThread::submit(JobId id, Job job, Tell tell) {
  const AnswerGrammar grammar = job.spec.sampling.grammar;
  Begin begin{id, {std::move(job), std::move(tell)}};
  if (grammar.empty()) return queue(std::move(begin), /*prepared=*/false);
  {
    const std::lock_guard lock(mutex_);
    preparing_.insert(id);
  }
  boost::asio::post(compiling_, [this, grammar, begin = std::move(begin)]() mutable {
    if (!is_preparing(begin.id)) return;  // it was cancelled
    const auto& model = session_.model();
    try {
      prepare(grammar, model.vocabulary(), model.n_logits());
    } catch (const std::exception&) {  // its constraint will say so
    }
    queue(std::move(begin), /*prepared=*/true);
  });
}

bool EngineThread::is_preparing(JobId id) const {
  const std::lock_guard lock(mutex_);
  return preparing_.contains(id);
}

void EngineThread::queue(Begin begin, bool prepared) {
  std::unique_lock lock(mutex_);
  if (prepared && preparing_.erase(begin.id) == 0) return;  // it was cancelled
  if (failed_) {
    const ApiError error = unavailable(failed_->message);
    lock.unlock();
    return begin.told.tell(failed_news(error));
  }
  orders_.push_back(std::move(begin));
  ordered_.notify_one();
}

void EngineThread::cancel(JobId job) {
  const std::lock_guard lock(mutex_);
  preparing_.erase(job);
  orders_.push_back(Cancel{job});
  ordered_.notify_one();
}

void EngineThread::look(std::function<void(const EngineReport&)> tell) {
  std::unique_lock lock(mutex_);
  if (failed_) {
    const EngineReport report = last_report_;
    lock.unlock();
    return tell(report);
  }
  orders_.push_back(Look{std::move(tell)});
  ordered_.notify_one();
}

void EngineThread::watch(std::function<void(const EngineReport&, Steps)> tell) {
  std::unique_lock lock(mutex_);
  if (failed_) {
    const EngineReport report = last_report_;
    lock.unlock();
    return tell(report, {});
  }
  orders_.push_back(Watch{std::move(tell)});
  ordered_.notify_one();
}

void EngineThread::unwatch() {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  orders_.push_back(Unwatch{});
  ordered_.notify_one();
}

AnswerEngine::Load EngineThread::load() const {
  const std::lock_guard lock(mutex_);
  Load load = load_;
  if (failed_) load.trouble = failed_->message;
  return load;
}

void EngineThread::run() {
  try {
    for (;;) {
      for (Order& order : orders()) std::visit([&](auto& one) { obey(one); }, order);
      if (ending()) return;
      if (!engine_->busy() && !engine_->lacks_stages()) continue;
      if (const Status done = engine_->busy() ? step() : engine_->look_for_stages(); !done)
        return break_down(done.error());
    }
  } catch (const std::exception& error) {
    break_down({ErrorKind::kRuntime, error.what()});
  }
}

bool EngineThread::ending() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

// Waits for one if there is nothing to compute, for a while if there are stages to be looked for.
std::deque<EngineThread::Order> EngineThread::orders() {
  publish();
  std::unique_lock lock(mutex_);
  const auto ordered = [&] { return ending_ || !orders_.empty(); };
  if (!engine_->busy()) {
    if (engine_->lacks_stages())
      ordered_.wait_for(lock, policy::kLookForStages, ordered);
    else
      ordered_.wait(lock, ordered);
  }
  return std::exchange(orders_, {});
}

void EngineThread::obey(Begin& order) {
  if (!order.told.job.taken_in && engine_->waiting() >= most_waiting_) {
    ++tally_.refused;
    return order.told.tell(
        failed_news({.status = 429,
                     .message = "the queue is full: " + std::to_string(engine_->waiting()) +
                                " requests wait for room in the KV cache (--queue); ask again when some have ended",
                     .param = "",
                     .code = "queue_full"}));
  }
  const auto told = std::make_shared<const Told>(std::move(order.told));
  auto like_it = with_most_in_common(told->job.spec.prompt);
  for (int32_t choice = 0; choice < told->job.choices; ++choice) {
    const auto& answers = told->job.answers;
    if (!answers.empty() && answers[static_cast<size_t>(choice)].ended) continue;
    const auto begun = begin({order.id, choice}, told, like_it);
    if (!begun) {
      cancel_all(order.id);
      return told->tell(failed_news(refusal_of(begun.error())));
    }
    if (told->job.spec.prompt.size() >= policy::kWorthSharing) like_it = *begun;
  }
  told->tell({});
}

Result<RequestId> EngineThread::begin(TalkId id, const std::shared_ptr<const Told>& told,
                                      std::optional<RequestId> like_it) {
  const Job& job = told->job;
  RequestSpec spec = job.spec;
  if (!job.answers.empty()) spec.said = job.answers[static_cast<size_t>(id.choice)].said;
  spec.sampling.seed += static_cast<uint64_t>(id.choice);
  spec.shares = like_it;
  std::optional<AutoTrial> trial;
  if (job.method == kAutoMethod && spec.method != "ar" && holds_to_the_bit(engine_->exactness()))
    trial.emplace(spec.method);
  const std::vector<Token> said = spec.said;
  SLUICE_TRY(const RequestId request, engine_->submit(std::move(spec)));
  speaking_[request] = id;
  Talk& talk = talks_
                   .try_emplace(id, Talk{.told = told,
                                         .request = request,
                                         .text = TextStream(session_.tokenizer(), job.shown),
                                         .stops = StopStrings(job.stops),
                                         .trial = std::move(trial)})
                   .first->second;
  if (!said.empty()) take_up(talk, said);
  return request;
}

// What was said of it by another engine has been told.
void EngineThread::take_up(Talk& talk, const std::vector<Token>& said) {
  for (const Token token : said)
    if (!session_.tokenizer().ends_generation(token)) talk.stops.push(talk.text.push(token));
  talk.n_tokens = talk.told_tokens = std::ssize(said);
  talk.last_came = engine_->now();
}

void EngineThread::obey(const Cancel& cancel) { cancel_all(cancel.id); }

void EngineThread::obey(const Watch& watch) {
  engine_->watch(&steps_);
  watch.tell(report(/*with_slots=*/false), steps_.take());
}

void EngineThread::obey(const Unwatch&) {
  engine_->watch(nullptr);
  steps_.take();
}

// What still runs of a job.
void EngineThread::cancel_all(JobId job) {
  for (auto at = talks_.lower_bound({job, 0}); at != talks_.end() && at->first.job == job;) {
    const auto [id, request] = std::pair(at->first, at->second.request);
    ++at;
    engine_->cancel(request);
    forget(id, Finish::kCancelled);
  }
}

// The request, running or not, with which this prompt has most cells in common.
std::optional<RequestId> EngineThread::with_most_in_common(const std::vector<Token>& prompt) const {
  std::optional<RequestId> best;
  size_t most = policy::kWorthSharing;
  const auto compare = [&](RequestId id) {
    const std::vector<Token>& tokens = engine_->request(id).tokens;
    const auto differs = std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end()).first;
    const auto common = static_cast<size_t>(differs - prompt.begin());
    if (common < most) return;
    most = common;
    best = id;
  };
  for (const auto& [request, job] : speaking_) compare(request);
  for (const RequestId request : kept_)
    if (engine_->request(request).sequence.valid()) compare(request);
  return best;
}

Status EngineThread::step() {
  if (!session_.options().simulated()) engine_->wake_at(engine_->now() + policy::kLookForNews);
  SLUICE_TRY(const auto progress, engine_->step());
  SLUICE_TRY_STATUS(session_.files().poll());
  for (const Progress& news : progress) SLUICE_TRY_STATUS(take(news));
  for (auto& [id, talk] : talks_) {
    if (!talk.trial) continue;
    const Request& request = engine_->request(talk.request);
    const auto method =
        talk.trial->observe(static_cast<int64_t>(request.n_generated()), engine_->now(), engine_->plain_rate_at_most());
    if (method) SLUICE_TRY_STATUS(engine_->set_method(talk.request, *method, request.spec.sources));
  }
  return {};
}

Status EngineThread::take(const Progress& progress) {
  const auto speaking = speaking_.find(progress.request);
  if (speaking == speaking_.end()) return {};  // it was cancelled
  const TalkId id = speaking->second;
  Talk& talk = talks_.at(id);
  if (!progress.tokens.empty()) came(talk, progress.tokens.size());
  AnswerNews news{
      .choice = id.choice, .text = "", .end = {}, .tokens = {}, .logprobs = {}, .arrived = {}, .said = progress.tokens};
  for (size_t i = 0; i < progress.tokens.size(); ++i) {
    ++talk.n_tokens;
    const Token token = progress.tokens[i];
    if (session_.tokenizer().ends_generation(token)) continue;
    news.text += talk.stops.push(talk.text.push(token));
    if (talk.told->job.spec.logprobs) {
      news.tokens.push_back(token);
      news.logprobs.push_back(progress.logprobs[i]);
    }
    if (!talk.stops.stopped()) continue;
    news.said.resize(i + 1);  // what came behind it is not said
    engine_->cancel(talk.request);
    return end(id, Finish::kStop, std::move(news));
  }
  if (progress.finish != Finish::kNone) return end(id, progress.finish, std::move(news));
  if (news.said.empty()) return {};
  news.arrived = arrived(talk);
  talk.told->tell(std::move(news));
  return {};
}

// Tells what is left to say of it, and forgets it. An error if the model is another one by now.
Status EngineThread::end(TalkId id, Finish finish, AnswerNews news) {
  SLUICE_TRY_STATUS(session_.files().look());
  Talk& talk = talks_.at(id);
  news.text += talk.stops.push(talk.text.finish());
  if (talk.stops.stopped() && finish == Finish::kLength) finish = Finish::kStop;
  news.text += talk.stops.finish();
  news.arrived = arrived(talk);
  news.end = AnswerEnd{.finish = finish, .usage = usage_of(talk), .error = {}, .stop = talk.stops.stop()};
  const bool failed = has_error(finish);
  if (failed) {
    news.end->finish = Finish::kFailed;
    news.end->error = failure_of(talk, finish);
  }
  talk.told->tell(std::move(news));
  forget(id, finish);
  if (failed) cancel_all(id.job);
  return {};
}

ApiError EngineThread::failure_of(const Talk& talk, Finish finish) const {
  const std::string& why = engine_->request(talk.request).error.message;
  if (finish == Finish::kFormFailed) return bad_parameter(talk.told->job.form_param, why).value();
  return unavailable(why);
}

// Tokens of an answer, all at once.
void EngineThread::came(Talk& talk, size_t n_tokens) {
  const double now = engine_->now();
  if (!talk.last_came) {
    const RequestStats& stats = engine_->request(talk.request).stats;
    tally_.first_token.saw(stats.first_token - stats.submitted);
    talk.last_came = now;
    if (--n_tokens == 0) return;
  }
  tally_.next_token.saw((now - *talk.last_came) / static_cast<double>(n_tokens), n_tokens);
  talk.last_came = now;
}

// What no news have told yet.
Arrival EngineThread::arrived(Talk& talk) const {
  const int64_t batches = engine_->request(talk.request).stats.verifications;
  return {.tokens = static_cast<int32_t>(talk.n_tokens - std::exchange(talk.told_tokens, talk.n_tokens)),
          .batches = static_cast<int32_t>(batches - std::exchange(talk.told_batches, batches)),
          .request = talk.request.value};
}

void EngineThread::forget(TalkId id, Finish finish) {
  const RequestId request = talks_.at(id).request;
  const Request& ended = engine_->request(request);
  tally_.counts.add(ended);
  ++tally_.ended[static_cast<size_t>(finish)];
  if (finish != Finish::kCancelled) tally_.whole.saw(engine_->now() - ended.stats.submitted);
  talks_.erase(id);
  speaking_.erase(request);
  kept_.push_back(request);
  if (kept_.size() <= policy::kKeptRequests) return;
  engine_->release(kept_.front());
  kept_.pop_front();
}

void EngineThread::break_down(const Error& error) {
  std::deque<Order> late;
  {
    const std::lock_guard lock(mutex_);
    last_report_ = report();
    last_report_.trouble = error.message;
    failed_ = error;
    late = std::exchange(orders_, {});
  }
  hooks_.broken(error);
  const AnswerNews news = failed_news(unavailable(error.message));
  for (const auto& [id, talk] : talks_)
    if (id.choice == talks_.lower_bound({id.job, 0})->first.choice) talk.told->tell(news);  // a job's first
  for (const Order& order : late) {
    if (const auto* begin = std::get_if<Begin>(&order)) begin->told.tell(news);
    if (const auto* look = std::get_if<Look>(&order)) look->tell(last_report_);
    if (const auto* watch = std::get_if<Watch>(&order)) watch->tell(last_report_, {});
  }
}

Usage EngineThread::usage_of(const Talk& talk) const {
  const Request& request = engine_->request(talk.request);
  const RequestFigures figures = engine_->figures(talk.request);
  const RequestStats& stats = request.stats;
  return {.prompt_tokens = stats.prompt_tokens,
          .reused_tokens = std::min(stats.reused_tokens, stats.prompt_tokens),  // others may have said the same
          .completion_tokens = talk.n_tokens,
          .method = talk.trial ? talk.trial->method() : std::string(request.method.name),
          .source = request.source_name(),
          .seed = request.spec.sampling.seed,
          .drafted = stats.drafted,
          .accepted = stats.accepted,
          .flushes = stats.flushes,
          .equivalent_acceptance_length = figures.equivalent_acceptance_length,
          .tokens_per_second = figures.tokens_per_second,
          .prefill_seconds = figures.prefill_seconds,
          .decode_seconds = figures.decode_seconds};
}

// Without what may be long, and nobody looks at.
Slot EngineThread::slot_of(const Talk& talk) const {
  const Request& request = engine_->request(talk.request);
  const auto room = static_cast<size_t>(session_.options().context) - request.n_prompt();
  SamplingParams sampling = request.spec.sampling;
  sampling.grammar = {};
  sampling.logit_bias.clear();
  return {.request = request.id,
          .method = std::string(request.method.name),
          .source = request.source_name(),
          .sampling = std::move(sampling),
          .prompt_tokens = request.n_prompt(),
          .answer_tokens = request.n_answer(),
          .max_tokens = std::min(static_cast<size_t>(request.spec.max_tokens), room)};
}

EngineReport EngineThread::report(bool with_slots) const {
  EngineReport report = tally_;
  report.waiting = engine_->waiting();
  report.running = talks_.size() - std::min(talks_.size(), report.waiting);
  report.trouble = load_.trouble;
  report.now = engine_->now();
  for (const auto& [id, talk] : talks_) {
    const Request& request = engine_->request(talk.request);
    report.counts.add(request);
    if (!request.sequence.valid()) continue;  // it waits
    if (with_slots) report.slots.push_back(slot_of(talk));
    const Residency& there = request.residency(kTarget);
    report.cells_running += there.committed().size() + there.n_entered();
  }
  report.cells = engine_->target_cells();
  report.cells_held = engine_->held_target_cells();
  report.cells_running = std::min(report.cells_running, report.cells_held);
  for (const StageClock& stage : engine_->stages()) report.stage_busy.push_back(stage.busy);
  report.batches = engine_->batches();
  report.coordinator_seconds = engine_->coordinator_seconds();
  return report;
}

// What the engine is at, for who asks from other threads.
void EngineThread::publish() {
  const size_t waiting = engine_->waiting();
  const Load load{
      .running = talks_.size() - std::min(talks_.size(), waiting),
      .waiting = waiting,
      .trouble = engine_->lacks_stages() ? "stages of the model are lost, and nobody has room for them" : ""};
  {
    const std::lock_guard lock(mutex_);
    if (load == load_) return;
    load_ = load;
  }
  if (hooks_.load) hooks_.load(load);
}

}  // namespace sluice
