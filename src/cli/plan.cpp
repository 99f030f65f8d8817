#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "plan/measure.h"
#include "session/session.h"

namespace sluice {

namespace {

struct PlanOptions {
  std::string model, out;
  int32_t threads = 0;  // 0: all cores
  KvType kv = KvType::kF16;
};

Status measure(const PlanOptions& options) {
  const std::filesystem::path path = options.out.empty() ? local_profile_path() : options.out;
  if (options.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
  }
  SLUICE_TRY_STATUS(check_writable("--out", path.string()));
  SLUICE_TRY(const Session session, Session::open({.model = options.model, .on_download = show_downloads()}));
  const int32_t threads =
      options.threads > 0 ? options.threads : std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
  ProgressBar bar("measuring");
  auto profile = measure_profile(session.model(), options.kv, threads, [&](double share) {
    bar.show(share);
    return !interrupted();
  });
  bar.finish();
  if (interrupted()) return interrupted_error("nothing was written");
  if (!profile) return tl::unexpected<Error>(profile.error());
  if (const auto error = write_whole(path.string(), profile->to_json().dump(2) + '\n'))
    return runtime_error("--out " + path.string() + ": can't be written: " + error.message() +
                         "; name a writable file");
  return print(
      fmt::format("{}: measured; use it with --profile {}\n"
                  "a layer of {} takes {:.0f} us at width 1 and {:.0f} us at width 16, the head {:.0f} us\n",
                  path.string(), options.out.empty() ? "local" : path.string(), session.model().hparams().name,
                  profile->layer.at(1) * 1e6, profile->layer.at(16) * 1e6, profile->head.at(1) * 1e6));
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App& command = *app.add_subcommand("plan", "Measures this machine: the profile `local`");
  command.footer(
      "Examples:\n"
      "  sluice plan\n"
      "  sluice plan -m model.gguf --threads 1 --out one-core.json");
  command.add_option("--out", options->out, "Where to write the profile (default: " + local_profile_path() + ")");
  command.add_option("--threads", options->threads, "CPU threads a stage (default: all cores)")
      ->check(whole_number(1, 256));
  add_kv_option(command, options->kv);
  add_model_option(command, options->model);
  command.callback([options, &action] { action = [options] { return measure(*options); }; });
}

}  // namespace sluice
