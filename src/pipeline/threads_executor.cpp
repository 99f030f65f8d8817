#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "pipeline/executor.h"

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
  ThreadsExecutor(std::vector<Worker> workers, std::optional<CostModel> pacing)
      : pacing_(std::move(pacing)), start_(Clock::now()), stages_(workers.size()) {
    try {
      for (size_t s = 0; s < workers.size(); ++s)
        stages_[s].thread = std::thread([this, s, worker = std::move(workers[s])]() mutable { serve(s, worker); });
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

  void submit(Batch batch) override { stages_.front().batches.push(std::move(batch), Clock::now()); }

  void cancel(Cancel cancel) override {
    for (auto& stage : stages_) {
      const std::lock_guard lock(stage.cancel_mutex);
      stage.cancels.push_back({Clock::now() + message_delay(), cancel});
    }
  }

  void wake_at(double time) override { events_.push(Woken{}, start_ + seconds(time)); }

  double now() const override { return since_start(Clock::now()); }
  bool simulated() const override { return false; }
  const char* name() const override { return "threads"; }

 private:
  struct TimedCancel {
    Clock::time_point arrival;
    Cancel cancel;
  };
  struct Stage {
    DelayedQueue<Batch> batches;
    std::mutex cancel_mutex;
    std::vector<TimedCancel> cancels;
    std::thread thread;
  };

  void stop() {
    for (auto& stage : stages_) stage.batches.close();
    for (auto& stage : stages_)
      if (stage.thread.joinable()) stage.thread.join();
  }

  double since_start(Clock::time_point t) const { return std::chrono::duration<double>(t - start_).count(); }
  Clock::duration message_delay() const { return pacing_ ? seconds(pacing_->message_seconds()) : Clock::duration(0); }

  void take_cancels(Stage& stage, Worker& worker) {
    const std::lock_guard lock(stage.cancel_mutex);
    std::erase_if(stage.cancels, [&, now = Clock::now()](const TimedCancel& timed) {
      if (timed.arrival > now) return false;
      worker.cancel(timed.cancel);
      return true;
    });
  }

  void serve(size_t s, Worker& worker) {
    try {
      serve_batches(s, worker);
    } catch (const std::exception& error) {
      events_.push(WorkerFailed{Error{ErrorKind::kRuntime, "stage " + std::to_string(s) + " failed: " + error.what()}},
                   Clock::now());
    }
  }

  void serve_batches(size_t s, Worker& worker) {
    const bool last = s + 1 == stages_.size();
    auto previous_arrival = start_;  // a link is FIFO: a small message doesn't overtake a large one
    while (auto batch = stages_[s].batches.pop()) {
      const auto begin = Clock::now();
      take_cancels(stages_[s], worker);
      Worker::Done done = worker.process(std::move(*batch));
      if (pacing_)
        std::this_thread::sleep_until(
            begin + seconds(pacing_->stage_seconds(worker.stage(), done.rows_computed, done.head_rows)));
      const auto end = Clock::now();
      const StageReport report{worker.stage(), done.onward.id, since_start(begin), since_start(end),
                               static_cast<uint16_t>(done.rows_computed)};
      if (last) {
        events_.push(std::move(done.outcome), end + message_delay());
      } else {
        const double transfer =
            pacing_ ? pacing_->transfer_seconds(static_cast<int32_t>(done.onward.rows.size())) : 0.0;
        previous_arrival = std::max(previous_arrival, end + seconds(transfer));
        stages_[s + 1].batches.push(std::move(done.onward), previous_arrival);
      }
      events_.push(report, end);  // the coordinator sits beside the first stage; of the others it only keeps the record
    }
  }

  std::optional<CostModel> pacing_;
  Clock::time_point start_;
  std::vector<Stage> stages_;
  DelayedQueue<Event> events_;
};

}  // namespace

std::unique_ptr<Executor> make_threads_executor(std::vector<Worker> workers, std::optional<CostModel> pacing) {
  return std::make_unique<ThreadsExecutor>(std::move(workers), std::move(pacing));
}

}  // namespace sluice
