#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace sluice {

namespace {

// What a signal handler may touch: a flag, and a pipe that wakes whoever waits for stdin. (An interrupted system call
// would not do: the signal may come just before the call, or to another thread.)
volatile std::sig_atomic_t g_interrupted = 0;
int g_wake[2] = {-1, -1};

void on_interrupt(int signal) {
  if (g_interrupted) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_interrupted = signal;
  const int kept = errno;
  static_cast<void>(!write(g_wake[1], "", 1));  // full is as good
  errno = kept;
}

}  // namespace

void watch_interrupts() {
  if (pipe2(g_wake, O_CLOEXEC | O_NONBLOCK) != 0) g_wake[0] = g_wake[1] = -1;  // poll() ignores such a number
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a blocked read returns
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return g_interrupted != 0; }
bool interrupted_by_terminate() { return g_interrupted == SIGTERM; }
tl::unexpected<Error> interrupted_error(const std::string& what) {
  return tl::unexpected<Error>(Error{ErrorKind::kInterrupted, "interrupted" + (what.empty() ? what : "; " + what)});
}

void clear_interrupt() {
  g_interrupted = 0;
  for (char c = 0; read(g_wake[0], &c, 1) == 1;) {
  }
}

int interrupt_descriptor() { return g_wake[0]; }

void wait_for_interrupt(int at_most_ms) {
  pollfd wake{g_wake[0], POLLIN, 0};
  while (!interrupted() && poll(&wake, 1, at_most_ms) < 0 && errno == EINTR) {
  }
}

bool wait_for_stdin() {
  pollfd waited[] = {{STDIN_FILENO, POLLIN, 0}, {g_wake[0], POLLIN, 0}};
  while (!interrupted() && poll(waited, 2, -1) < 0 && errno == EINTR) {
  }
  return !interrupted();
}

}  // namespace sluice
