#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "pipeline/executor.h"
#include "pipeline/route.h"

namespace sluice {

namespace {

using Clock = std::chrono::steady_clock;

Clock::duration seconds(double s) {
  constexpr double kLongest = 1e8;  // three years; far more would overflow the clock
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(s, kLongest)));
}

// A queue whose messages arrive some time after they were sent; they come out in the order of arrival.
template <class T>
class DelayedQueue {
 public:
  void push(T value, Clock::time_point arrival) {
    {
      const std::lock_guard lock(mutex_);
      const auto after = std::upper_bound(queue_.begin(), queue_.end(), arrival,
                                          [](Clock::time_point t, const Timed& other) { return t < other.arrival; });
      queue_.insert(after, {arrival, std::move(value)});
    }
    changed_.notify_one();
  }

  // Waits for the next message; nothing when the queue was closed.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (closed_) return std::nullopt;
      if (queue_.empty()) {
        changed_.wait(lock);
      } else if (const auto arrival = queue_.front().arrival; arrival > Clock::now()) {
        changed_.wait_until(lock, arrival);
      } else {
        return take();
      }
    }
  }

  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    if (queue_.empty() || queue_.front().arrival > Clock::now()) return std::nullopt;
    return take();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  struct Timed {
    Clock::time_point arrival;
    T value;
  };
  T take() {
    T value = std::move(queue_.front().value);
    queue_.pop_front();
    return value;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Timed> queue_;
  bool closed_ = false;
};

class ThreadsExecutor final : public Executor {
 public:
  explicit ThreadsExecutor(std::vector<Pipeline> pipelines)
      : start_(Clock::now()), exactness_(exactness_of(pipelines.front())), models_(pipelines.size()) {
    for (size_t m = 0; m < pipelines.size(); ++m) {
      models_[m].id = ModelId(static_cast<int32_t>(m));
      models_[m].pacing = std::move(pipelines[m].cost);
      models_[m].is_head = pipelines[m].is_head;
      models_[m].stages = std::vector<Stage>(pipelines[m].workers.size());
    }
    try {
      for (size_t m = 0; m < pipelines.size(); ++m)
        for (size_t s = 0; s < pipelines[m].workers.size(); ++s)
          models_[m].stages[s].thread = std::thread(
              [this, m, s, worker = std::move(pipelines[m].workers[s])]() mutable { serve(models_[m], s, worker); });
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

  void submit(ModelId model, Batch batch) override {
    at(model).stages.front().messages.push(std::move(batch), Clock::now());
  }

  void amend(ModelId id, Amendment amendment) override {
    Model& model = at(id);
    for (auto& stage : model.stages) {
      const std::lock_guard lock(stage.amendments_mutex);
      stage.amendments.push_back({Clock::now() + message_delay(model), amendment});
    }
  }

  void wake_at(double time) override { events_.push(Woken{}, start_ + seconds(time)); }

  double now() const override { return since_start(Clock::now()); }
  bool simulated() const override { return false; }
  Exactness exactness() const override { return exactness_; }
  const char* name() const override { return "threads"; }

 private:
  struct TimedAmendment {
    Clock::time_point arrival;
    Amendment amendment;
  };
  struct Stage {
    DelayedQueue<std::variant<Batch, std::shared_ptr<const Taps>>> messages;
    std::mutex amendments_mutex;
    std::vector<TimedAmendment> amendments;
    std::thread thread;
  };
  struct Model {
    ModelId id;
    std::optional<CostModel> pacing;
    bool is_head = false;
    std::vector<Stage> stages;
  };

  Model& at(ModelId model) { return models_[static_cast<size_t>(model.value)]; }

  void stop() {
    for (auto& model : models_)
      for (auto& stage : model.stages) stage.messages.close();
    for (auto& model : models_)
      for (auto& stage : model.stages)
        if (stage.thread.joinable()) stage.thread.join();
  }

  double since_start(Clock::time_point t) const { return std::chrono::duration<double>(t - start_).count(); }
  static Clock::duration message_delay(const Model& model) {
    return model.pacing ? seconds(model.pacing->message_seconds()) : Clock::duration(0);
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

  // A stage's queues. Paced, a message arrives when its link would have brought it; links are FIFO: a small message
  // doesn't overtake a large one.
  class Queues final : public Links {
   public:
    Queues(ThreadsExecutor& executor, Model& model, size_t stage)
        : executor_(executor), model_(model), stage_(stage), batches_(executor.start_), taps_(executor.start_) {}

    // What is sent from now on is sent at this time.
    void set_now(Clock::time_point now) { now_ = now; }

    void pass_on(Batch batch) override {
      batches_ = std::max(batches_, now_ + transfer(static_cast<int32_t>(batch.rows.size())));
      model_.stages[stage_ + 1].messages.push(std::move(batch), batches_);
    }
    // The heads sit beside the coordinator. What it asks of them once it knows of the taps comes after these.
    void tap(Taps taps) override {
      taps_ = std::max(taps_, now_ + transfer(rows_of(taps)));
      const TapsArrived arrived{taps.batch, taps.stage};
      const auto shared = std::make_shared<const Taps>(std::move(taps));
      for (Model& head : executor_.models_)
        if (head.is_head) head.stages.front().messages.push(shared, taps_);
      executor_.events_.push(arrived, taps_);
    }
    void report(StageReport report) override { executor_.events_.push(report, now_); }
    void conclude(Outcome outcome) override {
      executor_.events_.push(std::move(outcome), now_ + message_delay(model_));
    }

   private:
    Clock::duration transfer(int32_t rows) const {
      return model_.pacing ? seconds(model_.pacing->transfer_seconds(rows)) : Clock::duration(0);
    }

    ThreadsExecutor& executor_;
    Model& model_;
    size_t stage_;
    Clock::time_point now_, batches_, taps_;  // when the last of them arrive
  };

  void serve_batches(Model& model, size_t s, Worker& worker) {
    Queues queues(*this, model, s);
    while (auto message = model.stages[s].messages.pop()) {
      if (const auto* taps = std::get_if<std::shared_ptr<const Taps>>(&*message)) {
        worker.receive(**taps);
        continue;
      }
      const auto begin = Clock::now();
      take_amendments(model.stages[s], worker);
      Worker::Done done = worker.process(std::get<Batch>(std::move(*message)));
      if (model.pacing)
        std::this_thread::sleep_until(
            begin + seconds(model.pacing->stage_seconds(worker.stage(), done.rows_computed, done.head_rows)));
      const auto end = Clock::now();
      queues.set_now(end);
      route(std::move(done), model.id, worker.stage(), s + 1 == model.stages.size(), since_start(begin),
            since_start(end), queues);
    }
  }

  Clock::time_point start_;
  Exactness exactness_;
  std::vector<Model> models_;
  DelayedQueue<Event> events_;
};

}  // namespace

std::unique_ptr<Executor> make_threads_executor(std::vector<Pipeline> models) {
  return std::make_unique<ThreadsExecutor>(std::move(models));
}

}  // namespace sluice
