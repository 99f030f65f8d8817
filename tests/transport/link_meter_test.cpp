// What a receiver can know of a link without the sender's clock.
#include "transport/link_meter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "pipeline/link_clock.h"

namespace sluice {
namespace {

struct Sent {
  double bytes, pause;  // seconds since the one before
};

// Frames over a link whose receiver's clock is a week off and runs by `drift` too fast.
LinkMeter measured(const Link& link, const std::vector<Sent>& frames, double drift = 0.0) {
  LinkClock clock(link, {.seed = 3, .purpose = Purpose::kLink});
  LinkMeter meter;
  double now = 0.0;
  for (const auto& [bytes, pause] : frames) {
    now += pause;
    meter.saw(bytes, pause, 6e5 + (1.0 + drift) * clock.send(now, bytes));
  }
  return meter;
}

// A prompt's frames and then those of decoding, 12 ms apart.
std::vector<Sent> answer(size_t n) {
  const DrawSite site{.seed = 1, .purpose = Purpose::kTest};
  std::vector<Sent> frames;
  for (size_t i = 0; i < n; ++i)
    frames.push_back(i < 4 ? Sent{300e3, 0.012} : Sent{6e3 * (1 + std::floor(20 * uniform(site, i))), 0.012});
  return frames;
}

TEST(LinkMeter, FindsTheBytesASecondOfAThinLink) {
  const auto meter = measured({.latency = 0.03, .bandwidth = 12.5e6}, answer(200));
  EXPECT_NEAR(meter.seconds_per_byte() * 12.5e6, 1.0, 0.05);
}

TEST(LinkMeter, FramesThatWaitForOthersCountOnlyTheirOwnTime) {
  std::vector<Sent> burst = answer(60);
  for (size_t i = 0; i < burst.size(); ++i) burst[i].pause = i % 10 == 0 ? 0.5 : 0.0;
  const auto meter = measured({.latency = 0.03, .bandwidth = 1e6}, burst);
  EXPECT_NEAR(meter.seconds_per_byte() * 1e6, 1.0, 0.05);
}

TEST(LinkMeter, JitterIsNoOccupancy) {
  const Link link{.latency = 0.06, .bandwidth = 12.5e6, .jitter = 0.1};
  EXPECT_NEAR(measured(link, answer(400)).seconds_per_byte() * 12.5e6, 1.0, 0.4);
  EXPECT_LT(measured({.latency = 0.06, .bandwidth = 0, .jitter = 0.1}, answer(400)).seconds_per_byte() * 12.5e6, 0.4);
}

TEST(LinkMeter, ClocksMayDrift) {
  EXPECT_NEAR(measured({.latency = 0.03, .bandwidth = 12.5e6}, answer(2000), 1e-4).seconds_per_byte() * 12.5e6, 1.0,
              0.1);
}

TEST(LinkMeter, OfAFastLinkItSaysNothing) {
  EXPECT_LT(measured({.latency = 1e-5, .bandwidth = 0}, answer(200)).seconds_per_byte(), 1e-12);
  EXPECT_EQ(LinkMeter().seconds_per_byte(), 0.0);
}

}  // namespace
}  // namespace sluice
