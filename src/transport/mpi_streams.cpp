#include "transport/mpi_streams.h"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cstring>

#include "transport/little_endian.h"

namespace sluice {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr size_t kHeaderBytes = 8;
constexpr int kMostGoing = 2;  // messages of a stream that MPI has not taken yet
constexpr uint64_t kNoTicket = 0;

}  // namespace

class MpiStream final : public ByteStream {
 public:
  MpiStream(std::shared_ptr<MpiStreams> all, const MpiStreams::Key& key, uint64_t ticket)
      : all_(std::move(all)), key_(key), ticket_(ticket) {}

  void shake_hands(Side, std::function<void(error_code)> done) override {
    asio::post(all_->io_, [done = std::move(done)] { done({}); });
  }
  void read_some(asio::mutable_buffer to, Done done) override {
    reading_.emplace(Reading{to, std::move(done)});
    serve_reader();
  }
  void write(asio::const_buffer from, Done done) override {
    const auto* bytes = static_cast<const std::byte*>(from.data());
    writing_.emplace(Writing{{bytes, from.size()}, from.size(), std::move(done)});
    serve_writer();
  }
  void shut() override { send(MpiStreams::Kind::kShut); }
  void close() override {
    if (!open_) return;
    open_ = false;
    send(MpiStreams::Kind::kGone);
    all_->forget(*this);
    finish_reading(asio::error::operation_aborted, 0);
    finish_writing(asio::error::operation_aborted, 0);
  }
  asio::any_io_executor executor() override { return all_->io_.get_executor(); }
  std::string wanted() const override { return "up, and a sluice of this release"; }

  const MpiStreams::Key& key() const { return key_; }
  uint64_t ticket() const { return ticket_; }

  // Of a message the bytes after its header.
  void take_bytes(Bytes message) {
    n_came_ += message.size() - kHeaderBytes;
    if (n_came_ > granted_)
      trouble_ = asio::error::message_size;
    else
      came_.push_back(std::move(message));
    serve_reader();
  }
  void take_grant(uint64_t bytes) {
    allowed_ = std::max(allowed_, bytes);
    serve_writer();
  }
  void take_end() {
    if (!trouble_) trouble_ = asio::error::eof;
    serve_reader();
  }
  // What is still written goes nowhere; that the peer is gone is said to who reads.
  void take_gone() {
    gone_ = true;
    take_end();
    serve_writer();
  }
  void sent() {
    --going_;
    serve_writer();
  }

 private:
  struct Reading {
    asio::mutable_buffer to;
    Done done;
  };
  struct Writing {
    std::span<const std::byte> left;
    size_t size = 0;
    Done done;
  };

  void send(MpiStreams::Kind kind, std::span<const std::byte> contents = {}, uint64_t ticket = kNoTicket) {
    if (!gone_) all_->send(kind, key_, contents, ticket);
  }

  void serve_reader() {
    if (!reading_) return;
    if (came_.empty()) {
      if (trouble_) finish_reading(*trouble_, 0);
      return;
    }
    const auto message = std::span(came_.front()).subspan(kHeaderBytes + n_read_of_first_);
    const size_t n = std::min(message.size(), reading_->to.size());
    std::memcpy(reading_->to.data(), message.data(), n);
    n_read_of_first_ += n;
    n_read_ += n;
    if (n == message.size()) {
      came_.pop_front();
      n_read_of_first_ = 0;
    }
    grant();
    finish_reading({}, n);
  }

  void grant() {
    if (n_read_ + kMpiWindow < granted_ + kMpiWindow / 2) return;
    granted_ = n_read_ + kMpiWindow;
    Bytes contents;
    put_number(granted_, sizeof granted_, contents);
    send(MpiStreams::Kind::kGrant, contents);
  }

  void serve_writer() {
    if (!writing_) return;
    while (!gone_ && !writing_->left.empty() && n_sent_ < allowed_ && going_ < kMostGoing) {
      const size_t n = std::min<uint64_t>(writing_->left.size(), allowed_ - n_sent_);
      send(MpiStreams::Kind::kBytes, writing_->left.first(n), ticket_);
      writing_->left = writing_->left.subspan(n);
      n_sent_ += n;
      ++going_;
    }
    if (gone_ || writing_->left.empty()) finish_writing({}, writing_->size);
  }

  void finish_reading(error_code error, size_t n) {
    if (reading_) asio::post(all_->io_, [done = std::move(reading_->done), error, n] { done(error, n); });
    reading_.reset();
  }
  void finish_writing(error_code error, size_t n) {
    if (writing_) asio::post(all_->io_, [done = std::move(writing_->done), error, n] { done(error, n); });
    writing_.reset();
  }

  const std::shared_ptr<MpiStreams> all_;
  const MpiStreams::Key key_;
  const uint64_t ticket_;  // of messages with its bytes
  bool open_ = true, gone_ = false;

  std::optional<Reading> reading_;
  std::deque<Bytes> came_;  // messages
  size_t n_read_of_first_ = 0;
  uint64_t n_came_ = 0, n_read_ = 0, granted_ = kMpiWindow;  // bytes
  std::optional<error_code> trouble_;                        // after what has come

  std::optional<Writing> writing_;
  uint64_t n_sent_ = 0, allowed_ = kMpiWindow;  // bytes
  int going_ = 0;
};

std::unique_ptr<ByteStream> MpiStreams::open(int32_t to) {
  auto stream = make({.peer = to, .ours = true, .number = n_opened_++});
  send(Kind::kOpen, stream->key(), {}, kNoTicket);
  return stream;
}

void MpiStreams::take_opened(Take take) {
  take_ = std::move(take);
  if (!take_) return;
  for (auto& [from, stream] : std::exchange(waiting_, {})) take_(from, std::move(stream));
}

std::unique_ptr<MpiStream> MpiStreams::make(const Key& key) {
  auto stream = std::make_unique<MpiStream>(shared_from_this(), key, ++n_made_);
  streams_.emplace(key, stream.get());
  by_ticket_.emplace(stream->ticket(), stream.get());
  return stream;
}

void MpiStreams::forget(const MpiStream& stream) {
  streams_.erase(stream.key());
  by_ticket_.erase(stream.ticket());
}

void MpiStreams::tell(int32_t to, News news) {
  const std::byte contents[] = {static_cast<std::byte>(news)};
  send(Kind::kNews, {.peer = to}, contents, kNoTicket);
}

bool MpiStreams::progress() {
  return mpi_.progress({.received = [this](int32_t from, Bytes message) { receive(from, std::move(message)); },
                        .sent = [this](uint64_t ticket) { sent(ticket); }});
}

void MpiStreams::send(Kind kind, const Key& key, std::span<const std::byte> contents, uint64_t ticket) {
  if (stopped_) return;
  Bytes message;
  message.reserve(kHeaderBytes + contents.size());
  message.push_back(static_cast<std::byte>(kind));
  message.push_back(static_cast<std::byte>(!key.ours));
  put_number(0, sizeof(uint16_t), message);
  put_number(key.number, sizeof key.number, message);
  message.insert(message.end(), contents.begin(), contents.end());
  ++n_going_;
  mpi_.send(key.peer, std::move(message), ticket);
  moved_();
}

// What belongs to a stream that is gone here is of no interest; neither is what no rank of this release sends.
void MpiStreams::receive(int32_t from, Bytes message) {
  if (message.size() < kHeaderBytes) return;
  const auto all = std::span<const std::byte>(message);
  const auto contents = all.subspan(kHeaderBytes);
  const auto kind = static_cast<Kind>(message[0]);
  const Key key{.peer = from,
                .ours = message[1] != std::byte{0},
                .number = static_cast<uint32_t>(number(all.subspan(4, sizeof(uint32_t))))};
  if (kind == Kind::kNews) {
    if (!contents.empty() && on_news) on_news(from, static_cast<News>(contents[0]));
    return;
  }
  const auto found = streams_.find(key);
  if (kind == Kind::kOpen) {
    if (key.ours || found != streams_.end()) return;
    auto stream = make(key);
    if (take_)
      take_(from, std::move(stream));
    else
      waiting_.emplace_back(from, std::move(stream));
    return;
  }
  if (found == streams_.end()) return;
  MpiStream& stream = *found->second;
  if (kind == Kind::kBytes && !contents.empty()) stream.take_bytes(std::move(message));
  if (kind == Kind::kGrant && contents.size() == sizeof(uint64_t)) stream.take_grant(number(contents));
  if (kind == Kind::kShut) stream.take_end();
  if (kind == Kind::kGone) stream.take_gone();
}

void MpiStreams::sent(uint64_t ticket) {
  --n_going_;
  if (const auto found = by_ticket_.find(ticket); found != by_ticket_.end()) found->second->sent();
}

}  // namespace sluice
