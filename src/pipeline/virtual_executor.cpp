#include <algorithm>
#include <deque>
#include <functional>
#include <set>
#include <tuple>

#include "base/random.h"
#include "pipeline/executor.h"
#include "pipeline/route.h"

namespace sluice {

namespace {

// What happens at one instant, in this order: work that ends, then what arrives, then the coordinator (it is asked
// between two calls of next()), then work that starts. So a verdict prunes the rows that would start at the same
// instant.
enum class Order : uint8_t { kEnd, kArrive, kStart };

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(std::vector<Pipeline> pipelines, Jitter jitter)
      : jitter_(jitter), exactness_(exactness_of(pipelines.front())) {
    for (auto& pipeline : pipelines) {
      SLUICE_CHECK(pipeline.cost.has_value(), "a simulated model has a cost");
      Model& model = models_.emplace_back(Model{.id = ModelId(static_cast<int32_t>(models_.size())),
                                                .cost = *pipeline.cost,
                                                .is_head = pipeline.is_head,
                                                .stages = {}});
      for (auto& worker : pipeline.workers) model.stages.push_back({std::move(worker), {}});
    }
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

  void submit(ModelId model, Batch batch) override { arrive(at(model), 0, std::move(batch), now_); }

  void amend(ModelId id, Amendment amendment) override {
    Model& model = at(id);
    for (size_t s = 0; s < model.stages.size(); ++s) {
      const double delay = s == 0 ? 0.0 : vary(model.cost.message_seconds());
      Worker& worker = model.stages[s].worker;
      if (delay == 0.0) {
        worker.amend(amendment);
      } else {
        double& last = model.stages[s].last_amendment;
        last = std::max(last, now_ + delay);
        plan(last, Order::kArrive, [&worker, amendment] { worker.amend(amendment); });
      }
    }
  }

  void wake_at(double time) override { tell(Woken{}, time); }

  double now() const override { return now_; }
  bool simulated() const override { return true; }
  Exactness exactness() const override { return exactness_; }
  const char* name() const override { return "virtual"; }

 private:
  struct Stage {
    Worker worker;
    std::deque<Batch> queue;
    bool busy = false;
    double last_arrival = 0.0, last_amendment = 0.0;
    double last_taps = 0.0;  // when the last of them arrive
  };
  struct Model {
    ModelId id;
    CostModel cost;
    bool is_head = false;
    std::vector<Stage> stages;
    double last_verdict = 0.0;  // when the last outcome arrives
  };

  Model& at(ModelId model) { return models_[static_cast<size_t>(model.value)]; }

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

  // Models and stages stay where they are, so that what is planned may refer to them.
  void arrive(Model& model, size_t s, Batch batch, double time) {
    Stage& stage = model.stages[s];
    time = std::max(time, stage.last_arrival);  // links are FIFO, whatever the jitter
    stage.last_arrival = time;
    plan(time, Order::kArrive, [this, &model, s, b = std::make_shared<Batch>(std::move(batch))] {
      model.stages[s].queue.push_back(std::move(*b));
      plan(now_, Order::kStart, [this, &model, s] { start(model, s); });
    });
  }

  void start(Model& model, size_t s) {
    Stage& stage = model.stages[s];
    if (stage.busy || stage.queue.empty()) return;
    stage.busy = true;
    const double begin = now_;
    auto done = std::make_shared<Worker::Done>(stage.worker.process(std::move(stage.queue.front())));
    stage.queue.pop_front();
    const double end =
        begin + vary(model.cost.stage_seconds(stage.worker.stage(), done->rows_computed, done->head_rows));
    plan(end, Order::kEnd, [this, &model, s, begin, done] { finish(model, s, begin, *done); });
  }

  // A stage's links, which are FIFO whatever the jitter.
  class SimulatedLinks final : public Links {
   public:
    SimulatedLinks(VirtualExecutor& executor, Model& model, size_t stage)
        : executor_(executor), model_(model), stage_(stage) {}

    void pass_on(Batch batch) override {
      const double transfer = model_.cost.transfer_seconds(static_cast<int32_t>(batch.rows.size()));
      executor_.arrive(model_, stage_ + 1, std::move(batch), executor_.now_ + executor_.vary(transfer));
      executor_.tell(report_, executor_.now_);
    }
    // The heads sit beside the coordinator.
    void tap(Taps taps) override {
      double& last = model_.stages[stage_].last_taps;
      last = std::max(last, executor_.now_ + executor_.vary(model_.cost.transfer_seconds(rows_of(taps))));
      executor_.plan(last, Order::kArrive, [&to = executor_, t = std::make_shared<Taps>(std::move(taps))] {
        for (Model& head : to.models_)
          if (head.is_head) head.stages.front().worker.receive(*t);
        to.events_.push_back(TapsArrived{t->batch, t->stage});
      });
    }
    // Told behind an outcome of the same instant: verdicts come first.
    void report(StageReport report) override { report_ = report; }
    void conclude(Outcome outcome) override {
      model_.last_verdict =
          std::max(model_.last_verdict, executor_.now_ + executor_.vary(model_.cost.message_seconds()));
      executor_.tell(std::move(outcome), model_.last_verdict);
      executor_.tell(report_, executor_.now_);
    }

   private:
    VirtualExecutor& executor_;
    Model& model_;
    size_t stage_;
    StageReport report_;
  };

  void finish(Model& model, size_t s, double begin, Worker::Done& done) {
    Stage& stage = model.stages[s];
    stage.busy = false;
    SimulatedLinks links(*this, model, s);
    route(std::move(done), model.id, stage.worker.stage(), s + 1 == model.stages.size(), begin, now_, links);
    plan(now_, Order::kStart, [this, &model, s] { start(model, s); });
  }

  Jitter jitter_;
  Exactness exactness_;
  std::deque<Model> models_;
  std::set<Item> agenda_;
  std::deque<Event> events_;
  double now_ = 0.0;
  uint64_t n_planned_ = 0;
  uint32_t n_draws_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_virtual_executor(std::vector<Pipeline> models, Jitter jitter) {
  return std::make_unique<VirtualExecutor>(std::move(models), jitter);
}

}  // namespace sluice
