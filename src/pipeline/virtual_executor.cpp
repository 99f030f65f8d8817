#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "base/random.h"
#include "pipeline/executor.h"
#include "pipeline/link_clock.h"
#include "pipeline/route.h"

namespace sluice {

namespace {

// What happens at one instant, in this order: work that ends, then what arrives, then the coordinator (it is asked
// between two calls of next()), then work that starts. So a verdict prunes the rows that would start at the same
// instant.
enum class Order : uint8_t { kEnd, kArrive, kStart };

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(std::vector<Pipeline> pipelines, Jitter jitter, Faults faults)
      : jitter_(jitter), faults_(std::move(faults)), exactness_(exactness_of(pipelines.front())) {
    for (auto& pipeline : pipelines) {
      SLUICE_CHECK(pipeline.cost.has_value(), "a simulated model has a cost");
      const ModelId id(static_cast<int32_t>(models_.size()));
      Model& model = models_.emplace_back(Model{.id = id,
                                                .cost = *pipeline.cost,
                                                .is_head = pipeline.is_head,
                                                .links = {*pipeline.cost, id, pipeline.workers.size()},
                                                .stages = {},
                                                .devices = {},
                                                .remake = std::move(pipeline.remake)});
      for (size_t s = 0; s < pipeline.workers.size(); ++s) {
        Device& device = pipeline.shares ? *models_.front().devices[*pipeline.shares] : devices_.emplace_back(Device{});
        device.users.emplace_back(&model, s);
        model.devices.push_back(&device);
      }
      settle(model, std::move(pipeline.workers));
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

  void submit(ModelId id, Batch batch) override {
    Model& model = at(id);
    if (model.away) return;
    if (faults_.on_submit) faults_.on_submit(id, batch);
    const double bytes = CostModel::batch_bytes(static_cast<int32_t>(batch.rows.size()));
    send_batch(model, 0, std::move(batch), bytes);
  }

  void amend(ModelId id, Amendment amendment) override {
    Model& model = at(id);
    if (model.away) return;
    for (size_t s = 0; s < model.stages.size(); ++s) {
      Worker& worker = model.stages[s].worker;
      const double arrival = send(model.links.to_stages[s], CostModel::kMessageBytes);
      const auto amend = [&worker, amendment] { worker.amend(amendment); };
      if (arrives_now(arrival))
        amend();
      else
        plan(model, arrival, Order::kArrive, amend);
      if (happens(faults_.duplicates)) plan(model, arrival + a_while(), Order::kArrive, amend);
    }
  }

  void resume(ModelId id, uint32_t generation) override {
    Model& model = at(id);
    if (generation != model.generation) return;
    if (model.stages.empty()) return plan(model, now_ + a_while(), Order::kArrive, [this] { come_back(); });
    model.away = false;
    for (Model& other : models_)
      if (&other != &model)
        for (Stage& stage : other.stages) stage.worker.begin_anew();
  }

  void wake_at(double time) override { tell(Woken{}, time); }

  double now() const override { return now_; }
  bool simulated() const override { return true; }
  Exactness exactness() const override { return exactness_; }
  const char* name() const override { return "virtual"; }

 private:
  struct Arrived {
    Batch batch;
    double at = 0.0;        // when
    double occupied = 0.0;  // seconds of the link to the stage
    uint16_t rows = 0;
  };
  struct Model;
  // What computes one pass at a time, of whichever stage's batch came first.
  struct Device {
    std::vector<std::pair<Model*, size_t>> users;  // stages of models
    Model* busy_with = nullptr;                    // whose pass it computes
  };
  struct Stage {
    Worker worker;
    std::deque<Arrived> queue;
    Device* device;
    bool crashed = false;
    bool waits() const { return !queue.empty() && !crashed; }
  };
  struct Model {
    ModelId id;
    CostModel cost;
    bool is_head = false;
    PipelineLinks links;
    std::vector<Stage> stages;
    std::vector<Device*> devices;  // by stage
    std::function<Result<std::vector<Worker>>()> remake;
    std::vector<std::optional<Worker>> left = {};  // by stage, while they are away: those that were not lost
    uint32_t generation = 0;                       // of its stages: what was planned of former ones is void
    bool away = false;                             // stages were lost, and the coordinator has not resumed
  };

  // Its workers are in their places.
  static void settle(Model& model, std::vector<Worker> workers) {
    for (size_t s = 0; s < workers.size(); ++s)
      model.stages.push_back({.worker = std::move(workers[s]), .queue = {}, .device = model.devices[s]});
  }

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

  void plan(Model& model, double time, Order order, std::function<void()> action) {
    plan(time, order, [&model, generation = model.generation, action = std::move(action)] {
      if (model.generation == generation) action();
    });
  }

  void happen() {
    if (faults_.crash == n_happened_) crash();
    if (faults_.losses.contains(n_happened_)) lose();
    ++n_happened_;
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
    if (arrives_now(time)) return events_.push_back(std::move(event));
    plan(time, Order::kArrive, [this, e = std::move(event)]() mutable { events_.push_back(std::move(e)); });
  }
  // What a model's stage says.
  void tell(Model& model, Event event, double time) {
    if (arrives_now(time)) return events_.push_back(std::move(event));
    plan(model, time, Order::kArrive, [this, e = std::move(event)]() mutable { events_.push_back(std::move(e)); });
  }

  // By what the next duration is multiplied.
  double stretch() {
    if (jitter_.amount <= 0.0) return 1.0;
    const double u = 2.0 * uniform({.seed = jitter_.seed, .purpose = Purpose::kTest}, n_draws_++) - 1.0;
    return u >= 0 ? 1.0 + u * jitter_.amount : 1.0 / (1.0 - u * jitter_.amount);
  }

  // When what is sent now arrives.
  double send(LinkClock& link, double bytes) {
    if (link.is_free() && faults_.delays <= 0.0) return now_;
    return link.send(now_, bytes, stretch(), happens(faults_.delays) ? a_while() : 0.0);
  }
  // Where messages are held up, one that comes now may have to come behind others of its channel.
  bool arrives_now(double time) const { return time <= now_ && faults_.delays <= 0.0; }

  // --- faults

  double draw() { return uniform({.seed = faults_.seed, .position = 1, .purpose = Purpose::kTest}, n_faults_++); }
  bool happens(double share) { return share > 0.0 && draw() < share; }
  double a_while() { return faults_.longest * draw(); }

  void crash() {
    std::vector<std::pair<Model*, size_t>> all;
    for (Model& model : models_)
      for (size_t s = 0; s < model.stages.size(); ++s) all.emplace_back(&model, s);
    if (all.empty()) return;
    const auto [model, s] = all[static_cast<size_t>(draw() * static_cast<double>(all.size()))];
    model->stages[s].crashed = true;
    events_.push_back(WorkerFailed{Error{ErrorKind::kRuntime, "stage " + std::to_string(s) + " of model " +
                                                                  std::to_string(model->id.value) + " has crashed"}});
  }

  // A stage is lost, and what is planned of all of its model never happens. The others know what their
  // journals do.
  void lose() {
    Model& model = at(faults_.whose);
    if (model.stages.empty()) return;  // they are lost already
    ++model.generation;
    model.away = true;
    const auto lost = static_cast<size_t>(draw() * static_cast<double>(model.stages.size()));
    model.left.clear();
    for (size_t s = 0; s < model.stages.size(); ++s) {
      std::optional<Worker>& left = model.left.emplace_back();
      if (s != lost && model.stages[s].worker.journal() != nullptr) left = std::move(model.stages[s].worker);
    }
    model.stages.clear();
    for (Device* device : model.devices) {
      if (device->busy_with == &model) device->busy_with = nullptr;
      plan(now_, Order::kStart, [this, device] { start(*device); });
    }
    plan(model, now_ + a_while(), Order::kArrive, [this] {
      if (!happens(faults_.nobody)) return come_back();
      events_.push_back(StagesLost{faults_.whose,
                                   {ErrorKind::kRuntime, "a stage is lost, and nobody has room for its layers"},
                                   at(faults_.whose).generation});
    });
  }

  void come_back() {
    Model& model = at(faults_.whose);
    auto workers = model.remake();
    if (!workers) return events_.push_back(WorkerFailed{workers.error()});
    for (size_t s = 0; s < workers->size(); ++s) {
      if (!model.left[s]) continue;
      (*workers)[s] = std::move(*model.left[s]);
      (*workers)[s].forget();
      (*workers)[s].begin_anew();
    }
    settle(model, std::move(*workers));
    if (faults_.on_replaced) faults_.on_replaced(model.id);
    events_.push_back(StagesReplaced{model.id, model.generation});
  }

  // What is planned of stages may refer to them as long as they are of the same generation.
  void send_batch(Model& model, size_t s, Batch batch, double bytes) {
    LinkClock& link = model.links.edges[s];
    const auto rows = static_cast<uint16_t>(batch.rows.size());
    const auto arrived =
        std::make_shared<Arrived>(Arrived{std::move(batch), send(link, bytes), link.occupied(bytes), rows});
    plan(model, arrived->at, Order::kArrive, [this, &model, s, arrived] {
      model.stages[s].queue.push_back(std::move(*arrived));
      plan(now_, Order::kStart, [this, &device = *model.devices[s]] { start(device); });
    });
  }

  // How a batch went through a stage.
  struct Stay {
    double begin = 0.0, waited = 0.0, received = 0.0;
    uint16_t rows_received = 0;
    Worker::Done done;
  };

  void start(Device& device) {
    if (device.busy_with != nullptr) return;
    const auto waits = [](const auto& user) {
      return user.second < user.first->stages.size() && user.first->stages[user.second].waits();
    };
    const auto came = [&](const auto& user) {
      if (!waits(user)) return std::numeric_limits<double>::infinity();
      return user.first->stages[user.second].queue.front().at;
    };
    const auto& first = *std::ranges::min_element(device.users, {}, came);
    if (!waits(first)) return;
    device.busy_with = first.first;
    start(*first.first, first.second);
  }

  void start(Model& model, size_t s) {
    Stage& stage = model.stages[s];
    Arrived next = std::move(stage.queue.front());
    stage.queue.pop_front();
    const auto stay = std::make_shared<Stay>(Stay{.begin = now_,
                                                  .waited = now_ - next.at,
                                                  .received = next.occupied,
                                                  .rows_received = next.rows,
                                                  .done = stage.worker.process(std::move(next.batch))});
    if (faults_.on_computed) faults_.on_computed(model.id, stage.worker.stage(), stay->done.onward);
    double seconds =
        stretch() * model.cost.stage_seconds(stage.worker.stage(), stay->done.rows_computed, stay->done.head_rows);
    if (happens(faults_.stalls)) seconds += a_while();
    plan(model, now_ + seconds, Order::kEnd, [this, &model, s, stay] { finish(model, s, *stay); });
  }

  class SimulatedLinks final : public Links {
   public:
    SimulatedLinks(VirtualExecutor& executor, Model& model, size_t stage, const Stay& stay)
        : executor_(executor), model_(model), stage_(stage), stay_(stay) {}

    void pass_on(Batch batch) override {
      const double bytes = model_.cost.state_bytes(static_cast<int32_t>(batch.rows.size()));
      executor_.send_batch(model_, stage_ + 1, std::move(batch), bytes);
      tell_report();
    }
    // The heads sit beside the coordinator.
    void tap(Taps taps) override {
      const double arrival = executor_.send(model_.links.taps[stage_], model_.cost.tap_bytes(rows_of(taps)));
      executor_.plan(model_, arrival, Order::kArrive, [&to = executor_, t = std::make_shared<Taps>(std::move(taps))] {
        for (Model& head : to.models_)
          if (head.is_head) head.stages.front().worker.receive(*t);
        to.events_.push_back(TapsArrived{t->batch, t->stage});
      });
    }
    // Told behind an outcome of the same instant: verdicts come first.
    void report(StageReport report) override {
      report_ = report;
      report_.waited = stay_.waited;
      report_.received = stay_.received;
      report_.rows_received = stay_.rows_received;
    }
    void conclude(Outcome outcome) override {
      executor_.tell(model_, std::move(outcome), executor_.send(model_.links.edges.back(), CostModel::kMessageBytes));
      tell_report();
    }

   private:
    void tell_report() {
      executor_.tell(model_, report_, executor_.send(model_.links.reports[stage_], CostModel::kMessageBytes));
    }

    VirtualExecutor& executor_;
    Model& model_;
    size_t stage_;
    const Stay& stay_;
    StageReport report_;
  };

  void finish(Model& model, size_t s, Stay& stay) {
    Stage& stage = model.stages[s];
    stage.device->busy_with = nullptr;
    if (!stage.crashed) {
      SimulatedLinks links(*this, model, s, stay);
      route(std::move(stay.done), model.id, stage.worker.stage(), s + 1 == model.stages.size(), stay.begin, now_,
            links);
    }
    plan(now_, Order::kStart, [this, &device = *stage.device] { start(device); });
  }

  Jitter jitter_;
  Faults faults_;
  Exactness exactness_;
  std::deque<Model> models_;
  std::deque<Device> devices_;  // stay where they are
  std::set<Item> agenda_;
  std::deque<Event> events_;
  double now_ = 0.0;
  uint64_t n_planned_ = 0;
  uint32_t n_draws_ = 0, n_faults_ = 0;
  uint64_t n_happened_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_virtual_executor(std::vector<Pipeline> models, Jitter jitter, Faults faults) {
  return std::make_unique<VirtualExecutor>(std::move(models), jitter, std::move(faults));
}

}  // namespace sluice
