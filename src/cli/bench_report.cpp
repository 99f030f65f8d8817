#include "cli/bench_report.h"

#include <spdlog/fmt/fmt.h>

namespace sluice {

using nlohmann::json;

void BenchReport::add(const BenchResults::Conversation& conversation, int32_t turns) {
  ++n_conversations_;
  for (const json& run : conversation.turns)
    if (turns == 0 || run["turn"].get<int32_t>() < turns) add_run(conversation.key, run);
}

void BenchReport::add_run(const BenchKey& key, const json& run) {
  const json& tokens = run["tokens"];
  Cell& cell = cells_[{key.method, key.temp, key.task}];
  cell.seconds += run["seconds"]["decode"].get<double>();
  cell.steps += run["steps"].get<double>();
  cell.tokens += static_cast<int64_t>(tokens.size()) - 1;
  cell.drafted += run["drafted"].get<int64_t>();
  cell.accepted += run["accepted"].get<int64_t>();
  cell.flushes += run["flushes"].get<int64_t>();
  if (cell.joules && run.contains("joules"))
    *cell.joules += run["joules"].get<double>();
  else
    cell.joules.reset();
  const auto turn = run["turn"].get<size_t>();
  const auto [reference, is_first] = reference_.try_emplace({key.task, key.id, key.temp, turn}, tokens);
  const json& want = reference->second;
  if (is_first || want == tokens || !difference_.empty()) return;
  size_t at = 0;
  while (at < want.size() && at < tokens.size() && want[at] == tokens[at]) ++at;
  difference_ = fmt::format("{} {} turn {} temperature {}: {} differs at token {}", key.task, key.id, turn + 1,
                            key.temp, key.method, at);
}

double BenchReport::speedup(const std::string& method, float temp, const std::string& task) const {
  const auto plain = cells_.find({"ar", temp, task});
  const Cell& cell = cells_.at({method, temp, task});
  if (plain == cells_.end() || plain->second.tokens == 0 || cell.tokens == 0 || cell.seconds <= 0) return 0;
  return (plain->second.seconds / static_cast<double>(plain->second.tokens)) /
         (cell.seconds / static_cast<double>(cell.tokens));
}

std::string BenchReport::table_cell(const std::string& method, float temp, const std::string& task) const {
  const auto at = cells_.find({method, temp, task});
  if (at == cells_.end()) return "-";
  const Cell& cell = at->second;
  const double tokens = static_cast<double>(cell.tokens);
  const double rate = cell.seconds > 0 ? tokens / cell.seconds : 0;
  const double length = cell.steps > 0 ? static_cast<double>(n_stages_) * tokens / cell.steps : 0;
  return fmt::format("{:.2f} {:>8.1f} {:>5.2f} {:>8}", speedup(method, temp, task), rate, length, cell.flushes);
}

// Empty if the machine has no counter, or some of the runs were not counted.
std::string BenchReport::energy_line(const BenchOptions& options) const {
  std::string out;
  for (const float temp : options.temps)
    for (const auto& method : options.methods) {
      double joules = 0.0, tokens = 0.0;
      for (const auto& task : options.tasks) {
        const auto cell = cells_.find({method, temp, task});
        if (cell == cells_.end()) continue;
        if (!cell->second.joules) return {};
        joules += *cell->second.joules;
        tokens += static_cast<double>(cell->second.tokens);
      }
      if (tokens > 0.0) out += fmt::format("{} {} {:.2f}", out.empty() ? "" : ",", method, joules / tokens);
      if (tokens > 0.0 && options.temps.size() > 1) out += fmt::format(" at {:.1f}", temp);
    }
  return out.empty() ? out : "joules a token, prompts included:" + out + "\n";
}

std::string BenchReport::table(const BenchOptions& options) const {
  std::string out = fmt::format("{:<12}{:>5}", "method", "temp");
  for (const auto& task : options.tasks) out += fmt::format("  {:>30}", task);
  out += fmt::format("\n{:<17}", "");
  for (size_t i = 0; i < options.tasks.size(); ++i) out += fmt::format("  {:>30}", "x ar    tok/s  nN/K  flushes");
  out += '\n';
  for (const float temp : options.temps)
    for (const auto& method : options.methods) {
      out += fmt::format("{:<12}{:>5.1f}", method, temp);
      for (const auto& task : options.tasks) out += fmt::format("  {:>30}", table_cell(method, temp, task));
      out += '\n';
    }
  out += energy_line(options);
  // Other rules give other tokens, method by method.
  if (options.methods.size() > 1 && options.same_tokens())
    out += "identical: " + (difference_.empty() ? "yes" : difference_) + "\n";
  return out;
}

json BenchReport::summary() const {
  json rows = json::array();
  for (const auto& [key, cell] : cells_) {
    const auto& [method, temp, task] = key;
    rows.push_back({{"method", method},
                    {"temp", temp},
                    {"task", task},
                    {"speedup", speedup(method, temp, task)},
                    {"tokens", cell.tokens},
                    {"seconds", cell.seconds},
                    {"steps", cell.steps},
                    {"drafted", cell.drafted},
                    {"accepted", cell.accepted},
                    {"flushes", cell.flushes},
                    {"joules", cell.joules ? json(*cell.joules) : json()}});
  }
  return rows;
}

}  // namespace sluice
