#include "cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "support/tiny_model.h"

extern char** environ;

namespace sluice::test {

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string numbered_path(const std::string& name) {
  static int number = 0;
  return temp_path(name + "-" + std::to_string(number++));
}

// The environment without a user's own default model and measured profile.
std::vector<std::string> clean_environment() {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    if (!variable.starts_with("SLUICE_MODEL=") && !variable.starts_with("XDG_CACHE_HOME="))
      variables.push_back(variable);
  }
  variables.push_back("XDG_CACHE_HOME=" + temp_path("cache"));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Program::Program(const Arguments& arguments, const Streams& streams) : err_path_(numbered_path("stderr")) {
  const std::string in_path = numbered_path("stdin");
  std::ofstream(in_path, std::ios::binary) << streams.input;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, in_path.c_str(), O_RDONLY, 0);
  if (streams.no_out) {
    posix_spawn_file_actions_addclose(&actions, 1);
  } else if (!streams.out.empty()) {
    posix_spawn_file_actions_addopen(&actions, 1, streams.out.c_str(), O_WRONLY | O_CREAT, 0600);
  } else {
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  }
  posix_spawn_file_actions_addopen(&actions, 2, err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const std::string program = streams.program.empty() ? program_path() : streams.program;
  std::vector<std::string> command = {program}, environment = clean_environment();
  command.insert(command.end(), arguments.begin(), arguments.end());
  const int error =
      posix_spawn(&pid_, program.c_str(), &actions, nullptr, pointers(command).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  out_ = ends[0];
  if (error != 0) throw std::runtime_error("cannot start " + program);
}

Program::~Program() {
  close_out();
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

// Milliseconds after which a program that says nothing counts as one that hangs; a sanitizer on a busy machine takes
// more than a minute over what is a few seconds' work.
constexpr int kSilence = 300'000;

bool Program::read_some(int timeout_ms) {
  pollfd poll_out{out_, POLLIN, 0};
  if (out_ < 0 || ::poll(&poll_out, 1, timeout_ms) <= 0) return false;
  char buffer[4096];
  const ssize_t n = ::read(out_, buffer, sizeof buffer);
  if (n > 0) text_.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

void Program::read_at_least(size_t n) {
  while (text_.size() < n && read_some(kSilence)) {
  }
}

std::string Program::read_line() {
  while (text_.find('\n') == text_.npos && read_some(kSilence)) {
  }
  return text_.substr(0, text_.find('\n'));
}

void Program::close_out() {
  if (out_ >= 0) ::close(out_);
  out_ = -1;
}

void Program::signal(int number) { ::kill(pid_, number); }

Ran Program::wait() {
  while (read_some(kSilence)) {
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  int state = 0;
  while (::waitpid(pid_, &state, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) ::kill(pid_, SIGKILL);
    ::usleep(500);
  }
  pid_ = -1;
  return {.status = WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state),
          .out = std::move(text_),
          .err = read_file(err_path_)};
}

Ran run_program(const Program::Arguments& arguments, const Streams& streams) {
  return Program(arguments, streams).wait();
}

const std::string& program_path() {
  static const std::string path = SLUICE_PROGRAM;
  return path;
}

const std::string& small_model() {
  static const std::string path = [] {
    TinyModelSpec spec;
    spec.context_length = 512;
    spec.chat_template =
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    return write_tiny_model(spec, temp_path("small.gguf"));
  }();
  return path;
}

testing::AssertionResult fails(const Ran& ran, int status, const std::vector<std::string>& words) {
  const auto wrong = [&](const std::string& what) {
    return testing::AssertionFailure() << what << "; status " << ran.status << ", stderr:\n" << ran.err;
  };
  if (ran.status != status) return wrong("the status is not " + std::to_string(status));
  if (!ran.err.starts_with("sluice: ")) return wrong("stderr doesn't begin with 'sluice: '");
  if (std::count(ran.err.begin(), ran.err.end(), '\n') != 1 || !ran.err.ends_with("\n"))
    return wrong("stderr is not one line");
  for (const auto& word : words)
    if (ran.err.find(word) == std::string::npos) return wrong("stderr doesn't say '" + word + "'");
  return testing::AssertionSuccess();
}

std::string write_file(const std::string& name, const std::string& text) {
  const std::string path = temp_path(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace sluice::test
