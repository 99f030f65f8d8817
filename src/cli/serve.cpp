#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "serve/demo_server.h"
#include "serve/server.h"
#include "session/auto_method.h"

namespace sluice {

namespace {

struct ServeCommand {
  SessionOptions session;
  ServerOptions server;
  std::string key_file;
  double drain = 20;  // seconds, as of sluice stage
  bool one_process = false;
  bool demo = false;
};

constexpr double kToBeTold = 1;  // seconds for clients to hear that the engine has failed

Result<std::string> read_key(const ServeCommand& options) {
  std::string key = options.server.api_key;
  if (!options.key_file.empty()) {
    if (!std::getline(std::ifstream(options.key_file), key))
      return input_error("--api-key-file " + options.key_file +
                         ": it can't be read, or is empty; its first line is the key");
    if (key.ends_with('\r')) key.pop_back();
  }
  const auto is_of_a_key = [](unsigned char c) { return std::isgraph(c) != 0; };
  if (!std::ranges::all_of(key, is_of_a_key) || (key.empty() && !options.key_file.empty()))
    return input_error(
        "the key of --api-key must be letters, digits and signs without spaces, as openssl rand -hex 32 makes them");
  return key;
}

// Until an interrupt comes and those who asked before are answered, or the engine has failed for good.
Status wait(Server& server, double drain) {
  while (!interrupted() && !server.failure()) wait_for_interrupt(/*at_most_ms=*/200);
  if (interrupted_by_terminate() && drain > 0 && server.at_work() > 0) {
    std::fprintf(stderr,
                 "sluice serve: no further requests; ends when those that it has are answered, at the latest in %g s "
                 "(a second signal: at once)\n",
                 drain);
    server.drain(drain);
  }
  const auto failure = server.failure();
  if (failure) server.drain(kToBeTold);
  return failure ? tl::unexpected<Error>(*failure) : Status();
}

Status serve(const CLI::App& command, ServeCommand options) {
  if (command.count("--max-tokens") > 0) options.server.max_tokens = options.session.request.max_tokens;
  if (command.count("--seed") > 0) options.server.seed = options.session.request.sampling.seed;
  SLUICE_TRY(options.server.api_key, read_key(options));
  SLUICE_TRY_STATUS(check_options(options.session));
  SLUICE_TRY_STATUS(check_settings(command, methods_of_run(options.session)));
  options.session.reads_answers = true;
  options.server.engine_apart = !options.one_process && !options.session.job;  // ranks are of this process
  options.server.restarted = [](const std::string& what) { std::fprintf(stderr, "sluice serve: %s\n", what.c_str()); };
  options.server.interrupted = interrupted;
  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGivenOrShipped));
  SLUICE_TRY(const auto server, Server::open(session, options.server));
  SLUICE_TRY_STATUS(print(
      fmt::format("sluice serve: {} at http://{}/v1, {} at a time with {} tokens each, by {}, for {}\n",
                  server->model(), server->address(),
                  fmt::format("{} request{}", options.server.concurrency, options.server.concurrency == 1 ? "" : "s"),
                  session.options().context, session.options().request.method,
                  options.server.api_key.empty() ? "this machine only" : "who has the key")));
  return wait(*server, options.drain);
}

// The page, which plays stored runs: no model is opened.
Status serve_demo(const ServeCommand& options) {
  HttpOptions http = options.server.http;
  http.beyond_loopback = true;  // there is nothing that a key could keep
  SLUICE_TRY(const auto server, open_demo_server(http));
  SLUICE_TRY_STATUS(
      print(fmt::format("sluice serve: a demonstration without a model at http://{}/\n", server->address())));
  while (!interrupted()) wait_for_interrupt(/*at_most_ms=*/200);
  return {};
}

void add_server_options(CLI::App& command, ServeCommand& options) {
  ServerOptions& server = options.server;
  command.add_option("--host", server.http.host, "Address to listen at; beyond this machine with a key")
      ->capture_default_str();
  command.add_option("--port", server.http.port, "Port; 0: one that is free")
      ->capture_default_str()
      ->check(whole_number(0, 65'535));
  command
      .add_option("--alias", server.names,
                  "Names of the model for clients, as in gpt-4,small; the first one stands in answers (default: the "
                  "name in its file)")
      ->delimiter(',')
      ->check(not_empty("a name"));
  CLI::Option* key = command.add_option("--api-key", server.api_key, "Key that clients must send")
                         ->envname("SLUICE_API_KEY")
                         ->check(not_empty("a key"));
  command
      .add_option("--api-key-file", options.key_file, "The same, the first line of a file: others can't read it in ps")
      ->check(not_empty("a file"))
      ->excludes(key);
  command
      .add_option("--concurrency", server.concurrency,
                  "Requests with a full context that are answered at a time; of shorter ones there may be more")
      ->capture_default_str()
      ->check(whole_number(1, 1024));
  command.add_flag("--demo", options.demo,
                   "No model: the page plays stored schedules of eight stages, plain pipelining beside speculation");
  begin_group(command, "Limits");
  command.add_option("--queue", server.queue, "Requests that may wait beside those")
      ->capture_default_str()
      ->check(whole_number(1, 1024));
  command
      .add_option("--longest-gap", options.session.longest_gap,
                  "Seconds from token to token that others' prompts may make of an answer's, as far as passes can be "
                  "foretold: prompts enter in such pieces (0: 256 rows at a time, over several stages 64)")
      ->capture_default_str()
      ->check(number(0, 3600));
  command.add_option("--connections", server.http.connections, "Connections at a time")
      ->capture_default_str()
      ->check(whole_number(1, 100'000));
  command
      .add_option("--idle-timeout", server.http.idle_seconds,
                  "Seconds that a client has to send a request, or the next one, and to take what it is sent")
      ->capture_default_str()
      ->check(number(0.1, 86'400));
  command
      .add_option("--drain", options.drain,
                  "Seconds at most that SIGTERM waits for answers that are being made (0: it breaks into them)")
      ->capture_default_str()
      ->check(number(0, 86'400));
  command.add_flag("--one-process", options.one_process,
                   "No process of its own for the engine, which is started again and goes on with all answers if it "
                   "ends");
  begin_group(command, kCommonGroup);
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto options = std::make_shared<ServeCommand>();
  CLI::App& command = *app.add_subcommand(
      "serve", "A server for clients of OpenAI's, Anthropic's and llama-server's APIs, until it is ended (SIGTERM)");
  command.footer(
      "It answers at /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages and /completion; docs/serve.md "
      "says what requests may ask for.\n"
      "Examples:\n"
      "  sluice serve\n"
      "  sluice serve -m model.gguf --draft small.gguf --concurrency 8\n"
      "  sluice serve -m model.gguf --host 0.0.0.0 --api-key-file key\n"
      "  sluice serve -m model.gguf --hosts hosts.toml\n"
      "  sluice serve --demo\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hello\"}]}'");
  add_model_option(command, options->session.model);
  add_server_options(command, *options);
  add_engine_options(command, options->session);
  add_generation_options(command, options->session);
  command.callback([options, &command, &action] {
    action = [options, &command]() -> Status {
      if (options->demo) return serve_demo(*options);
      return over_ranks(command, options->session, [&] { return serve(command, *options); });
    };
  });
}

}  // namespace sluice
