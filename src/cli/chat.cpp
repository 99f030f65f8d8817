#include <unistd.h>

#include <algorithm>
#include <cctype>
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

namespace sluice {

namespace {

struct ChatOptions {
  SessionOptions session;
  std::string system;
  bool stats = false, length_given = false;
};

constexpr const char* kCommands = "/reset starts anew, /exit or Ctrl-D ends, Ctrl-C stops an answer";

// A slash and a word: what other chats call theirs is no question to the model.
bool looks_like_a_command(const std::string& line) {
  const auto is_of_a_name = [](unsigned char c) { return std::isalpha(c) != 0 || c == '?'; };
  return line.size() > 1 && line.front() == '/' && std::all_of(line.begin() + 1, line.end(), is_of_a_name);
}

class Chat {
 public:
  Chat(const ChatOptions& options, const Session& session, Engine& engine)
      : session_(session), engine_(engine), stats_(options.stats), length_given_(options.length_given) {
    if (!options.system.empty()) opening_.push_back({"system", options.system});
    messages_ = opening_;
  }

  Status run() {
    if (terminal_) std::fprintf(stderr, "%s. %s.\n", session_.model().hparams().name.c_str(), kCommands);
    for (;;) {
      if (terminal_) std::fputs("\n> ", stderr);
      if (std::cin.rdbuf()->in_avail() <= 0 && !wait_for_stdin()) break;
      SLUICE_TRY(const auto line, read_line(std::cin));
      if (!line || interrupted() || *line == "/exit") break;
      if (*line == "/reset") {
        messages_ = opening_;
      } else if (looks_like_a_command(*line)) {
        std::fprintf(stderr, "sluice: %s is no command of the chat: %s\n", line->c_str(), kCommands);
      } else if (line->find_first_not_of(" \t") != line->npos) {
        SLUICE_TRY_STATUS(take_turn(*line));
      }
    }
    if (terminal_) std::fputs("\n", stderr);
    if (interrupted()) return interrupted_error();
    if (unanswered_ && !terminal_) return runtime_error("a line was not answered: see above");
    return {};
  }

 private:
  // A line that cannot be answered is no reason to lose the conversation.
  Status take_turn(const std::string& line) {
    messages_.push_back({"user", line});
    auto done = reply();
    if (!done) {
      messages_.pop_back();
      if (engine_.lacks_stages()) {  // a host may be back by the next line
        std::fprintf(stderr, "sluice: %s\n", done.error().message.c_str());
        previous_.reset();
        unanswered_ = true;
        return {};
      }
      if (done.error().kind != ErrorKind::kInput) return tl::unexpected<Error>(done.error());
      std::fprintf(stderr, "sluice: %s; /reset starts anew\n", done.error().message.c_str());
      return {};
    }
    SLUICE_TRY_STATUS(print("\n"));
    if (terminal_)
      std::fprintf(stderr, "[%s]\n", closing(*done).c_str());
    else if (const std::string why = cut_off(engine_, *done, length_given_); !why.empty())
      std::fprintf(stderr, "sluice: %s\n", why.c_str());
    messages_.push_back({"assistant", done->text});
    previous_ = done->request;
    if (!done->interrupted) return {};
    if (!terminal_) return interrupted_error();
    clear_interrupt();
    return {};
  }

  std::string closing(const Answer& done) const {
    std::string text = summary(session_, engine_, done);
    if (stats_) text += "\n" + details(session_, engine_, done);
    if (const std::string why = cut_off(engine_, done, length_given_); !why.empty()) text += "\n" + why;
    return text;
  }

  Result<Answer> reply() {
    SLUICE_TRY(auto tokens, session_.encode(messages_));
    RequestSpec spec = session_.spec(std::move(tokens));
    spec.continues = previous_;  // the turns before are not computed again
    return answer(
        session_, engine_, std::move(spec),
        {.emit = [](const std::string& text) { return print(text).has_value(); }, .interrupted = interrupted});
  }

  const Session& session_;
  Engine& engine_;
  const bool stats_, length_given_;
  const bool terminal_ = isatty(STDIN_FILENO) != 0;
  std::vector<ChatMessage> opening_, messages_;
  std::optional<RequestId> previous_;
  bool unanswered_ = false;
};

Status chat(const CLI::App& command, ChatOptions options) {
  options.length_given = command.count("--max-tokens") > 0;
  SLUICE_TRY_STATUS(check_options(options.session));
  SLUICE_TRY_STATUS(check_settings(command, methods_of_run(options.session)));
  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGivenOrShipped));
  if (!session.planned().empty()) std::fprintf(stderr, "by sluice plan: %s\n", session.planned().c_str());
  SLUICE_TRY(const auto engine, session.make_engine());
  return Chat(options, session, *engine).run();
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
  command.add_flag("--stats", options->stats, "Say more of each answer, in a terminal");
  add_model_option(command, options->session.model);
  add_engine_options(command, options->session);
  add_generation_options(command, options->session);
  command.callback([options, &command, &action] {
    action = [options, &command] {
      return over_ranks(command, options->session, [&] { return chat(command, *options); });
    };
  });
}

}  // namespace sluice
