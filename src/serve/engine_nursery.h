// Starts processes that go on from where this one is now, one after another.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/result.h"

namespace sluice {

// A process that is forked off once, while the program is small and has one thread, and forks again whenever an engine
// is wanted: each begins with the model open, and shares what it doesn't change. Thread safety: none.
class EngineNursery {
 public:
  // What a process does, with its end of a stream socket; when that returns, it ends. It is deaf to signals that ask
  // the program to end: the end of the socket is its sign.
  using Life = std::function<void(int socket)>;

  // REQUIRES: the process has one thread: a lock that another one holds is held for ever in what is forked off.
  static Result<EngineNursery> start(const Life& life);
  EngineNursery(EngineNursery&& other) noexcept;
  EngineNursery& operator=(EngineNursery&&) = delete;
  // Waits for the last process, which should be about to end; for at most policy::kEngineEnds.
  ~EngineNursery();

  struct Born {
    int socket = -1;       // our end
    pid_t pid = -1;        // of the process
    std::string last_end;  // how the one before has ended, which is killed if it is still there: "Killed"; empty: none
  };
  Result<Born> next();

 private:
  EngineNursery(pid_t pid, int control) : pid_(pid), control_(control) {}

  pid_t pid_;
  int control_;
};

}  // namespace sluice
