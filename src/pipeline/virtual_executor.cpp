#include <algorithm>
#include <deque>
#include <functional>
#include <set>
#include <tuple>

#include "base/random.h"
#include "pipeline/executor.h"

namespace sluice {

namespace {

// What happens at one instant, in this order: work that ends, then what arrives, then the coordinator (it is asked
// between two calls of next()), then work that starts. So a verdict prunes the rows that would start at the same
// instant.
enum class Order : uint8_t { kEnd, kArrive, kStart };

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(std::vector<Worker> workers, CostModel cost, Jitter jitter)
      : cost_(std::move(cost)), jitter_(jitter) {
    for (auto& worker : workers) stages_.push_back({std::move(worker), {}, false});
  }

  Event next() override {
    for (;;) {
      if (auto event = take_event()) return std::move(*event);
      SLUICE_CHECK(!agenda_.empty(), "waiting with nothing under way");
      happen();
    }
  }

  std::optional<Event> poll() override {
    for (;;) {
      if (auto event = take_event()) return event;
      if (agenda_.empty() || agenda_.begin()->time > now_ || agenda_.begin()->order == Order::kStart)
        return std::nullopt;
      happen();
    }
  }

  void submit(Batch batch) override { arrive(0, std::move(batch), now_); }

  void cancel(Cancel cancel) override {
    for (size_t s = 0; s < stages_.size(); ++s) {
      const double delay = s == 0 ? 0.0 : vary(cost_.message_seconds());
      if (delay == 0.0) {
        stages_[s].worker.cancel(cancel);
      } else {
        plan(now_ + delay, Order::kArrive, [this, s, cancel] { stages_[s].worker.cancel(cancel); });
      }
    }
  }

  void wake_at(double time) override { tell(Woken{}, time); }

  double now() const override { return now_; }
  bool simulated() const override { return true; }
  const char* name() const override { return "virtual"; }

 private:
  struct Stage {
    Worker worker;
    std::deque<Batch> queue;
    bool busy = false;
    double last_arrival = 0.0;
  };
  struct Item {
    double time;
    Order order;
    uint64_t number;  // first planned, first done
    mutable std::function<void()> action;
    bool operator<(const Item& other) const {
      return std::tie(time, order, number) < std::tie(other.time, other.order, other.number);
    }
  };

  void plan(double time, Order order, std::function<void()> action) {
    agenda_.insert({time, order, n_planned_++, std::move(action)});
  }

  void happen() {
    const auto item = agenda_.extract(agenda_.begin());
    now_ = item.value().time;
    item.value().action();
  }

  std::optional<Event> take_event() {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  void tell(Event event, double time) {
    if (time <= now_) {
      events_.push_back(std::move(event));
    } else {
      plan(time, Order::kArrive, [this, e = std::move(event)]() mutable { events_.push_back(std::move(e)); });
    }
  }

  double vary(double seconds) {
    if (jitter_.amount <= 0.0) return seconds;
    const double u = 2.0 * uniform({.seed = jitter_.seed, .purpose = Purpose::kTest}, n_draws_++) - 1.0;
    return seconds * (u >= 0 ? 1.0 + u * jitter_.amount : 1.0 / (1.0 - u * jitter_.amount));
  }

  void arrive(size_t s, Batch batch, double time) {
    time = std::max(time, stages_[s].last_arrival);  // links are FIFO, whatever the jitter
    stages_[s].last_arrival = time;
    plan(time, Order::kArrive, [this, s, b = std::make_shared<Batch>(std::move(batch))] {
      stages_[s].queue.push_back(std::move(*b));
      plan(now_, Order::kStart, [this, s] { start(s); });
    });
  }

  void start(size_t s) {
    Stage& stage = stages_[s];
    if (stage.busy || stage.queue.empty()) return;
    stage.busy = true;
    const double begin = now_;
    auto done = std::make_shared<Worker::Done>(stage.worker.process(std::move(stage.queue.front())));
    stage.queue.pop_front();
    const double end = begin + vary(cost_.stage_seconds(stage.worker.stage(), done->rows_computed, done->head_rows));
    plan(end, Order::kEnd, [this, s, begin, done] { finish(s, begin, *done); });
  }

  void finish(size_t s, double begin, Worker::Done& done) {
    Stage& stage = stages_[s];
    stage.busy = false;
    const StageReport report{stage.worker.stage(), done.onward.id, begin, now_,
                             static_cast<uint16_t>(done.rows_computed)};
    if (s + 1 == stages_.size()) {
      last_verdict_ = std::max(last_verdict_, now_ + vary(cost_.message_seconds()));  // this link is FIFO, too
      tell(std::move(done.outcome), last_verdict_);
    } else {
      const double transfer = vary(cost_.transfer_seconds(static_cast<int32_t>(done.onward.rows.size())));
      arrive(s + 1, std::move(done.onward), now_ + transfer);
    }
    tell(report, now_);
    plan(now_, Order::kStart, [this, s] { start(s); });
  }

  CostModel cost_;
  Jitter jitter_;
  std::vector<Stage> stages_;
  std::set<Item> agenda_;
  std::deque<Event> events_;
  double now_ = 0.0;
  double last_verdict_ = 0.0;  // when the last outcome arrives
  uint64_t n_planned_ = 0;
  uint32_t n_draws_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_virtual_executor(std::vector<Worker> workers, CostModel cost, Jitter jitter) {
  return std::make_unique<VirtualExecutor>(std::move(workers), std::move(cost), jitter);
}

}  // namespace sluice
