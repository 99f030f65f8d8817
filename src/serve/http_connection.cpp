#include "serve/http_connection.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <utility>

#include "serve/policy.h"

namespace sluice {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

template <class Body>
std::string text_of(const http::response<Body>& response) {
  std::ostringstream text;
  text << response;
  return std::move(text).str();
}

// A chunk of the transfer coding.
std::string chunk_of(const std::string& bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

std::string view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Without its body.
HttpRequest request_of(const http::request<http::string_body>& head) {
  HttpRequest request{.method = view(head.method_string()),
                      .path = view(head.target()),
                      .authorization = view(head[http::field::authorization]),
                      .api_key = view(head["x-api-key"]),
                      .origin = view(head[http::field::origin]),
                      .host = view(head[http::field::host]),
                      .last_event_id = view(head["Last-Event-ID"])};
  request.path.resize(std::min(request.path.find('?'), request.path.size()));
  return request;
}

}  // namespace

// Of one request: once the connection is at another one, or gone, nothing of it is heard any more.
class HttpConnection::Reply : public Exchange {
 public:
  explicit Reply(HttpConnection& connection)
      : connection_(connection.weak_from_this()),
        executor_(connection.socket_.get_executor()),
        closed_(connection.closed_),
        untaken_(connection.untaken_),
        number_(connection.number_) {}

  void reply(HttpReply reply) override {
    post([reply = std::move(reply)](HttpConnection& c) mutable { c.answer(std::move(reply)); });
  }
  void stream(std::string events) override {
    post([events = std::move(events)](HttpConnection& c) { c.stream(events); });
  }
  void end_stream() override {
    post([](HttpConnection& c) { c.end_stream(); });
  }
  size_t untaken() const override { return *untaken_; }
  void on_gone(std::function<void()> gone) override {
    asio::post(executor_, [weak = connection_, number = number_, gone = std::move(gone)]() mutable {
      const auto connection = weak.lock();
      if (!connection || connection->state_ == State::kEnded) return gone();
      if (connection->number_ == number) connection->gone_ = std::move(gone);
    });
  }
  bool gone() const override { return *closed_; }

 private:
  template <class Do>
  void post(Do act) {
    asio::post(executor_, [weak = connection_, number = number_, act = std::move(act)]() mutable {
      const auto connection = weak.lock();
      const auto answers = [](State state) { return state == State::kAnswering || state == State::kStreaming; };
      if (connection && connection->number_ == number && answers(connection->state_) && !connection->said_)
        act(*connection);
    });
  }

  std::weak_ptr<HttpConnection> connection_;
  asio::any_io_executor executor_;
  std::shared_ptr<const std::atomic<bool>> closed_;
  std::shared_ptr<const std::atomic<size_t>> untaken_;
  uint64_t number_;
};

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, Shared& shared)
    : socket_(std::move(socket)), shared_(shared), timer_(socket_.get_executor()) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

void HttpConnection::start() { read_head(); }

void HttpConnection::read_head() {
  state_ = State::kReading;
  head_only_ = false;
  parser_.emplace();
  parser_->header_limit(policy::kLongestHead);
  parser_->body_limit(policy::kLongestBody);
  expire_after(shared_.idle);
  http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
    if (self->state_ != State::kReading) return;
    error ? self->reading_failed(error) : self->got_head();
  });
}

void HttpConnection::got_head() {
  const auto& head = parser_->get();
  chunked_ = head.version() >= 11;
  keep_alive_ = head.keep_alive();
  head_only_ = head.method() == http::verb::head;
  if (head.version() != 10 && head.version() != 11) return refuse(400, "HTTP/1.1 is spoken here");
  if (auto refused = shared_.handler.screen(request_of(head))) {
    keep_alive_ = keep_alive_ && parser_->is_done();
    return answer(std::move(*refused));
  }
  const auto length = parser_->content_length();
  if (length && *length > policy::kLongestBody) return reading_failed(http::error::body_limit);
  count_body(length ? *length : parser_->chunked() ? policy::kLongestBody : 0);
  if (shared_.body_bytes > policy::kMostBodies) return refuse(503, "too many long requests at a time: ask again soon");
  if (boost::beast::iequals(head[http::field::expect], "100-continue")) {
    const auto go_on = std::make_shared<std::string>("HTTP/1.1 100 Continue\r\n\r\n");
    asio::async_write(socket_, asio::buffer(*go_on), [self = shared_from_this(), go_on](error_code error, size_t) {
      if (self->state_ != State::kReading) return;
      error ? self->gone() : self->read_body();
    });
    return;
  }
  read_body();
}

void HttpConnection::read_body() {
  http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
    if (self->state_ != State::kReading) return;
    error ? self->reading_failed(error) : self->got_body();
  });
}

void HttpConnection::got_body() {
  stop_timer();
  auto message = parser_->release();
  HttpRequest request = request_of(message);
  request.body = std::move(message.body());
  count_body(request.body.size());
  state_ = State::kAnswering;
  count_exchange(true);
  watch();
  shared_.handler.handle(std::move(request), std::make_shared<Reply>(*this));
}

// What comes was no request, or none came in time.
void HttpConnection::reading_failed(const error_code& error) {
  const bool begun = parser_->got_some();
  keep_alive_ = false;
  if (overdue_ && begun) return refuse(408, "the request did not come to its end in time");
  if (overdue_ || error == http::error::end_of_stream) return linger();
  if (error == http::error::body_limit)
    return refuse(413, "the body is too long: there may be " + std::to_string(policy::kLongestBody) + " bytes");
  if (error == http::error::header_limit)
    return refuse(431, "the head is too long: there may be " + std::to_string(policy::kLongestHead) + " bytes");
  const bool malformed = error.category() == http::make_error_code(http::error::bad_method).category();
  if (malformed) return refuse(400, "this is no HTTP request (" + error.message() + ")");
  gone();
}

void HttpConnection::refuse(int status, const std::string& message) {
  keep_alive_ = false;
  const std::string path = parser_ ? request_of(parser_->get()).path : "";  // as far as it has come
  answer({.status = status, .body = shared_.handler.error(path, status, message)});
}

// Until the reply has begun nobody reads, so who goes away must be looked for. What comes meanwhile is the next
// request.
void HttpConnection::watch() {
  if (buffer_.size() > 0) return;
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this(), number = number_](error_code error) {
    const bool answers = self->state_ == State::kAnswering || self->state_ == State::kStreaming;
    if (error || number != self->number_ || !answers) return;
    char next = 0;
    const ssize_t n = ::recv(self->socket_.native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) self->gone();
  });
}

void HttpConnection::answer(HttpReply reply) {
  http::response<http::string_body> response(static_cast<http::status>(reply.status), chunked_ ? 11 : 10);
  response.set(http::field::content_type, reply.type);
  for (const auto& [name, value] : reply.headers) response.set(name, value);
  response.keep_alive(keep_alive_);
  response.body() = std::move(reply.body);
  response.prepare_payload();
  if (head_only_) response.body().clear();
  state_ = State::kAnswering;
  said_ = true;
  send(text_of(response));
}

void HttpConnection::stream(const std::string& events) {
  std::string bytes;
  if (state_ != State::kStreaming) {
    http::response<http::empty_body> head(http::status::ok, chunked_ ? 11 : 10);
    keep_alive_ = keep_alive_ && chunked_;
    head.set(http::field::content_type, "text/event-stream");
    head.set(http::field::cache_control, "no-cache");
    head.keep_alive(keep_alive_);
    std::ostringstream text;
    if (chunked_) head.set(http::field::transfer_encoding, "chunked");
    text << head.base();
    bytes = std::move(text).str();
    state_ = State::kStreaming;
  }
  if (!events.empty()) bytes += chunked_ ? chunk_of(events) : events;
  send(std::move(bytes));
}

void HttpConnection::end_stream() {
  said_ = true;
  send(chunked_ ? "0\r\n\r\n" : "");
}

void HttpConnection::send(std::string bytes) {
  waiting_ += bytes;
  if (!writing_) write();
  count_untaken();
}

void HttpConnection::write() {
  if (waiting_.empty()) return finish();
  writing_ = true;
  going_ = std::exchange(waiting_, {});
  expire_after(shared_.idle);
  asio::async_write(socket_, asio::buffer(going_),
                    [self = shared_from_this()](error_code error, size_t) { self->wrote(error); });
}

void HttpConnection::wrote(const error_code& error) {
  writing_ = false;
  going_.clear();
  count_untaken();
  if (state_ == State::kEnded) return;
  stop_timer();
  if (error) return gone();
  write();
}

// All that waited has gone. After the whole reply comes the next request.
void HttpConnection::finish() {
  if (!said_) return;
  said_ = false;
  ++number_;
  gone_ = {};
  count_body(0);
  count_exchange(false);
  if (!keep_alive_) return linger();
  read_head();
}

// A socket that is closed while bytes lie unread makes the peer's system throw away what it has not read yet.
void HttpConnection::linger() {
  if (state_ != State::kLingering) {
    state_ = State::kLingering;
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    expire_after(policy::kLinger);
  }
  socket_.async_read_some(asio::buffer(scratch_), [self = shared_from_this()](error_code error, size_t n) {
    if (self->state_ != State::kLingering) return;
    self->lingered_ += n;
    if (error || self->lingered_ > policy::kLingerBytes) return self->close();
    self->linger();
  });
}

void HttpConnection::gone() {
  const auto gone = std::exchange(gone_, {});
  close();
  if (gone) gone();
}

void HttpConnection::close() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  *closed_ = true;
  stop_timer();
  error_code ignored;
  socket_.close(ignored);
  count_body(0);
  count_exchange(false);
  shared_.ended(shared_from_this());
}

// Cuts short what is under way then.
void HttpConnection::expire_after(std::chrono::milliseconds time) {
  stop_timer();
  overdue_ = false;
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), number = timer_number_](error_code error) {
    if (error || self->state_ == State::kEnded || self->timer_number_ != number) return;
    self->overdue_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void HttpConnection::stop_timer() {
  ++timer_number_;
  timer_.cancel();
}

void HttpConnection::count_exchange(bool under_way) {
  if (under_way == std::exchange(exchanging_, under_way)) return;
  under_way ? ++shared_.exchanges : --shared_.exchanges;
}

void HttpConnection::count_body(uint64_t bytes) {
  shared_.body_bytes += bytes - counted_;
  counted_ = bytes;
}

}  // namespace sluice
