// Compiled for the oldest processor of its kind, whatever the rest is compiled for.
#include "base/illegal_instruction.h"

#include <signal.h>
#include <unistd.h>

namespace sluice {

namespace {

void on_illegal_instruction(int signal, siginfo_t* info, void*) {
  if (info->si_code <= 0) {  // somebody has sent it
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  static const char line[] =
      "sluice: this processor lacks an instruction that the program was compiled for: run tools/setup, which compiles "
      "it for this one\n";
  static_cast<void>(!::write(STDERR_FILENO, line, sizeof line - 1));
  ::_exit(1);
}

[[gnu::constructor(101)]] void at_start() { report_illegal_instructions(); }

}  // namespace

void report_illegal_instructions() {
  struct sigaction action {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGILL, &action, nullptr);
}

}  // namespace sluice
