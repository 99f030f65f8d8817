#include "cli/terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace sluice::test {

bool Terminal::can_be_had() {
  int master = -1, slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) return false;
  ::close(master);
  ::close(slave);
  return true;
}

Terminal::Terminal(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {SLUICE_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& argument : command) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_ = ::forkpty(&master_, nullptr, nullptr, nullptr);
  if (pid_ < 0) throw std::runtime_error("no terminal");
  if (pid_ == 0) {
    ::execv(SLUICE_PROGRAM, pointers.data());
    ::_exit(127);
  }
}

Terminal::~Terminal() {
  ::close(master_);
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Terminal::type(const std::string& keys) {
  if (::write(master_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("the terminal takes no keys");
}

bool Terminal::read_some() {
  pollfd poll_master{master_, POLLIN, 0};
  if (::poll(&poll_master, 1, 60'000) <= 0) return false;
  char buffer[4096];
  const ssize_t n = ::read(master_, buffer, sizeof buffer);  // fails when nobody has the other end open any more
  if (n > 0) screen_.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

bool Terminal::shows(const std::string& text) {
  for (;;) {
    if (const size_t at = screen_.find(text, seen_); at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (!read_some()) return false;
  }
}

bool Terminal::shows_more() { return screen_.size() > seen_ || read_some(); }

int Terminal::wait() {
  while (read_some()) {
  }
  int state = 0;
  ::waitpid(pid_, &state, 0);
  pid_ = -1;
  return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

}  // namespace sluice::test
