#include <spdlog/fmt/fmt.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/values.h"
#include "method/method.h"

namespace sluice {

namespace {

using nlohmann::json;

struct BenchOptions : CommonOptions {
  std::string data, out;
  std::vector<std::string> tasks = {"mt_bench", "gsm8k", "humaneval"}, methods = {"ar", "specpipe"};
  std::vector<float> temps = {0.0f};
  int32_t limit = 20, turns = 0;
};

struct Prompt {
  std::string id, task;
  std::vector<std::string> turns;
};

Result<std::vector<Prompt>> read_prompts(const std::string& directory, const std::string& task, int32_t limit) {
  const std::string path = (std::filesystem::path(directory) / (task + ".jsonl")).string();
  std::ifstream file(path);
  if (!file) return input_error("--data " + directory + ": there is no readable file " + path + "; see --tasks");
  std::vector<Prompt> prompts;
  std::string line;
  for (int number = 1; static_cast<int32_t>(prompts.size()) < limit && std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const json j = json::parse(line, nullptr, false);
    const auto bad = [&](const char* why) { return input_error(path + ":" + std::to_string(number) + ": " + why); };
    if (!j.is_object() || !j.contains("turns") || !j["turns"].is_array() || j["turns"].empty())
      return bad("not a JSON object with a list \"turns\", as in {\"id\": \"1\", \"turns\": [\"Hello!\"]}");
    Prompt prompt{.id = j.contains("id") ? (j["id"].is_string() ? j["id"].get<std::string>() : j["id"].dump())
                                         : std::to_string(number),
                  .task = task,
                  .turns = {}};
    for (const auto& turn : j["turns"]) {
      if (!turn.is_string() || turn.get_ref<const std::string&>().empty())
        return bad("a turn must be a text that is not empty");
      prompt.turns.push_back(turn.get<std::string>());
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return input_error(path + ": holds no prompt, or cannot be read");
  return prompts;
}

// One cell of the table: all prompts of a task by one method at one temperature.
struct Cell {
  double seconds = 0, steps = 0;
  int64_t tokens = 0;  // after the first of each answer
  int64_t drafted = 0, accepted = 0, flushes = 0;
};

class Bench {
 public:
  Bench(const BenchOptions& options, const Session& session, std::vector<Prompt> prompts)
      : options_(options), session_(session), prompts_(std::move(prompts)) {}

  // Whether the context has room for the prompts, before hours are spent on the others.
  Status check_lengths() const {
    for (const Prompt& prompt : prompts_) {
      const auto tokens = session_.encode({{"user", prompt.turns.front()}});
      if (!tokens) return tl::unexpected<Error>(in(prompt, tokens.error()));
      if (tokens->size() >= static_cast<size_t>(session_.context()))
        return input_error(prompt.task + " " + prompt.id + ": the prompt has " + std::to_string(tokens->size()) +
                           " tokens, too many for a context of " + std::to_string(session_.context()) +
                           "; try a larger --context or a smaller --limit");
    }
    return {};
  }

  // What was done is printed and written also when the rest could not be.
  Status run() {
    const Status done = run_all();
    if (!runs_.empty()) {
      SLUICE_TRY_STATUS(print(table()));
      if (!options_.out.empty()) SLUICE_TRY_STATUS(write());
    }
    return done;
  }

 private:
  Status run_all() {
    const size_t total = total_runs();
    ProgressBar bar("bench");
    for (const Prompt& prompt : prompts_)  // the methods take turns, so that a drifting machine hits them alike
      for (const float temp : options_.temps)
        for (const auto& method : options_.methods) {
          const Status status = converse(prompt, method, temp);
          if (!status || interrupted()) bar.finish();
          if (!status) return tl::unexpected<Error>(in(prompt, status.error()));
          if (interrupted()) return interrupted_error(fmt::format("{} of {} conversations were done", done_, total));
          SLUICE_TRY_STATUS(session_.save_memo());
          ++done_;
          bar.show(static_cast<double>(done_) / static_cast<double>(total),
                   prompt.task + " " + prompt.id + " " + method);
        }
    bar.finish();
    return {};
  }

  size_t total_runs() const { return prompts_.size() * options_.methods.size() * options_.temps.size(); }

  // The error of a prompt, with its name.
  static Error in(const Prompt& prompt, const Error& error) {
    return {error.kind, prompt.task + " " + prompt.id + ": " + error.message};
  }

  // All turns of one prompt.
  Status converse(const Prompt& prompt, const std::string& method, float temp) {
    SLUICE_TRY(const auto engine, session_.make_engine());
    std::vector<ChatMessage> messages;
    std::optional<RequestId> previous;
    const size_t turns =
        options_.turns > 0 ? std::min(prompt.turns.size(), static_cast<size_t>(options_.turns)) : prompt.turns.size();
    for (size_t turn = 0; turn < turns; ++turn) {
      messages.push_back({"user", prompt.turns[turn]});
      SLUICE_TRY(auto tokens, session_.encode(messages));
      RequestSpec spec = session_.spec(std::move(tokens));
      spec.method = method;
      spec.sampling.temperature = temp;
      spec.continues = previous;
      SLUICE_TRY(const Answer done,
                 answer(session_, *engine, std::move(spec), false, [](const std::string&) { return true; }));
      if (done.interrupted) break;  // half an answer can't be compared
      record(prompt, turn, method, temp, *engine, done);
      messages.push_back({"assistant", done.text});
      previous = done.request;
    }
    return {};
  }

  void record(const Prompt& prompt, size_t turn, const std::string& method, float temp, const Engine& engine,
              const Answer& done) {
    json run = to_json(session_, engine, options_, done);
    run["id"] = prompt.id;
    run["task"] = prompt.task;
    run["temp"] = temp;
    run["turn"] = turn;
    run["prompt"] = engine.request(done.request).spec.prompt;
    Cell& cell = cells_[{method, temp, prompt.task}];
    cell.seconds += run["seconds"]["decode"].get<double>();
    cell.steps += run["steps"].get<double>();
    cell.tokens += static_cast<int64_t>(run["tokens"].size()) - 1;
    cell.drafted += run["drafted"].get<int64_t>();
    cell.accepted += run["accepted"].get<int64_t>();
    cell.flushes += run["flushes"].get<int64_t>();
    // The first method's tokens are the reference; `ar` comes first unless it was left out.
    const auto [reference, is_first] =
        reference_.try_emplace({prompt.task + " " + prompt.id, turn, temp}, run["tokens"]);
    if (!is_first && reference->second != run["tokens"] && difference_.empty()) {
      const auto& want = reference->second;
      size_t at = 0;
      while (at < want.size() && at < run["tokens"].size() && want[at] == run["tokens"][at]) ++at;
      difference_ = fmt::format("{} {} turn {} temperature {}: {} differs at token {}", prompt.task, prompt.id,
                                turn + 1, temp, method, at);
    }
    runs_.push_back(std::move(run));
  }

  double speedup(const std::string& method, float temp, const std::string& task) const {
    const auto plain = cells_.find({"ar", temp, task});
    const Cell& cell = cells_.at({method, temp, task});
    if (plain == cells_.end() || plain->second.tokens == 0 || cell.tokens == 0 || cell.seconds <= 0) return 0;
    return (plain->second.seconds / static_cast<double>(plain->second.tokens)) /
           (cell.seconds / static_cast<double>(cell.tokens));
  }

  std::string table() const {
    const size_t stages = session_.cuts().size();
    std::string out = fmt::format(
        "{}, {} stage{}, executor {}{}, compute {}, width {}, at most {} prompts a task and {} new tokens an answer\n",
        session_.model().hparams().name, stages, stages == 1 ? "" : "s", options_.executor,
        session_.profile_name().empty()
            ? ""
            : (options_.simulated() ? " (simulated time), profile " : " (paced), profile ") + session_.profile_name(),
        options_.compute, options_.width, options_.limit, options_.max_tokens);
    if (done_ < total_runs()) out += fmt::format("incomplete: {} of {} conversations were done\n", done_, total_runs());
    out += fmt::format("{:<12}{:>5}", "method", "temp");
    for (const auto& task : options_.tasks) out += fmt::format("  {:>30}", task);
    out += fmt::format("\n{:<17}", "");
    for (size_t i = 0; i < options_.tasks.size(); ++i) out += fmt::format("  {:>30}", "x ar    tok/s  nN/K  flushes");
    out += '\n';
    for (const float temp : options_.temps)
      for (const auto& method : options_.methods) {
        out += fmt::format("{:<12}{:>5.1f}", method, temp);
        for (const auto& task : options_.tasks) out += fmt::format("  {:>30}", table_cell(method, temp, task));
        out += '\n';
      }
    if (options_.methods.size() > 1)
      out += "identical: " + (difference_.empty() ? std::string("yes") : difference_) + "\n";
    return out;
  }

  std::string table_cell(const std::string& method, float temp, const std::string& task) const {
    const auto at = cells_.find({method, temp, task});
    if (at == cells_.end()) return "-";
    const Cell& cell = at->second;
    const double tokens = static_cast<double>(cell.tokens);
    const double rate = cell.seconds > 0 ? tokens / cell.seconds : 0;
    const double length = cell.steps > 0 ? static_cast<double>(session_.cuts().size()) * tokens / cell.steps : 0;
    return fmt::format("{:.2f} {:>8.1f} {:>5.2f} {:>8}", speedup(method, temp, task), rate, length, cell.flushes);
  }

  Status write() const {
    json summary = json::array();
    for (const auto& [key, cell] : cells_) {
      const auto& [method, temp, task] = key;
      summary.push_back({{"method", method},
                         {"temp", temp},
                         {"task", task},
                         {"speedup", speedup(method, temp, task)},
                         {"tokens", cell.tokens},
                         {"seconds", cell.seconds},
                         {"steps", cell.steps},
                         {"drafted", cell.drafted},
                         {"accepted", cell.accepted},
                         {"flushes", cell.flushes}});
    }
    const json out = {{"settings",
                       {{"model", session_.model().hparams().name},
                        {"data", options_.data},
                        {"tasks", options_.tasks},
                        {"methods", options_.methods},
                        {"temps", options_.temps},
                        {"limit", options_.limit},
                        {"max_tokens", options_.max_tokens},
                        {"stages", session_.cuts().size()},
                        {"width", options_.width},
                        {"executor", options_.executor},
                        {"profile", session_.profile_name()},
                        {"compute", options_.compute}}},
                      {"runs", runs_},
                      {"summary", summary},
                      {"complete", done_ == total_runs()},
                      {"identical", difference_.empty()}};
    std::ofstream file(options_.out);
    if (!(file << out.dump(1, ' ', false, json::error_handler_t::replace) << '\n' << std::flush))
      return runtime_error("--json " + options_.out + ": cannot be written; is the disk full?");
    return {};
  }

  const BenchOptions& options_;
  const Session& session_;
  std::vector<Prompt> prompts_;
  size_t done_ = 0;  // conversations
  std::map<std::tuple<std::string, float, std::string>, Cell> cells_;
  std::map<std::tuple<std::string, size_t, float>, json> reference_;
  std::string difference_;
  json runs_ = json::array();
};

// What can be known to be wrong before the first token.
Status check(const BenchOptions& options) {
  SLUICE_TRY_STATUS(sluice::check(static_cast<const CommonOptions&>(options)));
  const auto twice = [](const auto& values) { return std::set(values.begin(), values.end()).size() < values.size(); };
  if (twice(options.methods)) return input_error("--methods names a method twice");
  if (twice(options.tasks)) return input_error("--tasks names a task twice");
  if (twice(options.temps)) return input_error("--temps names a temperature twice");
  return options.out.empty() ? Status() : check_writable("--json", options.out);
}

Status bench(const BenchOptions& options) {
  SLUICE_TRY_STATUS(check(options));
  std::vector<Prompt> prompts;
  for (const auto& task : options.tasks) {
    SLUICE_TRY(auto more, read_prompts(options.data, task, options.limit));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  SLUICE_TRY(const Session session, Session::open(options));
  Bench bench(options, session, std::move(prompts));
  SLUICE_TRY_STATUS(bench.check_lengths());
  return bench.run();
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App& command =
      *app.add_subcommand("bench", "Compares methods on prompt files, and checks that they give the same tokens");
  command.footer(
      "Prompt files: DIR/TASK.jsonl, one object a line, with the user's messages of a conversation:\n"
      "  {\"id\": \"1\", \"turns\": [\"What is a prime number?\", \"Name three.\"]}\n"
      "Examples:\n"
      "  sluice bench --data prompts --tasks humaneval --methods ar,specpipe --stages 10 --executor virtual --profile "
      "paper-8x\n"
      "  sluice bench --data prompts --limit 5 --temps 0,1 --json out.json");
  command.add_option("--data", options->data, "Folder with the prompt files")->required();
  add_list_option(command, "--tasks", options->tasks, "Prompt files in it, without .jsonl").capture_default_str();
  add_list_option(command, "--methods", options->methods, "Methods to compare, ar first")
      .capture_default_str()
      ->check(one_of(method_names()));
  add_list_option(command, "--temps", options->temps, "Temperatures").capture_default_str()->check(temperature());
  command.add_option("--limit", options->limit, "Prompts a task")->capture_default_str()->check(whole_number(1));
  command.add_option("--turns", options->turns, "Turns of a conversation (default: all)")->check(whole_number(1));
  command.add_option("--json", options->out, "Write every run to this file");
  add_model_option(command, *options);
  add_engine_options(command, *options);
  add_generation_options(command, *options);
  for (const char* replaced : {"--method", "--temp"}) command.remove_option(command.get_option(replaced));
  command.callback([options, &action] { action = [options] { return bench(*options); }; });
}

}  // namespace sluice
