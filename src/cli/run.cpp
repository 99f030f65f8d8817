#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/report.h"
#include "session/auto_method.h"
#include "session/installation.h"

namespace sluice {

namespace {

struct RunOptions {
  SessionOptions session;
  std::string prompt = "Why is the sky blue? Answer in a few sentences.";
  std::string system;
  std::string trace;
  bool json = false, stats = false;
  bool prompt_given = false, length_given = false;
};

// The prompt itself, not where it comes from.
Result<std::string> read_prompt(const std::string& given, bool raw) {
  std::string text = given;
  if (given == "-") {
    SLUICE_TRY(text, read_all(std::cin));
    if (interrupted()) return interrupted_error();
    if (!raw && text.ends_with('\n')) text.pop_back();  // that ends the last line, as echo writes it
  }
  const bool empty = raw ? text.empty() : text.find_first_not_of(" \t\r\n") == std::string::npos;
  if (empty && given == "-") return input_error("the prompt is empty: nothing came from standard input");
  if (empty) return input_error("the prompt is empty: give a text, or leave the argument out for an example");
  return text;
}

// What is said of the answer, below it.
std::string closing(const RunOptions& options, const Session& session, const Engine& engine, const Answer& done) {
  std::string text = summary(session, engine, done);
  if (!options.trace.empty())
    text += "\ntimeline: " + options.trace;
  else if (engine.request(done.request).stats.drafted > 0)
    text.insert(std::min(text.find('\n'), text.size()), " Why: --trace t.html");
  if (options.stats) text += "\n" + details(session, engine, done);
  if (const std::string why = cut_off(engine, done, options.length_given); !why.empty()) text += "\n" + why;
  if (!options.prompt_given)
    text += "\nThe prompt was an example: \"" + options.prompt + "\" Yours goes in quotes; - reads standard input.";
  if (options.session.model.empty())
    text += std::string("\nThis was ") + kDefaultModel +
            ": a smoke test. Your own model: -m FILE.gguf, or by name -m hf:OWNER/MODEL";
  return text + "\n";
}

Status run(const CLI::App& command, RunOptions options) {
  options.prompt_given = command.count("prompt") > 0;
  options.length_given = command.count("--max-tokens") > 0;
  SLUICE_TRY_STATUS(check_options(options.session));
  if (!options.trace.empty()) SLUICE_TRY_STATUS(check_writable("--trace", options.trace));
  SLUICE_TRY_STATUS(check_settings(command, methods_of_run(options.session)));
  SLUICE_TRY(const std::string prompt, read_prompt(options.prompt, options.session.raw));
  options.session.trace = !options.trace.empty();
  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGivenOrShipped));
  if (!session.planned().empty()) std::fprintf(stderr, "by sluice plan: %s\n", session.planned().c_str());
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", prompt});
  SLUICE_TRY(auto tokens, session.encode(messages));
  SLUICE_TRY(const auto engine, session.make_engine());
  bool begun = false;
  const auto emit = [&](const std::string& text) {
    begun = !options.json;
    return options.json || print(text).has_value();
  };
  const auto answered =
      answer(session, *engine, session.spec(std::move(tokens)), {.emit = emit, .interrupted = interrupted});
  if (!answered) {
    if (begun) static_cast<void>(print("\n"));  // the error stands in a line of its own
    return tl::unexpected<Error>(answered.error());
  }
  const Answer& done = *answered;
  if (options.json) {
    SLUICE_TRY_STATUS(
        print(to_json(session, *engine, done).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  } else {
    SLUICE_TRY_STATUS(print("\n"));
  }
  SLUICE_TRY_STATUS(session.save_memo());
  SLUICE_TRY_STATUS(write_trace(session, *engine, done, options.trace));
  if (!options.json) std::fprintf(stderr, "\n%s", closing(options, session, *engine, done).c_str());
  if (done.interrupted) return interrupted_error();
  return pace_of(to_json(session, *engine, done)).check();
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& command = *app.add_subcommand("run", "Answers one prompt; text to stdout, statistics to stderr");
  command.footer(
      "Examples:\n"
      "  sluice run \"Why is the sky blue?\"\n"
      "  sluice run --stages 10 --executor virtual --profile paper-8x --trace timeline.html \"Count to ten.\"\n"
      "  sluice run -m model.gguf --method ar --temp 0.8 --seed 7 --json - < prompt.txt\n"
      "  sluice run -m model.gguf --hosts hosts.toml \"Over several machines: see docs/hosts.md.\"\n"
      "  mpirun -n 4 sluice run -m model.gguf \"Hello\"");
  command.add_option("prompt", options->prompt,
                     "The prompt, in quotes (default: an example); - reads it from standard input");
  command.add_option("--system", options->system, "System message before the prompt");
  add_model_option(command, options->session.model);
  add_engine_options(command, options->session);
  add_generation_options(command, options->session);
  command.add_flag("--stats", options->stats, "Say more of the answer on stderr");
  command.add_flag("--json", options->json, "One JSON object on stdout, nothing else there");
  command.add_option("--trace", options->trace,
                     "Write every event: Chrome trace format, or a timeline page if it ends in .html");
  command.callback([options, &command, &action] {
    action = [options, &command] {
      return over_ranks(command, options->session, [&] { return run(command, *options); });
    };
  });
}

}  // namespace sluice
