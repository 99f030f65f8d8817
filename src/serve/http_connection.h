// One client of the HTTP server. Of this folder only.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/http_server.h"

namespace sluice {

// Reads a request, has it answered, and then the next one. All of it happens on the server's thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  struct Shared {
    HttpServer::Handler handler;
    std::chrono::milliseconds idle;
    uint64_t body_bytes = 0;                                            // of all connections
    std::function<void(const std::shared_ptr<HttpConnection>&)> ended;  // once
    std::atomic<size_t> exchanges = 0;  // requests that have come and whose reply has not gone
  };

  // REQUIRES: `shared` outlives it.
  HttpConnection(boost::asio::ip::tcp::socket socket, Shared& shared);

  void start();
  // Says so, and ends.
  void refuse(int status, const std::string& message);
  void close();

 private:
  class Reply;
  enum class State { kReading, kAnswering, kStreaming, kLingering, kEnded };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void read_head();
  void got_head();
  void read_body();
  void got_body();
  void reading_failed(const boost::system::error_code& error);
  void watch();
  void answer(HttpReply reply);
  void stream(const std::string& events);
  void end_stream();
  void finish();
  void send(std::string bytes);
  void write();
  void wrote(const boost::system::error_code& error);
  void linger();
  void gone();
  void expire_after(std::chrono::milliseconds time);
  void stop_timer();
  void count_body(uint64_t bytes);
  void count_exchange(bool under_way);
  void count_untaken() { *untaken_ = waiting_.size() + going_.size(); }

  boost::asio::ip::tcp::socket socket_;
  Shared& shared_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  State state_ = State::kReading;
  uint64_t timer_number_ = 0;  // of what it was set for last
  bool overdue_ = false;       // it has cut an operation short
  bool keep_alive_ = false;    // after this reply
  bool head_only_ = false;     // replies have no body (RFC 9110, 9.3.2)
  bool chunked_ = true;        // its stream, or it ends with the connection
  bool said_ = false;          // all of it
  uint64_t number_ = 0;        // of the request, by which replies to former ones are told
  uint64_t counted_ = 0;       // bytes of its body, in Shared::body_bytes
  bool exchanging_ = false;    // in Shared::exchanges
  std::function<void()> gone_;
  const std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);
  std::string waiting_, going_;  // bytes to be sent, and being sent
  std::shared_ptr<std::atomic<size_t>> untaken_ = std::make_shared<std::atomic<size_t>>(0);  // how many
  bool writing_ = false;
  size_t lingered_ = 0;
  char scratch_[4096];
};

}  // namespace sluice
