#include "serve/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cmath>
#include <set>
#include <thread>

#include "serve/http_connection.h"
#include "serve/policy.h"

namespace sluice {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, Handler handler)
      : options_(options),
        acceptor_(io_),
        again_(io_),
        shared_{
            .handler = std::move(handler),
            .idle = std::chrono::milliseconds(std::llround(options.idle_seconds * 1000)),
            .ended = [this](const std::shared_ptr<HttpConnection>& connection) { connections_.erase(connection); }} {}
  ~Impl() { stop(); }

  Status listen() {
    error_code error;
    const auto found = Tcp::resolver(io_).resolve(options_.host, std::to_string(options_.port), error);
    if (error) return input_error("--host " + options_.host + ": there is no such address (" + error.message() + ")");
    const Tcp::endpoint endpoint = *found.begin();
    if (!endpoint.address().is_loopback() && !options_.beyond_loopback)
      return input_error("--host " + options_.host +
                         " is more than this machine: whoever may ask needs a key, so add --api-key-file FILE");
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      return runtime_error("--host " + options_.host + " --port " + std::to_string(options_.port) + ": " +
                           error.message() + "; choose another, or end who has it");
    accept();
    thread_ = std::thread([this] { io_.run(); });
    return {};
  }

  std::string address() const {
    const Tcp::endpoint at = acceptor_.local_endpoint();
    const std::string host = at.address().to_string();
    return (at.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(at.port());
  }

  size_t exchanges() const { return shared_.exchanges; }

  void stop() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      again_.cancel();
      const auto all = connections_;
      for (const auto& connection : all) connection->close();
      io_.stop();
    });
    thread_.join();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](error_code error, Tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error) return accept_later();
      meet(std::move(socket));
      accept();
    });
  }

  // The system has no more descriptors, or the peer is gone already.
  void accept_later() {
    again_.expires_after(policy::kAcceptAgain);
    again_.async_wait([this](error_code) {
      if (acceptor_.is_open()) accept();
    });
  }

  void meet(Tcp::socket socket) {
    const size_t n = connections_.size();
    if (n >= options_.connections + policy::kMostRefused) return;
    const auto connection = std::make_shared<HttpConnection>(std::move(socket), shared_);
    connections_.insert(connection);
    if (n < options_.connections) return connection->start();
    connection->refuse(503, "there are " + std::to_string(options_.connections) +
                                " connections, as many as may be (--connections): ask again soon");
  }

  const HttpOptions options_;
  // One thread runs it, but asio is not told so: what that thread posts would come after what others post later.
  asio::io_context io_;
  Tcp::acceptor acceptor_;
  asio::steady_timer again_;
  HttpConnection::Shared shared_;
  std::set<std::shared_ptr<HttpConnection>> connections_;
  std::thread thread_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions& options, Handler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  SLUICE_TRY_STATUS(impl->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

std::string HttpServer::address() const { return impl_->address(); }
size_t HttpServer::exchanges() const { return impl_->exchanges(); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace sluice
