// What a plan is made of: what methods promise, and what is kept of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "method/methods.h"
#include "session/forecast.h"
#include "session/kept_plan.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

// --- forecasts

// A pass takes the longer the more rows it has, so that a method must have seen some before it knows what pays. Odd
// numbers: what happens at the same instant by chance may come in either order when the clock stands elsewhere.
const std::string kDearRows = R"({"name": "rows", "source": "made up",
  "stage": {"points": [[1, 0.001013], [2, 0.001237], [16, 0.004153]]},
  "draft": {"points": [[1, 0.000317], [16, 0.000919]]}})";

// profile: JSON.
Result<Session> simulated(const std::string& method = kAutoMethod, const std::string& profile = "",
                          std::optional<DraftPlace> draft_on = {}) {
  SessionOptions options{.model = six_layers().model.path(),
                         .drafts = {five_layers().model.path()},
                         .stages = 3,
                         .executor = ExecutorKind::kVirtual,
                         .draft_on = draft_on,
                         .compute = Compute::kLazy,
                         .threads = 1};
  if (!profile.empty()) std::ofstream(options.profile = temp_path("profile.json")) << profile;
  options.request.method = method;
  options.request.max_tokens = 24;
  options.request.ignore_end = true;
  return Session::open(options);
}

const std::vector<std::vector<Token>> kTexts = {{97, 98, 99, 97, 98, 99}, {100, 101, 102, 103}, {97, 97, 97, 98}};

TEST(Forecast, IsWhatEachMethodMakesOfTheTexts) {
  const auto session = simulated();
  ASSERT_TRUE(session) << session.error().message;
  const auto all = contenders(true);
  const auto found = forecast(*session, kTexts, all, [](double) { return true; });
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->texts, kTexts.size());
  ASSERT_EQ(found->all.size(), all.size());
  EXPECT_NEAR(found->plain().tokens_per_second, 1000.0 / 3, 1.0) << "three stages of a millisecond";
  EXPECT_NEAR(found->plain().high, found->plain().low, 1.0) << "whatever the text";
  EXPECT_GT(found->best().tokens_per_second, 1.2 * found->plain().tokens_per_second);
  for (size_t i = 1; i < found->all.size(); ++i)
    EXPECT_LE(found->all[i].tokens_per_second, found->all[i - 1].tokens_per_second);
}

// As `sluice run` would do it, an engine of its own for each answer: whoever else was tried, in whatever order.
TEST(Forecast, IsWhatARunBrings) {
  const auto session = simulated(kAutoMethod, kDearRows);
  ASSERT_TRUE(session) << session.error().message;
  auto all = contenders(true);
  for (const bool backwards : {false, true}) {
    if (backwards) std::ranges::reverse(all);
    const auto found = forecast(*session, kTexts, all, [](double) { return true; });
    ASSERT_TRUE(found) << found.error().message;
    for (const Forecast& forecast : found->all) {
      std::vector<Pace> paces;
      for (const auto& text : kTexts) {
        const auto engine = session->make_engine(forecast.contender.method, 1);
        RequestSpec spec = session->spec(text, forecast.contender.method);
        spec.method_options = forecast.contender.options;
        spec.sources = forecast.contender.sources;
        const RequestId id = submit(**engine, spec);
        finish(**engine);
        paces.push_back({.tokens = 23, .seconds = (*engine)->figures(id).decode_seconds});
      }
      const double alone = rate_of(paces).value;
      EXPECT_NEAR(forecast.tokens_per_second, alone, 1e-6 * alone) << forecast.contender.name();
    }
  }
}

TEST(Forecast, CountsWholeTextsOnlyWhenItIsToldToEnd) {
  const auto session = simulated();
  const auto all = contenders(true);
  const double one = 1.0 / static_cast<double>(kTexts.size());
  auto found = forecast(*session, kTexts, all, [&](double share) { return share < 1.5 * one; });
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->texts, 1u);
  EXPECT_EQ(found->best().low, found->best().high) << "one text says nothing of others";
  EXPECT_GT(found->best().low, 0);
  // Also in the middle of an answer, of which there are steps before the first share.
  int32_t asked = 0;
  found = forecast(*session, kTexts, all, [&](double share) { return share > 0 || ++asked < 3; });
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->texts, 0u);
  EXPECT_EQ(asked, 3);
  found = forecast(*session, kTexts, all, [](double) { return false; });
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->texts, 0u);
}

TEST(Forecasts, TheBestIsTheSurestOfThoseThatPromiseAboutTheMost) {
  const auto best = [](std::vector<Forecast> all) { return Forecasts{.all = std::move(all), .texts = 8}.best(); };
  const Forecast lucky{.contender = {"surge", {}, {}, {}}, .tokens_per_second = 25.5, .low = 10, .high = 41};
  const Forecast steady{.contender = {"sd", {}, {}, {}}, .tokens_per_second = 24.6, .low = 16, .high = 33};
  const Forecast slow{.contender = {"ar", {}, {}, {}}, .tokens_per_second = 20, .low = 20, .high = 20};
  EXPECT_EQ(best({lucky, steady, slow}).contender.method, "sd");
  EXPECT_EQ(best({lucky, slow}).contender.method, "surge") << "another is too much slower";
  Forecast one_text = lucky;
  one_text.low = one_text.high = one_text.tokens_per_second;
  EXPECT_EQ(best({one_text, steady}).contender.method, "surge");
}

// Samples of a known population: 95 of 100 intervals hold its rate.
TEST(Rate, ItsIntervalsHoldTheTruth) {
  Dice dice(5);
  int held = 0;
  constexpr int kSamples = 2000;
  for (int i = 0; i < kSamples; ++i) {
    std::vector<Pace> answers;
    for (int k = 0; k < 8; ++k) {
      const double tokens = 40 + 80 * dice.uniform(), of_a_token = 0.05 + 0.1 * dice.uniform();  // 0.1 on average
      answers.push_back({.tokens = tokens, .seconds = tokens * of_a_token});
    }
    const Rate rate = rate_of(answers);
    held += std::abs(rate.value - 10) <= rate.half;
  }
  EXPECT_NEAR(held / static_cast<double>(kSamples), 0.95, 0.03);
  EXPECT_EQ(rate_of(std::vector<Pace>{{10, 2}}).value, 5);
  EXPECT_EQ(rate_of(std::vector<Pace>{{10, 2}}).half, 0);
  EXPECT_EQ(rate_of({}).value, 0);
}

TEST(Contenders, BeginWithPlainDecodingAndHaveNamesOfTheirOwn) {
  for (const bool with_draft : {false, true}) {
    const auto all = contenders(with_draft);
    EXPECT_EQ(all.front().name(), "ar");
    std::set<std::string> names;
    for (const Contender& contender : all) {
      EXPECT_TRUE(find_method(contender.method)) << contender.name();
      EXPECT_TRUE(names.insert(contender.name()).second) << contender.name();
    }
  }
}

// --- what is kept

TEST(KeptPlan, IsFoundForTheSameAlone) {
  const PlanKey key{.model = "m", .drafts = {"d"}, .hosts = {"a:1", "b:2"}, .stages = 2, .pace = {}};
  EXPECT_FALSE(find_plan(key));
  const DraftPlace there = DraftPlace::parse("c:3").value();
  ASSERT_TRUE(keep_plan(key, {.cuts = {3}, .draft_on = there, .contender = "sd --depth 3", .tokens_per_second = 5}));
  ASSERT_TRUE(has_plans());
  const auto plan = find_plan(key);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->cuts, std::vector<int32_t>{3});
  EXPECT_EQ(plan->draft_on, there);
  ASSERT_TRUE(plan->best(true));
  EXPECT_EQ(plan->best(true)->options.depth, 3);
  EXPECT_FALSE(plan->best(false)) << "it needs the draft";
  std::vector<PlanKey> others(6, key);
  others[0].model = "n";
  others[1].drafts = {"e"};
  others[2].hosts = {"b:2", "a:1"};
  others[3].stages = 3;
  others[4].pace = "p";
  others[5].devices = {"ggml:cpu"};
  for (const PlanKey& other : others) EXPECT_FALSE(find_plan(other)) << other.text();
  for (const char* broken : {"", "{", "[]", "3", R"({"for": 1})", R"({"for": "x", "cuts": "y"})"}) {
    std::ofstream(key.path()) << broken;
    EXPECT_FALSE(find_plan(key)) << broken;
  }
}

TEST(KeptPlan, AutoBeginsWithIt) {
  const auto before = simulated();
  ASSERT_TRUE(before) << before.error().message;
  EXPECT_EQ(before->method(), "surge");
  EXPECT_EQ(before->planned(), "");
  ASSERT_TRUE(keep_plan(*before->plan_key(), {.cuts = {1, 2}, .contender = "sd --depth 3"}));
  const auto after = simulated();
  EXPECT_EQ(after->method(), "sd");
  EXPECT_EQ(after->spec({1}).method_options.depth, 3);
  EXPECT_EQ(after->planned(), "auto begins with sd --depth 3");
  EXPECT_EQ(simulated("surge")->method(), "surge") << "what was named stays";
  EXPECT_EQ(after->cuts().size(), 3u);
  std::filesystem::remove(before->plan_key()->path());
}

// Draft passes of half a step: on a device of its own, or in the way of the last stage.
TEST(KeptPlan, AutoRunsTheDraftModelWhereItSays) {
  const auto seconds = [](const Session& session) {
    const auto engine = session.make_engine(1);
    EXPECT_TRUE(engine);
    const RequestId id = submit(**engine, session.spec(kTexts[0]));
    finish(**engine);
    return (*engine)->figures(id).decode_seconds;
  };
  const DraftPlace with_last{.kind = DraftPlace::Kind::kStage, .stage = 2};
  const auto own = simulated("specpipe"), shared = simulated("specpipe", "", with_last);
  ASSERT_TRUE(shared) << shared.error().message;
  const auto too_many = simulated("specpipe", "", DraftPlace{.kind = DraftPlace::Kind::kStage, .stage = 3});
  ASSERT_FALSE(too_many);
  EXPECT_NE(too_many.error().message.find("--draft-on 3"), std::string::npos) << too_many.error().message;
  EXPECT_NE(seconds(*shared), seconds(*own));
  ASSERT_TRUE(keep_plan(*own->plan_key(), {.cuts = {1, 2}, .draft_on = with_last, .contender = "specpipe"}));
  const auto planned = simulated();
  EXPECT_EQ(planned->planned(), "the draft model with stage 2, auto begins with specpipe");
  EXPECT_EQ(simulated(kAutoMethod, "", DraftPlace{})->planned(), "auto begins with specpipe")
      << "what is asked for stays";
  EXPECT_EQ(planned->plan_key()->text(), own->plan_key()->text());
  std::filesystem::remove(own->plan_key()->path());
}

}  // namespace
}  // namespace sluice::test
