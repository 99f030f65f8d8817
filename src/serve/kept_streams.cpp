#include "serve/kept_streams.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "serve/answer_form.h"
#include "serve/policy.h"

namespace sluice {

namespace {

// "chat-1:23": the stream and the number.
std::optional<std::pair<std::string, size_t>> parts_of(const std::string& id) {
  const size_t colon = id.rfind(':');
  if (colon == id.npos) return std::nullopt;
  size_t number = 0;
  const char* const end = id.data() + id.size();
  const auto [read, error] = std::from_chars(id.data() + colon + 1, end, number);
  if (error != std::errc() || read != end) return std::nullopt;
  return std::pair(id.substr(0, colon), number);
}

// Takes the first event of a text, with the empty line behind it.
std::string_view take_event(std::string_view& events) {
  const size_t end = std::min(events.find("\n\n"), events.size() - 2) + 2;
  const std::string_view event = events.substr(0, end);
  events.remove_prefix(end);
  return event;
}

}  // namespace

class KeptStreams::Stream : public Exchange, public std::enable_shared_from_this<Stream> {
 public:
  Stream(KeptStreams& all, std::string name, std::shared_ptr<Exchange> client)
      : all_(all), name_(std::move(name)), timer_(all.threads_.get_executor()), client_(std::move(client)) {}

  // There is no stream: it was refused.
  void reply(HttpReply reply) override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      if (client_) client_->reply(std::move(reply));
    }
    all_.forget(name_);
  }

  void stream(std::string events) override {
    const std::lock_guard lock(mutex_);
    std::string named;
    for (std::string_view rest = events; !rest.empty();) {
      const std::string event = "id: " + name_ + ":" + std::to_string(++n_) + "\n" + std::string(take_event(rest));
      named += event;
      if ((bytes_ += event.size()) <= policy::kLongestKeptStream) events_.push_back(event);
    }
    if (bytes_ > policy::kLongestKeptStream) events_.clear();
    if (client_) client_->stream(std::move(named));
  }

  void end_stream() override {
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (client_) client_->end_stream();
    wait();
  }

  size_t untaken() const override {
    const std::lock_guard lock(mutex_);
    return client_ ? client_->untaken() : 0;
  }

  void on_gone(std::function<void()> gone) override {
    std::shared_ptr<Exchange> client;
    {
      const std::lock_guard lock(mutex_);
      if (!given_up_) gone_ = std::exchange(gone, nullptr);
      client = client_;
    }
    if (gone) gone();
    if (client) listen(client);
  }

  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return given_up_;
  }

  ApiStatus take_up(size_t after, const std::shared_ptr<Exchange>& client) {
    {
      const std::lock_guard lock(mutex_);
      if (given_up_) return error(404, "is kept no more");
      if (bytes_ > policy::kLongestKeptStream) return error(410, "has become too long to be taken up again");
      if (after > n_) return error(400, "has no such event yet");
      if (client_) client_->end_stream();  // it reads elsewhere now
      client_ = client;
      ++waits_;
      std::string missed;
      for (size_t i = after; i < n_; ++i) missed += events_[i];
      client_->stream(std::move(missed));
      if (over_) client_->end_stream();
      if (over_) wait();
    }
    listen(client);
    return {};
  }

  // Nobody takes it up any more; what it is the answer to is cancelled unless it has ended.
  void give_up() {
    std::function<void()> gone;
    {
      const std::lock_guard lock(mutex_);
      given_up_ = true;
      timer_.cancel();
      if (!over_) gone = std::exchange(gone_, nullptr);
    }
    if (gone) gone();
    all_.forget(name_);
  }
  // It waits for nobody any more.
  void end() {
    const bool alone = [this] {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      timer_.cancel();
      return given_up_ = client_ == nullptr;
    }();
    if (alone) give_up();
  }

 private:
  tl::unexpected<ApiError> error(int status, const std::string& what) const {
    return tl::unexpected<ApiError>({.status = status,
                                     .message = "the stream " + name_ + " " + what,
                                     .param = "Last-Event-ID",
                                     .code = "no_stream"});
  }

  // Hears when this client goes.
  void listen(const std::shared_ptr<Exchange>& client) {
    client->on_gone([stream = weak_from_this(), client = std::weak_ptr(client)] {
      if (const auto there = stream.lock()) there->lost(client.lock());
    });
  }

  void lost(const std::shared_ptr<Exchange>& client) {
    {
      const std::lock_guard lock(mutex_);
      if (client_ != client || over_) return;  // another one reads it by now
      client_ = nullptr;
      if (!ending_) return wait();
      given_up_ = true;
    }
    give_up();
  }

  // Gives it up after a time. REQUIRES: mutex_ is held.
  void wait() {
    if (ending_) return;
    timer_.expires_after(policy::kStreamWaits);
    timer_.async_wait([stream = weak_from_this(), number = ++waits_](const boost::system::error_code& error) {
      const auto there = error ? nullptr : stream.lock();
      if (there) there->waited(number);
    });
  }
  // In vain, unless somebody has taken it up meanwhile.
  void waited(uint64_t number) {
    {
      const std::lock_guard lock(mutex_);
      if (number != waits_) return;
      given_up_ = true;
    }
    give_up();
  }

  KeptStreams& all_;
  const std::string name_;
  mutable std::mutex mutex_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Exchange> client_;  // null: it has lost its connection
  std::function<void()> gone_;
  std::vector<std::string> events_;  // all of them, each with its id
  size_t n_ = 0, bytes_ = 0;         // of events
  uint64_t waits_ = 0;
  bool over_ = false, given_up_ = false, ending_ = false;
};

std::shared_ptr<Exchange> KeptStreams::keep(std::shared_ptr<Exchange> client) {
  const std::lock_guard lock(mutex_);
  if (ended_ || streams_.size() >= policy::kMostStreams) return client;
  const std::string name = new_id("stream-");
  return streams_[name] = std::make_shared<Stream>(*this, name, std::move(client));
}

ApiStatus KeptStreams::take_up(const std::string& id, std::shared_ptr<Exchange> client) {
  const auto parts = parts_of(id);
  if (!parts)
    return bad_parameter("Last-Event-ID", "must be the id of the last event that has come, as in stream-0123abcd:45");
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = streams_.find(parts->first); at != streams_.end()) stream = at->second;
  }
  if (stream) return stream->take_up(parts->second, client);
  return tl::unexpected<ApiError>({.status = 404,
                                   .message = "there is no such stream, or no more: it is kept for " +
                                              std::to_string(policy::kStreamWaits.count()) + " s without a client",
                                   .param = "Last-Event-ID",
                                   .code = "no_stream"});
}

void KeptStreams::end() {
  std::map<std::string, std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    streams = streams_;
  }
  for (const auto& [name, stream] : streams) stream->end();
}

void KeptStreams::forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  streams_.erase(name);
}

}  // namespace sluice
