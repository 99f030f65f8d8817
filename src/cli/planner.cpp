#include "cli/planner.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.h"
#include "cli/bench_prompts.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "pipeline/cost_model.h"
#include "plan/measure.h"
#include "session/cuts.h"
#include "session/forecast.h"
#include "session/kept_plan.h"
#include "session/measure_hosts.h"

namespace sluice {

namespace {

using Texts = std::vector<std::vector<Token>>;

// What is left of the time that a plan may take.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool is_over() const { return std::chrono::steady_clock::now() >= end_; }

 private:
  std::chrono::steady_clock::time_point end_;
};

// Passes of models on this machine, in the order in which they are given.
Result<std::vector<Profile>> measure_models(const std::vector<const ModelFile*>& models, KvType kv, int32_t threads) {
  std::vector<Profile> measured;
  ProgressBar bar("measuring");
  for (const ModelFile* model : models) {
    SLUICE_TRY(measured.emplace_back(), measure_profile(*model, kv, threads, [&](double share) {
                 bar.show((static_cast<double>(measured.size()) + share) / static_cast<double>(models.size()));
                 return !interrupted();
               }));
  }
  bar.finish();
  if (interrupted()) return interrupted_error("nothing was written");
  return measured;
}

std::vector<const ModelFile*> drafts_of(const Session& session) {
  std::vector<const ModelFile*> drafts;
  for (const ModelFile& draft : session.drafts()) drafts.push_back(&draft);
  return drafts;
}

void add_drafts(const Session& session, std::span<const Profile> measured, Profile& profile) {
  for (size_t i = 0; i < measured.size(); ++i)
    profile.drafts.push_back(draft_pass(measured[i], session.drafts()[i].hparams().n_layers));
}

// The first prompts of each task, one of each in turn.
Result<Texts> read_texts(const PlanOptions& options, const Session& session) {
  std::vector<std::vector<BenchPrompt>> tasks;
  for (const std::string& task : options.tasks) {
    SLUICE_TRY(tasks.emplace_back(), read_prompts(options.data, task, options.limit));
  }
  Texts texts;
  const auto room = static_cast<size_t>(std::max(0, session.options().context - options.session.request.max_tokens));
  for (size_t i = 0; i < static_cast<size_t>(options.limit); ++i)
    for (const auto& prompts : tasks) {
      if (i >= prompts.size()) continue;
      SLUICE_TRY(auto text, session.encode({{"user", prompts[i].turns.front()}}));
      if (text.size() < room) texts.push_back(std::move(text));
    }
  if (texts.empty())
    return input_error("--data " + options.data + ": no prompt leaves room for an answer; give a smaller -n");
  return texts;
}

// The session on whose simulated clock everything is tried. By method `auto` it takes the draft that comes along.
Result<Session> open_simulated(const PlanOptions& options) {
  SessionOptions simulated = options.session;
  simulated.executor = ExecutorKind::kVirtual;
  simulated.compute = Compute::kLazy;
  simulated.threads = 0;
  if (!simulated.hosts.empty()) {
    simulated.stages = static_cast<int32_t>(simulated.hosts.size());
    simulated.profile.clear();  // that is their pace, and shows in what is measured
    simulated.hosts.clear();
    simulated.draft_hosts.clear();
    simulated.spares.clear();
    simulated.secret.clear();
  }
  return Session::open(simulated, Heads::kGivenOrShipped);
}

// Hosts, and what it costs to run over them.
struct Place {
  std::vector<HostOptions> hosts;
  Profile profile;
  std::vector<LayerRange> cuts;
};

// What stands between the neighbours of a host when it is left out: one of them and the coordinator if it is the first
// or the last, and else, not being known, the slower of its two links.
Link instead_of(const Profile& profile, size_t host) {
  if (host == 0) return profile.direct[1];
  if (host + 1 == profile.direct.size()) return profile.direct[host - 1];
  return std::ranges::max(profile.edges[host], profile.edges[host + 1], {}, &Link::latency);
}

// Without the host of the slowest device.
Place without_weakest(Place place) {
  Profile& profile = place.profile;
  const auto weakest = std::ranges::min_element(profile.speeds) - profile.speeds.begin();
  profile.edges[static_cast<size_t>(weakest) + 1] = instead_of(profile, static_cast<size_t>(weakest));
  profile.edges.erase(profile.edges.begin() + weakest);
  profile.direct.erase(profile.direct.begin() + weakest);
  profile.speeds.erase(profile.speeds.begin() + weakest);
  place.hosts.erase(place.hosts.begin() + weakest);
  return place;
}

class Planner {
 public:
  Planner(const PlanOptions& options, Session session)
      : options_(options), session_(std::move(session)), deadline_(options.seconds), half_(options.seconds / 2) {}

  Result<Plan> make() {
    SLUICE_TRY(const Texts texts, read_texts(options_, session_));
    SLUICE_TRY(PlanKey key, session_.plan_key());
    SLUICE_TRY_STATUS(take_prices(texts, key));
    SLUICE_TRY(plan_.forecasts, run_all(texts, "running all methods"));
    SLUICE_TRY_STATUS(session_.save_memo());
    describe();
    const Forecast& best = plan_.forecasts.best();
    SLUICE_TRY_STATUS(keep_plan(key, {.cuts = plan_.inner_cuts(),
                                      .contender = best.contender.name(),
                                      .tokens_per_second = best.tokens_per_second,
                                      .plain_tokens_per_second = plan_.forecasts.plain().tokens_per_second}));
    return std::move(plan_);
  }

 private:
  Status take_prices(const Texts& texts, PlanKey& key) {
    if (!options_.session.hosts.empty()) return take_hosts(texts, key);
    plan_.profile = options_.session.profile;
    return plan_.profile.empty() ? take_this_machine(key) : Status();
  }

  // Its cores shared by the stages, as `run` would share them.
  Status take_this_machine(PlanKey& key) {
    const auto n_stages = static_cast<int32_t>(session_.cuts().size());
    const int32_t asked = options_.session.threads;
    SLUICE_TRY(const Profile profile,
               measure_here(session_, options_.session.kv,
                            asked > 0 ? asked : std::max(1, session_.options().threads / n_stages)));
    key.pace = "";
    SLUICE_TRY_STATUS(keep_profile(profile, key));
    session_.take_prices(profile, session_.cuts());
    return {};
  }

  Status take_hosts(const Texts& texts, PlanKey& key) {
    Place place{.hosts = options_.session.hosts, .profile = {}, .cuts = {}};
    SLUICE_TRY(place.profile, measure_there(key));
    SLUICE_TRY(const auto drafts, measure_models(drafts_of(session_), options_.session.kv, session_.options().threads));
    add_drafts(session_, drafts, place.profile);
    SLUICE_TRY_STATUS(leave_out_weak(std::span(texts).first(1), place));
    key.hosts.clear();
    for (const HostOptions& host : place.hosts) key.hosts.push_back(host.address.text());
    key.stages = static_cast<int32_t>(place.hosts.size());
    place.profile.name = "hosts";
    place.profile.description = session_.model().hparams().name + " over " + std::to_string(key.stages) + " hosts";
    plan_.hosts = key.hosts;
    SLUICE_TRY_STATUS(keep_profile(place.profile, key));
    session_.take_prices(place.profile, std::move(place.cuts));
    return {};
  }

  // Passes of the hosts and what links take.
  Result<Profile> measure_there(PlanKey& key) {
    SessionOptions there = options_.session;
    there.request.method = "ar";
    there.trace = true;
    there.drafts.clear();
    there.draft_hosts.clear();
    SLUICE_TRY(const Session session, Session::open(there));
    SLUICE_TRY(key.pace, session.plan_key().map([](const PlanKey& of_hosts) { return of_hosts.pace; }));
    ProgressBar bar("measuring the hosts");
    auto measured = measure_hosts(session, [&](double share) {
      bar.show(share);
      return !interrupted() && !half_.is_over();
    });
    bar.finish();
    if (interrupted()) return interrupted_error("nothing was written");
    return measured;
  }

  // As long as the rest promises more without the weakest, and has the memory.
  Status leave_out_weak(std::span<const std::vector<Token>> text, Place& place) {
    SLUICE_TRY(place.cuts, cuts_of(place));
    SLUICE_TRY(double promised, promise(place, text));
    while (place.hosts.size() > 1 && !options_.session.hosts_say_layers()) {
      Place rest = without_weakest(place);
      auto cuts = cuts_of(rest);
      if (!cuts) break;
      rest.cuts = std::move(*cuts);
      SLUICE_TRY(const double without, promise(rest, text));
      if (without <= promised) break;
      promised = without;
      place = std::move(rest);
    }
    for (const HostOptions& host : options_.session.hosts)
      if (std::ranges::find(place.hosts, host.address, &HostOptions::address) == place.hosts.end())
        plan_.left_out.push_back(host.address.for_people());
    return {};
  }

  Result<std::vector<LayerRange>> cuts_of(const Place& place) const {
    SessionOptions there = session_.options();
    there.hosts = place.hosts;
    there.stages = static_cast<int32_t>(place.hosts.size());
    return choose_cuts(session_.model(), there, place.profile);
  }

  // Tokens a second of the best method.
  Result<double> promise(const Place& place, std::span<const std::vector<Token>> text) {
    session_.take_prices(place.profile, place.cuts);
    SLUICE_TRY(const Forecasts found, run_all(text, "which hosts"));
    return found.best().tokens_per_second;
  }

  Result<Forecasts> run_all(std::span<const std::vector<Token>> texts, const char* what) {
    ProgressBar bar(what);
    const double one = 1.0 / static_cast<double>(texts.size());  // text is run in any case
    auto found = forecast(session_, texts, contenders(!session_.drafts().empty()), [&](double share) {
      bar.show(share);
      return !interrupted() && (share < one || !deadline_.is_over());
    });
    bar.finish();
    if (interrupted()) return interrupted_error("nothing was kept");
    return found;
  }

  Status keep_profile(const Profile& profile, const PlanKey& key) {
    plan_.profile = options_.out.empty() ? key.profile_path() : options_.out;
    return write_profile(profile, plan_.profile);
  }

  void describe() {
    const SessionOptions& asked = options_.session;
    const Profile& profile = *session_.profile();
    plan_.model = session_.model().hparams().name;
    plan_.given_model = asked.model;
    plan_.drafts = asked.drafts;
    if (plan_.drafts.empty() && !session_.drafts().empty()) plan_.drafts = {kAutoDraft};
    if (!plan_.hosts.empty()) plan_.given_hosts = plan_.left_out.empty() ? options_.hosts : "";
    plan_.secret = asked.secret;
    plan_.asked_profile = asked.profile;
    plan_.cuts = session_.cuts();
    plan_.step = CostModel(profile, session_.cuts(), session_.model().hparams().d_model).step_seconds();
    plan_.alone = 1 / plan_.forecasts.plain().tokens_per_second;
    if (!session_.drafts().empty()) plan_.draft_pass = profile.drafts.back().at(1);
  }

  const PlanOptions& options_;
  Session session_;
  Deadline deadline_, half_;
  Plan plan_;
};

}  // namespace

Result<Profile> measure_here(const Session& session, KvType kv, int32_t threads) {
  std::vector<const ModelFile*> models = drafts_of(session);
  models.insert(models.begin(), &session.model());
  SLUICE_TRY(auto measured, measure_models(models, kv, threads));
  add_drafts(session, std::span(measured).subspan(1), measured.front());
  return std::move(measured.front());
}

Status write_profile(const Profile& profile, const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (const auto error = write_whole(path, profile.to_json().dump(2) + '\n'))
    return runtime_error("--out " + path + ": can't be written: " + error.message() +
                         "; name a file on a disk with room");
  return {};
}

Result<Plan> make_plan(const PlanOptions& options) {
  SLUICE_TRY(Session session, open_simulated(options));
  return Planner(options, std::move(session)).make();
}

}  // namespace sluice
