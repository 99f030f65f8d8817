#include "transport/fake_mpi.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace sluice::test {

struct FakeMpi::Mail {
  explicit Mail(int32_t size) : boxes(static_cast<size_t>(size)) {}
  std::mutex mutex;
  std::vector<std::deque<std::pair<int32_t, Bytes>>> boxes;  // by receiver: from whom, what
};

class FakeMpi::Rank final : public MessagePassing {
 public:
  Rank(std::shared_ptr<Mail> mail, int32_t rank) : mail_(std::move(mail)), rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return static_cast<int32_t>(mail_->boxes.size()); }
  std::string machine(int32_t rank) const override { return "machine" + std::to_string(rank / 2); }

  void send(int32_t to, Bytes message, uint64_t ticket) override {
    const std::lock_guard lock(mail_->mutex);
    mail_->boxes[static_cast<size_t>(to)].emplace_back(rank_, std::move(message));
    going_.push_back(ticket);
  }

  bool progress(const Sink& sink) override {
    const auto gone = std::exchange(going_, {});
    for (const uint64_t ticket : gone) sink.sent(ticket);
    bool any = !gone.empty();
    while (auto letter = next()) {
      sink.received(letter->first, std::move(letter->second));
      any = true;
    }
    return any;
  }

  void finalize() override {}
  [[noreturn]] void abort(int status) override { std::_Exit(status); }

 private:
  std::optional<std::pair<int32_t, Bytes>> next() {
    const std::lock_guard lock(mail_->mutex);
    auto& box = mail_->boxes[static_cast<size_t>(rank_)];
    if (box.empty()) return std::nullopt;
    auto letter = std::move(box.front());
    box.pop_front();
    return letter;
  }

  const std::shared_ptr<Mail> mail_;
  const int32_t rank_;
  std::vector<uint64_t> going_;
};

FakeMpi::FakeMpi(int32_t size) : mail_(std::make_shared<Mail>(size)) {}
FakeMpi::~FakeMpi() = default;

MpiJob::Start FakeMpi::start(int32_t rank) {
  return
      [mail = mail_, rank]() -> Result<std::unique_ptr<MessagePassing>> { return std::make_unique<Rank>(mail, rank); };
}

Ranks::Ranks(int32_t size) : mpi_(size) {
  for (int32_t rank = 0; rank < size; ++rank) jobs_.push_back(MpiJob::open(mpi_.start(rank)).value());
}

Ranks::~Ranks() {
  std::vector<std::thread> others;
  for (size_t rank = 1; rank < jobs_.size(); ++rank)
    others.emplace_back([&job = *jobs_[rank]] {
      job.wait_for_end();
      EXPECT_TRUE(job.end(60));
    });
  EXPECT_TRUE(jobs_[0]->end(60));
  for (std::thread& other : others) other.join();
}

}  // namespace sluice::test
