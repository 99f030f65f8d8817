#include "cli/bench_load.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "base/math.h"
#include "base/random.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "session/auto_trial.h"

namespace sluice {

using nlohmann::json;

Result<RequestSpec> bench_spec(const Session& session, const BenchPoint& point,
                               const std::vector<ChatMessage>& messages) {
  SLUICE_TRY(auto tokens, session.encode(messages));
  RequestSpec spec = session.spec(std::move(tokens), point.method);
  spec.sampling.temperature = point.temp;
  spec.max_tokens = point.prompt->max_tokens.value_or(spec.max_tokens);
  return spec;
}

std::vector<double> arrival_times(size_t n, double rate, uint64_t seed) {
  std::vector<double> times;
  double time = 0;
  for (size_t i = 0; i < n; ++i) {
    const DrawSite site{.seed = seed, .position = static_cast<uint32_t>(i), .purpose = Purpose::kArrival};
    times.push_back(time -= log_f64(uniform(site, 0)) / rate);
  }
  return times;
}

size_t turns_asked(const BenchOptions& options, const BenchPrompt& prompt) {
  return options.turns > 0 ? std::min(prompt.turns.size(), static_cast<size_t>(options.turns)) : prompt.turns.size();
}

namespace {

// One conversation, and its turn under way.
struct Talk {
  const BenchPoint* point;
  std::vector<ChatMessage> messages;
  std::vector<json> turns;           // those that have ended
  std::optional<RequestId> request;  // of this turn, or before it begins of the one before
  double arrival = 0;                // of this turn, on the engine's clock
  std::vector<double> token_times;   // of its answer, likewise
  double joules = 0;
  int64_t n_new = 0;               // tokens since energy was last shared out
  std::optional<AutoTrial> trial;  // with method `auto`
};

// Microseconds: the figures need no more, and the file stays small.
double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

class Load {
 public:
  Load(const BenchOptions& options, const Session& session, Engine& engine, std::span<const BenchPoint> points,
       int32_t places, EnergyCounter* energy)
      : options_(options), session_(session), engine_(engine), energy_(energy), free_places_(places) {
    for (const BenchPoint& point : points) talks_.push_back({.point = &point});
    for (Talk& talk : talks_) (talk.point->arrival ? timed_ : waiting_).push_back(&talk);
    std::stable_sort(timed_.begin(), timed_.end(),
                     [](const Talk* a, const Talk* b) { return *a->point->arrival < *b->point->arrival; });
  }

  Status run() {
    begin_ = engine_.now();
    if (energy_ != nullptr) energy_->take();
    SLUICE_TRY_STATUS(admit());
    while (!interrupted() && (!speaking_.empty() || !timed_.empty())) {
      if (!timed_.empty()) wait_for(due(*timed_.front()));
      SLUICE_TRY(const auto progress, engine_.step());
      for (const Progress& news : progress) SLUICE_TRY_STATUS(take(news));
      SLUICE_TRY_STATUS(admit());
      SLUICE_TRY_STATUS(session_.files().poll());
    }
    return session_.files().look();
  }

  std::vector<std::vector<json>> turns() {
    std::vector<std::vector<json>> turns;
    for (Talk& talk : talks_) turns.push_back(std::move(talk.turns));
    return turns;
  }

 private:
  double due(const Talk& talk) const { return begin_ + *talk.point->arrival; }

  void wait_for(double time) {
    constexpr double kPatience = 0.2;  // so that an interrupt is soon seen where nothing happens
    engine_.wake_at(options_.session.simulated() ? time : std::min(time, engine_.now() + kPatience));
  }

  Status admit() {
    while (!timed_.empty() && due(*timed_.front()) <= engine_.now()) {
      Talk& talk = *timed_.front();
      timed_.pop_front();
      SLUICE_TRY_STATUS(speak(talk, due(talk)));
    }
    for (; free_places_ > 0 && !waiting_.empty(); --free_places_) {
      Talk& talk = *waiting_.front();
      waiting_.pop_front();
      SLUICE_TRY_STATUS(speak(talk, engine_.now()));
    }
    return {};
  }

  // Begins the next turn.
  Status speak(Talk& talk, double arrival) {
    talk.messages.push_back({"user", talk.point->prompt->turns[talk.turns.size()]});
    talk.arrival = arrival;
    auto spec = bench_spec(session_, *talk.point, talk.messages);
    if (!spec) return tl::unexpected<Error>(talk.point->in(spec.error()));
    spec->continues = talk.request;
    if (talk.point->method == kAutoMethod && spec->method != "ar" && holds_to_the_bit(engine_.exactness()))
      talk.trial.emplace(spec->method);
    const auto request = engine_.submit(std::move(*spec));
    if (!request) return tl::unexpected<Error>(refusal(talk, request.error()));
    talk.request = *request;
    speaking_[*request] = &talk;
    return {};
  }

  Error refusal(const Talk& talk, Error error) const {
    if (options_.arrivals > 0 || talk.point->arrival)
      error.message += fmt::format(
          "; {} conversations were under way {:.1f} s after the first could come: let fewer come, or "
          "give a larger --concurrency, the contexts that there is room for",
          speaking_.size(), engine_.now() - begin_);
    return talk.point->in(error);
  }

  Status take(const Progress& news) {
    Talk& talk = *speaking_.at(news.request);
    if (has_error(news.finish)) return tl::unexpected<Error>(talk.point->in(engine_.request(news.request).error));
    talk.token_times.insert(talk.token_times.end(), news.tokens.size(), engine_.now());
    talk.n_new += static_cast<int64_t>(news.tokens.size());
    if (news.finish != Finish::kNone) return end_turn(talk);
    return talk.trial ? go_on(talk) : Status();
  }

  // Lets the trial switch the method, if it wants to.
  Status go_on(Talk& talk) {
    const Request& request = engine_.request(*talk.request);
    const auto method =
        talk.trial->observe(static_cast<int64_t>(request.n_answer()), engine_.now(), engine_.plain_rate_at_most());
    return method ? engine_.set_method(*talk.request, *method, request.spec.sources) : Status();
  }

  Status end_turn(Talk& talk) {
    share_energy();
    Answer answer = finished_answer(session_, engine_, *talk.request);
    answer.trial = talk.trial;
    talk.turns.push_back(run_of(talk, answer));
    talk.messages.push_back({"assistant", answer.text});
    talk.token_times.clear();
    talk.joules = 0;
    speaking_.erase(*talk.request);
    if (talk.turns.size() < turns_asked(options_, *talk.point->prompt)) return speak(talk, engine_.now());
    engine_.release(*talk.request);
    free_places_ += !talk.point->arrival;
    return {};
  }

  // What was used since the last time belongs to the answers that grew meanwhile.
  void share_energy() {
    const auto joules = energy_ != nullptr ? energy_->take() : std::nullopt;
    counted_ = counted_ && joules;
    double n = 0;
    for (const auto& [request, talk] : speaking_) n += static_cast<double>(talk->n_new);
    if (n == 0) return;  // another turn ended in the same step
    for (const auto& [request, talk] : speaking_)
      talk->joules += joules.value_or(0.0) * static_cast<double>(std::exchange(talk->n_new, 0)) / n;
  }

  json run_of(const Talk& talk, const Answer& answer) {
    json run = to_json(session_, engine_, answer);
    run["method"] = talk.point->method;
    if (run.contains("stored")) {  // since the last answer
      const Lookups now = engine_.lookups();
      run["stored"] = {{"asked", now.asked - seen_.asked}, {"missed", now.missed - seen_.missed}};
      seen_ = now;
    }
    if (run.contains("states_out_of_range"))  // likewise
      run["states_out_of_range"] = engine_.out_of_range() - std::exchange(seen_beyond_, engine_.out_of_range());
    run["id"] = talk.point->prompt->id;
    run["task"] = talk.point->prompt->task;
    run["temp"] = talk.point->temp;
    run["concurrency"] = talk.point->concurrency;
    run["turn"] = talk.turns.size();
    run["arrival"] = rounded(talk.arrival - begin_);
    run["time_to_first_token"] = rounded(talk.token_times.front() - talk.arrival);
    run["between_tokens"] = json::array();
    for (size_t i = 1; i < talk.token_times.size(); ++i)
      run["between_tokens"].push_back(rounded(talk.token_times[i] - talk.token_times[i - 1]));
    if (counted_) run["joules"] = talk.joules;
    run["prompt"] = engine_.request(answer.request).spec.prompt;
    return run;
  }

  const BenchOptions& options_;
  const Session& session_;
  Engine& engine_;
  EnergyCounter* energy_;
  bool counted_ = energy_ != nullptr;  // whether the counter has told of all that was done
  double begin_ = 0;                   // on the engine's clock
  Lookups seen_;                       // in all answers that have ended
  uint64_t seen_beyond_ = 0;           // likewise, numbers of states that f16 could not hold
  int32_t free_places_;
  std::vector<Talk> talks_;
  std::deque<Talk*> timed_, waiting_;  // not begun: in the order of their times; in the order of the points
  std::map<RequestId, Talk*> speaking_;
};

}  // namespace

Result<std::vector<std::vector<json>>> hold_conversations(const BenchOptions& options, const Session& session,
                                                          Engine& engine, std::span<const BenchPoint> points,
                                                          int32_t places, EnergyCounter* energy) {
  Load load(options, session, engine, points, places, energy);
  SLUICE_TRY_STATUS(load.run());
  return load.turns();
}

}  // namespace sluice
