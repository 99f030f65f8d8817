#include "cli/demo_runs.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "engine/timeline_page.h"
#include "engine/trace.h"

namespace sluice {

extern const std::string_view kDemoRuns;  // demo_runs.json
extern const std::string_view kDemoPage;  // demo.html

namespace {

using Json = nlohmann::ordered_json;

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
  std::vector<int> tokens(columns / DemoRun::kStepColumns, 0);
  for (const Json& time : data["emissions"]["time"]) {
    const double at = (time.get<double>() - begin_of(data)) / step;
    if (at >= 0 && at < static_cast<double>(tokens.size())) ++tokens[static_cast<size_t>(at)];
  }
  std::string line;
  for (const int n : tokens) line += fmt::format("{:<{}}", n > 0 ? std::to_string(n) : "", DemoRun::kStepColumns);
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

}  // namespace

std::string DemoRun::drawing(size_t columns) const {
  const double step = pass_of(data);
  std::string out = " tokens   " + token_line(data, step, columns) + "\n";
  for (int stage = 0; stage < data["header"]["stages"].get<int>(); ++stage)
    out += fmt::format(" stage {}  {}\n", stage, stage_line(data, stage, step / kStepColumns, columns));
  return out;
}

std::string Demo::page() const {
  const double clock = std::max(end_of(plain.data), end_of(surge.data));
  const std::string gain = fmt::format(", <b>{:.2f} times</b> plain pipelining", ratio());
  return with(kDemoPage, {{"@TARGET@", escaped(target)},
                          {"@DRAFT@", escaped(draft)},
                          {"@PROMPT@", escaped(prompt)},
                          {"@PROFILE@", escaped(profile)},
                          {"@RUNS@", section(plain, "", clock) + section(surge, gain, clock)}});
}

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

}  // namespace sluice
