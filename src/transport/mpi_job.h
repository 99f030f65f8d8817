// This process as one of the ranks that mpirun or srun has started together.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/message_passing.h"
#include "transport/network.h"

namespace sluice {

// One thread calls MPI, and serves all connections between ranks. It looks for messages, the more seldom the longer
// there were none. A rank that dies ends the job: MPI sees to that. Thread safety: any thread.
class MpiJob : public std::enable_shared_from_this<MpiJob> {
 public:
  using Start = std::function<Result<std::unique_ptr<MessagePassing>>()>;
  // start: is called by that thread.
  static Result<std::shared_ptr<MpiJob>> open(const Start& start = load_mpi);
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  // Without end() before, it ends the whole job with exit status 1.
  ~MpiJob();

  int32_t rank() const;
  int32_t size() const;
  int32_t ranks_here() const;            // on this machine, with this one
  std::string name(int32_t rank) const;  // for people: "rank 3 (node7)"
  std::unique_ptr<Network> network();    // of connections between ranks

  // Of rank 0: tells the others that all is done, and waits for them; of the others, once they have been told. Then MPI
  // ends here. Errors (kRuntime) name who did not come to an end within so many seconds, as only rank 0 finds; then
  // nothing is left but to abort. REQUIRES: no network is left.
  Status end(double patience);
  // Waits until rank 0 says that all is done.
  void wait_for_end();
  // Ends all ranks with this exit status.
  [[noreturn]] void abort(int status);

 private:
  struct Impl;
  explicit MpiJob(std::unique_ptr<Impl> impl);
  friend class MpiNetwork;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
