#include "cli/interrupt.h"

#include <csignal>

namespace sluice {

namespace {

volatile std::sig_atomic_t g_interrupted = 0;  // the one thing that a signal handler may touch

void on_interrupt(int signal) {
  if (g_interrupted) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_interrupted = 1;
}

}  // namespace

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a blocked read returns
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return g_interrupted != 0; }
tl::unexpected<Error> interrupted_error(const std::string& what) {
  return tl::unexpected<Error>(Error{ErrorKind::kInterrupted, "interrupted" + (what.empty() ? what : "; " + what)});
}
void clear_interrupt() { g_interrupted = 0; }

}  // namespace sluice
