#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "pipeline/delayed_queue.h"
#include "pipeline/executor.h"
#include "pipeline/link_clock.h"
#include "pipeline/route.h"

namespace sluice {

namespace {

using Clock = DelayClock;

class ThreadsExecutor final : public Executor {
 public:
  explicit ThreadsExecutor(std::vector<Pipeline> pipelines)
      : start_(Clock::now()), exactness_(exactness_of(pipelines.front())), models_(pipelines.size()) {
    for (size_t m = 0; m < pipelines.size(); ++m) {
      models_[m].id = ModelId(static_cast<int32_t>(m));
      const size_t n_stages = pipelines[m].workers.size();
      models_[m].links =
          pipelines[m].cost ? PipelineLinks(*pipelines[m].cost, models_[m].id, n_stages) : PipelineLinks(n_stages);
      models_[m].pacing = std::move(pipelines[m].cost);
      models_[m].is_head = pipelines[m].is_head;
      models_[m].stages = std::vector<Stage>(pipelines[m].workers.size());
      for (Stage& stage : models_[m].stages)
        stage.device =
            pipelines[m].shares ? models_.front().stages[*pipelines[m].shares].device : std::make_shared<Device>();
      models_[m].remote = std::move(pipelines[m].remote);
      has_remote_ |= models_[m].remote != nullptr;
    }
    try {
      for (size_t m = 0; m < pipelines.size(); ++m)
        for (size_t s = 0; s < pipelines[m].workers.size(); ++s)
          models_[m].stages[s].thread = std::thread(
              [this, m, s, worker = std::move(pipelines[m].workers[s])]() mutable { serve(models_[m], s, worker); });
      for (Model& model : models_)
        if (model.remote) listen(model);
    } catch (...) {  // the system gives no more threads
      stop();
      throw;
    }
  }

  ~ThreadsExecutor() override { stop(); }

  Event next() override {
    auto event = events_.pop();
    SLUICE_CHECK(event.has_value(), "the event queue is never closed");
    return std::move(*event);
  }

  std::optional<Event> poll() override { return events_.try_pop(); }

  void submit(ModelId id, Batch batch) override {
    Model& model = at(id);
    if (RemoteStages* const remote = remote_of(model)) return remote->submit(id, batch);
    const double bytes = CostModel::batch_bytes(static_cast<int32_t>(batch.rows.size()));
    send_batch(model, 0, std::move(batch), bytes, Clock::now());
  }

  void amend(ModelId id, Amendment amendment) override {
    Model& model = at(id);
    if (RemoteStages* const remote = remote_of(model)) return remote->amend(id, amendment);
    for (size_t s = 0; s < model.stages.size(); ++s) {
      Stage& stage = model.stages[s];
      const auto arrival = send(model.links.to_stages[s], CostModel::kMessageBytes, Clock::now());
      const std::lock_guard lock(stage.amendments_mutex);
      stage.amendments.push_back({arrival, amendment});
    }
  }

  // The models that are here have lost nothing, and are going to be told their texts again.
  void resume(ModelId model, uint32_t generation) override {
    if (at(model).remote) at(model).remote->resume(generation);
    for (Model& other : models_)
      for (Stage& stage : other.stages) stage.messages.push(BeginAnew{}, Clock::now());
  }

  void wake_at(double time) override { events_.push(Woken{}, start_ + delay_of(time)); }

  Relayed relayed() override { return models_.front().remote ? models_.front().remote->relayed() : Relayed(); }
  double now() const override { return since_start(Clock::now()); }
  bool simulated() const override { return false; }
  Exactness exactness() const override { return exactness_; }
  const char* name() const override { return has_remote_ ? "hosts" : "threads"; }

 private:
  struct TimedAmendment {
    Clock::time_point arrival;
    Amendment amendment;
  };
  // What is in the journal may come again.
  struct BeginAnew {};
  struct SentBatch {
    Batch batch;
    Clock::time_point arrival;
    double occupied = 0.0;  // seconds of the link to the stage
    uint16_t rows = 0;
  };
  // What computes one pass at a time, in the order in which stages ask for it.
  class Device {
   public:
    void lock() {
      std::unique_lock lock(mutex_);
      turn_.wait(lock, [this, mine = next_++] { return mine == now_; });
    }
    void unlock() {
      {
        const std::lock_guard lock(mutex_);
        ++now_;
      }
      turn_.notify_all();
    }

   private:
    std::mutex mutex_;
    std::condition_variable turn_;
    uint64_t next_ = 0, now_ = 0;
  };
  struct Stage {
    std::shared_ptr<Device> device;
    DelayedQueue<std::variant<SentBatch, std::shared_ptr<const Taps>, BeginAnew>> messages;
    std::mutex amendments_mutex;
    std::vector<TimedAmendment> amendments;
    std::thread thread;
  };
  struct Model {
    ModelId id;
    std::optional<CostModel> pacing;
    bool is_head = false;
    PipelineLinks links;  // each used by the thread that sends over it
    std::vector<Stage> stages;
    std::unique_ptr<Links> heard;          // what stages elsewhere say goes by it
    std::unique_ptr<RemoteStages> remote;  // if there are any
  };

  Model& at(ModelId model) { return models_[static_cast<size_t>(model.value)]; }
  // Null: its stages are here.
  RemoteStages* remote_of(Model& model) {
    if (!model.stages.empty()) return nullptr;
    return model.remote ? model.remote.get() : models_.front().remote.get();
  }

  void stop() {
    for (auto& model : models_) model.remote.reset();
    for (auto& model : models_)
      for (auto& stage : model.stages) stage.messages.close();
    for (auto& model : models_)
      for (auto& stage : model.stages)
        if (stage.thread.joinable()) stage.thread.join();
  }

  double since_start(Clock::time_point t) const { return std::chrono::duration<double>(t - start_).count(); }

  // When what is sent at a time arrives.
  Clock::time_point send(LinkClock& link, double bytes, Clock::time_point at) const {
    return link.is_free() ? at : std::max(at, start_ + delay_of(link.send(since_start(at), bytes)));
  }

  void send_batch(Model& model, size_t s, Batch batch, double bytes, Clock::time_point at) {
    LinkClock& link = model.links.edges[s];
    const auto rows = static_cast<uint16_t>(batch.rows.size());
    const auto arrival = send(link, bytes, at);
    model.stages[s].messages.push(SentBatch{std::move(batch), arrival, link.occupied(bytes), rows}, arrival);
  }

  void send_taps(Taps taps, Clock::time_point arrival) {
    const TapsArrived arrived{taps.batch, taps.stage};
    const auto shared = std::make_shared<const Taps>(std::move(taps));
    for (Model& head : models_)
      if (head.is_head && !head.stages.empty()) head.stages.front().messages.push(shared, arrival);
    events_.push(arrived, arrival);
  }

  void take_amendments(Stage& stage, Worker& worker) {
    const std::lock_guard lock(stage.amendments_mutex);
    std::erase_if(stage.amendments, [&, now = Clock::now()](const TimedAmendment& timed) {
      if (timed.arrival > now) return false;
      worker.amend(timed.amendment);
      return true;
    });
  }

  void serve(Model& model, size_t s, Worker& worker) {
    try {
      serve_batches(model, s, worker);
    } catch (const std::exception& error) {
      const std::string whose = model.id == kTarget ? "" : " of draft model " + std::to_string(model.id.value);
      events_.push(
          WorkerFailed{Error{ErrorKind::kRuntime, "stage " + std::to_string(s) + whose + " failed: " + error.what()}},
          Clock::now());
    }
  }

  // A stage's queues. Paced, a message arrives when its link would have brought it.
  class Queues final : public Links {
   public:
    Queues(ThreadsExecutor& executor, Model& model, size_t stage) : executor_(executor), model_(model), stage_(stage) {}

    // What is sent from now on is sent at this time, and comes of a batch that came like this.
    void set_now(Clock::time_point now, double waited, double computed, const SentBatch& sent) {
      now_ = now;
      came_ = {.waited = waited, .received = sent.occupied, .rows_received = sent.rows, .computed = computed};
    }

    void pass_on(Batch batch) override {
      const auto rows = static_cast<int32_t>(batch.rows.size());
      const double bytes = model_.pacing ? model_.pacing->state_bytes(rows) : 0.0;
      executor_.send_batch(model_, stage_ + 1, std::move(batch), bytes, now_);
    }
    // The heads sit beside the coordinator. What it asks of them once it knows of the taps comes after these.
    void tap(Taps taps) override {
      const double bytes = model_.pacing ? model_.pacing->tap_bytes(rows_of(taps)) : 0.0;
      const auto arrival = executor_.send(model_.links.taps[stage_], bytes, now_);
      executor_.send_taps(std::move(taps), arrival);
    }
    void report(StageReport report) override {
      report.waited = came_.waited;
      report.received = came_.received;
      report.rows_received = came_.rows_received;
      report.computed = came_.computed;
      executor_.events_.push(report, executor_.send(model_.links.reports[stage_], CostModel::kMessageBytes, now_));
    }
    void conclude(Outcome outcome) override {
      executor_.events_.push(std::move(outcome),
                             executor_.send(model_.links.edges.back(), CostModel::kMessageBytes, now_));
    }

   private:
    ThreadsExecutor& executor_;
    Model& model_;
    size_t stage_;
    Clock::time_point now_;
    StageReport came_;
  };

  // What comes from stages elsewhere: it has come when it is here, and it is of the time in which it comes.
  class Arrivals final : public Links {
   public:
    explicit Arrivals(ThreadsExecutor& executor) : executor_(executor) {}

    void pass_on(Batch) override { SLUICE_CHECK(false, "stages elsewhere pass on to each other"); }
    void tap(Taps taps) override { executor_.send_taps(std::move(taps), Clock::now()); }
    // Clocks of different hosts are not compared: of what a report says only durations count.
    void report(StageReport report) override {
      const double now = executor_.now(), seconds = report.end - report.begin;
      double& free = free_since_[{report.model, report.stage}];
      report.begin = std::max(free, now - seconds);
      report.end = free = report.begin + seconds;  // the word of the one before may have been longer on its way
      executor_.events_.push(report, Clock::now());
    }
    void conclude(Outcome outcome) override { executor_.events_.push(std::move(outcome), Clock::now()); }
    void arrived(TapsArrived taps) override { executor_.events_.push(taps, Clock::now()); }

   private:
    ThreadsExecutor& executor_;
    std::map<std::pair<ModelId, StageId>, double> free_since_;  // by the report of its batch before
  };

  void listen(Model& model) {
    model.heard = std::make_unique<Arrivals>(*this);
    const auto tell = [this](Event event) { events_.push(std::move(event), Clock::now()); };
    const ModelId id = model.id;
    model.remote->start(*model.heard, {.failed = [tell](const Error& error) { tell(WorkerFailed{error}); },
                                       .replaced =
                                           [tell, id](uint32_t generation) {
                                             tell(StagesReplaced{id, generation});
                                           },
                                       .lost =
                                           [tell, id](const Error& error, uint32_t generation) {
                                             tell(StagesLost{id, error, generation});
                                           }});
  }

  void serve_batches(Model& model, size_t s, Worker& worker) {
    Queues queues(*this, model, s);
    if (model.pacing) wait_exactly();
    while (auto message = model.stages[s].messages.pop()) {
      if (const auto* taps = std::get_if<std::shared_ptr<const Taps>>(&*message)) {
        worker.receive(**taps);
        continue;
      }
      if (std::holds_alternative<BeginAnew>(*message)) {
        worker.begin_anew();
        continue;
      }
      auto& sent = std::get<SentBatch>(*message);
      std::unique_lock turn(*model.stages[s].device);
      const auto begin = Clock::now();
      take_amendments(model.stages[s], worker);
      Worker::Done done = worker.process(std::move(sent.batch));
      const auto computed = Clock::now();
      auto end = computed;
      if (model.pacing) {
        end =
            end_of_pass(begin, computed,
                        model.pacing->stage_seconds(worker.stage(), done.rows_computed, done.head_rows), done.lookups);
        std::this_thread::sleep_until(end);
      }
      turn.unlock();
      queues.set_now(end, since_start(begin) - since_start(sent.arrival), since_start(computed) - since_start(begin),
                     sent);
      route(std::move(done), model.id, worker.stage(), s + 1 == model.stages.size(), since_start(begin),
            since_start(end), queues);
    }
  }

  Clock::time_point start_;
  Exactness exactness_;
  bool has_remote_ = false;
  std::vector<Model> models_;
  DelayedQueue<Event> events_;
};

}  // namespace

std::unique_ptr<Executor> make_threads_executor(std::vector<Pipeline> models) {
  return std::make_unique<ThreadsExecutor>(std::move(models));
}

}  // namespace sluice
