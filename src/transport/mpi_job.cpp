#include "transport/mpi_job.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdlib>
#include <future>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "transport/mpi_streams.h"
#include "transport/socket_connection.h"

namespace sluice {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

namespace {

// How long the thread sleeps when there was nothing for so long: what comes then waits a 32nd longer than it has taken
// anyway, and the thread of a job that is idle looks a thousand times a second.
microseconds pause_after(Clock::duration quiet) {
  constexpr microseconds kAtOnce{20}, kShortest{5}, kLongest{1000};
  const auto us = std::chrono::duration_cast<microseconds>(quiet);
  return us < kAtOnce ? microseconds{0} : std::clamp(us / 32, kShortest, kLongest);
}

}  // namespace

struct MpiJob::Impl {
  using Work = asio::executor_work_guard<asio::io_context::executor_type>;

  // On the job's thread, as all that follows.
  void begin(std::unique_ptr<MessagePassing> started) {
    mpi = std::move(started);
    rank = mpi->rank();
    for (int32_t r = 0; r < mpi->size(); ++r) machines.push_back(mpi->machine(r));
    streams = std::make_shared<MpiStreams>(*io, *mpi, [this] { wake(); });
    streams->on_news = [this](int32_t from, MpiStreams::News news) { take_news(from, news); };
    asio::post(*io, [this] { poll(); });
  }

  void poll() {
    if (ended) return;
    if (streams->progress()) quiet_since = Clock::now();
    say_left();
    const auto pause = pause_after(Clock::now() - quiet_since);
    if (pause.count() == 0) return asio::post(*io, [this] { poll(); });
    timer.expires_after(pause);
    timer.async_wait([this](error_code) { poll(); });
  }
  // Something is on its way, for which MPI may need to be called.
  void wake() {
    quiet_since = Clock::now();
    timer.cancel();
  }

  // Whoever has left goes on serving MPI until nobody sends anything any more: what is on its way to a rank that has
  // finalized would never get there, and its sender wait for ever.
  void begin_end() {
    ending = true;
    if (rank != 0) return;
    for (int32_t r = 1; r < mpi->size(); ++r) staying.insert(r);
    for (const int32_t r : staying) streams->tell(r, MpiStreams::News::kLeave);
    end_if_all_left();
  }

  void say_left() {
    if (rank == 0 || !ending || said_left || !streams->idle()) return;
    said_left = true;
    streams->tell(0, MpiStreams::News::kLeft);
  }

  void take_news(int32_t from, MpiStreams::News news) {
    if (news == MpiStreams::News::kLeave && !std::exchange(told, true)) leave.set_value();
    if (news == MpiStreams::News::kLeft && staying.erase(from) > 0) end_if_all_left();
    if (news == MpiStreams::News::kEnd && said_left) may_finalize.set_value();
  }

  void end_if_all_left() {
    if (!staying.empty()) return;
    for (int32_t r = 1; r < mpi->size(); ++r) streams->tell(r, MpiStreams::News::kEnd);
    may_finalize.set_value();
  }

  void finalize() {
    streams->stop();
    mpi->finalize();
    ended = true;
    timer.cancel();
    work.reset();
  }

  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>();  // not of 1 thread: socket_network.cpp
  Work work{io->get_executor()};
  asio::steady_timer timer{*io};
  std::unique_ptr<MessagePassing> mpi;
  std::shared_ptr<MpiStreams> streams;
  Clock::time_point quiet_since = Clock::now();
  std::set<int32_t> staying;  // ranks that have been told to leave, and have not
  bool told = false;          // that all is done
  bool ending = false, said_left = false, ended = false;
  std::promise<void> leave, may_finalize;
  std::vector<std::string> machines;  // by rank; like `rank`, it stays as it is
  int32_t rank = 0;
  std::thread thread;
};

namespace {

// Waits until the job's thread has done it.
template <class Act>
void do_there(asio::io_context& io, Act act) {
  const auto done = std::make_shared<std::promise<void>>();
  asio::post(io, [&act, done] {
    act();
    done->set_value();
  });
  done->get_future().wait();
}

}  // namespace

// Connections of one user of the job, which goes on without it.
class MpiNetwork final : public Network {
 public:
  explicit MpiNetwork(std::shared_ptr<MpiJob> job) : job_(std::move(job)), there_(*job_->impl_) {}
  MpiNetwork(const MpiNetwork&) = delete;
  MpiNetwork& operator=(const MpiNetwork&) = delete;
  ~MpiNetwork() override {
    do_there(*there_.io, [this] {
      if (listening_) there_.streams->take_opened({});
      for (const auto& connection : connections_)
        if (const auto alive = connection.lock()) alive->close();
    });
    do_there(*there_.io, [] {});  // what closing has left to do comes before this
  }

  void stop() override {
    do_there(*there_.io, [this] {
      for (const auto& connection : connections_)
        if (const auto alive = connection.lock()) alive->close();
    });
  }

  Result<std::shared_ptr<Connection>> connect(const HostAddress& to, const Hello& hello,
                                              const ConnectionOptions& options) override {
    if (!to.is_rank() || to.rank >= job_->size())
      return runtime_error(to.text() + ": no rank of this job, which has " + std::to_string(job_->size()));
    const auto met = std::make_shared<std::promise<Result<std::shared_ptr<Connection>>>>();
    asio::post(*there_.io, [&, met] {
      const auto connection = make(there_.streams->open(to.rank), Side::kClient, to.rank, options);
      connection->start(hello, {.met =
                                    [met, connection](const Hello&) {
                                      met->set_value(connection);
                                      return Status();
                                    },
                                .failed = [met](const Error& why) { met->set_value(tl::unexpected<Error>(why)); }});
    });
    return met->get_future().get();
  }

  // at: has no meaning; whoever comes comes to this rank.
  Result<HostAddress> listen(const HostAddress&, Accept accept, const ConnectionOptions& options) override {
    do_there(*there_.io, [&] {
      listening_ = true;
      accept_ = std::move(accept);
      there_.streams->take_opened([this, options](int32_t from, std::unique_ptr<ByteStream> stream) {
        const auto connection = make(std::move(stream), Side::kServer, from, options);
        connection->start({}, {.met = [this, weak = std::weak_ptr(connection)](
                                          const Hello& hello) { return accept_(hello, weak.lock()); },
                               .failed = [](const Error&) {}});
      });
    });
    return HostAddress::of_rank(job_->rank());
  }

 private:
  std::shared_ptr<SocketConnection> make(std::unique_ptr<ByteStream> stream, Side side, int32_t peer,
                                         const ConnectionOptions& options) {
    auto connection = std::make_shared<SocketConnection>(std::move(stream), side, job_->name(peer), options);
    connection->keep(there_.io);
    std::erase_if(connections_, [](const auto& other) { return other.expired(); });
    connections_.push_back(connection);
    return connection;
  }

  const std::shared_ptr<MpiJob> job_;
  MpiJob::Impl& there_;
  // Of the job's thread.
  Accept accept_;
  bool listening_ = false;
  std::vector<std::weak_ptr<SocketConnection>> connections_;
};

Result<std::shared_ptr<MpiJob>> MpiJob::open(const Start& start) {
  auto impl = std::make_unique<Impl>();
  const auto started = std::make_shared<std::promise<Status>>();
  impl->thread = std::thread([started, &start, job = impl.get()] {
    auto mpi = start();
    if (!mpi) return started->set_value(tl::unexpected<Error>(mpi.error()));
    job->begin(std::move(*mpi));
    started->set_value({});
    job->io->run();
  });
  if (const Status status = started->get_future().get(); !status) {
    impl->thread.join();
    return tl::unexpected<Error>(status.error());
  }
  return std::shared_ptr<MpiJob>(new MpiJob(std::move(impl)));
}

MpiJob::MpiJob(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MpiJob::~MpiJob() {
  if (impl_->thread.joinable()) abort(1);
}

int32_t MpiJob::rank() const { return impl_->rank; }
int32_t MpiJob::size() const { return static_cast<int32_t>(impl_->machines.size()); }

int32_t MpiJob::ranks_here() const {
  const auto& machines = impl_->machines;
  return static_cast<int32_t>(std::ranges::count(machines, machines[static_cast<size_t>(rank())]));
}

std::string MpiJob::name(int32_t rank) const {
  return HostAddress::of_rank(rank).text() + " (" + impl_->machines[static_cast<size_t>(rank)] + ")";
}

std::unique_ptr<Network> MpiJob::network() { return std::make_unique<MpiNetwork>(shared_from_this()); }

Status MpiJob::end(double patience) {
  auto may_finalize = impl_->may_finalize.get_future();
  asio::post(*impl_->io, [job = impl_.get()] { job->begin_end(); });
  if (rank() != 0) {
    may_finalize.wait();
  } else if (may_finalize.wait_for(std::chrono::duration<double>(patience)) != std::future_status::ready) {
    std::string names;
    do_there(*impl_->io, [&] {
      for (const int32_t rank : impl_->staying) names += (names.empty() ? "" : ", ") + name(rank);
    });
    return runtime_error(names + " did not come to an end: is it up?");
  }
  asio::post(*impl_->io, [job = impl_.get()] { job->finalize(); });
  impl_->thread.join();
  return {};
}

void MpiJob::wait_for_end() { impl_->leave.get_future().wait(); }

void MpiJob::abort(int status) {
  do_there(*impl_->io, [&] { impl_->mpi->abort(status); });
  std::abort();
}

}  // namespace sluice
