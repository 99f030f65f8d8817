#include "transport/socket_connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cmath>
#include <utility>

namespace sluice {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Time is counted in ticks of the network's thread: if this process is held up, the peer's bytes lie ready all the
// while, and are read before the next tick.
constexpr std::chrono::milliseconds kTick{125};
constexpr int64_t kClosingTicks = 8;    // for a peer to take what it is told last
constexpr size_t kMostGreeting = 4096;  // bytes of a frame, from who may be anybody

int64_t ticks_of(double seconds) {
  return std::max<int64_t>(2, static_cast<int64_t>(std::ceil(std::min(seconds, 1e6) * 1000 / kTick.count())));
}

std::string seconds_text(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + " s";
}

}  // namespace

SocketConnection::SocketConnection(std::unique_ptr<ByteStream> stream, Side side, std::string peer,
                                   ConnectionOptions options)
    : stream_(std::move(stream)),
      side_(side),
      peer_(std::move(peer)),
      options_(std::move(options)),
      most_ticks_(ticks_of(options_.patience)),
      most_first_ticks_(ticks_of(options_.connect)),
      timer_(stream_->executor()),
      reader_(std::min(kMostGreeting, options_.most_frame)),
      inflow_(std::make_shared<Inflow>(options_.most_waiting)) {}

void SocketConnection::start(const Hello& hello, Greeting greeting) {
  hello_ = hello;
  greeting_ = std::move(greeting);
  tick();
  stream_->shake_hands(side_, [self = shared_from_this()](error_code error) {
    if (self->state_ != State::kShaking) return;
    if (error) return self->end(self->handshake_failure(error));
    self->state_ = State::kGreeting;
    if (self->side_ == Side::kClient) self->queue(encode(self->hello_), Priority::kUrgent);
    self->read();
  });
}

std::string SocketConnection::handshake_failure(const error_code& error) const {
  if (error == asio::error::eof || error == asio::error::connection_reset)
    return "it ended the connection before TLS was agreed: is it a sluice of this release, with the same --secret?";
  return "it has another secret or none (" + error.message() + "): give both sides the same file by --secret";
}

// Has it done on the network's thread, if this is still there then.
template <class Do>
void SocketConnection::post(Do&& act) {
  asio::post(timer_.get_executor(), [weak = weak_from_this(), act = std::forward<Do>(act)]() mutable {
    if (const auto self = weak.lock()) act(*self);
  });
}

void SocketConnection::listen(Ears ears) {
  post([ears = std::move(ears)](SocketConnection& self) mutable {
    if (self.late_) ears.end(*self.late_);
    if (self.late_ || self.state_ == State::kEnded) return;
    self.ears_ = std::move(ears);
    for (auto early = std::exchange(self.early_, {}); !early.empty() && self.ears_.frame; early.pop_front())
      self.ears_.frame(std::move(early.front()));
    self.read();
  });
}

Status SocketConnection::send(Bytes frame, Priority priority) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return ended_ || out_.waiting(priority) < options_.most_waiting; });
  if (ended_) return tl::unexpected<Error>(*ended_);
  out_.add(std::move(frame), priority);
  if (std::exchange(writing_, true)) return {};
  writing_ = !at_once_ || !write_at_once();
  if (writing_) let_network_write();
  return {};
}

void SocketConnection::queue(Bytes frame, Priority priority) {
  const std::lock_guard lock(mutex_);
  out_.add(std::move(frame), priority);
  if (!std::exchange(writing_, true)) let_network_write();
}

Bytes SocketConnection::buffer() {
  const std::lock_guard lock(mutex_);
  return out_.buffer();
}

void SocketConnection::let_network_write() {
  asio::post(timer_.get_executor(), [self = shared_from_this()] { self->write(); });
}

// What waits goes without a change of threads, as far as the system takes it. False: `output_` has not gone. Under the
// mutex, which end() takes before it closes the socket.
bool SocketConnection::write_at_once() {
  gone_ = 0;
  while (out_.fill(output_)) {
    gone_ = stream_->write_at_once(asio::buffer(output_));
    if (gone_ < output_.size()) return false;
    gone_ = 0;
  }
  return true;
}

// Sends what waits, piece by piece, most urgent first.
void SocketConnection::write() {
  if (state_ == State::kEnded) return;
  if (gone_ == output_.size()) {
    const std::lock_guard lock(mutex_);
    gone_ = 0;
    writing_ = out_.fill(output_);
    if (!writing_ && state_ != State::kClosing) return;
  }
  room_.notify_all();
  if (output_.empty()) return wrote();
  written_for_ = shared_from_this();
  stream_->write(asio::buffer(output_) + gone_, [this](error_code error, size_t) {
    const auto self = std::move(written_for_);
    if (self->state_ == State::kEnded) return;
    if (error) return self->end("the connection broke (" + error.message() + "): is it still up?");
    self->gone_ = self->output_.size();
    self->write();
  });
}

// All that was to be said is said. What still comes is read, or the peer's system would throw away what it has got.
void SocketConnection::wrote() { stream_->shut(); }

void SocketConnection::read() {
  const bool deaf = state_ == State::kOpen && !ears_.frame;
  if (reading_ || deaf || state_ == State::kEnded) return;
  const auto resume = [this]() -> std::function<void()> {
    return [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->post([](SocketConnection& connection) { connection.read(); });
    };
  };
  if (inflow_->is_full(resume)) return;
  reading_ = true;
  read_for_ = shared_from_this();
  stream_->read_some(asio::buffer(input_), [this](error_code error, size_t n) {
    const auto self = std::move(read_for_);
    self->reading_ = false;
    if (self->state_ == State::kEnded) return;
    if (error && self->state_ == State::kGreeting && self->side_ == Side::kClient)
      return self->end("it ended the connection at once: is it " + self->stream_->wanted() + "?");
    if (error == asio::error::eof) return self->end("it ended the connection");
    if (error) return self->end("the connection broke (" + error.message() + "): is it still up?");
    self->take(n);
    self->read();
  });
}

void SocketConnection::take(size_t n) {
  if (state_ == State::kClosing) return;
  const ChunkReader::Sink sink{.frame = [&](Bytes frame, Priority) { take_frame(std::move(frame)); },
                               .beat = [&](uint64_t progress) { peer_progress_ = progress; },
                               .buffer = [&] { return inflow_->buffers().take(); }};
  const uint64_t before = reader_.taken();
  const Status status = reader_.take(std::span(input_).first(n), sink);
  silent_ticks_ = 0;
  if (reader_.taken() != before) stuck_ticks_ = 0;
  if (!status && state_ != State::kEnded) give_up(status.error());
}

// What the peer sends is of no worth. A client knows who that is; a server tells it why.
void SocketConnection::give_up(const Error& error) {
  if (side_ == Side::kClient) return end(error.message);
  const auto ear = std::exchange(ears_.end, {});
  leave(error);
  late_ = {ErrorKind::kRuntime, peer_ + ": " + error.message};
  if (ear) ear(*late_);
}

void SocketConnection::take_frame(Bytes frame) {
  if (state_ == State::kGreeting) return greet(frame);
  if (state_ != State::kOpen) return;
  Frame held(std::move(frame), inflow_);
  if (ears_.frame)
    ears_.frame(std::move(held));
  else
    early_.push_back(std::move(held));
}

void SocketConnection::greet(const Bytes& frame) {
  const auto message = decode(frame);
  if (!message) return give_up(message.error());
  if (const auto* refused = std::get_if<WorkerFailed>(&*message)) return end(said_by(peer_, refused->error));
  if (const auto* hello = std::get_if<Hello>(&*message)) return meet(*hello);
  leave(Error{ErrorKind::kRuntime, "a message before its hello"});
}

void SocketConnection::meet(const Hello& hello) {
  const bool other = hello.epoch != hello_.epoch || hello.stage != hello_.stage || hello.role != hello_.role;
  if (side_ == Side::kClient && other) return end("it is part of another pipeline");
  reader_.set_most(options_.most_frame);
  state_ = State::kOpen;
  const Greeting greeting = std::exchange(greeting_, {});
  if (const Status accepted = greeting.met(hello); !accepted) return leave(accepted.error());
  if (side_ == Side::kServer) queue(encode(hello), Priority::kUrgent);
  const std::lock_guard lock(mutex_);
  at_once_ = true;
}

void SocketConnection::close() {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = Error{ErrorKind::kRuntime, peer_ + ": the connection was closed"};
  }
  room_.notify_all();
  post([](SocketConnection& self) {
    if (self.state_ == State::kClosing) return;  // it ends when the peer has been told why
    self.ears_ = {};
    self.end("the connection was closed");
  });
}

void SocketConnection::close_because(const Error& error) {
  post([error](SocketConnection& self) { self.leave(error); });
}

// Tells the peer why, and ends.
void SocketConnection::leave(const Error& error) {
  if (state_ == State::kEnded || state_ == State::kClosing) return;
  if (state_ == State::kShaking) return end(error);
  const Greeting greeting = std::exchange(greeting_, {});
  if (greeting.failed) greeting.failed(error);
  ears_ = {};
  early_.clear();
  state_ = State::kClosing;
  ticks_ = 0;
  {
    const std::lock_guard lock(mutex_);
    at_once_ = false;
  }
  queue(encode(WorkerFailed{error}), Priority::kUrgent);
  read();
}

void SocketConnection::tick() {
  timer_.expires_after(kTick);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->state_ == State::kEnded || self->overdue()) return;
    if (self->state_ == State::kOpen) {
      const uint64_t progress = self->options_.progress();  // who is asked may hold a lock and wait for ours
      const std::lock_guard lock(self->mutex_);
      self->out_.beat(progress);
      if (!std::exchange(self->writing_, true)) self->let_network_write();
    }
    self->tick();
  });
}

// Ends what the peer has let wait too long.
bool SocketConnection::overdue() {
  const std::string patience = seconds_text(options_.patience);
  const bool beginning = state_ == State::kShaking || state_ == State::kGreeting;
  ++ticks_;
  if ((beginning && ticks_ > most_first_ticks_) || (state_ == State::kClosing && ticks_ > kClosingTicks)) {
    end("it did not answer within " + seconds_text(options_.connect) + ": is it " + stream_->wanted() + "?");
    return true;
  }
  if (state_ != State::kOpen || !reading_) return false;
  if (++silent_ticks_ > most_ticks_) {
    end("it has been silent for " + patience + ": is it up, and is its network?");
    return true;
  }
  if (reader_.in_the_middle() && ++stuck_ticks_ > most_ticks_) {
    end("it stopped in the middle of a frame for " + patience);
    return true;
  }
  return false;
}

void SocketConnection::end(const Error& error) {
  if (state_ == State::kEnded) return;
  const bool told = state_ == State::kClosing;
  state_ = State::kEnded;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = error;
  }
  room_.notify_all();
  timer_.cancel();
  stream_->close();
  early_.clear();
  const Ears ears = std::exchange(ears_, {});
  const Greeting greeting = std::exchange(greeting_, {});
  if (told) return;
  if (greeting.failed)
    greeting.failed(error);
  else if (ears.end)
    ears.end(error);
  else
    late_ = error;
}

}  // namespace sluice
