// A stage computes what an honest peer sends, and refuses everything else, whatever it is.
#include "pipeline/frame_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "support/stage_traffic.h"
#include "wire/codec.h"
#include "wire/fields.h"

namespace sluice::test {
namespace {

Message over_the_wire(const Message& message) { return decode(encode(message)).value(); }

class EveryStage : public testing::TestWithParam<StageSort> {
 protected:
  static Stage stage() { return make_stage(std::get<StageRecipe>(over_the_wire(stage_recipe(GetParam())))).value(); }
};

TEST_P(EveryStage, ComputesWhatAnHonestPeerSends) {
  Stage there = stage();
  for (const Message& message : honest_traffic(GetParam())) {
    const Status done = receive(there, over_the_wire(message));
    EXPECT_TRUE(done) << done.error().message;
  }
}

// Sets one number of a message, somewhere, to another.
class Spoiler {
 public:
  explicit Spoiler(uint64_t seed) : random_(seed) {}

  void spoil(Message& message) {
    n_ = 0;
    at_ = ~uint64_t{0};
    visit_all(message);
    if (n_ == 0) return;
    at_ = random_() % n_;
    n_ = 0;
    visit_all(message);
  }

 private:
  void visit_all(Message& message) {
    std::visit([this](auto& contents) { this->visit(contents); }, message);
  }
  bool is_it() { return n_++ == at_; }
  int64_t odd_number() {
    constexpr int64_t kOdd[] = {-1, 0,  1,  2,  3,   7,   11,  12,    13,          15,        16,
                                17, 21, 47, 48, 255, 256, 257, 65535, -2147483648, 2147483647};
    return random_() % 8 == 0 ? static_cast<int64_t>(random_()) : kOdd[random_() % std::size(kOdd)];
  }
  double odd_real() {
    constexpr double kOdd[] = {-1.0, 0.0, 1.0, 1e30, -1e30, std::numeric_limits<double>::infinity(), 0.3};
    const size_t i = random_() % (std::size(kOdd) + 1);
    return i < std::size(kOdd) ? kOdd[i] : std::nan("");
  }

  template <class T>
  requires std::is_arithmetic_v<T>
  void visit(T& x) {
    if (!is_it()) return;
    if constexpr (std::is_same_v<T, bool>)
      x = !x;
    else if constexpr (std::is_floating_point_v<T>)
      x = static_cast<T>(odd_real());
    else
      x = static_cast<T>(odd_number());
  }
  void visit(Rule& x) {
    if (is_it()) x = static_cast<Rule>(random_() % 4);
  }
  void visit(Row::Kind& x) {
    if (is_it()) x = static_cast<Row::Kind>(random_() % 2);
  }
  template <class T>
  requires std::is_enum_v<T>
  void visit(T&) {}
  template <class Tag, class Number>
  void visit(Id<Tag, Number>& x) {
    visit(x.value);
  }
  template <class A, class B>
  void visit(std::pair<A, B>& x) {
    visit(x.first);
    visit(x.second);
  }
  template <class T, size_t n>
  void visit(std::array<T, n>&) {}
  void visit(std::string&) {}
  template <class T>
  void visit(std::vector<T>& x) {
    if (is_it()) {
      if (!x.empty() && random_() % 2 == 0)
        x.erase(x.begin() + static_cast<ptrdiff_t>(random_() % x.size()));
      else if (!x.empty())
        x.insert(x.begin() + static_cast<ptrdiff_t>(random_() % x.size()), T(x[random_() % x.size()]));
      else
        x.resize(random_() % 3);
    }
    for (T& element : x) visit(element);
  }
  template <class... Held>
  void visit(std::variant<Held...>& x) {
    std::visit([this](auto& held) { this->visit(held); }, x);
  }
  template <class T>
  requires std::is_aggregate_v<T>
  void visit(T& x) {
    for_each_field(x, [this](auto& field) { this->visit(field); });
  }

  std::mt19937_64 random_;
  uint64_t n_ = 0, at_ = 0;
};

TEST_P(EveryStage, SurvivesWhatIsSpoilt) {
  const std::vector<Message> honest = honest_traffic(GetParam());
  int refused = 0, broken = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Stage there = stage();
    Spoiler spoiler(seed);
    std::vector<Message> messages = honest;
    for (uint64_t n = seed % 3 + 1; n > 0; --n) spoiler.spoil(messages[(seed / 3 + n) % messages.size()]);
    for (const Message& message : messages) {
      const Status done = receive(there, over_the_wire(message));
      if (done) continue;
      ++(done.error().kind == ErrorKind::kInput ? refused : broken);
      break;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(broken, 10) << "what only those find out who keep the paths of verified tokens";
}

INSTANTIATE_TEST_SUITE_P(FrameCheck, EveryStage, testing::ValuesIn(kStageSorts),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

// Changes one message of the traffic to a stage, which is refused in these words.
template <class Kind>
void expect_refused(StageSort sort, size_t which, const std::string& words, const std::function<void(Kind&)>& change) {
  Stage there = make_stage(stage_recipe(sort)).value();
  std::vector<Message> messages = honest_traffic(sort);
  change(std::get<Kind>(messages[which]));
  for (size_t i = 0; i < which; ++i) ASSERT_TRUE(receive(there, messages[i]));
  const Status done = receive(there, messages[which]);
  ASSERT_FALSE(done) << words;
  EXPECT_EQ(done.error().kind, ErrorKind::kInput);
  EXPECT_EQ(done.error().message, "a peer sent what it must not: " + words + "; do all hosts run the same release?");
}

TEST(FrameCheck, SaysWhatIsWrongWithABatch) {
  const auto refused = [](const std::string& words, const std::function<void(Batch&)>& change) {
    expect_refused(StageSort::kFirst, 0, words, change);
  };
  refused("a row's cell is 48, of 48", [](Batch& b) { b.rows[1].cell = Cell(48); });
  refused("a row's cell is -1, of 48", [](Batch& b) { b.rows[1].cell = Cell(); });
  refused("a parent's cell is 1000, of 48", [](Batch& b) { b.rows[1].parent = Cell(1000); });
  refused("a row's position is -5, of 48", [](Batch& b) { b.rows[1].position = -5; });
  refused("a row's position is 48, of 48", [](Batch& b) { b.rows[1].position = 48; });
  refused("a row's number is 16, of 16", [](Batch& b) { b.rows[4].index = 16; });
  refused("rows are out of order", [](Batch& b) { b.rows[4].index = 3; });
  refused("a row of a sequence that isn't open", [](Batch& b) { b.rows[0].sequence = SequenceId(9); });
  refused("a parent is not the token before its child", [](Batch& b) { b.rows[4].parent = Cell(10); });
  refused("a sequence is opened twice", [](Batch& b) { b.updates.push_back(b.updates[0]); });
  refused("a sequence is closed that isn't open", [](Batch& b) { b.updates.emplace_back(Close{SequenceId(9)}); });
  refused("a fork of a sequence that isn't open", [](Batch& b) {
    b.updates.emplace_back(Fork{SequenceId(9), SequenceId(10), 0, {}});
  });
  refused("the temperature must be 0 (greedy) or a positive number, not -1.000000", [](Batch& b) {
    b.updates.emplace_back(Fork{SequenceId(9), SequenceId(4), 0, {.temperature = -1.0f}});
  });
  refused("the number of rows is 17, of 17", [](Batch& b) { b.rows.resize(17, b.rows[0]); });
  refused("4 numbers as the states of 5 rows", [](Batch& b) { b.hidden.resize(4); });
  refused("a token was drawn that its source could not draw", [](Batch& b) { b.draws[0].tokens = {3}; });
  refused("a token was drawn twice", [](Batch& b) { b.draws[0].tokens = {71, 71}; });
  refused("a candidate comes twice", [](Batch& b) { b.draws[0].q = {{71, 0.5f}, {71, 0.5f}}; });
  refused("a candidate's probability is none", [](Batch& b) { b.draws[0].q[0].probability = NAN; });
  refused("a head's inputs, to a stage that is none", [](Batch& b) { b.features.resize(1); });
  refused("the temperature must be 0 (greedy) or a positive number, not nan",
          [](Batch& b) { std::get<Open>(b.updates[0]).sampling.temperature = NAN; });
  const auto forks = [](const std::string& words, const std::function<void(Batch&)>& change) {
    expect_refused(StageSort::kFirst, 4, words, change);
  };
  const auto fork = [](Batch& b) -> Fork& { return std::get<Fork>(b.updates[0]); };
  forks("a path is forked beyond its end", [&](Batch& b) { fork(b).length = 3; });
  forks("a path is forked beyond its end", [&](Batch& b) { fork(b).length = -1; });
  forks("a sequence is opened twice", [&](Batch& b) { fork(b).sequence = fork(b).from; });
  forks("a parent is not the token before its child", [&](Batch& b) { fork(b).length = 1; });
  forks("a committed cell is given out again", [](Batch& b) { b.rows[1].cell = Cell(21); });  // its first holder ended
  forks("more sequences than cells", [](Batch& b) {
    for (int32_t i = 0; i < kStageCells; ++i) b.updates.emplace_back(Fork{SequenceId(100 + i), SequenceId(8), 2, {}});
  });
  expect_refused<Batch>(StageSort::kFirst, 2, "batch 0 after 0", [](Batch& b) { b.id = BatchId(0); });
  expect_refused<Amendment>(StageSort::kLast, 1, "a row's number is 99, of 16",
                            [](Amendment& a) { a.late_draws[0].draws.row = 99; });
  expect_refused<Batch>(StageSort::kMiddle, 0, "159 numbers as the states of 5 rows",
                        [](Batch& b) { b.hidden.pop_back(); });
  expect_refused<Batch>(StageSort::kHalves, 0, "159 numbers as the states of 5 rows",
                        [](Batch& b) { b.halves.pop_back(); });
  expect_refused<Batch>(StageSort::kHalves, 0, "states as f32, to a stage that takes f16",
                        [](Batch& b) { b.hidden.resize(b.halves.size()); });
  expect_refused<Batch>(StageSort::kMiddle, 0, "states as f16, to one that takes f32",
                        [](Batch& b) { b.halves.resize(b.hidden.size()); });
}

// The last batch cuts a path of three tokens to the two of its checkpoint.
TEST(FrameCheck, WhatIsFoldedIsNotTakenApart) {
  const auto refused = [](const std::string& words, const std::function<void(Batch&)>& change) {
    expect_refused<Batch>(StageSort::kFolds, 4, words, change);
  };
  refused("a path of 3 folded tokens is cut to 1",
          [](Batch& batch) { std::get<Truncate>(batch.updates[1]).length = 1; });
  refused("a path of 2 folded tokens is cut to 1", [](Batch& batch) { std::get<Fork>(batch.updates[0]).length = 1; });
  refused("a checkpoint at 2 of 2 tokens that are there",
          [](Batch& batch) { std::get<Truncate>(batch.updates[1]).checkpoint = 2; });
}

TEST(FrameCheck, SaysWhatIsWrongWithAHeadsInputs) {
  const auto taps = [](const std::string& words, const std::function<void(Taps&)>& change) {
    expect_refused(StageSort::kExit, 0, words, change);
  };
  taps("states after layer 3, which this head does not read", [](Taps& t) { t.layers[0] = 3; });
  taps("states of a layer come twice", [](Taps& t) { t.layers.push_back(t.layers[0]); });
  taps("159 numbers as the states of 5 rows after 1 layers", [](Taps& t) { t.states.pop_back(); });
  const auto features = [](StageSort sort, const std::string& words, const std::function<void(Batch&)>& change) {
    expect_refused(sort, 1, words, change);
  };
  features(StageSort::kExit, "a row lacks the states that it is computed from",
           [](Batch& b) { b.features.erase(b.features.begin()); });
  features(StageSort::kSpd, "a row lacks the states that it is computed from",
           [](Batch& b) { b.features.erase(b.features.begin()); });
  features(StageSort::kSpd, "a depth is 3, of 3", [](Batch& b) { b.features[1].depth = 3; });
  features(StageSort::kEagle3, "states of a row that is not there", [](Batch& b) { b.features[1].row = 9; });
  features(StageSort::kEagle3, "a row's states come twice", [](Batch& b) { b.features.push_back(b.features[0]); });
}

// Of batches 4 and 7, of three rows each.
ReportCheck reports_of(StageSort sort, ModelId model, int32_t n_tokens) {
  ReportCheck check(model, stage_recipe(sort), n_tokens);
  for (const int64_t id : {4, 7}) {
    Batch batch{.id = BatchId(id)};
    for (uint16_t i = 0; i < 3; ++i)
      batch.rows.push_back({.sequence = SequenceId(1), .token = 70, .cell = Cell(3 + i), .index = i});
    check.submitted(batch);
  }
  return check;
}

TEST(ReportCheck, TheCoordinatorBelievesNoOutcomeEither) {
  constexpr ModelId kDraft(1);
  constexpr BatchId kFirst(4);
  const Accepted accepted{.sequence = SequenceId(1), .cell = Cell(3), .next = 70};
  const Drafted drafted{.row = 1, .depth = 0, .candidates = {{70, 0.5f}, {71, 0.25f}}};
  const auto of_target = [](const Outcome& said, int32_t n_tokens = 90) {
    return reports_of(StageSort::kLast, kTarget, n_tokens).check(said).has_value();
  };
  const auto of_draft = [](const Outcome& said, int32_t n_tokens = 90) {
    return reports_of(StageSort::kDraft, kDraft, n_tokens).check(said).has_value();
  };
  const auto verdict = [](const Accepted& said) { return Outcome{.batch = kFirst, .accepted = {said}}; };
  const auto guess = [](const Drafted& said) { return Outcome{.batch = kFirst, .drafted = {said}, .model = kDraft}; };
  EXPECT_TRUE(of_target(verdict(accepted)));
  EXPECT_TRUE(of_draft(guess(drafted)));
  EXPECT_FALSE(of_target({.batch = kFirst, .drafted = {drafted}}));
  EXPECT_FALSE(of_draft({.batch = kFirst, .accepted = {accepted}, .model = kDraft}));
  EXPECT_FALSE(of_target({.batch = kFirst, .model = kDraft})) << "for another model";
  EXPECT_FALSE(of_target(verdict(accepted), 70)) << "a token beyond the vocabulary";
  EXPECT_FALSE(of_draft(guess(drafted), 71));
  EXPECT_FALSE(of_target({.batch = BatchId(7)})) << "out of order";
  EXPECT_FALSE(of_target({.batch = BatchId(5)})) << "of a batch that was never submitted";
  Accepted outside = accepted, strange = accepted, bent = accepted;
  outside.cell = Cell(7);
  strange.sequence = SequenceId(2);
  bent.odds.resize(3);
  Accepted likely = accepted, many = accepted, foreign = accepted, nan = accepted;
  likely.top = {{70, -0.5f}, {71, -1.0f}};
  many.top.assign(kMostTopLogprobs + 1, {70, -0.5f});
  foreign.top = {{90, -0.5f}};
  nan.top = {{70, std::numeric_limits<float>::quiet_NaN()}};
  EXPECT_TRUE(of_target(verdict(likely)));
  EXPECT_FALSE(of_target(verdict(many)));
  EXPECT_FALSE(of_target(verdict(foreign)));
  EXPECT_FALSE(of_target(verdict(nan)));
  nan = accepted;
  nan.logprob = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(of_target(verdict(nan)));
  EXPECT_FALSE(of_target(verdict(outside))) << "the batch has no such row";
  EXPECT_FALSE(of_target(verdict(strange)));
  EXPECT_FALSE(of_target(verdict(bent)));
  Drafted deep = drafted, wide = drafted, beyond = drafted;
  deep.depth = 1;
  beyond.row = 3;
  wide.candidates.clear();
  for (Token token = 0; token < 65; ++token) wide.candidates.push_back({token, 0.01f});
  EXPECT_FALSE(of_draft(guess(deep)));
  EXPECT_FALSE(of_draft(guess(beyond))) << "of a row that the batch does not have";
  EXPECT_FALSE(of_draft(guess(wide))) << "more than any source gives";
}

TEST(ReportCheck, AStageReportsItsOwnPassesInTheirOrder) {
  const StageReport honest{.stage = StageId(1), .batch = BatchId(4), .begin = 0.5, .end = 0.75, .rows_computed = 3};
  const auto refused = [&](const std::string& words, const std::function<void(StageReport&)>& change) {
    StageReport report = honest;
    change(report);
    const Status done = reports_of(StageSort::kMiddle, kTarget, 90).check(report);
    ASSERT_FALSE(done) << words;
    EXPECT_NE(done.error().message.find(words), std::string::npos) << done.error().message;
  };
  refused("the report of stage 0", [](StageReport& r) { r.stage = StageId(0); });
  refused("the report of stage 2147483647", [](StageReport& r) { r.stage = StageId(2147483647); });
  refused("what model 1 would say, from model 0", [](StageReport& r) { r.model = ModelId(1); });
  refused("a pass from nan", [](StageReport& r) { r.begin = std::nan(""); });
  refused("to inf s", [](StageReport& r) { r.end = std::numeric_limits<double>::infinity(); });
  refused("a pass from 0.5", [](StageReport& r) { r.end = 0.25; });
  refused("the number of rows is 4, of 4", [](StageReport& r) { r.rows_computed = 4; });
  refused("the report of batch 7, before 4", [](StageReport& r) { r.batch = BatchId(7); });
  ReportCheck reports = reports_of(StageSort::kMiddle, kTarget, 90);
  StageReport report = honest;
  EXPECT_TRUE(reports.check(report));
  report.batch = BatchId(7);
  EXPECT_TRUE(reports.check(report));
  EXPECT_FALSE(reports.check(report)) << "none is awaited";
  EXPECT_FALSE(reports.check(Outcome{.batch = BatchId(4)})) << "it is not the last stage";
}

TEST(ArrivalCheck, StatesComeInTheOrderOfBatchesFromEachStageThatIsTapped) {
  std::vector<StageRecipe> target(3);
  for (int32_t s = 0; s < 3; ++s) target[static_cast<size_t>(s)].stage = StageId(s);
  target[0].options.taps = {1};
  target[2].options.taps = {4, 5};
  const auto arrivals = [&] {
    ArrivalCheck check(target);
    for (const int64_t id : {4, 7}) check.submitted({.id = BatchId(id)});
    return check;
  };
  ArrivalCheck honest = arrivals();
  for (const auto& [batch, stage] : {std::pair{4, 0}, {7, 0}, {4, 2}, {7, 2}})
    EXPECT_TRUE(honest.check({BatchId(batch), StageId(stage)}));
  EXPECT_FALSE(honest.check({BatchId(8), StageId(0)})) << "of a batch that was never submitted";
  EXPECT_FALSE(arrivals().check({BatchId(7), StageId(0)})) << "out of order";
  EXPECT_FALSE(arrivals().check({BatchId(4), StageId(1)})) << "it is not tapped";
  EXPECT_FALSE(arrivals().check({BatchId(4), StageId(1'000'000'000)}));
}

}  // namespace
}  // namespace sluice::test
