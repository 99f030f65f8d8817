// The shared object libsluice-mpi.so: MessagePassing by MPI. It is loaded by load_mpi().
#include <mpi.h>

#include <cstdlib>
#include <deque>
#include <list>
#include <utility>
#include <vector>

#include "transport/message_passing.h"

namespace sluice {

namespace {

constexpr int kTag = 0;

class Mpi final : public MessagePassing {
 public:
  // A communicator of its own, so that no other library's messages are taken for ours.
  Mpi() {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    machines_.resize(static_cast<size_t>(size_) * MPI_MAX_PROCESSOR_NAME);
    char name[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    MPI_Get_processor_name(name, &length);
    MPI_Allgather(name, sizeof name, MPI_CHAR, machines_.data(), sizeof name, MPI_CHAR, ranks_);
    coming_.resize(static_cast<size_t>(size_));
  }

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  std::string machine(int32_t rank) const override {
    return &machines_[static_cast<size_t>(rank) * MPI_MAX_PROCESSOR_NAME];
  }

  void send(int32_t to, Bytes message, uint64_t ticket) override {
    Going& going = going_.emplace_back(Going{.bytes = std::move(message), .ticket = ticket});
    MPI_Isend(going.bytes.data(), static_cast<int>(going.bytes.size()), MPI_BYTE, to, kTag, ranks_, &going.request);
  }

  bool progress(const Sink& sink) override {
    match();
    bool any = false;
    for (size_t from = 0; from < coming_.size(); ++from) {
      auto& messages = coming_[from];
      while (!messages.empty() && is_done(messages.front().request)) {
        Bytes bytes = std::move(messages.front().bytes);
        messages.pop_front();
        sink.received(static_cast<int32_t>(from), std::move(bytes));
        any = true;
      }
    }
    for (auto going = going_.begin(); going != going_.end();) {
      if (!is_done(going->request)) {
        ++going;
        continue;
      }
      const uint64_t ticket = going->ticket;
      going = going_.erase(going);
      sink.sent(ticket);
      any = true;
    }
    return any;
  }

  void finalize() override {
    for (Going& going : going_) MPI_Wait(&going.request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&ranks_);
    MPI_Finalize();
  }
  [[noreturn]] void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();
  }

 private:
  struct Going {
    MPI_Request request = MPI_REQUEST_NULL;
    Bytes bytes;
    uint64_t ticket = 0;
  };
  struct Coming {
    MPI_Request request = MPI_REQUEST_NULL;
    Bytes bytes;
  };

  static bool is_done(MPI_Request& request) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

  // Receives whatever has been announced. A large message comes bit by bit, so that nobody waits for it here.
  void match() {
    for (;;) {
      int there = 0, n = 0;
      MPI_Message message;
      MPI_Status status;
      MPI_Improbe(MPI_ANY_SOURCE, kTag, ranks_, &there, &message, &status);
      if (there == 0) return;
      MPI_Get_count(&status, MPI_BYTE, &n);
      Coming& coming = coming_[static_cast<size_t>(status.MPI_SOURCE)].emplace_back();
      coming.bytes.resize(static_cast<size_t>(n));
      MPI_Imrecv(coming.bytes.data(), n, MPI_BYTE, &message, &coming.request);
    }
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 0;
  std::vector<char> machines_;              // [size, MPI_MAX_PROCESSOR_NAME]
  std::list<Going> going_;                  // to which a sink may add
  std::vector<std::deque<Coming>> coming_;  // by rank, in the order in which they were sent
};

}  // namespace

}  // namespace sluice

// Null: MPI has no threads beside which it could run.
extern "C" sluice::MessagePassing* sluice_start_mpi() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  return provided >= MPI_THREAD_FUNNELED ? new sluice::Mpi : nullptr;
}
