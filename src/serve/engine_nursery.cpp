#include "serve/engine_nursery.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "serve/policy.h"

namespace sluice {

namespace {

struct Birth {
  pid_t pid = -1;       // -1: there is none
  bool before = false;  // there was one before, which has ended so:
  int status = 0;
};

tl::unexpected<Error> system_error(const std::string& what) {
  return runtime_error("the server can't have an engine of its own process: " + what + ": " + std::strerror(errno));
}

// One byte with a socket beside it.
struct Parcel {
  Parcel() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
  }
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

bool send_socket(int control, int socket) {
  Parcel parcel;
  cmsghdr* const head = CMSG_FIRSTHDR(&parcel.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &socket, sizeof socket);
  return ::sendmsg(control, &parcel.message, MSG_NOSIGNAL) == 1;
}

// -1: the other side has gone.
int receive_socket(int control) {
  Parcel parcel;
  ssize_t got = 0;
  do got = ::recvmsg(control, &parcel.message, 0);
  while (got < 0 && errno == EINTR);
  const cmsghdr* const head = got == 1 ? CMSG_FIRSTHDR(&parcel.message) : nullptr;
  if (head == nullptr) return -1;
  int socket = -1;
  std::memcpy(&socket, CMSG_DATA(head), sizeof socket);
  return socket;
}

bool receive_birth(int control, Birth& birth) {
  ssize_t got = 0;
  do got = ::recv(control, &birth, sizeof birth, MSG_WAITALL);
  while (got < 0 && errno == EINTR);
  return got == sizeof birth;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

void wait_at_most(pid_t pid, std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kStep(5);
  for (; time.count() > 0; time -= kStep) {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(kStep);
  }
  ::kill(pid, SIGKILL);
  wait_for(pid);
}

// Of the nursery's process.
[[noreturn]] void nurse(const EngineNursery::Life& life, int control) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  pid_t last = -1;
  for (int socket; (socket = receive_socket(control)) >= 0; ::close(socket)) {
    Birth birth{.before = last > 0};
    if (birth.before) {
      ::kill(last, SIGKILL);
      birth.status = wait_for(last);
    }
    last = birth.pid = ::fork();
    if (last == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(control);
      life(socket);
      ::_exit(0);
    }
    if (::send(control, &birth, sizeof birth, MSG_NOSIGNAL) != sizeof birth) break;
  }
  if (last > 0) wait_at_most(last, policy::kEngineEnds);
  ::_exit(0);
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return ::strsignal(WTERMSIG(status));
  return "status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Result<EngineNursery> EngineNursery::start(const Life& life) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return system_error("socketpair");
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork");
  if (pid == 0) {
    ::close(pair[0]);
    nurse(life, pair[1]);
  }
  ::close(pair[1]);
  return EngineNursery(pid, pair[0]);
}

EngineNursery::EngineNursery(EngineNursery&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), control_(std::exchange(other.control_, -1)) {}

EngineNursery::~EngineNursery() {
  if (pid_ < 0) return;
  ::close(control_);
  wait_for(pid_);
}

Result<EngineNursery::Born> EngineNursery::next() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return system_error("socketpair");
  const bool asked = send_socket(control_, pair[1]);
  ::close(pair[1]);
  Birth birth;
  if (!asked || !receive_birth(control_, birth) || birth.pid < 0) {
    ::close(pair[0]);
    return runtime_error("the process that starts the server's engine has ended, or the system has no more processes");
  }
  return Born{.socket = pair[0], .pid = birth.pid, .last_end = birth.before ? ending_of(birth.status) : ""};
}

}  // namespace sluice
