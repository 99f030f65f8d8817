#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/session.h"

namespace sluice {

namespace {

struct ChatOptions : CommonOptions {
  std::string system;
};

// Reads a line from the terminal; nothing at its end. An interrupt while waiting ends the chat.
std::optional<std::string> read_line(bool terminal) {
  if (terminal) std::fputs("\n> ", stderr);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

Status chat(const ChatOptions& options) {
  SLUICE_TRY(const Session session, Session::open(options));
  SLUICE_TRY(const auto engine, session.make_engine());
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal)
    std::fprintf(stderr, "%s. /reset starts anew, /exit or Ctrl-D ends, Ctrl-C stops an answer.\n",
                 session.model().hparams().name.c_str());
  std::vector<ChatMessage> opening;
  if (!options.system.empty()) opening.push_back({"system", options.system});
  std::vector<ChatMessage> messages = opening;
  std::optional<RequestId> previous;
  while (const auto line = read_line(terminal)) {
    if (*line == "/exit") break;
    if (*line == "/reset") {
      messages = opening;
      continue;
    }
    if (line->empty()) continue;
    messages.push_back({"user", *line});
    auto tokens = session.encode(messages);
    if (!tokens) {  // bad input in one line is no reason to lose the conversation
      std::fprintf(stderr, "sluice: %s\n", tokens.error().message.c_str());
      messages.pop_back();
      continue;
    }
    RequestSpec spec = session.spec(std::move(*tokens));
    spec.continues = previous;  // the turns before are not computed again
    auto done = answer(session, *engine, std::move(spec), options.method == "auto",
                       [](const std::string& text) { return print(text).has_value(); });
    if (!done) {
      if (done.error().kind != ErrorKind::kInput) return tl::unexpected<Error>(done.error());
      std::fprintf(stderr, "sluice: %s; /reset starts anew\n", done.error().message.c_str());
      messages.pop_back();
      continue;
    }
    SLUICE_TRY_STATUS(print("\n"));
    if (terminal) std::fprintf(stderr, "[%s]\n", summary(session, *engine, options, *done).c_str());
    messages.push_back({"assistant", done->text});
    previous = done->request;
    if (done->interrupted) {
      if (!terminal) return interrupted_error();
      clear_interrupt();
    }
  }
  if (terminal) std::fputs("\n", stderr);
  if (interrupted()) return interrupted_error();
  return {};
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App& command = *app.add_subcommand("chat", "A conversation in the terminal");
  command.footer(
      "Examples:\n"
      "  sluice chat\n"
      "  sluice chat -m model.gguf --system \"You are terse.\" --temp 0.7\n"
      "  printf 'Hello!\\nAnd again?\\n' | sluice chat");
  command.add_option("--system", options->system, "System message of the conversation");
  add_model_option(command, *options);
  add_engine_options(command, *options);
  add_generation_options(command, *options);
  command.callback([options, &action] { action = [options] { return chat(*options); }; });
}

}  // namespace sluice
