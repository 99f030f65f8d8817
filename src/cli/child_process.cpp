#include "cli/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

extern char** environ;

namespace sluice {

namespace {

void close_one(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

// A group of its own, so that Ctrl-C is for this program alone; signals as a program expects them.
int spawn(pid_t& pid, const std::vector<std::string>& words, int input, int output) {
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_adddup2(&streams, input, STDIN_FILENO);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) posix_spawn_file_actions_adddup2(&streams, output, stream);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t as_usual;
  sigemptyset(&as_usual);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&as_usual, signal);
  posix_spawnattr_setsigdefault(&attributes, &as_usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid, words.front().c_str(), &streams, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&streams);
  return error;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& words) {
  SLUICE_CHECK(!words.empty(), "a program to start");
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  pid_t pid = -1;
  int error = ::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 ? errno : 0;
  if (error == 0) error = spawn(pid, words, in[0], out[1]);
  close_one(in[0]);
  close_one(out[1]);
  if (error == 0) return ChildProcess(pid, in[1], out[0]);
  close_one(in[1]);
  close_one(out[0]);
  return runtime_error(words.front() + " can't be started (" + std::strerror(error) + "): is it installed?");
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      text_(std::move(other.text_)) {}

ChildProcess::~ChildProcess() {
  close_one(input_);
  close_one(output_);
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  wait();
}

void ChildProcess::read_some() {
  char buffer[4096];
  const ssize_t n = ::read(output_, buffer, sizeof buffer);
  if (n > 0)
    text_.append(buffer, static_cast<size_t>(n));
  else if (n == 0 || errno != EINTR)
    close_one(output_);
}

std::optional<std::string> ChildProcess::next_line() {
  const size_t end = text_.find('\n');
  if (end == text_.npos && (output_ >= 0 || text_.empty())) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end == text_.npos ? end : end + 1);
  while (line.ends_with('\r')) line.pop_back();
  return line;
}

void ChildProcess::write(const std::string& text) { static_cast<void>(!::write(input_, text.data(), text.size())); }
void ChildProcess::end_input() { close_one(input_); }
void ChildProcess::terminate() {
  if (pid_ > 0) ::kill(pid_, SIGTERM);
}

int ChildProcess::wait() {
  int state = 0;
  while (::waitpid(pid_, &state, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

std::string quoted_for_shell(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace sluice
