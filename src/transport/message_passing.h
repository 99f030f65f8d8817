// What is asked of MPI: messages between the ranks of a job.
//
// Behind it stands a shared object that is loaded when it is needed (mpi_module.cpp), so that the program itself needs
// no MPI; tests put ranks of one process there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "transport/chunks.h"

namespace sluice {

// Thread safety: none; all calls come from the thread that made it (MPI_THREAD_FUNNELED). What MPI itself finds wrong
// ends the job, as the death of a rank does.
class MessagePassing {
 public:
  struct Sink {
    std::function<void(int32_t from, Bytes message)> received;
    std::function<void(uint64_t ticket)> sent;
  };
  virtual ~MessagePassing() = default;

  virtual int32_t rank() const = 0;  // of this process
  virtual int32_t size() const = 0;
  virtual std::string machine(int32_t rank) const = 0;  // where it runs

  // Those from one rank to another come in order; to itself too. Never waits.
  virtual void send(int32_t to, Bytes message, uint64_t ticket) = 0;
  // Tells what has come whole, and what has gone. Never waits. Whether there was anything.
  virtual bool progress(const Sink& sink) = 0;

  // Waits until all is sent, and until every rank is here. Nothing may follow.
  virtual void finalize() = 0;
  // Ends all ranks of the job with this exit status.
  [[noreturn]] virtual void abort(int status) = 0;
};

// The one that MPI gives, made on the thread that calls. Errors (kRuntime) say what is missing.
Result<std::unique_ptr<MessagePassing>> load_mpi();

}  // namespace sluice
