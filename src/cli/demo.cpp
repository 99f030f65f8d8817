#include <fcntl.h>
#include <spawn.h>
#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/demo_runs.h"
#include "cli/output.h"
#include "cli/values.h"

extern char** environ;

namespace sluice {

namespace {

struct DemoOptions {
  std::string output = "sluice-demo.html";
  bool no_open = false;
};

size_t terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return std::clamp<size_t>(known ? size.ws_col : 100, 60, 160);
}

// Shows a page in the browser, if there is a display and a program that knows one. It goes on by itself.
bool open_in_browser(const std::string& path) {
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (!given("DISPLAY") && !given("WAYLAND_DISPLAY")) return false;
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&quiet, stream, "/dev/null", O_WRONLY, 0);
  bool opened = false;
  for (std::string program : {"xdg-open", "open"}) {
    std::string argument = path;
    char* const arguments[] = {program.data(), argument.data(), nullptr};
    pid_t pid = 0;
    opened = posix_spawnp(&pid, program.c_str(), &quiet, nullptr, arguments, environ) == 0;
    if (opened) break;
  }
  posix_spawn_file_actions_destroy(&quiet);
  return opened;
}

std::string drawing(const Demo& demo) {
  constexpr size_t kMargin = 11;  // for the names of lines
  const size_t columns = (terminal_columns() - kMargin) / DemoRun::kStepColumns * DemoRun::kStepColumns;
  return fmt::format(
      "Simulated: two real models ({}, {}) chose the tokens,\n"
      "a clock counts what the profile {} says that passes cost. Three devices, one prompt, the same text twice.\n\n"
      "{}, {:.1f} tokens/s\n{}\n"
      "{}, {:.1f} tokens/s: {:.2f} x plain\n{}\n"
      " tokens: how many came out in a pass. █ holds a token of the text, ░ only guesses that were wrong, · waits\n",
      demo.target, demo.draft, demo.profile, demo.plain.title, demo.plain.tokens_per_second,
      demo.plain.drawing(columns), demo.surge.title, demo.surge.tokens_per_second, demo.ratio(),
      demo.surge.drawing(columns));
}

Status show_demo(const DemoOptions& options) {
  SLUICE_TRY_STATUS(check_writable("--output", options.output));
  const Demo demo = stored_demo();
  SLUICE_TRY_STATUS(print(drawing(demo)));
  if (const auto error = write_whole(options.output, demo.page(), /*durable=*/false))
    return runtime_error("--output " + options.output + ": can't be written: " + error.message() +
                         "; name a file on another disk");
  const std::string path = std::filesystem::absolute(options.output).string();
  const bool opened = !options.no_open && open_in_browser(path);
  return print(fmt::format("\n{} {}\n",
                           opened ? "Opening in the browser:" : "To see it batch by batch, open in a browser:", path));
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App& command =
      *app.add_subcommand("demo", "Plain pipelining beside speculation, on stored schedules: no model, no hardware");
  command.footer(
      "Examples:\n"
      "  sluice demo\n"
      "  sluice demo --no-open --output page.html");
  command.add_option("--output", options->output, "Where to write the page")
      ->capture_default_str()
      ->check(not_empty("a file"));
  command.add_flag("--no-open", options->no_open, "Do not open it in a browser");
  command.callback([options, &action] { action = [options] { return show_demo(*options); }; });
}

}  // namespace sluice
