#include "transport/socket_network.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <deque>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "transport/socket_connection.h"

namespace sluice {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

namespace {

// What the kernel keeps of what it has not sent yet: an urgent frame waits behind no more than that.
void tune(Tcp::socket& socket) {
  constexpr int kUnsent = 128 << 10;
  error_code ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsent, sizeof kUnsent);
}

bool is_loopback(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  return address.is_loopback();
}

std::string host_name(const HostAddress& address) { return kHost + address.for_people(); }

using Keep = std::function<void(const std::shared_ptr<SocketConnection>&)>;

// One attempt to reach a host, until the hello has been answered.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(asio::io_context& io, Tls* tls, HostAddress to, std::vector<Tcp::endpoint> endpoints, const Hello& hello,
          ConnectionOptions options, Keep keep)
      : socket_(io),
        timer_(io),
        tls_(tls),
        to_(std::move(to)),
        endpoints_(std::move(endpoints)),
        hello_(hello),
        options_(std::move(options)),
        keep_(std::move(keep)) {}

  std::future<Result<std::shared_ptr<Connection>>> result() { return promise_.get_future(); }

  // On the network's thread, as all that follows.
  void start() {
    timer_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(std::min(options_.connect, 1e6) * 1000)));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->done_) return;
      self->fail("no answer within " + std::to_string(static_cast<int64_t>(self->options_.connect)) +
                 " s: is it up, and does its firewall let port " + std::to_string(self->to_.port) + " through?");
    });
    asio::async_connect(socket_, endpoints_, [self = shared_from_this()](error_code failed, const Tcp::endpoint&) {
      if (!self->done_) self->connected(failed);
    });
  }
  void cancel() {
    if (!done_) fail("the program ended");
  }

 private:
  void connected(error_code error) {
    if (error == asio::error::connection_refused)
      return fail("nobody listens there: start sluice stage --listen " + to_.text() + " on it");
    if (error) return fail("can't be reached (" + error.message() + ")");
    tune(socket_);
    timer_.cancel();
    done_ = true;
    auto connection = std::make_shared<SocketConnection>(make_stream(std::move(socket_), tls_, Side::kClient),
                                                         Side::kClient, host_name(to_), options_);
    keep_(connection);
    const auto self = shared_from_this();
    connection->start(hello_,
                      {.met =
                           [self, connection](const Hello&) {
                             self->promise_.set_value(connection);
                             return Status();
                           },
                       .failed = [self](const Error& why) { self->promise_.set_value(tl::unexpected<Error>(why)); }});
  }

  void fail(const std::string& why) {
    done_ = true;
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
    promise_.set_value(runtime_error(host_name(to_) + ": " + why));
  }

  Tcp::socket socket_;
  asio::steady_timer timer_;
  Tls* tls_;
  HostAddress to_;
  std::vector<Tcp::endpoint> endpoints_;
  Hello hello_;
  ConnectionOptions options_;
  Keep keep_;
  std::promise<Result<std::shared_ptr<Connection>>> promise_;
  bool done_ = false;
};

// Takes who comes to a port. Of those who have not said hello yet there are only so many: the one that has been silent
// for longest makes room for the next, so that nobody who knows what to say is kept out.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(Tcp::acceptor acceptor, Tls* tls, Network::Accept accept, ConnectionOptions options, Keep keep)
      : acceptor_(std::move(acceptor)),
        pause_(acceptor_.get_executor()),
        tls_(tls),
        accept_(std::move(accept)),
        options_(std::move(options)),
        keep_(std::move(keep)) {}

  void start() {
    acceptor_.async_accept([self = shared_from_this()](error_code error, Tcp::socket socket) {
      if (!self->acceptor_.is_open()) return;
      if (error) return self->pause();
      self->greet(std::move(socket));
      self->start();
    });
  }
  void stop() {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  }

 private:
  static constexpr size_t kMostStrangers = 64;

  // The system has no more descriptors, or the peer is gone already.
  void pause() {
    pause_.expires_after(std::chrono::milliseconds(100));
    pause_.async_wait([self = shared_from_this()](error_code) {
      if (self->acceptor_.is_open()) self->start();
    });
  }

  void greet(Tcp::socket socket) {
    error_code gone;
    const auto from = socket.remote_endpoint(gone);
    if (gone) return;
    tune(socket);
    const std::string name = "peer " + HostAddress{from.address().to_string(), from.port()}.text();
    auto connection = std::make_shared<SocketConnection>(make_stream(std::move(socket), tls_, Side::kServer),
                                                         Side::kServer, name, options_);
    keep_(connection);
    make_room();
    strangers_.push_back(connection);
    const auto self = shared_from_this();
    const std::weak_ptr weak(connection);
    connection->start({}, {.met =
                               [self, weak](const Hello& hello) {
                                 const auto there = weak.lock();
                                 self->no_stranger(there);
                                 return self->accept_(hello, there);
                               },
                           .failed = [self, weak](const Error&) { self->no_stranger(weak.lock()); }});
  }

  void make_room() {
    if (strangers_.size() < kMostStrangers) return;
    const auto oldest = strangers_.front().lock();
    strangers_.pop_front();
    if (oldest) oldest->close();
  }
  void no_stranger(const std::shared_ptr<SocketConnection>& connection) {
    std::erase_if(strangers_, [&](const auto& stranger) {
      const auto there = stranger.lock();
      return !there || there == connection;
    });
  }

  Tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  Tls* tls_;
  Network::Accept accept_;
  ConnectionOptions options_;
  Keep keep_;
  std::deque<std::weak_ptr<SocketConnection>> strangers_;  // the first to come first
};

}  // namespace

struct SocketNetwork::Impl {
  explicit Impl(const std::optional<Secret>& secret) {
    if (secret) tls.emplace(*secret);
    thread = std::thread([this] { io->run(); });
  }

  // On the network's thread.
  void end_all() {
    ended = true;
    for (const auto& listener : listeners) listener->stop();
    listeners.clear();
    for (const auto& attempt : attempts)
      if (const auto there = attempt.lock()) there->cancel();
    for (const auto& connection : connections)
      if (const auto there = connection.lock()) there->close();
  }

  template <class T>
  static void remember(std::vector<std::weak_ptr<T>>& all, const std::shared_ptr<T>& one) {
    std::erase_if(all, [](const auto& other) { return other.expired(); });
    all.push_back(one);
  }
  // A socket must not outlive its io_context, so connections that are still held elsewhere keep that.
  Keep keep() {
    return [this](const std::shared_ptr<SocketConnection>& connection) {
      connection->keep(io);
      remember(connections, connection);
    };
  }

  // One thread runs it, but asio is not told so: what that thread posts would come after what others post later.
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>();
  asio::executor_work_guard<asio::io_context::executor_type> work{io->get_executor()};
  std::optional<Tls> tls;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<std::weak_ptr<Attempt>> attempts;
  bool ended = false;  // of the network's thread
  std::vector<std::weak_ptr<SocketConnection>> connections;
  std::thread thread;
};

SocketNetwork::SocketNetwork(const std::optional<Secret>& secret) : impl_(std::make_unique<Impl>(secret)) {}

void SocketNetwork::stop() {
  asio::post(*impl_->io, [this] { impl_->end_all(); });
}

SocketNetwork::~SocketNetwork() {
  stop();
  impl_->work.reset();
  impl_->thread.join();
}

namespace {

// Looked up by the thread that asks: Asio has one for all names, and one that nobody knows may take it many seconds.
Result<std::vector<Tcp::endpoint>> endpoints_of(asio::io_context& io, const HostAddress& to, bool beyond_loopback) {
  error_code error;
  const auto found = Tcp::resolver(io).resolve(to.host, std::to_string(to.port), error);
  if (error)
    return runtime_error(host_name(to) + ": the name is not known (" + error.message() + "): name its address");
  std::vector<Tcp::endpoint> endpoints;
  for (const auto& entry : found)
    if (beyond_loopback || is_loopback(entry.endpoint().address())) endpoints.push_back(entry.endpoint());
  if (!endpoints.empty()) return endpoints;
  return runtime_error(
      host_name(to) +
      ": other machines need a secret: sluice secret FILE makes one; give it to both sides by --secret");
}

}  // namespace

Result<std::shared_ptr<Connection>> SocketNetwork::connect(const HostAddress& to, const Hello& hello,
                                                           const ConnectionOptions& options) {
  if (to.is_rank()) return runtime_error(to.text() + ": only MPI reaches ranks: give HOST:PORT");
  Tls* tls = impl_->tls ? &*impl_->tls : nullptr;
  SLUICE_TRY(auto endpoints, endpoints_of(*impl_->io, to, tls != nullptr));
  const auto attempt =
      std::make_shared<Attempt>(*impl_->io, tls, to, std::move(endpoints), hello, options, impl_->keep());
  auto result = attempt->result();
  asio::post(*impl_->io, [this, attempt] {
    if (impl_->ended) return attempt->cancel();
    Impl::remember(impl_->attempts, attempt);
    attempt->start();
  });
  return result.get();
}

namespace {

Result<Tcp::acceptor> open_acceptor(asio::io_context& io, const HostAddress& at, bool beyond_loopback) {
  const std::string name = "--listen " + at.text();
  error_code error;
  const auto found = Tcp::resolver(io).resolve(at.host, std::to_string(at.port), Tcp::resolver::passive, error);
  if (error)
    return runtime_error(name + ": the name is not known (" + error.message() + "): give an address of this host");
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  if (!beyond_loopback && !is_loopback(endpoint.address()))
    return input_error(name + ": other machines need a secret: sluice secret FILE makes one; give it by --secret");
  Tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(Tcp::acceptor::max_listen_connections, error);
  if (!error) return acceptor;
  if (error == asio::error::address_in_use)
    return runtime_error(name + ": the port is in use: stop what listens there, or name another port");
  return runtime_error(name + ": " + error.message() + ": name an address of this host and a port that is free");
}

}  // namespace

Result<HostAddress> SocketNetwork::listen(const HostAddress& at, Accept accept, const ConnectionOptions& options) {
  SLUICE_TRY(Tcp::acceptor acceptor, open_acceptor(*impl_->io, at, impl_->tls.has_value()));
  const HostAddress listening{at.host, acceptor.local_endpoint().port()};
  const auto listener = std::make_shared<Listener>(std::move(acceptor), impl_->tls ? &*impl_->tls : nullptr,
                                                   std::move(accept), options, impl_->keep());
  asio::post(*impl_->io, [this, listener] {
    impl_->listeners.push_back(listener);
    listener->start();
  });
  return listening;
}

}  // namespace sluice
