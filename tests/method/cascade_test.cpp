// The cascade by itself, on streams that are no tokens: sensor events become frames, frames become a video, each stage
// better and slower than the one before. Whatever the timing, the result is what the largest stage alone would say.
#include "method/cascade.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

namespace sluice {
namespace {

struct Frame {
  int32_t time = 0;     // its place in the stream, so that no two are equal
  int32_t content = 0;  // what a stage sees there
  bool operator==(const Frame&) const = default;
};
using Stream = std::vector<Frame>;

std::vector<int32_t> contents(std::span<const Frame> frames) {
  std::vector<int32_t> all;
  for (const Frame& frame : frames) all.push_back(frame.content);
  return all;
}

bool begins_with(std::span<const Frame> stream, std::span<const Frame> beginning) {
  return stream.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), stream.begin());
}

// What each stage would put after a stream: one that disagrees with its successor now and then, here or there, as a
// function of all that came before.
class Sight {
 public:
  Sight(uint32_t seed, size_t n_stages, double agreement) : seed_(seed), n_stages_(n_stages), agreement_(agreement) {}

  Frame after(const Stream& stream, size_t stage) const {
    uint64_t state = seed_;
    for (const Frame& frame : stream) state = state * 6364136223846793005ull + static_cast<uint64_t>(frame.content) + 1;
    std::mt19937_64 random(state);
    auto content = static_cast<int32_t>(random() % 5);  // the largest stage's
    for (size_t s = n_stages_ - 1; s > stage; --s)
      if (static_cast<double>(random() % 1000) >= 1000.0 * agreement_) content = static_cast<int32_t>(random() % 5);
    return {static_cast<int32_t>(stream.size()), content};
  }

  Stream alone(size_t stage, size_t length) const {
    Stream stream;
    while (stream.size() < length) stream.push_back(after(stream, stage));
    return stream;
  }

 private:
  uint32_t seed_;
  size_t n_stages_;
  double agreement_;
};

// All stages at work at once: each begins with what it then sees, and ends whenever the dice say so.
class Play {
 public:
  Play(uint32_t seed, size_t n_stages)
      : random_(seed),
        sight_(seed, n_stages, 0.3 + 0.2 * static_cast<double>(seed % 4)),
        cascade_(n_stages),
        work_(n_stages) {}

  Stream run(size_t length) {
    const size_t last = cascade_.stages() - 1;
    while (final_.size() + cascade_.output(last).size() < length) {
      const size_t stage = random_() % cascade_.stages();
      if (!work_[stage]) {
        begin(stage);
      } else if (random_() % (1 + 2 * stage) == 0) {  // larger stages are slower
        end(stage);
      }
      if (random_() % 20 == 0) settle();
      check_order();
    }
    Stream all = final_;
    all.insert(all.end(), cascade_.output(last).begin(), cascade_.output(last).end());
    all.resize(length);
    return all;
  }

  size_t rollbacks = 0, largest_batch = 0;

 private:
  struct Work {
    Stream before, drafts;
  };

  Stream stream_of(size_t stage) const {
    Stream all = final_;
    all.insert(all.end(), cascade_.output(stage).begin(), cascade_.output(stage).end());
    return all;
  }

  void begin(size_t stage) {
    const auto drafts = cascade_.drafts(stage);
    // It takes all there is, or part of it.
    const size_t n = drafts.empty() || random_() % 2 ? drafts.size() : random_() % drafts.size();
    if (cascade_.output(stage).size() > 40) return;  // far enough ahead
    work_[stage] = Work{stream_of(stage), Stream(drafts.begin(), drafts.begin() + static_cast<ptrdiff_t>(n))};
    largest_batch = std::max(largest_batch, n);
  }

  void end(size_t stage) {
    const Work work = *work_[stage];
    work_[stage].reset();
    const bool still_true = stream_of(stage) == work.before && begins_with(cascade_.drafts(stage), work.drafts);
    rollbacks += !still_true;
    if (!still_true) return;
    Stream says, stream = work.before;
    for (const Frame& draft : work.drafts) {
      says.push_back(sight_.after(stream, stage));
      stream.push_back(draft);
    }
    says.push_back(sight_.after(stream, stage));
    size_t agrees = 0;
    while (agrees < work.drafts.size() && work.drafts[agrees] == says[agrees]) ++agrees;
    EXPECT_EQ(cascade_.worked(stage, says), agrees);
    EXPECT_EQ(stream_of(stage).size(), work.before.size() + agrees + 1);
  }

  // Somebody has watched the video up to here.
  void settle() {
    const auto output = cascade_.output(cascade_.stages() - 1);
    if (output.empty()) return;
    const size_t n = 1 + random_() % output.size();
    const Stream watched(output.begin(), output.begin() + static_cast<ptrdiff_t>(n));
    final_.insert(final_.end(), watched.begin(), watched.end());
    cascade_.settle(watched.back());
  }

  // Whoever is smaller has all that the larger one holds to be right.
  void check_order() const {
    for (size_t stage = 1; stage < cascade_.stages(); ++stage)
      ASSERT_TRUE(begins_with(cascade_.output(stage - 1), cascade_.output(stage))) << "stage " << stage;
  }

  std::mt19937 random_;
  Sight sight_;
  Cascade<Frame> cascade_;
  std::vector<std::optional<Work>> work_;
  Stream final_;
};

TEST(Cascade, GivesWhatTheLargestStageAloneWouldWhateverTheInterleaving) {
  size_t rollbacks = 0, largest_batch = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const size_t n_stages = 1 + seed % 4;
    Play play(seed, n_stages);
    const Stream video = play.run(60);
    ASSERT_EQ(contents(video), contents(Sight(seed, n_stages, 0.3 + 0.2 * (seed % 4)).alone(n_stages - 1, 60)))
        << "seed " << seed;
    rollbacks += play.rollbacks;
    largest_batch = std::max(largest_batch, play.largest_batch);
  }
  EXPECT_GT(rollbacks, 1000u);    // work that was in vain: there were disagreements
  EXPECT_GT(largest_batch, 10u);  // and agreement, for a while
}

// Frames of one content each, at places 0, 1, ….
Stream frames(std::initializer_list<int32_t> all, int32_t first = 0) {
  Stream stream;
  for (const int32_t content : all) stream.push_back({first++, content});
  return stream;
}

TEST(Cascade, AStageTakesOverWhatItAgreesWithAndAddsOneOfItsOwn) {
  Cascade<Frame> cascade(2);
  for (int32_t i = 0; i < 4; ++i) cascade.worked(0, frames({7}, i));
  EXPECT_EQ(contents(cascade.drafts(1)), (std::vector<int32_t>{7, 7, 7, 7}));
  EXPECT_EQ(cascade.worked(1, frames({7, 7, 8, 7, 7})), 2u);  // what it says after its own 8 was of a path that is gone
  EXPECT_EQ(contents(cascade.output(1)), (std::vector<int32_t>{7, 7, 8}));
  EXPECT_EQ(contents(cascade.output(0)), (std::vector<int32_t>{7, 7, 8}));
  EXPECT_TRUE(cascade.drafts(1).empty());
}

TEST(Cascade, FullAgreementLeavesTheSmallerStagesAhead) {
  Cascade<Frame> cascade(2);
  for (int32_t i = 0; i < 4; ++i) cascade.worked(0, frames({7}, i));
  EXPECT_EQ(cascade.worked(1, frames({7, 7, 7})), 2u);  // it looked at two of them
  EXPECT_EQ(cascade.output(1).size(), 3u);
  EXPECT_EQ(cascade.output(0).size(), 4u);
  EXPECT_EQ(contents(cascade.drafts(1)), std::vector<int32_t>{7});
}

TEST(Cascade, ARejectionRollsBackAllSmallerStages) {
  Cascade<Frame> cascade(3);
  for (int32_t i = 0; i < 5; ++i) cascade.worked(0, frames({1}, i));
  cascade.worked(1, frames({1, 1, 1, 1}));
  EXPECT_EQ(cascade.worked(2, frames({1, 5, 1})), 1u);
  for (size_t stage = 0; stage < 3; ++stage)
    EXPECT_EQ(contents(cascade.output(stage)), (std::vector<int32_t>{1, 5})) << stage;
}

TEST(Cascade, ARejectionInTheMiddleLeavesTheLargerOnesAlone) {
  Cascade<Frame> cascade(3);
  for (int32_t i = 0; i < 5; ++i) cascade.worked(0, frames({1}, i));
  cascade.worked(1, frames({1, 1, 1}));
  cascade.worked(2, frames({1, 1}));
  EXPECT_EQ(cascade.worked(1, frames({6, 1}, 3)), 0u);
  EXPECT_EQ(contents(cascade.output(2)), (std::vector<int32_t>{1, 1}));
  EXPECT_EQ(contents(cascade.output(1)), (std::vector<int32_t>{1, 1, 1, 6}));
  EXPECT_EQ(contents(cascade.output(0)), (std::vector<int32_t>{1, 1, 1, 6}));
  EXPECT_EQ(contents(cascade.drafts(2)), (std::vector<int32_t>{1, 6}));
}

TEST(Cascade, WhatIsFinalIsForgottenAndWhoDidNotHoldItBeginsAnew) {
  Cascade<Frame> cascade(2);
  for (int32_t i = 0; i < 4; ++i) cascade.worked(0, frames({1}, i));
  cascade.worked(1, frames({1}));
  cascade.settle({1, 1});  // stage 1 has not come so far, so it is left without
  EXPECT_EQ(contents(cascade.output(0)), (std::vector<int32_t>{1, 1}));
  EXPECT_TRUE(cascade.output(1).empty());
  cascade.settle({2, 9});  // nobody has this one
  EXPECT_TRUE(cascade.output(0).empty());
  EXPECT_TRUE(cascade.output(1).empty());
}

}  // namespace
}  // namespace sluice
