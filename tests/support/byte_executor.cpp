#include "support/byte_executor.h"

#include <deque>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <variant>

#include "pipeline/packing.h"
#include "pipeline/recipe.h"
#include "pipeline/route.h"
#include "wire/codec.h"

namespace sluice::test {

namespace {

using Bytes = std::vector<std::byte>;

std::string name_of(ModelId model, StageId stage) {
  return "stage " + std::to_string(stage.value) + " of model " + std::to_string(model.value);
}

class ByteExecutor final : public Executor {
 public:
  ByteExecutor(const Opened& opened, const std::vector<std::vector<StageRecipe>>& models, bool has_head, uint64_t seed,
               Tamper tamper)
      : n_tokens_(opened.model.hparams().n_vocab),
        has_head_(has_head),
        random_(seed),
        tamper_(std::move(tamper)),
        arrivals_(models.front()) {
    for (const auto& recipes : models) {
      const ModelId model(static_cast<int32_t>(models_.size()));
      models_.emplace_back();
      for (const StageRecipe& recipe : recipes) {
        const auto there = std::get<StageRecipe>(decode(encode(recipe)).value());
        auto made = make_stage(there);
        if (!made) throw std::runtime_error(made.error().message);
        models_.back().push_back({model, recipe, std::move(*made), ReportCheck(model, recipe, n_tokens_)});
      }
    }
  }

  Event next() override {
    for (;;) {
      if (wake_ && now_ >= *wake_) return woken();
      std::vector<std::pair<Place*, std::deque<Bytes> Place::*>> waiting;
      for (auto& model : models_)
        for (Place& place : model)
          for (const auto queue : {&Place::batches, &Place::amendments, &Place::taps, &Place::said})
            if (!(place.*queue).empty()) waiting.emplace_back(&place, queue);
      if (waiting.empty()) {
        if (wake_) return woken();
        throw std::logic_error("no stage has anything to do");
      }
      const auto [place, queue] = waiting[random_() % waiting.size()];
      Bytes bytes = std::move((place->*queue).front());
      (place->*queue).pop_front();
      try {
        if (queue == &Place::said) return believed(*place, bytes);
        if (const Status done = receive(*place, bytes); !done) return failed(*place, done.error().message);
      } catch (const BrokenInvariant& broken) {
        return failed(*place, broken.why());
      }
    }
  }
  std::optional<Event> poll() override { return std::nullopt; }

  void submit(ModelId model, Batch batch) override {
    if (model == kTarget) arrivals_.submitted(batch);
    for (Place& place : at(model)) place.reports.submitted(batch);
    Place& first = at(model).front();
    bring("the coordinator", first, std::move(batch));
  }
  void amend(ModelId model, Amendment amendment) override {
    for (Place& place : at(model)) post(place.amendments, "the coordinator", place, amendment);
  }
  void wake_at(double time) override { wake_ = std::min(time, wake_.value_or(time)); }

  double now() const override { return now_; }
  bool simulated() const override { return true; }
  Exactness exactness() const override { return Exactness::kBitwise; }
  const char* name() const override { return "bytes"; }

 private:
  struct Place {
    ModelId model;
    StageRecipe recipe;
    Stage stage;
    ReportCheck reports;
    std::deque<Bytes> batches = {}, amendments = {}, taps = {};  // to it
    std::deque<double> since = {};                               // its batches have been there
    std::deque<Bytes> said = {};                                 // to the coordinator
    std::string name() const { return name_of(model, recipe.stage); }
  };

  // What leaves a stage.
  class LinksOf final : public Links {
   public:
    LinksOf(ByteExecutor& executor, Place& place, double waited)
        : executor_(executor), place_(place), waited_(waited) {}
    void pass_on(Batch batch) override {
      Place& next = executor_.at(place_.model)[static_cast<size_t>(place_.recipe.stage.value) + 1];
      if (place_.recipe.options.activations() == Activations::kF16) pack_states(batch);
      executor_.bring(place_.name(), next, std::move(batch));
    }
    void tap(Taps taps) override {
      Place& head = executor_.models_.back().front();
      executor_.post(head.taps, place_.name(), head, std::move(taps));
    }
    void report(StageReport report) override {
      report.waited = waited_;
      executor_.tell(place_, report);
    }
    void conclude(Outcome outcome) override { executor_.tell(place_, std::move(outcome)); }

   private:
    ByteExecutor& executor_;
    Place& place_;
    double waited_;  // what it sends of a batch that has lain there for so many seconds
  };

  std::vector<Place>& at(ModelId model) { return models_[static_cast<size_t>(model.value)]; }

  Bytes sent(const std::string& way, const Message& message) {
    Bytes bytes = encode(message);
    if (tamper_) tamper_(way, bytes);
    return bytes;
  }
  void post(std::deque<Bytes>& queue, const std::string& from, const Place& to, const Message& message) {
    queue.push_back(sent(from + " to " + to.name(), message));
  }
  void bring(const std::string& from, Place& to, Batch batch) {
    to.since.push_back(now_);
    post(to.batches, from, to, std::move(batch));
  }
  void tell(Place& from, const Message& message) {
    from.said.push_back(sent(from.name() + " to the coordinator", message));
  }

  Status receive(Place& place, const Bytes& bytes) {
    SLUICE_TRY(Message message, decode(bytes));
    if (auto* batch = std::get_if<Batch>(&message)) {
      SLUICE_TRY_STATUS(place.stage.frames.check(*batch));
      const double begin = now_, waited = begin - place.since.front();
      place.since.pop_front();
      auto done = place.stage.worker.process(std::move(*batch));
      now_ += 0.001;
      LinksOf links(*this, place, waited);
      route(std::move(done), place.model, place.recipe.stage, place.recipe.last, begin, now_, links);
      return {};
    }
    if (const auto* amendment = std::get_if<Amendment>(&message)) {
      SLUICE_TRY_STATUS(place.stage.frames.check(*amendment));
      place.stage.worker.amend(*amendment);
      return {};
    }
    if (const auto* taps = std::get_if<Taps>(&message); taps != nullptr && has_head_) {
      SLUICE_TRY_STATUS(place.stage.frames.check(*taps));
      place.stage.worker.receive(*taps);
      tell(place, TapsArrived{taps->batch, taps->stage});
      return {};
    }
    return input_error("a message that is for others");
  }

  Event believed(Place& place, const Bytes& bytes) {
    auto message = decode(bytes);
    if (!message) return failed(place, message.error().message);
    if (auto* outcome = std::get_if<Outcome>(&*message)) {
      const Status good = place.reports.check(*outcome);
      return good ? Event(std::move(*outcome)) : failed(place, good.error().message);
    }
    if (const auto* report = std::get_if<StageReport>(&*message)) {
      const Status good = place.reports.check(*report);
      return good ? Event(*report) : failed(place, good.error().message);
    }
    if (const auto* taps = std::get_if<TapsArrived>(&*message)) {
      const Status good = arrivals_.check(*taps);
      return good ? Event(*taps) : failed(place, good.error().message);
    }
    return failed(place, "a message that is for others");
  }

  Event failed(const Place& place, const std::string& why) const {
    return WorkerFailed{{ErrorKind::kRuntime, place.name() + ": " + why}};
  }
  Event woken() {
    now_ = std::max(now_, *std::exchange(wake_, std::nullopt));
    return Woken{};
  }

  int32_t n_tokens_;
  bool has_head_;
  std::mt19937_64 random_;
  Tamper tamper_;
  std::vector<std::vector<Place>> models_;
  ArrivalCheck arrivals_;
  double now_ = 0.0;
  std::optional<double> wake_;
};

}  // namespace

std::unique_ptr<Executor> make_byte_executor(const Opened& opened, const PipelineSpec& setup, uint64_t seed,
                                             Tamper tamper) {
  PipelineOptions options{.cuts = cuts_of(opened, setup),
                          .stage = {.kv = setup.kv, .n_cells = setup.n_cells},
                          .activations = setup.activations};
  if (setup.head != nullptr) options.stage.taps = setup.head->parameters().tapped_layers();
  std::vector<std::vector<StageRecipe>> models = {recipes_for(opened.model, options)};
  options.stage.taps.clear();
  options.candidates = 16;
  options.guessable = opened.tokenizer.size();
  for (const Opened* draft : setup.drafts) {
    options.cuts = {{0, draft->model.hparams().n_layers}};
    models.push_back(recipes_for(draft->model, options));
  }
  if (setup.head != nullptr) models.push_back({recipe_for(*setup.head, options, setup.guesses)});
  return std::make_unique<ByteExecutor>(opened, models, setup.head != nullptr, seed, std::move(tamper));
}

}  // namespace sluice::test
