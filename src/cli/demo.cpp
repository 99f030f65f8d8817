#include <fcntl.h>
#include <spawn.h>
#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "engine/timeline_page.h"
#include "engine/trace.h"

extern char** environ;

namespace sluice {

extern const std::string_view kDemoRuns;  // demo_runs.json
extern const std::string_view kDemoPage;  // demo.html

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

using Json = nlohmann::ordered_json;

constexpr size_t kStepColumns = 3;  // of a drawing, to a pass of a stage

double begin_of(const Json& data) { return data["header"]["decode_begin"].get<double>(); }
double end_of(const Json& data) { return data["header"]["decode_end"].get<double>(); }

double tokens_per_second(const Json& data) {
  const auto after_first = static_cast<double>(data["emissions"]["time"].size() - 1);
  return after_first / (end_of(data) - begin_of(data)) * 1e9;
}

// What a pass takes that computes one token after the other, as all stages of the demo do.
double pass_of(const Json& data) {
  const Json& begin = data["spans"]["begin"];
  const Json& end = data["spans"]["end"];
  return end.back().get<double>() - begin.back().get<double>();
}

// Whether a batch holds a token of the text.
bool is_of_text(const Json& batches, size_t batch) {
  const auto first = batches["first"][batch].get<size_t>(), last = batches["first"][batch + 1].get<size_t>();
  const Json& fate = batches["fate"];
  return std::any_of(fate.begin() + static_cast<ptrdiff_t>(first), fate.begin() + static_cast<ptrdiff_t>(last),
                     [](const Json& value) { return value.get<int>() == static_cast<int>(Fate::kAccepted); });
}

std::string stage_line(const Json& data, int stage, double column, size_t columns) {
  const Json& spans = data["spans"];
  std::vector<const char*> cells(columns, "·");
  for (size_t i = 0; i < spans["stage"].size(); ++i) {
    if (spans["stage"][i].get<int>() != stage) continue;
    const double begin = (spans["begin"][i].get<double>() - begin_of(data)) / column;
    const double end = (spans["end"][i].get<double>() - begin_of(data)) / column;
    const char* mark = is_of_text(data["batches"], spans["batch"][i].get<size_t>()) ? "█" : "░";
    for (size_t at = 0; at < columns; ++at) {
      const double middle = static_cast<double>(at) + 0.5;
      if (begin <= middle && middle < end) cells[at] = mark;
    }
  }
  std::string line;
  for (const char* cell : cells) line += cell;
  return line;
}

std::string token_line(const Json& data, double step, size_t columns) {
  std::vector<int> tokens(columns / kStepColumns, 0);
  for (const Json& time : data["emissions"]["time"]) {
    const double at = (time.get<double>() - begin_of(data)) / step;
    if (at >= 0 && at < static_cast<double>(tokens.size())) ++tokens[static_cast<size_t>(at)];
  }
  std::string line;
  for (const int n : tokens) line += fmt::format("{:<{}}", n > 0 ? std::to_string(n) : "", kStepColumns);
  return line.erase(line.find_last_not_of(' ') + 1);
}

std::string with(std::string_view page, const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string out;
  while (!page.empty()) {
    const auto found =
        std::find_if(values.begin(), values.end(), [&](const auto& value) { return page.starts_with(value.first); });
    out += found != values.end() ? found->second : std::string(page.substr(0, 1));
    page.remove_prefix(found != values.end() ? found->first.size() : 1);
  }
  return out;
}

std::string escaped(std::string_view text) { return with(text, {{"&", "&amp;"}, {"<", "&lt;"}, {"\"", "&quot;"}}); }

// A recorded run.
struct DemoRun {
  Json data;  // as a timeline's page holds it: times in nanoseconds
  std::string title;
  double tokens_per_second = 0;  // simulated

  // The time from the first token on in so many columns: a line that counts the tokens of a pass, and one for each
  // stage.
  std::string drawing(size_t columns) const {
    const double step = pass_of(data);
    std::string out = " tokens   " + token_line(data, step, columns) + "\n";
    for (int stage = 0; stage < data["header"]["stages"].get<int>(); ++stage)
      out += fmt::format(" stage {}  {}\n", stage, stage_line(data, stage, step / kStepColumns, columns));
    return out;
  }
};

std::string section(const DemoRun& run, const std::string& beside, double clock) {
  Json data = run.data;
  data["header"]["clock"] = clock;
  return fmt::format("<h2>{}: {:.1f} tokens a simulated second{}</h2>\n<iframe title=\"{}\" srcdoc=\"{}\"></iframe>\n",
                     escaped(run.title), run.tokens_per_second, beside, escaped(run.title),
                     escaped(timeline_page(data)));
}

DemoRun run_of(const Json& data, std::string title) {
  return {.data = data, .title = std::move(title), .tokens_per_second = tokens_per_second(data)};
}

// One prompt by plain pipelining and by surge, recorded by bench/demo.
struct Demo {
  std::string target, draft, prompt, profile;
  DemoRun plain, surge;

  double ratio() const { return surge.tokens_per_second / plain.tokens_per_second; }
  // Both timelines, one below the other, on one clock.
  std::string page() const {
    const double clock = std::max(end_of(plain.data), end_of(surge.data));
    const std::string gain = fmt::format(", <b>{:.2f} times</b> plain pipelining", ratio());
    return with(kDemoPage, {{"@TARGET@", escaped(target)},
                            {"@DRAFT@", escaped(draft)},
                            {"@PROMPT@", escaped(prompt)},
                            {"@PROFILE@", escaped(profile)},
                            {"@RUNS@", section(plain, "", clock) + section(surge, gain, clock)}});
  }
};

// What is compiled in.
Demo stored_demo() {
  const Json stored = Json::parse(kDemoRuns, nullptr, /*allow_exceptions=*/false);
  SLUICE_CHECK(stored.is_object() && stored["runs"].size() == 2, "the demo's runs are compiled in");
  const Json& header = stored["runs"][0]["header"];
  return {.target = stored["target"].get<std::string>(),
          .draft = stored["draft"].get<std::string>(),
          .prompt = stored["prompt"].get<std::string>(),
          .profile = header["profile"].get<std::string>(),
          .plain = run_of(stored["runs"][0], "Plain pipelining"),
          .surge = run_of(stored["runs"][1], "surge with a draft model")};
}

std::string drawing(const Demo& demo) {
  constexpr size_t kMargin = 11;  // for the names of lines
  const size_t columns = (terminal_columns() - kMargin) / kStepColumns * kStepColumns;
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
  add_value(command, "--output", options->output, not_empty("a file"), "Where to write the page");
  command.add_flag("--no-open", options->no_open, "Do not open it in a browser");
  command.callback([options, &action] { action = [options] { return show_demo(*options); }; });
}

}  // namespace sluice
