#include "cli/bench.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <limits>
#include <tuple>

#include "base/energy.h"
#include "cli/bench_load.h"
#include "cli/bench_prompts.h"
#include "cli/bench_report.h"
#include "cli/bench_results.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/report.h"
#include "method/methods.h"
#include "session/auto_method.h"
#include "session/installation.h"
#include "session/session.h"

namespace sluice {

namespace {

using nlohmann::json;

class Bench {
 public:
  Bench(const BenchOptions& options, const Session& session, std::vector<BenchPrompt> prompts, BenchResults results)
      : options_(options), session_(session), prompts_(std::move(prompts)), results_(std::move(results)) {
    for (const std::string& task : options.tasks)
      for (const int32_t concurrency : options.concurrency) add_groups(task, concurrency);
    if (!options.session.simulated()) energy_ = EnergyCounter::open();
  }

  // Whether each method has what it needs, each prompt fits, and what was done before was done with them: before hours
  // are spent.
  Status check_points() const {
    int32_t most = 1;
    for (const Group& group : groups_) most = std::max(most, room_for(group));
    SLUICE_TRY_STATUS(session_.check_room(most));
    for (const std::string& method : options_.methods) SLUICE_TRY_STATUS(check_points_of(method));
    return {};
  }

  // What was done is printed and written also when the rest could not be.
  Status run() {
    const Status done = run_all(), kept = session_.save_memo();
    const BenchReport report = this->report();
    if (report.conversations() > 0) {
      SLUICE_TRY_STATUS(print(heading(report) + report.table()));
      SLUICE_TRY_STATUS(write(report, /*last=*/true));
    }
    if (!done || !kept) return done ? kept : done;
    return report.pace().check();
  }

 private:
  // One engine at a time: each has its own head, and stages that hold their part of the weights.
  Status check_points_of(const std::string& method) const {
    SLUICE_TRY(const auto engine, session_.make_engine(method, 1));
    for (const BenchPoint& point : points()) {
      if (point.method != method) continue;
      const auto first = bench_spec(session_, point, {{"user", point.prompt->turns.front()}});
      if (!first) return tl::unexpected<Error>(point.in(first.error()));
      const Status fits = engine->check_request(*first);
      if (!fits) return tl::unexpected<Error>(point.in(fits.error()));
      const auto* before = results_.find(point.key());
      if (before != nullptr && before->turns.front()["prompt"] != json(first->prompt))
        return input_error(point.name() + ": --json " + options_.out +
                           " holds an answer to another text; name another file, or begin anew with --overwrite");
    }
    return {};
  }

  using Group = std::vector<BenchPoint>;  // of one method, temperature and concurrency: those that share an engine

  // Without concurrency every conversation is a group, else all of a task are. The methods take turns, so that a
  // drifting machine hits them alike.
  void add_groups(const std::string& task, int32_t concurrency) {
    std::vector<std::vector<BenchPoint>> parts(1);
    for (const BenchPrompt& prompt : prompts_) {
      if (prompt.task != task) continue;
      if (!options_.together(concurrency) && !parts.back().empty()) parts.emplace_back();
      parts.back().push_back({.prompt = &prompt, .method = {}, .concurrency = concurrency, .arrival = {}});
    }
    for (auto& part : parts) {
      add_arrivals(part);
      for (const float temp : options_.temps)
        for (const auto& method : options_.methods) {
          for (BenchPoint& point : part) {
            point.method = method;
            point.temp = temp;
          }
          groups_.push_back(part);
        }
    }
  }

  void add_arrivals(Group& group) const {
    if (options_.arrivals > 0) {
      const auto times = arrival_times(group.size(), options_.arrivals, options_.arrivals_seed);
      for (size_t i = 0; i < group.size(); ++i) group[i].arrival = times[i];
    }
    int n = 0;
    for (const BenchPrompt& prompt : prompts_)
      if (prompt.task == options_.also)
        group.push_back({.prompt = &prompt,
                         .method = {},
                         .concurrency = group.front().concurrency,
                         .arrival = options_.also_seconds * ++n});
  }

  std::vector<BenchPoint> points() const {
    std::vector<BenchPoint> points;
    for (const Group& group : groups_) points.insert(points.end(), group.begin(), group.end());
    return points;
  }

  const BenchResults::Conversation* find_done(const BenchPoint& point) const {
    const auto* done = results_.find(point.key());
    return done != nullptr && done->turns.size() >= turns_asked(options_, *point.prompt) ? done : nullptr;
  }

  BenchReport report() const {
    BenchReport report(options_, session_.cuts().size());
    for (const BenchPoint& point : points())
      if (const auto* done = find_done(point)) report.add(*done);
    return report;
  }

  Status run_all() {
    const size_t n = points().size();
    size_t done = report().conversations();
    const auto share = [&] { return static_cast<double>(done) / static_cast<double>(n); };
    ProgressBar bar("bench", share());
    for (const Group& group : groups_) {
      const auto n_done = std::count_if(group.begin(), group.end(), [&](const BenchPoint& p) { return find_done(p); });
      if (static_cast<size_t>(n_done) == group.size()) continue;  // what is half done is done again, as together
      const Status status = run_group(group);
      if (!status || interrupted()) bar.finish();
      if (!status) return status;
      if (interrupted())
        return interrupted_error(fmt::format("{} of {} conversations were done{}", done, n,
                                             options_.out.empty() ? "" : "; the same command goes on from there"));
      done += group.size() - static_cast<size_t>(n_done);
      bar.show(share(), group.back().name() + " " + group.back().method);
    }
    bar.finish();
    return {};
  }

  // Requests that may be there at a time.
  int32_t room_for(const Group& group) const {
    const auto n_also = std::count_if(group.begin(), group.end(), [](const auto& p) { return p.arrival.has_value(); });
    return group.front().concurrency + (options_.arrivals > 0 ? 0 : static_cast<int32_t>(n_also));
  }

  Status run_group(const Group& group) {
    const int32_t concurrency = group.front().concurrency;
    SLUICE_TRY(const auto engine, session_.make_engine(group.front().method, room_for(group)));
    SLUICE_TRY(auto conversations,
               hold_conversations(options_, session_, *engine, group, concurrency, energy_ ? &*energy_ : nullptr));
    if (interrupted()) return {};  // part of a conversation can't be compared
    for (size_t i = 0; i < group.size(); ++i) results_.put({group[i].key(), std::move(conversations[i])});
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

  std::string heading(const BenchReport& report) const {
    const SessionOptions& session = options_.session;
    const size_t stages = session_.cuts().size();
    std::string out = fmt::format(
        "{}, {} stage{}, executor {}{}, compute {}, width {}, at most {} prompt{} a task and {} new tokens an answer\n",
        session_.model().hparams().name, stages, stages == 1 ? "" : "s",
        name_of(kExecutors, session_.options().executor),
        session_.profile_name().empty()
            ? ""
            : (session.simulated() ? " (simulated time), profile " : " (paced), profile ") + session_.profile_name(),
        name_of(kComputes, session.compute), session.request.method_options.width, options_.limit,
        options_.limit == 1 ? "" : "s", session.request.max_tokens);
    if (const Rule rule = session.request.sampling.rule; is_lossy(rule))
      out += std::string("LOSSY verification (") + name_of(kLossyRules, rule) +
             "): the text is not the target's own; figures of lossless methods are not comparable\n";
    if (!session.exact())
      out += std::string(kInexact) + ": states are rounded between stages, so the text is not the target's own\n";
    out += links_line() + heads_line() + load_line();
    const size_t n = points().size();
    if (report.conversations() < n)
      out += fmt::format("incomplete: {} of {} conversations were done\n", report.conversations(), n);
    return out;
  }

  std::string links_line() const {
    const std::string links = emulated_links(session_);
    return links.empty() ? "" : "links emulated: " + links + "\n";
  }

  // Which heads serve, and the stages that SPD's brings for all.
  std::string heads_line() const {
    std::string out;
    bool has_spd = false;
    for (const std::string& method : options_.methods) {
      const HeadFile* head = session_.head_for(method);
      if (head == nullptr) continue;
      out += fmt::format("{}{} {}", out.empty() ? "heads: " : ", ", method,
                         std::filesystem::path(head->path()).filename().string());
      has_spd |= head->parameters().kind == HeadKind::kSpd;
    }
    if (has_spd) {
      std::vector<int32_t> firsts;
      for (const LayerRange& cut : session_.cuts()) firsts.push_back(cut.first);
      out += fmt::format("; all with the stages of SPD's head, from layers {}", fmt::join(firsts, ", "));
    }
    return out.empty() ? out : out + "\n";
  }

  // How the conversations of a task come; empty if one after the other, each alone.
  std::string load_line() const {
    const auto& several = options_.concurrency;
    if (!options_.together(*std::max_element(several.begin(), several.end()))) return {};
    std::string out =
        options_.arrivals > 0
            ? fmt::format("{:g} conversations a second come by chance (seed {}), with room for {} contexts",
                          options_.arrivals, options_.arrivals_seed, fmt::join(several, ", "))
            : fmt::format("conversations of a task in flight: {}", fmt::join(several, ", "));
    if (!options_.also.empty())
      out += fmt::format(", and one of {} every {:g} s", options_.also, options_.also_seconds);
    return out + "; tok/s and nN/K are one's\n";
  }

  // Whether all methods gave the same tokens: the target's own, or those of its states as they were rounded.
  json agreement(const BenchReport& report, bool exact) const {
    const SessionOptions& session = options_.session;
    return session.same_tokens() && (session.exact() || !exact) ? json(report.difference().empty()) : json();
  }

  Status write(const BenchReport& report, bool last) const {
    const auto forks = options_.session.same_tokens() ? report.forks_per_1000() : std::nullopt;
    return results_.write({{"data", options_.data},
                           {"tasks", options_.tasks},
                           {"methods", options_.methods},
                           {"temps", options_.temps},
                           {"concurrency", options_.concurrency},
                           {"limit", options_.limit},
                           {"turns", options_.turns}},
                          {{"summary", report.summary()},
                           {"complete", report.conversations() == points().size()},
                           {"identical", agreement(report, /*exact=*/true)},
                           {"methods_agree", agreement(report, /*exact=*/false)},
                           {"forks_per_1000", forks ? json(*forks) : json()}},
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

// TASK:SECONDS; nothing if it is something else.
std::optional<std::pair<std::string, double>> parse_also(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + colon + 1, end, seconds);
  if (error != std::errc() || at != end || !(seconds > 0) || seconds > 1e6) return std::nullopt;
  return std::pair(text.substr(0, colon), seconds);
}

CLI::Validator also_task() {
  return {[](const std::string& text) {
            return parse_also(text) ? "" : "'" + text + "' is not a task and seconds, as in long:5";
          },
          ""};
}

// What can be known to be wrong before the first token.
Status check(const BenchOptions& options) {
  SLUICE_TRY_STATUS(check_options(options.session));
  const auto twice = [](const auto& values) { return std::set(values.begin(), values.end()).size() < values.size(); };
  if (twice(options.methods)) return input_error("--methods names a method twice");
  if (twice(options.tasks)) return input_error("--tasks names a task twice");
  if (twice(options.temps)) return input_error("--temps names a temperature twice");
  if (twice(options.concurrency)) return input_error("--concurrency names a number twice");
  if (!options.also.empty() && options.tasks != std::vector{options.tasks.front()})
    return input_error("--also goes beside one task: name it alone with --tasks");
  if (options.also == options.tasks.front()) return input_error("--also names the task of --tasks itself");
  return options.out.empty() ? Status() : check_writable("--json", options.out);
}

// `auto` may come to several.
std::vector<std::string> methods_that_may_run(const BenchOptions& options) {
  std::vector<std::string> methods;
  for (const std::string& asked : options.methods) {
    SessionOptions session = options.session;
    session.request.method = asked;
    for (std::string& method : methods_of_run(session)) methods.push_back(std::move(method));
  }
  return methods;
}

Status bench(const CLI::App& command, const BenchOptions& options) {
  SLUICE_TRY_STATUS(check(options));
  SLUICE_TRY_STATUS(check_settings(command, methods_that_may_run(options)));
  std::vector<BenchPrompt> prompts;
  for (const auto& task : options.tasks) {
    SLUICE_TRY(auto more, read_prompts(options.data, task, options.limit));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  if (!options.also.empty()) {
    SLUICE_TRY(auto more, read_prompts(options.data, options.also, std::numeric_limits<int32_t>::max()));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGivenOrShipped, options.methods));
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
      "Columns: x ar, how many times as fast as ar; nN/K, tokens that come out while one passes all stages (plain "
      "pipelining: 1); flushes, tokens that no guess had, after which the pipeline fills again.\n"
      "Prompt files: DIR/TASK.jsonl, one object a line, with the user's messages of a conversation:\n"
      "  {\"id\": \"1\", \"turns\": [\"What is a prime number?\", \"Name three.\"]}\n"
      "What the file of --json holds of the same settings is not run again: an interrupted bench goes on where it was, "
      "and more tasks, prompts, methods, temperatures and concurrencies may be added.\n"
      "Methods that need a head take the one of --head of their kind, or one that comes with the program; specpipe and "
      "surge guess by n-grams unless a draft model is given. With SPD's head all run with the stages that it was "
      "trained for.\n"
      "Examples:\n"
      "  sluice bench --methods ar,spd,eagle3,p-eagle,ppsd,specpipe,surge --limit 3\n"
      "  sluice bench --tasks code --stages 10 --executor virtual --profile paper-8x --compute lazy\n"
      "  sluice bench --data my-prompts --tasks mine --limit 5 --temps 0,1 --json out.json\n"
      "  sluice bench --tasks math --concurrency 1,4,10 --executor virtual --profile paper-8x --stages 8\n"
      "  sluice bench --tasks math --arrivals 0.5 --also chat:10");
  std::vector<std::string> methods = method_names();
  methods.emplace_back(kAutoMethod);
  options->data = installation_folder() + "/prompts";
  command.add_option("--data", options->data,
                     "Folder with the prompt files (default: code, math and chat, which come with the program)");
  add_list_option(command, "--tasks", options->tasks, "Prompt files in it, without .jsonl").capture_default_str();
  add_list_option(command, "--methods", options->methods, "Methods to compare, ar first; auto: as sluice run chooses")
      .capture_default_str()
      ->check(one_of(methods));
  add_list_option(command, "--temps", options->temps, "Temperatures").capture_default_str()->check(temperature());
  add_value(command, "--limit", options->limit, whole_number(1), "Prompts a task");
  command.add_option("--json", options->out, "Write every run to this file, and go on from what it holds");
  command.add_flag("--overwrite", options->overwrite, "Begin the file of --json anew");
  begin_group(command, "Conversations and load");
  add_checked(command, "--turns", options->turns, whole_number(1), "Turns of a conversation (default: all)");
  CLI::Option* concurrency =
      add_list_option(command, "--concurrency", options->concurrency,
                      "Conversations of a task in flight, the next begins when one ends; a list gives a row of the "
                      "table each. With --arrivals: contexts that there is room for (default then: 16)")
          .capture_default_str();
  concurrency->check(whole_number(1, 256));
  add_checked(command, "--arrivals", options->arrivals, number(0, 1e6, /*above=*/true),
              "Conversations that come in a second, by chance, whatever goes on: exponential times between them");
  add_value(command, "--arrivals-seed", options->arrivals_seed, seed_number(), "Seed of these times");
  command
      .add_option_function<std::string>(
          "--also",
          [options](const std::string& text) { std::tie(options->also, options->also_seconds) = *parse_also(text); },
          "TASK:SECONDS: beside these, a prompt of DIR/TASK.jsonl comes every so many seconds, until each has come "
          "once")
      ->check(also_task());
  begin_group(command, kCommonGroup);
  add_model_option(command, options->session.model);
  add_engine_options(command, options->session);
  add_generation_options(command, options->session);
  for (const char* replaced : {"--method", "--temp"}) command.remove_option(command.get_option(replaced));
  command.callback([options, concurrency, &command, &action] {
    if (options->arrivals > 0 && concurrency->count() == 0) options->concurrency = {16};
    action = [options, &command] {
      return over_ranks(command, options->session, [&] { return bench(command, *options); });
    };
  });
}

}  // namespace sluice
