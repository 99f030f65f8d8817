// An executor whose models are functions of the text, on a clock of its own: for tests that go through all that can
// happen under rule `reject`.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/chance.h"
#include "pipeline/executor.h"
#include "source/draw.h"
#include "support/distribution.h"
#include "verify/verifier.h"

namespace sluice::test {

using Text = std::vector<Token>;
using Logits = std::function<std::vector<float>(const Text& text)>;

// Goes depth first through all ways to make the choices of a run that is repeated: a run makes those of the one before
// it up to some point, where it takes the next one.
class AllChoices {
 public:
  size_t choose(const DrawSite& site, uint32_t index, std::span<const double> weights) {
    fresh_ = used_.emplace(site.purpose, site.choice, site.position, site.path, index).second && fresh_;
    double sum = 0;
    for (const double w : weights) sum += w;
    if (n_ == made_.size()) {
      made_.push_back({.at = 0, .p = {}});
      for (const double w : weights) made_.back().p.push_back(w / sum);
      while (made_.back().p[made_.back().at] <= 0.0) ++made_.back().at;
    }
    const Made& made = made_[n_++];
    probability_ *= made.p[made.at];
    return made.at;
  }
  double probability() const { return probability_; }  // of what the run has chosen
  bool fresh() const { return fresh_; }                // no noise has served twice
  // Prepares for the next run; false if there is none.
  bool next() {
    made_.resize(n_);
    for (; !made_.empty(); made_.pop_back()) {
      Made& last = made_.back();
      for (++last.at; last.at < last.p.size() && last.p[last.at] <= 0.0;) ++last.at;
      if (last.at < last.p.size()) break;
    }
    n_ = 0;
    probability_ = 1.0;
    fresh_ = true;
    used_.clear();
    return !made_.empty();
  }

 private:
  struct Made {
    size_t at;
    std::vector<double> p;
  };
  std::vector<Made> made_;
  size_t n_ = 0;
  double probability_ = 1.0;
  bool fresh_ = true;
  std::set<std::tuple<Purpose, uint32_t, uint32_t, uint64_t, uint32_t>> used_;
};

// What a scripted pipeline is made of. Times in steps of a stage.
struct Script {
  int32_t stages = 2;
  double draft_time = 0.5, message_time = 0.125;
  bool has_source = false, is_head = false;  // a draft model or a head is there
  int32_t guesses = 1;                       // of it in a row
  SamplingParams sampling = {};
  Logits target = {}, source = {};
  Choose choose = {};
};

class ScriptedPipeline final : public Executor {
 public:
  explicit ScriptedPipeline(Script script) : script_(std::move(script)), verifier_(script_.choose) {}

  Event next() override {
    while (events_.empty()) happen();
    return take();
  }
  std::optional<Event> poll() override {
    while (events_.empty()) {
      if (agenda_.empty() || std::get<0>(agenda_.begin()->first) > now_ ||
          std::get<1>(agenda_.begin()->first) == Order::kStart)
        return std::nullopt;
      happen();
    }
    return take();
  }
  void submit(ModelId model, Batch batch) override {
    const BatchId id = batch.id;
    if (model != kTarget) {
      plan(now_ + script_.draft_time, Order::kEnd, [this, model, id, b = std::move(batch)] {
        events_.push_back(
            StageReport{StageId(0), id, now_ - script_.draft_time, now_, static_cast<uint16_t>(b.rows.size()), model});
        events_.push_back(guess(model, b));
      });
      return;
    }
    for (int32_t s = 0; s < script_.stages; ++s)
      plan(now_ + s + 1, Order::kEnd, [this, s, id] {
        events_.push_back(StageReport{StageId(s), id, now_ - 1, now_, 1, kTarget});
        if (script_.is_head)
          plan(now_ + script_.message_time, Order::kArrive, [this, s, id] {
            events_.push_back(TapsArrived{id, StageId(s)});
          });
      });
    plan(now_ + script_.stages - 1, Order::kStart, [this, b = std::move(batch)] {
      plan(now_ + 1 + script_.message_time, Order::kArrive, [this, o = verify(b)] { events_.push_back(o); });
    });
  }
  void amend(ModelId model, Amendment amendment) override {
    const bool far = model == kTarget && script_.stages > 1;
    plan(now_ + (far ? script_.message_time : 0.0), Order::kArrive, [this, model, a = std::move(amendment)] {
      for (const auto& entry : a.dead) dead_.emplace(model, entry.batch, entry.row);
      late_.insert(late_.end(), a.late_draws.begin(), a.late_draws.end());
    });
  }
  void wake_at(double time) override {
    plan(std::max(now_, time), Order::kArrive, [this] { events_.push_back(Woken{}); });
  }
  double now() const override { return now_; }
  bool simulated() const override { return true; }
  Exactness exactness() const override { return Exactness::kBitwise; }
  const char* name() const override { return "scripted"; }

 private:
  enum class Order : uint8_t { kEnd, kArrive, kStart };  // at one instant, as on the simulated clock

  void plan(double time, Order order, std::function<void()> action) {
    agenda_.emplace(std::tuple(time, order, n_planned_++), std::move(action));
  }
  void happen() {
    SLUICE_CHECK(!agenda_.empty(), "waiting with nothing under way");
    auto item = agenda_.extract(agenda_.begin());
    now_ = std::get<0>(item.key());
    item.mapped()();
  }
  Event take() {
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  Outcome guess(ModelId model, const Batch& batch) {
    Outcome outcome{.batch = batch.id, .accepted = {}, .drafted = {}, .model = model};
    for (const Row& row : batch.rows) {
      Text text = row.parent.valid() ? drafted_[row.parent] : Text();
      text.push_back(row.token);
      drafted_[row.cell] = text;
      if (row.kind == Row::Kind::kPrompt || dead_.contains({model, batch.id, row.index})) continue;
      for (int32_t depth = 0; depth < script_.guesses; ++depth) {
        const auto logits = script_.source(text);
        outcome.drafted.push_back(
            {row.index, depth,
             draft_distribution(top_logits(logits, static_cast<int32_t>(logits.size())), script_.sampling)});
        text.push_back(static_cast<Token>(logits.size()) + depth);  // it doesn't know which token is there
      }
    }
    return outcome;
  }

  // As the last worker does it.
  Outcome verify(const Batch& batch) {
    Outcome outcome{.batch = batch.id, .accepted = {}, .drafted = {}, .model = kTarget};
    for (const auto& update : batch.updates) verifier_.apply(update);
    std::vector<Row> rows;
    for (const Row& row : batch.rows) {
      if (row.kind == Row::Kind::kPrompt) verifier_.enter_prompt(row);
      if (!dead_.contains({kTarget, batch.id, row.index})) rows.push_back(row);
    }
    std::vector<Draws> draws = batch.draws;
    for (const auto& late : late_)
      if (late.batch == batch.id) draws.push_back(late.draws);
    for (auto alive = verifier_.alive(rows); !alive.empty(); alive = verifier_.alive(rows))
      outcome.accepted.push_back(accept(rows[alive.front()], draws));
    return outcome;
  }

  Accepted accept(const Row& row, const std::vector<Draws>& draws) {
    const auto path = verifier_.path(row.sequence);
    Text text(path.begin(), path.end());
    text.push_back(row.token);
    const auto logits = script_.target(text);
    const auto said = std::find_if(draws.rbegin(), draws.rend(), [&](const Draws& d) { return d.row == row.index; });
    if (said != draws.rend()) return verifier_.accept(row, logits, &*said);
    std::vector<double> p;  // its own draw
    Sampler sampler;
    const std::vector<Chance> chances = distribution(sampler, script_.sampling, logits, text);
    for (const Chance& chance : chances) p.push_back(chance.probability);
    const DrawSite site{.choice = verifier_.sampling(row.sequence).choice,
                        .position = static_cast<uint32_t>(row.position) + 1,
                        .purpose = Purpose::kSample};
    return verifier_.accept(row, Draw{chances[script_.choose(site, 0, p)].token, 0.0f});
  }

  Script script_;
  Verifier verifier_;
  std::map<Cell, Text> drafted_;  // the draft model's cells
  std::set<std::tuple<ModelId, BatchId, uint16_t>> dead_;
  std::vector<Amendment::LateDraws> late_;
  std::map<std::tuple<double, Order, uint64_t>, std::function<void()>> agenda_;
  std::deque<Event> events_;
  double now_ = 0.0;
  uint64_t n_planned_ = 0;
};

}  // namespace sluice::test
