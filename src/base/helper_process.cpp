#include "base/helper_process.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

namespace sluice {
namespace {

enum class Ending : uint8_t {
  kAnswer,
  kError,
  kTooLarge,
  kMemory,
  kTime,
  kDepth,
  kCrash,
  kStopped,
  kOverdue,
  kNoProcess
};

// What a worker leaves in memory that it shares with the helper, and the helper sends on, with the text behind it.
struct Report {
  Ending ending = Ending::kAnswer;
  ErrorKind kind = ErrorKind::kInput;  // of kError
  int32_t signal = 0;                  // of kCrash and kStopped
  uint64_t size = 0;                   // of the text
};

constexpr unsigned kWallSeconds = 120;  // a worker that waits for memory computes little
constexpr size_t kStackBytes = size_t{8} << 20;
constexpr int kChannel = 3;
constexpr int kDeepExit = 77;

std::string mebibytes(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

bool send_all(int channel, const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(channel, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int channel, void* data, size_t size) {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(channel, bytes, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

std::optional<std::string> receive_text(int channel, uint64_t size) {
  std::string text(size, '\0');
  if (!receive_all(channel, text.data(), text.size())) return std::nullopt;
  return text;
}

// --- the worker: lives for one question ---

uintptr_t g_stack_top = 0;

// A fault just below the stack is its overflow.
void on_fault(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (at < g_stack_top && g_stack_top - at < kStackBytes + (size_t{1} << 20)) ::_exit(kDeepExit);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void report_deep_recursion() {
  static char stack[1 << 16];
  const stack_t alternative{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  ::sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
}

void limit(int resource, rlim_t value) {
  struct rlimit old {};
  if (::getrlimit(resource, &old) == 0) value = std::min(value, old.rlim_max);
  const struct rlimit limit { value, value };
  ::setrlimit(resource, &limit);
}

void impose(const HelperProcess::Limits& limits) {
#ifndef __SANITIZE_ADDRESS__  // which maps far more memory than is used, and reads files where something is thrown
  size_t pages = 0;
  if (std::ifstream("/proc/self/statm") >> pages)
    limit(RLIMIT_AS, pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + limits.memory_bytes);
  ::tzset();  // reads a file
  limit(RLIMIT_NOFILE, 0);
#endif
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_STACK, kStackBytes);
  const auto seconds = static_cast<time_t>(limits.cpu_seconds);
  const struct itimerval time {
    {}, { seconds, static_cast<suseconds_t>((limits.cpu_seconds - static_cast<double>(seconds)) * 1e6) }
  };
  ::setitimer(ITIMER_PROF, &time, nullptr);
  ::alarm(kWallSeconds);
}

[[noreturn]] void work_once(const HelperProcess::Work& work, const HelperProcess::Limits& limits,
                            std::string_view question, Report& report, char* text) {
  const char here = 0;
  g_stack_top = reinterpret_cast<uintptr_t>(&here);
  const auto leave = [&](Ending ending, std::string_view said) {
    report.ending = ending;
    report.size = std::min(said.size(), limits.answer_bytes);
    std::memcpy(text, said.data(), report.size);
  };
  report_deep_recursion();
  impose(limits);
  try {
    const auto answer = work(question);
    if (!answer) report.kind = answer.error().kind;
    const std::string& said = answer ? *answer : answer.error().message;
    leave(!answer ? Ending::kError : said.size() > limits.answer_bytes ? Ending::kTooLarge : Ending::kAnswer, said);
  } catch (const std::bad_alloc&) {
    leave(Ending::kMemory, "");
  } catch (const std::length_error&) {  // of a container
    leave(Ending::kMemory, "");
  } catch (const std::exception& error) {
    leave(Ending::kError, error.what());
  }
  ::_exit(0);
}

// --- the helper: has nothing of the program's but what `work` holds ---

// Nothing reaches the user's terminal or files from here; signals that are meant for the program leave it alone.
void leave_program(int channel) {
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM}) std::signal(signal, SIG_IGN);
  for (const int signal : {SIGCHLD, SIGBUS, SIGSEGV, SIGABRT, SIGFPE, SIGALRM, SIGPROF}) std::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(channel, kChannel);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  if (::close_range(kChannel + 1, ~0U, 0) != 0)
    for (int file = kChannel + 1; file < 1024; ++file) ::close(file);
}

void judge(int status, Report& report) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  report.size = 0;
  report.ending = WIFEXITED(status) && WEXITSTATUS(status) == kDeepExit ? Ending::kDepth : Ending::kCrash;
  if (WIFSIGNALED(status)) report.signal = WTERMSIG(status);
  if (report.signal == SIGPROF || report.signal == SIGXCPU) report.ending = Ending::kTime;
  if (report.signal == SIGALRM) report.ending = Ending::kOverdue;
  if (report.signal == SIGKILL) report.ending = Ending::kStopped;  // by somebody else
}

[[noreturn]] void serve(const HelperProcess::Work& work, const HelperProcess::Limits& limits) {
  void* shared =
      ::mmap(nullptr, sizeof(Report) + limits.answer_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) ::_exit(1);
  auto& report = *new (shared) Report;
  char* text = static_cast<char*>(shared) + sizeof(Report);
  ::malloc_trim(0);  // once: each worker would join the freed pieces of its copy of the heap, and so copy its pages
  uint64_t size = 0;
  while (receive_all(kChannel, &size, sizeof size)) {
    const auto question = receive_text(kChannel, size);
    if (!question) break;
    report = {.ending = Ending::kCrash};
    const pid_t worker = ::fork();
    if (worker == 0) work_once(work, limits, *question, report, text);
    int status = 0;
    if (worker < 0) report.ending = Ending::kNoProcess;
    while (worker > 0 && ::waitpid(worker, &status, 0) < 0 && errno == EINTR) {
    }
    judge(status, report);
    if (!send_all(kChannel, &report, sizeof report) || !send_all(kChannel, text, report.size)) break;
  }
  ::_exit(0);
}

Result<std::string> answer_of(const Report& report, std::string text, const HelperProcess::Limits& limits) {
  switch (report.ending) {
    case Ending::kAnswer:
      return text;
    case Ending::kError:
      return tl::unexpected<Error>(Error{report.kind, std::move(text)});
    case Ending::kTooLarge:
      return input_error("its result has more than " + mebibytes(limits.answer_bytes));
    case Ending::kMemory:
      return input_error("it took more than " + mebibytes(limits.memory_bytes) + " of memory");
    case Ending::kTime: {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.2g", limits.cpu_seconds);
      return input_error("it took more than " + std::string(seconds) + " s of computing");
    }
    case Ending::kDepth:
      return input_error("it nests too deeply");
    case Ending::kCrash:
      return input_error("it crashed (" + std::string(report.signal > 0 ? ::strsignal(report.signal) : "exit") + ")");
    case Ending::kStopped:
      return runtime_error("its helper process was stopped (" + std::string(::strsignal(report.signal)) + ")");
    case Ending::kOverdue:
      return runtime_error("its helper process was given no time to compute for " + std::to_string(kWallSeconds) +
                           " s");
    case Ending::kNoProcess:
      break;
  }
  return runtime_error("the system allows no more processes");
}

}  // namespace

struct HelperProcess::State {
  Limits limits;
  pid_t helper;
  int channel;
  std::mutex one_at_a_time;

  ~State() {
    ::close(channel);
    while (::waitpid(helper, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
};

HelperProcess::HelperProcess(std::unique_ptr<State> state) : state_(std::move(state)) {}
HelperProcess::HelperProcess(HelperProcess&&) noexcept = default;
HelperProcess& HelperProcess::operator=(HelperProcess&&) noexcept = default;
HelperProcess::~HelperProcess() = default;

Result<HelperProcess> HelperProcess::start(Work work, const Limits& limits) {
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0)
    return runtime_error("no channel to a helper process: " + std::string(std::strerror(errno)));
  const pid_t helper = ::fork();
  if (helper == 0) {
    leave_program(channel[1]);
    serve(work, limits);
  }
  ::close(channel[1]);
  if (helper < 0) {
    ::close(channel[0]);
    return runtime_error("no helper process: " + std::string(std::strerror(errno)));
  }
  return HelperProcess(std::unique_ptr<State>(new State{.limits = limits, .helper = helper, .channel = channel[0]}));
}

Result<std::string> HelperProcess::ask(std::string_view question) const {
  const std::lock_guard lock(state_->one_at_a_time);
  const uint64_t size = question.size();
  Report report;
  if (send_all(state_->channel, &size, sizeof size) && send_all(state_->channel, question.data(), question.size()) &&
      receive_all(state_->channel, &report, sizeof report))
    if (auto text = receive_text(state_->channel, report.size))
      return answer_of(report, std::move(*text), state_->limits);
  return runtime_error("its helper process has ended");
}

}  // namespace sluice
