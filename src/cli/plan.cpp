#include <spdlog/fmt/fmt.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner.h"
#include "cli/progress.h"
#include "plan/measure.h"

namespace sluice {

namespace {

// Measures this machine, and no more: the profile `local`.
Status measure(const PlanOptions& options) {
  const std::filesystem::path path = options.out.empty() ? local_profile_path() : options.out;
  std::error_code ignored;
  if (options.out.empty()) std::filesystem::create_directories(path.parent_path(), ignored);
  SLUICE_TRY_STATUS(check_writable("--out", path.string()));
  SLUICE_TRY(const Session session, Session::open(options.session));
  SLUICE_TRY(const Profile profile, measure_here(session, options.session.kv, session.options().threads));
  SLUICE_TRY_STATUS(write_profile(profile, path.string()));
  if (options.json) return print(nlohmann::json{{"profile", path.string()}}.dump() + "\n");
  return print(
      fmt::format("{}: measured; use it with --profile {}\n"
                  "a layer of {} takes {:.0f} us at width 1 and {:.0f} us at width 16, the head {:.0f} us\n",
                  path.string(), options.out.empty() ? "local" : path.string(), session.model().hparams().name,
                  profile.layer.at(1) * 1e6, profile.layer.at(16) * 1e6, profile.head.at(1) * 1e6));
}

Status plan(const CLI::App& command, PlanOptions options) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  if (!given("--stages") && !given("--profile") && !given("--hosts")) {
    for (const char* option : {"--data", "--tasks", "--limit", "--max-tokens", "--seconds", "--memo"})
      if (given(option))
        return input_error(std::string(option) +
                           " is for comparing methods: add --stages, --profile or --hosts, or leave it out");
    return measure(options);
  }
  if (given("--hosts")) options.hosts = command.get_option("--hosts")->as<std::string>();
  if (!options.out.empty()) SLUICE_TRY_STATUS(check_writable("--out", options.out));
  if (given("--memo")) SLUICE_TRY_STATUS(check_writable("--memo", options.session.memo));
  SLUICE_TRY(const Plan plan, make_plan(options));
  if (!options.json) return print(to_text(plan));
  return print(to_json(plan).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace
void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanOptions>();
  SessionOptions& session = options->session;
  session.on_download = show_downloads();
  session.request.max_tokens = 64;  // for a minute to do for some texts
  CLI::App& command = *app.add_subcommand(
      "plan",
      "Measures this machine, or hosts, and says which method promises most tokens a second over several stages");
  command.footer(
      "Without --stages, --profile and --hosts it measures this machine and writes the profile `local`. With one of "
      "them "
      "all methods are run on a few prompts, on the simulated clock, at the prices of the profile or of what was "
      "measured. What promises most is kept, and method auto begins with it.\n"
      "Examples:\n"
      "  sluice plan\n"
      "  sluice plan -m model.gguf --draft small.gguf --threads 1 --out one-core.json\n"
      "  sluice plan --stages 8 --profile paper-8x --tasks code\n"
      "  sluice plan --hosts hosts.toml -m model.gguf --draft small.gguf");
  add_model_option(command, session.model);
  add_draft_option(command, session.drafts);
  CLI::Option& stages =
      *command.add_option("--stages", session.stages, "Pipeline stages of one process")->check(whole_number(1));
  add_hosts_options(command, session, stages);
  session.on_weights_sent = show_sending();
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
