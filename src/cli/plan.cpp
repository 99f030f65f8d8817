#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner.h"
#include "cli/progress.h"
#include "compute/ggml_device.h"
#include "plan/measure.h"

namespace sluice {

namespace {

// Bytes are null where a device doesn't say.
nlohmann::json devices_here() {
  const auto bytes = [](int64_t n) { return n > 0 ? nlohmann::json(n) : nlohmann::json(); };
  nlohmann::json all = nlohmann::json::array();
  for (const GgmlDeviceText& device : ggml_devices())
    all.push_back({{"name", device.name},
                   {"description", device.description},
                   {"memory", bytes(device.memory)},
                   {"memory_free", bytes(device.memory_free)}});
  return all;
}

std::string devices_text() {
  constexpr double kGib = 1 << 30;
  std::string out = "devices for --device: cpu";
  for (const GgmlDeviceText& device : ggml_devices()) {
    out += fmt::format("\n  {}, {}", device.name, device.description);
    if (device.memory > 0)
      out += fmt::format(", {:.1f} GiB, {:.1f} of it free", static_cast<double>(device.memory) / kGib,
                         static_cast<double>(device.memory_free) / kGib);
  }
  return out + "\n";
}

// Measures this machine, and no more: the profile `local`.
Status measure(const PlanOptions& options) {
  const std::filesystem::path path = options.out.empty() ? local_profile_path() : options.out;
  std::error_code ignored;
  if (options.out.empty()) std::filesystem::create_directories(path.parent_path(), ignored);
  SLUICE_TRY_STATUS(check_writable("--out", path.string()));
  SLUICE_TRY(const Session session, Session::open(options.session));
  SLUICE_TRY(const Profile profile, measure_here(session, session.options().threads));
  SLUICE_TRY_STATUS(write_profile(profile, path.string()));
  if (options.json)
    return print(
        nlohmann::json{{"profile", path.string()}, {"device", session.options().device(0)}, {"devices", devices_here()}}
            .dump() +
        "\n");
  return print(
      fmt::format("{}: measured; use it with --profile {}\n"
                  "on {} a layer of {} takes {:.0f} us at width 1 and {:.0f} us at width 16, the head {:.0f} us\n"
                  "{}",
                  path.string(), options.out.empty() ? "local" : path.string(), session.options().device(0),
                  session.model().hparams().name, profile.layer.at(1) * 1e6, profile.layer.at(16) * 1e6,
                  profile.head.at(1) * 1e6, devices_text()));
}

Status plan(const CLI::App& command, PlanOptions options) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  if (std::ranges::adjacent_find(options.session.devices, std::not_equal_to<>()) != options.session.devices.end())
    return input_error("--device names several devices, and one is measured for all stages: give one, or --profile");
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
      "  sluice plan --device ggml:cuda0\n"
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
  add_device_options(command, session);
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
