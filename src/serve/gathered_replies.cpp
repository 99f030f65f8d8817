#include "serve/gathered_replies.h"

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "base/result.h"

namespace sluice {

namespace {

class Gathered {
 public:
  Gathered(std::shared_ptr<Exchange> client, size_t n) : client_(std::move(client)), replies_(n), left_(n) {}

  void take(size_t i, HttpReply reply) {
    if (reply.status != 200) return fail(std::move(reply));
    const std::lock_guard lock(mutex_);
    if (left_ == 0) return;
    replies_[i] = std::move(reply.body);
    if (--left_ == 0) client_->reply({.status = 200, .body = list()});
  }

  void on_gone(std::function<void()> gone) {
    {
      const std::lock_guard lock(mutex_);
      if (!gone_) return all_gone_.push_back(std::move(gone));
    }
    gone();
  }

  // What is still to come is for nobody.
  void give_up() {
    std::vector<std::function<void()>> all;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      all = std::exchange(all_gone_, {});
    }
    for (const auto& gone : all) gone();
  }

  bool gone() const {
    const std::lock_guard lock(mutex_);
    return gone_ || client_->gone();
  }

 private:
  void fail(HttpReply reply) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(left_, 0) == 0) return;
      client_->reply(std::move(reply));
    }
    give_up();
  }

  std::string list() const {
    std::string all;
    for (const std::string& one : replies_) all += (all.empty() ? "[" : ",") + one;
    return all + "]";
  }

  std::shared_ptr<Exchange> client_;
  mutable std::mutex mutex_;
  std::vector<std::string> replies_;
  size_t left_;  // 0: the client has its reply
  bool gone_ = false;
  std::vector<std::function<void()>> all_gone_;
};

class Part : public Exchange {
 public:
  Part(std::shared_ptr<Gathered> all, size_t i) : all_(std::move(all)), i_(i) {}

  void reply(HttpReply reply) override { all_->take(i_, std::move(reply)); }
  void stream(std::string) override { SLUICE_CHECK(false, "what is gathered are whole replies"); }
  void end_stream() override { SLUICE_CHECK(false, "what is gathered are whole replies"); }
  void on_gone(std::function<void()> gone) override { all_->on_gone(std::move(gone)); }
  bool gone() const override { return all_->gone(); }

 private:
  std::shared_ptr<Gathered> all_;
  size_t i_;
};

}  // namespace

std::vector<std::shared_ptr<Exchange>> gather_replies(const std::shared_ptr<Exchange>& client, size_t n) {
  const auto all = std::make_shared<Gathered>(client, n);
  std::vector<std::shared_ptr<Exchange>> parts;
  for (size_t i = 0; i < n; ++i) parts.push_back(std::make_shared<Part>(all, i));
  client->on_gone([all = std::weak_ptr(all)] {
    if (const auto there = all.lock()) there->give_up();
  });
  return parts;
}

}  // namespace sluice
