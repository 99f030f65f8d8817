#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "transport/stage_host.h"

namespace sluice {

namespace {

constexpr double kGib = 1 << 30;

struct StageCommand {
  std::string listen = StageHostOptions().listen.text();
  std::string models, secret, cache = cache_folder();
  double cache_size = 0;  // GB; 0: what the disk has
  bool no_fetch = false, until_eof = false, spare = false;
  double memory = 0;                                                        // GiB; 0: all
  double journal = static_cast<double>(StageHostOptions().journal) / kGib;  // GiB
  int32_t threads = 0;
  std::string device;
  double patience = StageHostOptions().patience;
  double drain = 20;  // seconds: a service manager gives more (systemd 90, Kubernetes 30)
};

Result<StageHostOptions> options_of(const StageCommand& command) {
  StageHostOptions options{
      .listen = {},
      .secret = {},
      .models = command.models,
      .cache = {.folder = command.no_fetch ? "" : command.cache, .bytes = std::llround(command.cache_size * 1e9)},
      .memory = std::llround(command.memory * kGib),
      .threads = command.threads,
      .device = command.device,
      .spare = command.spare,
      .journal = std::llround(command.journal * kGib),
      .patience = command.patience,
      .say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }};
  const auto listen = HostAddress::parse(command.listen);
  if (!listen) return input_error("--listen: " + listen.error().message);
  options.listen = *listen;
  if (!command.secret.empty()) {
    SLUICE_TRY(options.secret, Secret::load(command.secret));
  }
  std::error_code error;
  if (!command.models.empty() && !std::filesystem::is_directory(command.models, error))
    return input_error("--models " + command.models + ": no such folder; name one with GGUF files");
  return options;
}

// Or for an interrupt.
void wait_for_end_of_input() {
  char ignored[256];
  while (wait_for_stdin() && read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
  }
}

Status stage(const StageCommand& command) {
  SLUICE_TRY(const StageHostOptions options, options_of(command));
  SLUICE_TRY(const auto host, StageHost::open(options));
  std::string models = command.models.empty() ? "" : " and in " + command.models;
  if (!command.no_fetch) models += ", else fetched into " + command.cache;
  SLUICE_TRY_STATUS(print(
      fmt::format("sluice stage: listening on {}, {:.1f} GiB of memory for stages, models where coordinators name "
                  "them{}, {}\n",
                  host->address().text(), static_cast<double>(host->memory()) / kGib, models,
                  options.secret ? "for who has the secret" : "for this machine only")));
  if (command.until_eof)
    wait_for_end_of_input();
  else
    wait_for_interrupt();
  if (interrupted_by_terminate() && command.drain > 0 && host->stages() > 0) {
    options.say("sluice stage: no further stages; ends when those here are idle for a second, at the latest in " +
                fmt::format("{:g} s (a second signal: at once)", command.drain));
    host->drain(command.drain);
  }
  return {};
}

}  // namespace

void add_stage(CLI::App& app, Action& action) {
  auto options = std::make_shared<StageCommand>();
  CLI::App& command = *app.add_subcommand("stage", "Holds stages for a sluice elsewhere, until it is ended (SIGTERM)");
  command.footer(
      "Whoever has the secret may have stages computed here, of GGUF files on this host; see docs/hosts.md.\n"
      "Examples:\n"
      "  sluice stage\n"
      "  sluice stage --listen 192.168.1.7:7001 --secret sluice.secret --models ~/models\n"
      "  sluice run --hosts 192.168.1.7:7001,192.168.1.8:7001 --secret sluice.secret -m model.gguf \"Hello\"");
  command.add_option("--listen", options->listen, "Address and port; beyond this machine with --secret")
      ->capture_default_str();
  add_checked(command, "--models", options->models, not_empty("a folder"),
              "Folder of GGUF files: what isn't where the coordinator has it is looked for here, by its contents");
  add_value(command, "--cache", options->cache, not_empty("a folder"),
            "Folder for weights that coordinators send where a model is not on this host; only what the stage "
            "needs");
  add_checked(command, "--cache-size", options->cache_size, number(0, 1e6, /*above=*/true),
              "GB that they may take: what was not used for longest goes (default: what the disk has)");
  command.add_flag("--no-fetch", options->no_fetch,
                   "Compute models of this host's own files alone; nothing is written");
  command.add_flag("--spare", options->spare, "Hold stages only in place of a host that is lost (--spares)");
  add_checked(command, "--memory", options->memory, number(0, 1e6, /*above=*/true),
              "GiB for all stages (default: this machine's)");
  add_compact_option(command);
  add_value(command, "--journal", options->journal, number(0, 1e6),
            "GiB at most, a stage, of states that it has sent on: when another host is lost, it need not compute "
            "them again (0: none)");
  add_checked(command, "--threads", options->threads, whole_number(1, 256),
              "CPU threads a stage (default: as the coordinator's --threads says, or all cores)");
  command
      .add_option(
          "--device", options->device,
          "Device of each stage: cpu, or one of ggml's, as ggml:cuda0 (default: as the coordinator's --device says)")
      ->transform(in_lower_case());
  add_value(command, "--drain", options->drain, number(0, 86400),
            "Seconds at most that SIGTERM waits for answers that are being made (0: it breaks into them)");
  command.add_flag("--until-eof", options->until_eof,
                   "End when standard input does, as sluice up and ssh have it: so none is left behind");
  add_secret_options(command, options->secret, options->patience);
  command.callback([options, &action] { action = [options] { return stage(*options); }; });
}

}  // namespace sluice
