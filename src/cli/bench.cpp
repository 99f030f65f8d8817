#include "cli/bench.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/energy.h"
#include "cli/answer.h"
#include "cli/bench_prompts.h"
#include "cli/bench_report.h"
#include "cli/bench_results.h"
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

class Bench {
 public:
  Bench(const BenchOptions& options, const Session& session, std::vector<BenchPrompt> prompts, BenchResults results)
      : options_(options), session_(session), prompts_(std::move(prompts)), results_(std::move(results)) {
    for (size_t begin = 0; begin < prompts_.size();) {
      const size_t end = end_of_group(begin);
      for (const float temp : options_.temps)  // the methods take turns, so that a drifting machine hits them alike
        for (const auto& method : options_.methods) {
          Group& group = groups_.emplace_back();
          for (size_t i = begin; i < end; ++i) group.push_back({&prompts_[i], method, temp});
        }
      begin = end;
    }
    if (!options.simulated()) energy_ = EnergyCounter::open();
  }

  // Whether each method has what it needs, each prompt fits, and what was done before was done with them: before hours
  // are spent.
  Status check_points() const {
    size_t most = 1;
    for (const Group& group : groups_) most = std::max(most, group.size());
    SLUICE_TRY_STATUS(session_.check_room(static_cast<int32_t>(most)));
    SLUICE_TRY(const auto engine, session_.make_engine());
    for (const Point& point : points()) {
      const BenchPrompt& prompt = *point.prompt;
      const auto first = spec(point, {{"user", prompt.turns.front()}});
      if (!first) return tl::unexpected<Error>(in(prompt, first.error()));
      const Status fits = engine->check_request(*first);
      if (!fits) return tl::unexpected<Error>(in(prompt, fits.error()));
      const auto* before = results_.find(key(point));
      if (before != nullptr && before->turns.front()["prompt"] != json(first->prompt))
        return input_error(name(prompt) + ": --json " + options_.out +
                           " holds an answer to another text; name another file, or begin anew with --overwrite");
    }
    return {};
  }

  // What was done is printed and written also when the rest could not be.
  Status run() {
    const Status done = run_all(), kept = session_.save_memo();
    const BenchReport report = this->report();
    if (report.conversations() > 0) {
      SLUICE_TRY_STATUS(print(heading(report) + report.table(options_)));
      SLUICE_TRY_STATUS(write(report, /*last=*/true));
    }
    return done ? kept : done;
  }

 private:
  struct Point {
    const BenchPrompt* prompt;
    std::string method;
    float temp;
  };
  using Group = std::vector<Point>;  // of one task, method and temperature, at the same time

  size_t end_of_group(size_t begin) const {
    size_t end = begin;
    while (end < prompts_.size() && end < begin + static_cast<size_t>(options_.concurrency) &&
           prompts_[end].task == prompts_[begin].task)
      ++end;
    return end;
  }

  std::vector<Point> points() const {
    std::vector<Point> points;
    for (const Group& group : groups_) points.insert(points.end(), group.begin(), group.end());
    return points;
  }

  static std::string name(const BenchPrompt& prompt) { return prompt.task + " " + prompt.id; }
  // The error of a prompt, with its name.
  static Error in(const BenchPrompt& prompt, const Error& error) {
    return {error.kind, name(prompt) + ": " + error.message};
  }
  static BenchKey key(const Point& point) { return {point.prompt->task, point.prompt->id, point.method, point.temp}; }

  size_t turns_of(const BenchPrompt& prompt) const {
    return options_.turns > 0 ? std::min(prompt.turns.size(), static_cast<size_t>(options_.turns))
                              : prompt.turns.size();
  }

  const BenchResults::Conversation* find_done(const Point& point) const {
    const auto* done = results_.find(key(point));
    return done != nullptr && done->turns.size() >= turns_of(*point.prompt) ? done : nullptr;
  }

  BenchReport report() const {
    BenchReport report(session_.cuts().size());
    for (const Point& point : points())
      if (const auto* done = find_done(point)) report.add(*done, options_.turns);
    return report;
  }

  Status run_all() {
    const size_t n = points().size();
    size_t done = report().conversations();
    const auto share = [&] { return static_cast<double>(done) / static_cast<double>(n); };
    ProgressBar bar("bench", share());
    for (const Group& group : groups_) {
      const auto n_done = std::count_if(group.begin(), group.end(), [&](const Point& p) { return find_done(p); });
      if (static_cast<size_t>(n_done) == group.size()) continue;  // what is half done is done again, as together
      const Status status = run_group(group);
      if (!status || interrupted()) bar.finish();
      if (!status) return status;
      if (interrupted())
        return interrupted_error(fmt::format("{} of {} conversations were done{}", done, n,
                                             options_.out.empty() ? "" : "; the same command goes on from there"));
      done += group.size() - static_cast<size_t>(n_done);
      bar.show(share(), name(*group.back().prompt) + " " + group.back().method);
    }
    bar.finish();
    return {};
  }

  Status run_group(const Group& group) {
    SLUICE_TRY(auto conversations, converse(group));
    if (interrupted()) return {};  // part of a conversation can't be compared
    for (size_t i = 0; i < group.size(); ++i) results_.put({key(group[i]), std::move(conversations[i])});
    SLUICE_TRY_STATUS(keep_memo());
    return options_.out.empty() ? Status() : write(report(), /*last=*/false);
  }

  // A memo may have grown to hundreds of megabytes: it is written now and then, and by whoever ends the run.
  Status keep_memo() {
    constexpr std::chrono::seconds kNowAndThen{30};
    const auto now = std::chrono::steady_clock::now();
    if (now - memo_kept_ < kNowAndThen) return {};
    memo_kept_ = now;
    return session_.save_memo();
  }

  Result<RequestSpec> spec(const Point& point, const std::vector<ChatMessage>& messages) const {
    SLUICE_TRY(auto tokens, session_.encode(messages));
    RequestSpec spec = session_.spec(std::move(tokens));
    spec.method = point.method;
    spec.sampling.temperature = point.temp;
    return spec;
  }

  Result<RequestId> submit(Engine& engine, const Point& point, const std::vector<ChatMessage>& messages,
                           std::optional<RequestId> previous) const {
    SLUICE_TRY(auto spec, this->spec(point, messages));
    spec.continues = previous;
    return engine.submit(std::move(spec));
  }

  // All turns of each prompt, or those before an interrupt.
  Result<std::vector<std::vector<json>>> converse(const Group& group) {
    SLUICE_TRY(const auto engine, session_.make_engine(static_cast<int32_t>(group.size())));
    std::vector<std::vector<ChatMessage>> messages(group.size());
    std::vector<std::optional<RequestId>> previous(group.size());
    std::vector<std::vector<json>> turns(group.size());
    for (size_t turn = 0; !interrupted(); ++turn) {
      std::vector<size_t> speaking;
      for (size_t i = 0; i < group.size(); ++i)
        if (turn < turns_of(*group[i].prompt)) speaking.push_back(i);
      if (speaking.empty()) break;
      std::vector<RequestId> requests;
      for (const size_t i : speaking) {
        messages[i].push_back({"user", group[i].prompt->turns[turn]});
        const auto request = submit(*engine, group[i], messages[i], previous[i]);
        if (!request) return tl::unexpected<Error>(in(*group[i].prompt, request.error()));
        requests.push_back(*request);
      }
      if (energy_) energy_->take();
      SLUICE_TRY(const auto answers, finish_all(session_, *engine, requests));
      const auto joules = energy_ ? energy_->take() : std::nullopt;
      size_t n_tokens = 0;
      for (const Answer& answer : answers) n_tokens += engine->request(answer.request).n_answer();
      for (size_t k = 0; k < speaking.size(); ++k) {
        const Point& point = group[speaking[k]];
        const Answer& done = answers[k];
        json run = to_json(session_, *engine, options_, done);
        run["id"] = point.prompt->id;
        run["task"] = point.prompt->task;
        run["temp"] = point.temp;
        run["turn"] = turn;
        if (joules) run["joules"] = *joules * static_cast<double>(run["tokens"].size()) / static_cast<double>(n_tokens);
        run["prompt"] = engine->request(done.request).spec.prompt;
        turns[speaking[k]].push_back(std::move(run));
        messages[speaking[k]].push_back({"assistant", done.text});
        previous[speaking[k]] = done.request;
      }
    }
    return turns;
  }

  std::string heading(const BenchReport& report) const {
    const size_t stages = session_.cuts().size();
    std::string out = fmt::format(
        "{}, {} stage{}, executor {}{}, compute {}, width {}, at most {} prompts a task and {} new tokens an answer\n",
        session_.model().hparams().name, stages, stages == 1 ? "" : "s", options_.executor,
        session_.profile_name().empty()
            ? ""
            : (options_.simulated() ? " (simulated time), profile " : " (paced), profile ") + session_.profile_name(),
        options_.compute, options_.width, options_.limit, options_.max_tokens);
    if (options_.lossy != "none")
      out += "LOSSY verification (" + options_.lossy +
             "): the text is not the target's own; figures of lossless methods are not comparable\n";
    if (options_.concurrency > 1)
      out += fmt::format("{} conversations of a task at a time; tok/s and nN/K are one's\n", options_.concurrency);
    const size_t n = points().size();
    if (report.conversations() < n)
      out += fmt::format("incomplete: {} of {} conversations were done\n", report.conversations(), n);
    return out;
  }

  Status write(const BenchReport& report, bool last) const {
    return results_.write({{"data", options_.data},
                           {"tasks", options_.tasks},
                           {"methods", options_.methods},
                           {"temps", options_.temps},
                           {"limit", options_.limit},
                           {"turns", options_.turns}},
                          {{"summary", report.summary()},
                           {"complete", report.conversations() == points().size()},
                           {"identical", options_.same_tokens() ? json(report.difference().empty()) : json()}},
                          last);
  }

  const BenchOptions& options_;
  const Session& session_;
  std::vector<BenchPrompt> prompts_;
  BenchResults results_;
  std::vector<Group> groups_;  // what is asked for; points into prompts_
  std::optional<EnergyCounter> energy_;
  std::chrono::steady_clock::time_point memo_kept_ = std::chrono::steady_clock::now();
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

// Where no head is given, the first method that needs one gets its own if that comes with the program.
Result<Session> open_session(const BenchOptions& options) {
  CommonOptions common = options;
  for (const auto& name : options.methods) {
    SLUICE_TRY(const auto method, make_method(name, {}));
    if (!method->head()) continue;
    common.method = name;
    return Session::open(common, Heads::kGivenOrShipped);
  }
  return Session::open(common);
}

Status bench(const BenchOptions& options) {
  SLUICE_TRY_STATUS(check(options));
  std::vector<BenchPrompt> prompts;
  for (const auto& task : options.tasks) {
    SLUICE_TRY(auto more, read_prompts(options.data, task, options.limit));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  SLUICE_TRY(const Session session, open_session(options));
  SLUICE_TRY(auto results, BenchResults::open(options.out, bench_settings(options, session), options.overwrite));
  Bench bench(options, session, std::move(prompts), std::move(results));
  SLUICE_TRY_STATUS(bench.check_points());
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
      "What the file of --json holds of the same settings is not run again: an interrupted bench goes on where it was, "
      "and more tasks, prompts, methods and temperatures may be added.\n"
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
  command.add_option("--concurrency", options->concurrency, "Conversations of a task at a time")
      ->capture_default_str()
      ->check(whole_number(1, 256));
  command.add_option("--json", options->out, "Write every run to this file, and go on from what it holds");
  command.add_flag("--overwrite", options->overwrite, "Begin the file of --json anew");
  add_model_option(command, *options);
  add_engine_options(command, *options);
  add_generation_options(command, *options);
  for (const char* replaced : {"--method", "--temp"}) command.remove_option(command.get_option(replaced));
  command.callback([options, &action] { action = [options] { return bench(*options); }; });
}

}  // namespace sluice
