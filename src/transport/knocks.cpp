#include "transport/knocks.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/generation.h"

namespace sluice {

namespace {

constexpr double kPatience = 1.0;                // seconds for an answer
constexpr std::chrono::milliseconds kAgain{50};  // between two tries

}  // namespace

Knocks::Knocks(Network& network, std::function<void(const HostAddress&)> answered)
    : network_(network), answered_(std::move(answered)) {}

Knocks::~Knocks() { stop(); }

void Knocks::at(const HostAddress& host) {
  const std::lock_guard lock(mutex_);
  std::erase_if(knocks_, [](const Knock& knock) { return knock.done; });
  const auto same = [&](const Knock& knock) {
    return knock.host == host && !knock.thread.get_stop_token().stop_requested();
  };
  if (std::ranges::any_of(knocks_, same)) return;
  Knock& knock = knocks_.emplace_back();
  knock.host = host;
  knock.thread = std::jthread([this, &knock, host](const std::stop_token& stop) {
    ask(host, stop);
    const std::lock_guard done(mutex_);
    knock.done = true;
  });
}

void Knocks::stop() {
  const std::lock_guard lock(mutex_);
  for (Knock& knock : knocks_) knock.thread.request_stop();
}

// As one asks a spare, and says no more: then the host holds nothing.
void Knocks::ask(const HostAddress& host, const std::stop_token& stop) {
  const Hello hello{.epoch = random_epoch(), .stage = StageId(0), .role = Hello::Role::kSpare};
  while (!stop.stop_requested()) {
    const auto answer = network_.connect(host, hello, {.connect = kPatience});
    if (stop.stop_requested()) return;
    if (answer) {
      (*answer)->close();
      return answered_(host);
    }
    std::this_thread::sleep_for(kAgain);
  }
}

}  // namespace sluice
