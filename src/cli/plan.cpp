#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "cli/bench_prompts.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/progress.h"
#include "pipeline/cost_model.h"
#include "plan/measure.h"
#include "session/cuts.h"
#include "session/forecast.h"
#include "session/installation.h"
#include "session/kept_plan.h"
#include "session/session.h"

namespace sluice {

namespace {

struct PlanOptions {
  SessionOptions session;
  std::string out;
  std::string data = installation_folder() + "/prompts";
  std::vector<std::string> tasks = {"code", "math", "chat"};
  int32_t limit = 3;
  double seconds = 60;
  bool json = false;
};

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

int32_t cores() { return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency())); }

// Of `model`, and of a pass of each draft.
Result<Profile> measure(const Session& session, const SessionOptions& options, int32_t threads) {
  const double n = static_cast<double>(1 + session.drafts().size());
  ProgressBar bar("measuring");
  double done = 0;
  const auto of_one = [&](const ModelFile& model) {
    auto measured = measure_profile(model, options.kv, threads, [&](double share) {
      bar.show((done + share) / n);
      return !interrupted();
    });
    done += 1;
    return measured;
  };
  SLUICE_TRY(Profile profile, of_one(session.model()));
  for (const ModelFile& draft : session.drafts()) {
    SLUICE_TRY(const Profile measured, of_one(draft));
    profile.drafts.push_back(draft_pass(measured, draft.hparams().n_layers));
  }
  bar.finish();
  if (interrupted()) return interrupted_error("nothing was written");
  return profile;
}

Status write_profile(const Profile& profile, const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (const auto error = write_whole(path, profile.to_json().dump(2) + '\n'))
    return runtime_error("--out " + path + ": can't be written: " + error.message() + "; name a writable file");
  return {};
}

// Measures this machine, and no more.
Status measure_here(const PlanOptions& options) {
  const std::filesystem::path path = options.out.empty() ? local_profile_path() : options.out;
  std::error_code ignored;
  if (options.out.empty()) std::filesystem::create_directories(path.parent_path(), ignored);
  SLUICE_TRY_STATUS(check_writable("--out", path.string()));
  SLUICE_TRY(const Session session, Session::open(options.session));
  SLUICE_TRY(const Profile profile,
             measure(session, options.session, options.session.threads > 0 ? options.session.threads : cores()));
  SLUICE_TRY_STATUS(write_profile(profile, path.string()));
  if (options.json) return print(nlohmann::json{{"profile", path.string()}}.dump() + "\n");
  return print(
      fmt::format("{}: measured; use it with --profile {}\n"
                  "a layer of {} takes {:.0f} us at width 1 and {:.0f} us at width 16, the head {:.0f} us\n",
                  path.string(), options.out.empty() ? "local" : path.string(), session.model().hparams().name,
                  profile.layer.at(1) * 1e6, profile.layer.at(16) * 1e6, profile.head.at(1) * 1e6));
}

// The first prompts of each task, one of each in turn.
Result<std::vector<std::vector<Token>>> read_texts(const PlanOptions& options, const Session& session) {
  std::vector<std::vector<BenchPrompt>> tasks;
  for (const std::string& task : options.tasks) {
    SLUICE_TRY(tasks.emplace_back(), read_prompts(options.data, task, options.limit));
  }
  std::vector<std::vector<Token>> texts;
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

// The session on whose simulated clock everything is tried. With method `auto` it takes the draft that comes along.
Result<Session> open_simulated(const PlanOptions& options) {
  SessionOptions simulated = options.session;
  simulated.executor = ExecutorKind::kVirtual;
  simulated.compute = Compute::kLazy;
  simulated.threads = 0;
  return Session::open(simulated, Heads::kGivenOrShipped);
}

class Planner {
 public:
  Planner(const PlanOptions& options, Session session)
      : options_(options), session_(std::move(session)), deadline_(options.seconds) {}

  Result<Plan> make() {
    SLUICE_TRY(const auto texts, read_texts(options_, session_));
    SLUICE_TRY(PlanKey key, session_.plan_key());
    SLUICE_TRY_STATUS(take_prices(key));
    ProgressBar bar("running all methods");
    const double one = 1.0 / static_cast<double>(texts.size());  // text is run in any case
    auto found = forecast(session_, texts, contenders(!session_.drafts().empty()), [&](double share) {
      bar.show(share);
      return !interrupted() && (share < one || !deadline_.is_over());
    });
    bar.finish();
    SLUICE_TRY_STATUS(session_.save_memo());
    if (!found) return tl::unexpected<Error>(found.error());
    if (interrupted()) return interrupted_error("nothing was kept");
    plan_.forecasts = std::move(*found);
    describe();
    const Forecast& best = plan_.forecasts.best();
    SLUICE_TRY_STATUS(keep_plan(key, {.cuts = plan_.inner_cuts(),
                                      .contender = best.contender.name(),
                                      .tokens_per_second = best.tokens_per_second,
                                      .plain_tokens_per_second = plan_.forecasts.plain().tokens_per_second}));
    return std::move(plan_);
  }

 private:
  // Those of --profile, or of this machine's cores shared by the stages, as `run` would share them.
  Status take_prices(PlanKey& key) {
    plan_.profile = options_.session.profile;
    if (!plan_.profile.empty()) return {};
    const auto n_stages = static_cast<int32_t>(session_.cuts().size());
    const int32_t threads = options_.session.threads > 0 ? options_.session.threads : std::max(1, cores() / n_stages);
    SLUICE_TRY(const Profile profile, measure(session_, options_.session, threads));
    key.pace = "";
    plan_.profile = options_.out.empty() ? key.profile_path() : options_.out;
    SLUICE_TRY_STATUS(write_profile(profile, plan_.profile));
    session_.take_prices(profile, session_.cuts());
    return {};
  }

  void describe() {
    const SessionOptions& asked = options_.session;
    const Profile& profile = *session_.profile();
    const CostModel cost(profile, session_.cuts(), session_.model().hparams().d_model);
    plan_.model = session_.model().hparams().name;
    plan_.given_model = asked.model;
    plan_.drafts = asked.drafts;
    if (plan_.drafts.empty() && !session_.drafts().empty()) plan_.drafts = {kAutoDraft};
    plan_.asked_profile = asked.profile;
    plan_.cuts = session_.cuts();
    plan_.step = cost.step_seconds();
    plan_.alone = plan_.forecasts.plain().tokens_per_second > 0 ? 1 / plan_.forecasts.plain().tokens_per_second : 0.0;
    if (!session_.drafts().empty() && !profile.drafts.empty()) plan_.draft_pass = profile.drafts.back().at(1);
  }

  const PlanOptions& options_;
  Session session_;
  Deadline deadline_;
  Plan plan_;
};

Status plan(const CLI::App& command, const PlanOptions& options) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  if (!given("--stages") && !given("--profile")) {
    for (const char* option : {"--data", "--tasks", "--limit", "--max-tokens", "--seconds", "--memo"})
      if (given(option))
        return input_error(std::string(option) +
                           " is for comparing methods: add --stages or --profile, or leave it out");
    return measure_here(options);
  }
  if (!options.out.empty()) SLUICE_TRY_STATUS(check_writable("--out", options.out));
  SLUICE_TRY(Session session, open_simulated(options));
  SLUICE_TRY(const Plan plan, Planner(options, std::move(session)).make());
  if (!options.json) return print(to_text(plan));
  return print(to_json(plan).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanOptions>();
  SessionOptions& session = options->session;
  session.on_download = show_downloads();
  session.request.max_tokens = 128;
  CLI::App& command = *app.add_subcommand(
      "plan", "Measures this machine, and says which method promises most tokens a second over several stages");
  command.footer(
      "Without --stages and --profile it measures this machine and writes the profile `local`. With one of them all "
      "methods are run on a few prompts, on the simulated clock, at the prices of the profile or of what was measured. "
      "What promises most is kept, and method auto begins with it.\n"
      "Examples:\n"
      "  sluice plan\n"
      "  sluice plan -m model.gguf --draft small.gguf --threads 1 --out one-core.json\n"
      "  sluice plan --stages 8 --profile paper-8x --tasks code");
  add_model_option(command, session.model);
  add_draft_option(command, session.drafts);
  command.add_option("--stages", session.stages, "Pipeline stages of one process")->check(whole_number(1));
  command
      .add_option("--profile", session.profile,
                  "Device and link profile, a name or a JSON file: the costs, instead of measuring")
      ->check(not_empty("a profile"));
  command.add_option("--out", options->out,
                     "Where to write what was measured (default: " + local_profile_path() + ", or beside the plan)");
  command.add_option("--threads", session.threads, "CPU threads a stage (default: the cores shared by the stages)")
      ->check(whole_number(1, 256));
  add_kv_option(command, session.kv);
  command.add_option("--data", options->data,
                     "Folder with the prompt files (default: code, math and chat, which come with the program)");
  add_list_option(command, "--tasks", options->tasks, "Prompt files in it, without .jsonl").capture_default_str();
  command.add_option("--limit", options->limit, "Prompts a task")->capture_default_str()->check(whole_number(1));
  command.add_option("-n,--max-tokens", session.request.max_tokens, "Longest answer, tokens")
      ->capture_default_str()
      ->check(whole_number(2));
  command.add_option("--seconds", options->seconds, "About as long may it take; fewer prompts are run if need be")
      ->capture_default_str()
      ->check(number(1, 1e6));
  command.add_option("--memo", session.memo, "File that keeps what was computed, for other plans over the same texts");
  command.add_flag("--json", options->json, "One JSON object on stdout, nothing else there");
  command.callback([options, &command, &action] { action = [options, &command] { return plan(command, *options); }; });
}

}  // namespace sluice
