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
#include "cli/place.h"
#include "cli/progress.h"
#include "pipeline/cost_model.h"
#include "plan/measure.h"
#include "session/cuts.h"
#include "session/forecast.h"
#include "session/kept_plan.h"
#include "session/measure_hosts.h"
#include "transport/connection.h"

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

struct ToMeasure {
  const ModelFile* model;
  StageOptions with;  // as measure_profile() reads it
};

// Passes on this machine, in the order in which they are given.
Result<std::vector<Profile>> measure_models(const std::vector<ToMeasure>& models) {
  std::vector<Profile> measured;
  ProgressBar bar("measuring");
  for (const auto& [model, with] : models) {
    SLUICE_TRY(Profile profile, measure_profile(*model, with, [&](double share) {
                 bar.show((static_cast<double>(measured.size()) + share) / static_cast<double>(models.size()));
                 return !interrupted();
               }));
    measured.push_back(std::move(profile));
  }
  bar.finish();
  if (interrupted()) return interrupted_error("nothing was written");
  return measured;
}

ToMeasure on(const std::string& device, const ModelFile& model, const Session& session, int32_t threads) {
  StageOptions with;
  with.kv = session.options().kv;
  with.threads = threads;
  with.device = device;
  with.width_lock = session.options().width_lock;
  return {&model, std::move(with)};
}

std::vector<ToMeasure> drafts_of(const Session& session, int32_t threads) {
  std::vector<ToMeasure> drafts;
  for (const ModelFile& draft : session.drafts())
    drafts.push_back(on(session.options().draft_device, draft, session, threads));
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

// Of a plan's time, what measuring a draft model on a host may take, and what trying one place for it: a text is run in
// any case.
constexpr double kShareOfDrafts = 1.0 / 12, kShareOfPlaces = 1.0 / 12;

// Another place of the draft model must promise so many times as much: a text says that much of others.
constexpr double kWorthMoving = 1.02;

// What places are compared by, where a draft model alone guesses: `surge` asks it while the stages compute, `sd` in
// between.
std::vector<Contender> judges_of_places() {
  std::vector<Contender> judges = contenders(/*with_draft=*/true);
  std::erase_if(judges, [](const Contender& one) {
    return !one.sources.empty() || (one.method != "surge" && one.method != "sd");
  });
  return judges;
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
    simulated.draft_on.reset();
    simulated.spares.clear();
    simulated.secret.clear();
  }
  return Session::open(simulated, Heads::kGivenOrShipped);
}

class Planner {
 public:
  Planner(const PlanOptions& options, Session session)
      : options_(options), session_(std::move(session)), deadline_(options.seconds), half_(options.seconds / 2) {}

  Result<Plan> make() {
    SLUICE_TRY(const Texts texts, read_texts(options_, session_));
    SLUICE_TRY(PlanKey key, session_.plan_key());
    SLUICE_TRY(auto places, places_at_hand(texts, key));
    SLUICE_TRY(size_t place, try_places(texts, places));
    SLUICE_TRY(plan_.forecasts, run_all_at(places[place], texts));
    if (place > 0 && !plan_.forecasts.best().contender.drafts()) {  // nothing moves for a draft model that is not asked
      place = 0;
      SLUICE_TRY(plan_.forecasts, run_all_at(places[place], texts));
    }
    SLUICE_TRY_STATUS(settle(places[place], key));
    SLUICE_TRY_STATUS(session_.save_memo());
    describe(places[place]);
    const Forecast& best = plan_.forecasts.best();
    SLUICE_TRY_STATUS(keep_plan(key, {.cuts = plan_.inner_cuts(),
                                      .draft_on = plan_.draft_on,
                                      .contender = best.contender.name(),
                                      .tokens_per_second = best.tokens_per_second,
                                      .plain_tokens_per_second = plan_.forecasts.plain().tokens_per_second}));
    return std::move(plan_);
  }

 private:
  Result<std::vector<Place>> places_at_hand(const Texts& texts, PlanKey& key) {
    if (!options_.session.hosts.empty()) return places_of_hosts(texts, key);
    if (options_.session.profile.empty()) return place_of_this_machine(key);
    Place as_it_is{.hosts = {}, .profile = *session_.profile(), .cuts = session_.cuts(), .draft = {}};
    if (as_it_is.profile.draft_on) as_it_is.draft = with_stage(*as_it_is.profile.draft_on);
    if (const auto& asked = options_.session.draft_on) return std::vector{priced_at(std::move(as_it_is), *asked)};
    std::vector<Place> places = {as_it_is};
    if (as_it_is.profile.draft_on || session_.drafts().empty()) return places;  // it says where
    for (const size_t stage : least_slowed(as_it_is, as_it_is.profile.drafts, session_.model().hparams().d_model))
      places.push_back(priced_at(as_it_is, with_stage(static_cast<int32_t>(stage))));
    return places;
  }

  // Its cores shared by the stages, as `run` would share them.
  Result<std::vector<Place>> place_of_this_machine(PlanKey& key) {
    const auto n_stages = static_cast<int32_t>(session_.cuts().size());
    const int32_t asked = options_.session.threads;
    SLUICE_TRY(Profile profile,
               measure_here(session_, asked > 0 ? asked : std::max(1, session_.options().threads / n_stages)));
    key.pace = "";
    return std::vector<Place>{{.hosts = {}, .profile = std::move(profile), .cuts = session_.cuts(), .draft = {}}};
  }

  // Those of the stages that are of use; and where the draft model runs: as was asked for, or here, and wherever else
  // it might do better.
  Result<std::vector<Place>> places_of_hosts(const Texts& texts, PlanKey& key) {
    Place all{.hosts = options_.session.hosts, .profile = {}, .cuts = {}, .draft = {}};
    SLUICE_TRY(all.profile, measure_there(key));
    SLUICE_TRY(drafts_here_, measure_models(drafts_of(session_, session_.options().threads)));
    add_drafts(session_, drafts_here_, all.profile);
    const auto asked = draft_place_asked_for();
    if (const auto& on = options_.session.draft_on)
      SLUICE_TRY_STATUS(on->check(!session_.drafts().empty(), all.hosts.size()));
    if (asked && *asked != DraftPlace() && !session_.drafts().empty()) SLUICE_TRY_STATUS(take_draft_there(*asked, all));
    Place used = all;
    SLUICE_TRY_STATUS(leave_out_weak(std::span(texts).first(1), used));
    share_its_host(used);
    std::vector<Place> places = {used};
    const bool may_move = !asked && options_.session.profile.empty() && !session_.drafts().empty();
    if (!may_move || !check_drafts_move()) return places;
    const auto fastest = static_cast<size_t>(std::ranges::max_element(all.profile.speeds) - all.profile.speeds.begin());
    auto there = measure_drafts_on(all.hosts[fastest]);
    if (!there) {
      if (there.error().kind == ErrorKind::kInterrupted) return tl::unexpected<Error>(there.error());
      return places;  // it has no room, or no way to the file: the draft model stays
    }
    for (CostCurve& pass : there->drafts) pass = pass.times(all.profile.speeds[fastest]);
    for (Place& place : elsewhere(all, used, there->drafts)) places.push_back(std::move(place));
    return places;
  }

  // Where else the draft model may run that takes so long on a device of speed 1: with the stages that it slows least,
  // on the fastest of the hosts that hold no stage, or, if all do, on the slowest, which then holds none.
  std::vector<Place> elsewhere(const Place& all, const Place& used, const std::vector<CostCurve>& drafts) {
    std::vector<Place> places;
    for (const size_t stage : least_slowed(used, drafts, session_.model().hparams().d_model)) {
      if (used.hosts[stage].memory > 0) continue;  // its layers take what there is
      Place shared = priced_at(used, with_stage(static_cast<int32_t>(stage)));
      shared.profile.drafts = drafts;
      places.push_back(std::move(shared));
    }
    Place freed = used;
    if (used.hosts.size() == all.hosts.size()) {
      if (used.hosts.size() < 2 || options_.session.hosts_say_layers()) return places;
      freed = without_weakest(used);
      auto cuts = cuts_of(freed);
      if (!cuts) return places;
      freed.cuts = std::move(*cuts);
    }
    const auto free = fastest_but(all, freed.hosts);
    if (!free) return places;  // it holds another stage
    freed.draft = {.kind = DraftPlace::Kind::kHost, .host = all.hosts[*free].address};
    freed.profile.link = all.profile.direct[*free];
    freed.profile.drafts.clear();
    for (const CostCurve& pass : drafts) freed.profile.drafts.push_back(pass.times(1.0 / all.profile.speeds[*free]));
    places.push_back(std::move(freed));
    return places;
  }

  std::optional<DraftPlace> draft_place_asked_for() const {
    const SessionOptions& asked = options_.session;
    if (asked.draft_on || asked.draft_hosts.empty()) return asked.draft_on;
    return DraftPlace{.kind = DraftPlace::Kind::kHost, .host = asked.draft_hosts.front().address};
  }

  Status check_drafts_move() const {
    for (const ModelFile& draft : session_.drafts()) SLUICE_TRY_STATUS(check_moves(draft));
    return {};
  }

  // On the host that was asked for, at its pace.
  Status take_draft_there(const DraftPlace& asked, Place& place) {
    SLUICE_TRY_STATUS(check_drafts_move());
    HostOptions host{.address = asked.host};
    if (asked.kind == DraftPlace::Kind::kStage) host = place.hosts[static_cast<size_t>(asked.stage)];
    if (!options_.session.draft_on) host = options_.session.draft_hosts.front();  // of the file
    SLUICE_TRY(const Profile there, measure_drafts_on(host));
    place.draft = {.kind = DraftPlace::Kind::kHost, .host = host.address};
    place.profile.link = there.link;
    place.profile.drafts = there.drafts;
    return {};
  }

  // The draft models' passes on a host, and the way there.
  Result<Profile> measure_drafts_on(const HostOptions& host) {
    Profile measured;
    for (const ModelFile& draft : session_.drafts()) {
      SessionOptions there = options_.session;
      there.model = draft.path();
      there.hosts = {host};
      there.hosts.front().layers = 0;
      there.cuts.clear();
      there.profile.clear();
      SLUICE_TRY(Profile passes, measure_over(std::move(there), "measuring the draft model there",
                                              Deadline(options_.seconds * kShareOfDrafts)));
      // There it was measured a row at a time, as verdicts take it; all guesses of a pass are one product.
      const CostCurve& head_here = drafts_here_[measured.drafts.size()].head;
      if (const double row = head_here.at(1); row > 0.0) passes.head = head_here.times(passes.head.at(1) / row);
      measured.drafts.push_back(draft_pass(passes, draft.hparams().n_layers));
      if (passes.direct.empty())
        return runtime_error(kHost + host.address.for_people() + ": nothing was measured there");
      measured.link = passes.direct.front();
    }
    return measured;
  }

  // The one in which guesses by the draft model promise most; without any, the first. On a text of each task.
  Result<size_t> try_places(const Texts& texts, const std::vector<Place>& places) {
    if (places.size() < 2) return 0;
    auto few = std::span(texts).first(std::min(texts.size(), options_.tasks.size()));
    const std::vector<Contender> judges = judges_of_places();
    double most = 0.0;
    size_t best = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      SLUICE_TRY_STATUS(take(places[i]));
      SLUICE_TRY(const Forecasts promised, run_these(judges, few, "where the draft model runs",
                                                     i == 0 ? Deadline(options_.seconds * kShareOfPlaces) : deadline_));
      if (i == 0) few = few.first(promised.texts);  // the others are tried on the same
      if (promised.texts < few.size()) break;       // out of time
      const double rate = promised.all.front().tokens_per_second;
      plan_.places.push_back({.draft_on = places[i].draft, .tokens_per_second = rate});
      if (rate > kWorthMoving * most) most = rate, best = i;
    }
    return best;
  }

  // Further answers are simulated as if things were so.
  Status take(const Place& place) {
    SLUICE_TRY_STATUS(place.profile.check_stages(place.cuts.size()));
    session_.take_prices(place.profile, place.cuts);
    return {};
  }

  Result<Forecasts> run_all_at(const Place& place, const Texts& texts) {
    SLUICE_TRY_STATUS(take(place));
    return run_all(texts, "running all methods");
  }

  Status settle(const Place& place, PlanKey& key) {
    plan_.draft_on = place.draft;
    plan_.profile = options_.session.profile;
    if (options_.session.hosts.empty()) return plan_.profile.empty() ? keep_profile(place.profile, key) : Status();
    key.hosts.clear();
    for (const HostOptions& host : place.hosts) key.hosts.push_back(host.address.text());
    key.stages = static_cast<int32_t>(place.hosts.size());
    plan_.hosts = key.hosts;
    for (const HostOptions& host : options_.session.hosts)
      if (const std::string address = host.address.text();
          std::ranges::find(key.hosts, address) == key.hosts.end() && address != place.draft.host.text())
        plan_.left_out.push_back(host.address.for_people());
    Profile profile = place.profile;
    profile.name = "hosts";
    profile.description = session_.model().hparams().name + " over " + std::to_string(key.stages) + " hosts";
    return keep_profile(profile, key);
  }

  // Passes of the hosts and what links take.
  Result<Profile> measure_there(PlanKey& key) {
    return measure_over(options_.session, "measuring the hosts", half_, &key);
  }

  // key: is told what the hosts keep to, if it is given.
  Result<Profile> measure_over(SessionOptions there, const char* what, const Deadline& deadline,
                               PlanKey* key = nullptr) {
    there.request.method = "ar";
    there.trace = true;
    there.drafts.clear();
    there.draft_hosts.clear();
    there.draft_on.reset();
    SLUICE_TRY(const Session session, Session::open(there));
    if (key != nullptr) {
      SLUICE_TRY(key->pace, session.plan_key().map([](const PlanKey& of_hosts) { return of_hosts.pace; }));
    }
    ProgressBar bar(what);
    auto measured = measure_hosts(session, [&](double share) {
      bar.show(share);
      return !interrupted() && !deadline.is_over();
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
    return run_these(contenders(!session_.drafts().empty()), texts, what, deadline_);
  }

  Result<Forecasts> run_these(const std::vector<Contender>& methods, std::span<const std::vector<Token>> texts,
                              const char* what, const Deadline& deadline) {
    ProgressBar bar(what);
    const double one = 1.0 / static_cast<double>(texts.size());  // text is run in any case
    auto found = forecast(session_, texts, methods, [&](double share) {
      bar.show(share);
      return !interrupted() && (share < one || !deadline.is_over());
    });
    bar.finish();
    if (interrupted()) return interrupted_error("no plan was kept");
    return found;
  }

  Status keep_profile(const Profile& profile, const PlanKey& key) {
    plan_.profile = options_.out.empty() ? key.profile_path() : options_.out;
    return write_profile(profile, plan_.profile);
  }

  void describe(const Place& place) {
    const SessionOptions& asked = options_.session;
    plan_.model = session_.model().hparams().name;
    plan_.given_model = asked.model;
    plan_.drafts = asked.drafts;
    if (plan_.drafts.empty() && !session_.drafts().empty()) plan_.drafts = {kAutoDraft};
    if (place.hosts.size() == asked.hosts.size()) plan_.given_hosts = options_.hosts;
    plan_.draft_is_known = !plan_.given_hosts.empty() && !asked.draft_on && !asked.draft_hosts.empty();
    plan_.secret = asked.secret;
    plan_.asked_profile = asked.profile;
    plan_.cuts = session_.cuts();
    plan_.step = CostModel(place.profile, place.cuts, session_.model().hparams().d_model).step_seconds();
    plan_.alone = 1 / plan_.forecasts.plain().tokens_per_second;
    if (const size_t n = session_.drafts().size(); n > 0)
      if (const auto largest = place.profile.for_draft(n - 1, n)) plan_.draft_pass = largest->stage.at(1);
  }

  const PlanOptions& options_;
  Session session_;
  Deadline deadline_, half_;
  std::vector<Profile> drafts_here_;  // the draft models, on this machine
  Plan plan_;
};

}  // namespace

Result<Profile> measure_here(const Session& session, int32_t threads) {
  std::vector<ToMeasure> models = drafts_of(session, threads);
  models.insert(models.begin(), on(session.options().device(0), session.model(), session, threads));
  SLUICE_TRY(auto measured, measure_models(models));
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
