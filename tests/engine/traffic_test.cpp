// When the next batch enters, by what stages and links were heard to take.
#include "engine/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/largest.h"
#include "support/harness.h"

namespace sluice {
namespace {

constexpr double kPass = 0.010;

// A pipeline of equal stages that a batch reaches `there` seconds after it was sent, whose reports take as long back,
// and whose links take `between` seconds each, also the last one to the coordinator.
class Clocked {
 public:
  Clocked(size_t n_stages, double there, double between)
      : traffic(n_stages), n_(n_stages), there_(there), between_(between), free_(n_stages) {}

  void send() {
    const BatchId batch(next_++);
    traffic.submitted({.batch = batch, .submitted = now, .n_rows = 1});
    double at = now + there_;
    for (size_t s = 0; s < n_; ++s) {
      const double begin = std::max(at, free_[s]);
      reports_.push_back({.stage = StageId(static_cast<int32_t>(s)),
                          .batch = batch,
                          .begin = begin,
                          .end = begin + kPass,
                          .rows_computed = 1,
                          .waited = begin - at});
      free_[s] = begin + kPass;
      at = begin + kPass + between_;
    }
    outcomes_.emplace_back(batch, at);
  }

  // What is heard until then, each thing in its time.
  void wait_until(double time) {
    for (;;) {
      const auto report = std::min_element(reports_.begin(), reports_.end(),
                                           [](const auto& a, const auto& b) { return a.end < b.end; });
      const double heard = report == reports_.end() ? 1e9 : report->end + there_;
      const double out = outcomes_.empty() ? 1e9 : outcomes_.front().second;
      if (std::min(heard, out) > time) break;
      now = std::min(heard, out);
      if (heard <= out) {
        traffic.computed(*report, now);
        reports_.erase(report);
      } else {
        traffic.came_out({.batch = outcomes_.front().first, .accepted = {{}}}, now);
        outcomes_.erase(outcomes_.begin());
      }
    }
    now = time;
  }

  // Sends whenever a batch may be sent, for so long. How long the first stage idled in the second half.
  double run(double seconds) {
    const double end = now + seconds, half = now + seconds / 2;
    double idle = 0;
    while (now < end) {
      const auto entry = traffic.next_entry(false);
      if (entry && *entry <= now) {
        if (now > half) idle += std::max(0.0, now + there_ - free_[0]);
        send();
        continue;
      }
      wait_until(std::min(now + 0.0001, entry ? std::max(*entry, now + 1e-9) : end));
    }
    return idle;
  }

  Traffic traffic;
  double now = 0;

 private:
  size_t n_;
  double there_, between_;
  int64_t next_ = 0;
  std::vector<double> free_;
  std::vector<StageReport> reports_;
  std::vector<std::pair<BatchId, double>> outcomes_;
};

TEST(Largest, IsTheLargestWhateverChanges) {
  test::Dice dice(3);
  std::vector<double> values(7);
  Largest largest(values.size());
  EXPECT_EQ(largest.value(), 0.0);
  for (int i = 0; i < 2000; ++i) {
    const auto at = static_cast<size_t>(dice.below(7));
    values[at] = dice.below(20) / 4.0;
    largest.set(at, values[at]);
    ASSERT_EQ(largest.value(), *std::max_element(values.begin(), values.end()));
  }
}

TEST(Traffic, ANearStageTakesABatchWhenItSaysThatItIsFree) {
  Clocked near(4, 0.0, 0.0);
  near.run(1.0);
  EXPECT_EQ(near.traffic.credits(), 1u);
  near.wait_until(2.0);
  EXPECT_TRUE(near.traffic.next_entry(false));
  near.send();
  EXPECT_FALSE(near.traffic.next_entry(false)) << "not before it says so";
  near.wait_until(2.0 + kPass);
  ASSERT_TRUE(near.traffic.next_entry(false));
  EXPECT_LE(*near.traffic.next_entry(false), near.now);
}

// Point for point: it takes `there` to send, as much to hear.
TEST(Traffic, AFarStageIsSentBatchesSoThatTheyArriveWhenItFallsFree) {
  for (const double there : {0.003, 0.022, 0.2}) {
    Clocked far(4, there, 0.03);
    EXPECT_LT(far.run(20.0), 0.02 * 10.0) << "idle for less than 2 %, " << there << " seconds away";
    EXPECT_EQ(far.traffic.credits(), 2 + static_cast<size_t>(std::ceil(2 * there / kPass - 1e-6)));
    far.wait_until(100.0);
    far.send();
    ASSERT_TRUE(far.traffic.next_entry(false));
    EXPECT_NEAR(*far.traffic.next_entry(false), 100.0 + kPass, 0.1 * kPass);
  }
}

TEST(Traffic, ARingIsFilledWhateverItsLinksTake) {
  Clocked far(6, 0.045, 0.045);
  far.run(20.0);
  const double round = 0.045 + 6 * (kPass + 0.045);
  EXPECT_NEAR(static_cast<double>(far.traffic.depth()), round / kPass, 1.0);
}

TEST(Traffic, ARowCostsWhatItAddsToTheSlowestLinkIfThatIsSlowerThanStages) {
  Traffic traffic(2);
  int64_t next = 0;
  for (int i = 0; i < 60; ++i)
    for (const int32_t rows : {2, 4}) {
      const BatchId batch(next++);
      traffic.submitted({.batch = batch, .submitted = 0, .n_rows = rows});
      for (const int32_t s : {0, 1})
        traffic.computed({.stage = StageId(s),
                          .batch = batch,
                          .begin = 0,
                          .end = kPass,
                          .rows_computed = static_cast<uint16_t>(rows),
                          .received = s * rows * 0.004,
                          .rows_received = static_cast<uint16_t>(rows)},
                         0);
      traffic.came_out({.batch = batch}, 1);
    }
  // To within what neighbouring widths are drawn together.
  EXPECT_NEAR(traffic.times().seconds(2), kPass, 0.05 * kPass) << "the link takes 8 ms";
  EXPECT_NEAR(traffic.times().seconds(4), 0.016, 0.05 * 0.016);
}

TEST(Traffic, ForgetsWhatItSawButNotWhatItForesaw) {
  Clocked far(4, 0.022, 0.03);
  far.run(1.0);
  EXPECT_FALSE(far.traffic.is_settled());
  far.wait_until(100.0);
  EXPECT_TRUE(far.traffic.is_settled());
  EXPECT_GT(far.traffic.credits(), 1u);
  far.traffic.forget();
  EXPECT_FALSE(far.traffic.knows_times());
  EXPECT_EQ(far.traffic.credits(), 1u);
  EXPECT_EQ(far.traffic.depth(), Traffic(4).depth());
  EXPECT_EQ(far.traffic.transit(), 0.0);
  for (const StageClock& stage : far.traffic.stages()) EXPECT_EQ(stage.batches, 0);

  Traffic foresees(4);
  const auto profile = Profile::load("paper-8x");
  ASSERT_TRUE(profile);
  foresees.foresee_prompts(CostModel(*profile, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, 64));
  const double before = foresees.prompt_times().seconds(128);
  foresees.forget();
  EXPECT_GT(before, 0.0);
  EXPECT_EQ(foresees.prompt_times().seconds(128), before);
}

}  // namespace
}  // namespace sluice
