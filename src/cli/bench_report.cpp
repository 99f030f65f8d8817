#include "cli/bench_report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "session/width_lock.h"

namespace sluice {

using nlohmann::json;

namespace {

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The smallest value that 99 % of them do not exceed.
double p99(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(values.size()))) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(rank), values.end());
  return values[rank];
}

json mean_and_p99(const std::vector<double>& values) { return {{"mean", mean(values)}, {"p99", p99(values)}}; }

}  // namespace

// The loads of a cell are one after the other, each with times of its own.
void BenchReport::Latencies::begin_load() {
  elapsed = seconds();
  begin = std::numeric_limits<double>::infinity();
  end = 0;
}

void BenchReport::Latencies::add(const json& run) {
  const auto gaps = run["between_tokens"].get<std::vector<double>>();
  const double arrival = run["arrival"], first = run["time_to_first_token"];
  first_token.push_back(first);
  between_tokens.insert(between_tokens.end(), gaps.begin(), gaps.end());
  tokens += static_cast<double>(run["tokens"].size());
  begin = std::min(begin, arrival);
  end = std::max(end, arrival + first + std::accumulate(gaps.begin(), gaps.end(), 0.0));
}

std::vector<std::string> BenchReport::columns(const BenchOptions& options) {
  std::vector<std::string> tasks = options.tasks;
  if (!options.also.empty()) tasks.push_back(options.also);
  return tasks;
}

void BenchReport::add(const BenchResults::Conversation& conversation) {
  ++n_conversations_;
  const BenchKey& key = conversation.key;
  const auto [cell, is_first] = cells_.try_emplace({key.method, key.temp, key.task, key.concurrency});
  if (cell->second.load && (is_first || !options_->together(key.concurrency))) cell->second.load->begin_load();
  bool same = true;
  for (const json& run : conversation.turns) {
    if (options_->turns > 0 && run["turn"].get<int32_t>() >= options_->turns) continue;
    add_run(key, run);
    same = same && compare(key, run);
  }
}

void BenchReport::add_run(const BenchKey& key, const json& run) {
  Cell& cell = cells_[{key.method, key.temp, key.task, key.concurrency}];
  cell.seconds += run["seconds"]["decode"].get<double>();
  cell.steps += run["steps"].get<double>();
  cell.tokens += static_cast<int64_t>(run["tokens"].size()) - 1;
  cell.drafted += run["drafted"].get<int64_t>();
  cell.accepted += run["accepted"].get<int64_t>();
  cell.flushes += run["flushes"].get<int64_t>();
  if (cell.joules && run.contains("joules"))
    *cell.joules += run["joules"].get<double>();
  else
    cell.joules.reset();
  if (cell.load && run.contains("between_tokens"))
    cell.load->add(run);
  else
    cell.load.reset();
  const PaceKept pace = pace_of(run);
  if (pace.computing) pace_.computing = std::max(*pace.computing, pace_.computing.value_or(0.0));
  pace_.asked += pace.asked;
  pace_.missed += pace.missed;
  if (const auto relay = run.find("relay"); relay != run.end()) {
    const auto tokens = static_cast<double>(run["tokens"].size());
    relay_.edges = std::max(relay_.edges, (*relay)["edges"].get<size_t>());
    relay_.runs += 1;
    relay_.tokens += tokens;
    relay_.bytes += tokens * (*relay)["bytes_per_token"].get<double>();
    relay_.seconds_per_step += (*relay)["seconds_per_step"].get<double>();
  }
  out_of_range_ += run.value("states_out_of_range", uint64_t{0});
  if (const auto exactness = value_of(kExactnesses, run.value("exactness", std::string())))
    weakest_ = std::max(weakest_, *exactness);
}

bool BenchReport::compare(const BenchKey& key, const json& run) {
  const json& tokens = run["tokens"];
  const auto turn = run["turn"].get<size_t>();
  const auto [reference, is_first] = reference_.try_emplace({key.task, key.id, key.temp, turn}, tokens);
  const json& want = reference->second;
  if (is_first) return true;
  size_t at = 0;
  while (at < want.size() && at < tokens.size() && want[at] == tokens[at]) ++at;
  const bool same = want == tokens;
  n_compared_ += static_cast<int64_t>(same ? at : at + 1);
  n_forks_ += same ? 0 : 1;
  if (same || !difference_.empty()) return same;
  difference_ = fmt::format("{} {} turn {} temperature {}: {} differs at token {}", key.task, key.id, turn + 1,
                            key.temp, key.method, at);
  if (options_->concurrency.size() > 1) difference_ += fmt::format(" with {} in flight", key.concurrency);
  return false;
}

std::optional<double> BenchReport::forks_per_1000() const {
  if (n_compared_ == 0) return std::nullopt;
  return 1000.0 * static_cast<double>(n_forks_) / static_cast<double>(n_compared_);
}

double BenchReport::speedup(const CellKey& key) const {
  const auto& [method, temp, task, concurrency] = key;
  const auto plain = cells_.find({"ar", temp, task, concurrency});
  const Cell& cell = cells_.at(key);
  if (plain == cells_.end() || plain->second.tokens == 0 || cell.tokens == 0 || cell.seconds <= 0) return 0;
  return (plain->second.seconds / static_cast<double>(plain->second.tokens)) /
         (cell.seconds / static_cast<double>(cell.tokens));
}

std::string BenchReport::table_cell(const CellKey& key) const {
  const auto at = cells_.find(key);
  if (at == cells_.end()) return "-";
  const Cell& cell = at->second;
  const double tokens = static_cast<double>(cell.tokens);
  const double rate = cell.seconds > 0 ? tokens / cell.seconds : 0;
  const double length = cell.steps > 0 ? static_cast<double>(n_stages_) * tokens / cell.steps : 0;
  const double times = speedup(key);
  const std::string over_plain = times > 0 ? fmt::format("{:.2f}", times) : "-";
  return fmt::format("{} {:>8.1f} {:>5.2f} {:>8}", over_plain, rate, length, cell.flushes);
}

// Empty if the machine has no counter, or some of the runs were not counted.
std::string BenchReport::energy_line() const {
  std::string out;
  for (const int32_t concurrency : options_->concurrency)
    for (const float temp : options_->temps)
      for (const auto& method : options_->methods) {
        double joules = 0.0, tokens = 0.0;
        for (const auto& task : columns(*options_)) {
          const auto cell = cells_.find({method, temp, task, concurrency});
          if (cell == cells_.end()) continue;
          if (!cell->second.joules) return {};
          joules += *cell->second.joules;
          tokens += static_cast<double>(cell->second.tokens);
        }
        if (tokens == 0.0) continue;
        out += fmt::format("{} {} {:.2f}", out.empty() ? "" : ",", method, joules / tokens);
        if (options_->temps.size() > 1) out += fmt::format(" at {:.1f}", temp);
        if (options_->concurrency.size() > 1) out += fmt::format(" with {} in flight", concurrency);
      }
  return out.empty() ? out : "joules a token, prompts included:" + out + "\n";
}

// Of all conversations together, as a server would be judged.
std::string BenchReport::load_table() const {
  std::string out = fmt::format("{:<12}{:>5}{:>5}  {:<12}{:>12}{:>20}{:>9}{:>24}{:>9}\n", "load", "temp", "conc",
                                "task", "all tok/s", "first token s: mean", "p99", "between tokens s: mean", "p99");
  for (const int32_t concurrency : options_->concurrency)
    for (const float temp : options_->temps)
      for (const auto& method : options_->methods)
        for (const auto& task : columns(*options_)) {
          const auto at = cells_.find({method, temp, task, concurrency});
          if (at == cells_.end() || !at->second.load) continue;
          const Latencies& load = *at->second.load;
          out += fmt::format("{:<12}{:>5.1f}{:>5}  {:<12}{:>12.1f}{:>20.3f}{:>9.3f}{:>24.4f}{:>9.4f}\n", method, temp,
                             concurrency, task, load.tokens_per_second(), mean(load.first_token), p99(load.first_token),
                             mean(load.between_tokens), p99(load.between_tokens));
        }
  return out;
}

std::string BenchReport::table() const {
  const auto tasks = columns(*options_);
  const auto& several = options_->concurrency;
  const bool together = std::any_of(several.begin(), several.end(), [&](int32_t n) { return options_->together(n); });
  std::string out = fmt::format("{:<12}{:>5}{}", "method", "temp", together ? " conc" : "");
  for (const auto& task : tasks) out += fmt::format("  {:>30}", task);
  out += fmt::format("\n{:<17}{}", "", together ? "     " : "");
  for (size_t i = 0; i < tasks.size(); ++i) out += fmt::format("  {:>30}", "x ar    tok/s  nN/K  flushes");
  out += '\n';
  for (const int32_t concurrency : several)
    for (const float temp : options_->temps)
      for (const auto& method : options_->methods) {
        out += fmt::format("{:<12}{:>5.1f}", method, temp);
        if (together) out += fmt::format("{:>5}", concurrency);
        for (const auto& task : tasks) out += fmt::format("  {:>30}", table_cell({method, temp, task, concurrency}));
        out += '\n';
      }
  if (together) out += load_table();
  if (relay_.edges > 0)
    out += relay_text(relay_.edges, relay_.bytes / relay_.tokens, relay_.seconds_per_step / relay_.runs) + "\n";
  return out + energy_line() + pace_.text() + agreement_line();
}

// Other rules give other tokens, method by method.
std::string BenchReport::agreement_line() const {
  const auto forks = forks_per_1000();
  const bool compared = forks && options_->session.same_tokens();
  const std::string same =
      difference_.empty() ? "yes" : fmt::format("{}; {:.2g} forks in 1,000 tokens", difference_, forks.value_or(0));
  if (options_->session.exact()) {
    const std::string lock = lock_text(options_->session, weakest_);
    return (compared ? "identical: " + same + "\n" : "") + (lock.empty() ? "" : lock + "\n");
  }
  std::string out = kInexact + (compared ? "; the methods agree: " + same : std::string()) + "\n";
  if (out_of_range_ > 0) out += out_of_range_text(out_of_range_) + "\n";
  return out;
}

json BenchReport::summary() const {
  json rows = json::array();
  for (const auto& [key, cell] : cells_) {
    const auto& [method, temp, task, concurrency] = key;
    const auto& load = cell.load;
    rows.push_back({{"method", method},
                    {"temp", temp},
                    {"task", task},
                    {"concurrency", concurrency},
                    {"speedup", speedup(key)},
                    {"tokens", cell.tokens},
                    {"seconds", cell.seconds},
                    {"steps", cell.steps},
                    {"drafted", cell.drafted},
                    {"accepted", cell.accepted},
                    {"flushes", cell.flushes},
                    {"joules", cell.joules ? json(*cell.joules) : json()},
                    {"elapsed", load ? json(load->seconds()) : json()},
                    {"tokens_per_second", load ? json(load->tokens_per_second()) : json()},
                    {"time_to_first_token", load ? mean_and_p99(load->first_token) : json()},
                    {"between_tokens", load ? mean_and_p99(load->between_tokens) : json()}});
  }
  return rows;
}

}  // namespace sluice
