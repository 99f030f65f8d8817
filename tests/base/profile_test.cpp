#include "base/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

std::string error_of(const std::string& json) {
  const auto profile = Profile::parse(json, "test.json");
  return profile ? "" : profile.error().message;
}

TEST(CostCurve, IsLinearBetweenAndBeyondItsPoints) {
  const CostCurve curve{.points = {{2, 1.0}, {4, 2.0}, {8, 6.0}}};
  EXPECT_DOUBLE_EQ(curve.at(1), 1.0);
  EXPECT_DOUBLE_EQ(curve.at(2), 1.0);
  EXPECT_DOUBLE_EQ(curve.at(3), 1.5);
  EXPECT_DOUBLE_EQ(curve.at(6), 4.0);
  EXPECT_DOUBLE_EQ(curve.at(10), 8.0);
  EXPECT_DOUBLE_EQ(curve.at(0), 0.0);
}

TEST(CostCurve, StepsToTheNextPointAndThenByAFixedAmount) {
  const CostCurve curve{
      .points = {{16, 1.0}, {64, 2.0}}, .between = CostCurve::Between::kStep, .step_rows = 64, .step_add = 0.5};
  EXPECT_DOUBLE_EQ(curve.at(1), 1.0);
  EXPECT_DOUBLE_EQ(curve.at(16), 1.0);
  EXPECT_DOUBLE_EQ(curve.at(17), 2.0);
  EXPECT_DOUBLE_EQ(curve.at(64), 2.0);
  EXPECT_DOUBLE_EQ(curve.at(65), 2.5);
  EXPECT_DOUBLE_EQ(curve.at(128), 2.5);
  EXPECT_DOUBLE_EQ(curve.at(129), 3.0);
}

TEST(CostCurve, OfOnePointIsProportionalOfNoneFree) {
  EXPECT_DOUBLE_EQ((CostCurve{.points = {{2, 1.0}}}.at(6)), 3.0);
  EXPECT_DOUBLE_EQ(CostCurve{}.at(6), 0.0);
}

TEST(CostCurve, NeverFallsBelowNothing) { EXPECT_GE((CostCurve{.points = {{1, 2.0}, {2, 1.0}}}.at(100)), 0.0); }

TEST(ExpertCost, RowsWakeTheMoreExpertsTheMoreTheyAre) {
  const ExpertCost cost{.of = 128, .used = 8, .share = 0.5};
  EXPECT_NEAR(cost.woken(1), 8.0, 1e-9);
  EXPECT_NEAR(cost.woken(2), 16.0 - 0.5, 1e-9);  // one in sixteen of the second row's is awake already
  EXPECT_NEAR(cost.woken(1000), 128.0, 1e-9);
  EXPECT_NEAR(cost.factor(1), 1.0, 1e-12);
  EXPECT_NEAR(cost.factor(2), 0.5 + 0.5 * 15.5 / 8, 1e-12);
  EXPECT_EQ(ExpertCost{}.factor(16), 1.0);
}

TEST(Profile, OfExpertsSaysWhatIsWrong) {
  const auto with = [](const std::string& experts) {
    return error_of(R"({"stage": {"points": [[1, 1]]}, "experts": )" + experts + "}");
  };
  EXPECT_EQ(with(R"({"of": 128, "used": 8, "share": 0.7})"), "");
  EXPECT_NE(with(R"({"of": 128})").find("experts must be an object such as"), std::string::npos);
  EXPECT_NE(with(R"({"of": 8, "used": 9, "share": 0.7})").find("experts.used must be from 1 to 8"), std::string::npos);
  EXPECT_NE(with(R"({"of": 0, "used": 1, "share": 0.7})").find("experts.of must be from 1"), std::string::npos);
  EXPECT_NE(with(R"({"of": 8, "used": 1.5, "share": 0.7})").find("whole numbers"), std::string::npos);
  EXPECT_NE(with(R"({"of": 8, "used": 1, "share": 2})").find("experts.share must be from 0 to 1"), std::string::npos);
}

TEST(Profile, TheShippedOnesAreReadAndKeptByJson) {
  ASSERT_FALSE(Profile::shipped().empty());
  for (const auto& name : Profile::shipped()) {
    const auto profile = Profile::load(name);
    ASSERT_TRUE(profile) << profile.error().message;
    EXPECT_EQ(profile->name, name);
    EXPECT_GT(profile->stage.at(1), 0.0);
    const auto again = Profile::parse(profile->to_json().dump(), "again");
    ASSERT_TRUE(again) << again.error().message;
    for (const double rows : {1, 2, 64, 65, 200}) {
      EXPECT_DOUBLE_EQ(again->stage.at(rows), profile->stage.at(rows));
      EXPECT_DOUBLE_EQ(again->drafts.at(0).at(rows), profile->drafts.at(0).at(rows));
    }
    EXPECT_DOUBLE_EQ(again->experts.factor(5), profile->experts.factor(5));
    EXPECT_DOUBLE_EQ(again->link.seconds(1e6), profile->link.seconds(1e6));
    EXPECT_EQ(again->seed, profile->seed);
    ASSERT_EQ(again->edges.size(), profile->edges.size());
    for (size_t i = 0; i < profile->edges.size(); ++i) {
      EXPECT_DOUBLE_EQ(again->edges[i].seconds(1e6), profile->edges[i].seconds(1e6));
      EXPECT_DOUBLE_EQ(again->edges[i].jitter, profile->edges[i].jitter);
    }
  }
}

TEST(Profile, Wan6HasSevenEdgesOf22To75Milliseconds) {
  const auto wan = Profile::load("wan-6");
  ASSERT_TRUE(wan);
  ASSERT_EQ(wan->edges.size(), 7u);
  for (const Link& edge : wan->edges) {
    EXPECT_GE(edge.latency, 0.022);
    EXPECT_LE(edge.latency, 0.075);
    EXPECT_DOUBLE_EQ(edge.bandwidth, 100e6 / 8);
    EXPECT_DOUBLE_EQ(edge.jitter, 0.1);
  }
  for (const double rows : {1, 64, 1000}) {
    EXPECT_DOUBLE_EQ(wan->stage.at(rows), 0.012);
    EXPECT_DOUBLE_EQ(wan->for_draft(0, 1)->stage.at(rows), 0.010);
  }
  EXPECT_TRUE(wan->for_draft(0, 1)->edges.empty());
  EXPECT_DOUBLE_EQ(wan->for_draft(0, 1)->link.seconds(1e6), 0.0) << "draft models are beside the coordinator";
}

TEST(Profile, IsForAsManyStagesAsItListsEdgesOf) {
  const auto wan = Profile::load("wan-6");
  ASSERT_TRUE(wan);
  EXPECT_TRUE(wan->check_stages(6));
  for (const size_t n : {1, 5, 7, 8}) {
    const auto wrong = wan->check_stages(n);
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().kind, ErrorKind::kInput);
    EXPECT_EQ(wrong.error().message, "profile wan-6 lists the edges of 6 stages, not of " + std::to_string(n) +
                                         ": give --stages 6, or as many --hosts");
    EXPECT_TRUE(Profile::load("paper-8x")->check_stages(n));
  }
}

// A profile whose draft models take 1, 2, … ms.
Profile with_drafts(int n) {
  Profile profile;
  profile.name = "test";
  profile.link = {.latency = 0.25, .bandwidth = 0};
  for (int i = 1; i <= n; ++i)
    profile.drafts.push_back({.points = {{1, 0.001 * i}, {64, 0.002 * i}}, .step_rows = 64, .step_add = 0.004 * i});
  return profile;
}

TEST(Profile, WhereEdgesAreGivenDraftModelsAreALinkAwayThereAndBack) {
  const auto profile = Profile::parse(
      R"({"stage": {"points": [[1, 1]]}, "draft": {"points": [[1, 0.5]]}, "link": {"latency": 0.25},
          "edges": [{"latency": 0}, {"latency": 0.125}, {"latency": 0}]})",
      "far");
  ASSERT_TRUE(profile) << profile.error().message;
  const auto draft = profile->for_draft(0, 1);
  ASSERT_EQ(draft->edges.size(), 2u);
  for (const Link& way : draft->edges) EXPECT_DOUBLE_EQ(way.latency, 0.25);
  EXPECT_DOUBLE_EQ(draft->stage.times(3).at(2), 3 * draft->stage.at(2));
  Profile shared = *profile;
  shared.draft_on = 1;
  EXPECT_TRUE(shared.for_draft(0, 1)->edges.empty()) << "stage 1 is beside the coordinator";
  shared.direct = {{.latency = 0.5}, {.latency = 0.75}};
  EXPECT_DOUBLE_EQ(shared.for_draft(0, 1)->edges.front().latency, 0.75) << "it is where stage 1 is";
}

TEST(Profile, SpeedsAndASharedDeviceAreOfStagesThatThereAre) {
  const auto profile = Profile::parse(
      R"({"stage": {"points": [[1, 1]]}, "draft": {"points": [[1, 0.5]]}, "speeds": [1, 0.25], "draft_on": 1})", "two");
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_TRUE(profile->check_stages(2));
  EXPECT_EQ(profile->check_stages(3).error().message,
            "profile two lists the speeds of 2 stages, not of 3: give --stages 2, or as many --hosts");
  EXPECT_DOUBLE_EQ(profile->for_draft(0, 1)->stage.at(1), 2.0) << "it runs where stage 1 does";
  const auto again = Profile::parse(profile->to_json().dump(), "again");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->speeds, profile->speeds);
  EXPECT_EQ(again->draft_on, profile->draft_on);

  const auto shared = Profile::parse(R"({"stage": {"points": [[1, 1]]}, "draft_on": 2})", "three");
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_TRUE(shared->check_stages(3));
  EXPECT_EQ(shared->check_stages(2).error().message,
            "profile three has drafts run with stage 2: give --stages 3 or more");
}

TEST(Profile, DraftModelsTakeTheirTimesTheLargestFirst) {
  const auto milliseconds = [](int in_profile, size_t i, size_t n) {
    return 1000.0 * with_drafts(in_profile).for_draft(i, n)->stage.at(1);
  };
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(milliseconds(3, i, 3), static_cast<double>(i) + 1, 1e-9);
  EXPECT_NEAR(milliseconds(3, 0, 1), 3, 1e-9) << "a single one is the largest";
  EXPECT_NEAR(milliseconds(3, 0, 2), 2, 1e-9);
  EXPECT_NEAR(milliseconds(3, 1, 2), 3, 1e-9);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(milliseconds(1, i, 3), 1, 1e-9) << "all take what there is";
  EXPECT_NEAR(milliseconds(2, 0, 3), 1, 1e-9);
  EXPECT_NEAR(milliseconds(2, 1, 3), 1, 1e-9);
  EXPECT_NEAR(milliseconds(2, 2, 3), 2, 1e-9);
}

TEST(Profile, TheStagesOfADraftModelShareItsPass) {
  const Profile profile = *with_drafts(1).for_draft(0, 1, /*n_stages=*/4);
  EXPECT_NEAR(profile.stage.at(1), 0.00025, 1e-12);
  EXPECT_NEAR(profile.stage.at(128), 0.0005 + 0.001, 1e-12);
  EXPECT_EQ(profile.link.latency, 0.25);
  EXPECT_FALSE(profile.per_layer());
}

TEST(Profile, WithoutATimeForDraftModelsItSaysSo) {
  const auto none = with_drafts(0).for_draft(0, 1);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kInput);
  EXPECT_NE(none.error().message.find("profile test"), std::string::npos);
}

TEST(Profile, ErrorsNameTheFileAndTheField) {
  const std::pair<const char*, const char*> wrong[] = {
      {"[]", "not a JSON object"},
      {"{\"stage\": ", "not a JSON object"},
      {"{}", "\"stage\" or \"layer\""},
      {R"({"stage": {"points": [[1, 1]]}, "layer": {"points": [[1, 1]]}})", "\"stage\" or \"layer\""},
      {R"({"stage": 3})", "stage must be an object"},
      {R"({"stage": {"points": []}})", "stage must be an object"},
      {R"({"stage": {"points": [[1]]}})", "stage.points"},
      {R"({"stage": {"points": [[1, "x"]]}})", "stage.points: seconds"},
      {R"({"stage": {"points": [[1, -1]]}})", "stage.points: seconds"},
      {R"({"stage": {"points": [[0, 1]]}})", "stage.points: rows"},
      {R"({"stage": {"points": [[2, 1], [2, 1]]}})", "rising rows"},
      {R"({"stage": {"points": [[1, 1]], "between": "cubic"}})", "stage.between"},
      {R"({"stage": {"points": [[1, 1]], "every": 4}})", "go together"},
      {R"({"stage": {"points": [[1, 1]], "every": 0, "add": 1}})", "stage.every"},
      {R"({"layer": {"points": [[1, 1]]}, "head": {"points": [[1, null]]}})", "head.points"},
      {R"({"stage": {"points": [[1, 1]]}, "prune_seconds": -1})", "prune_seconds"},
      {R"({"stage": {"points": [[1, 1]]}, "link": 4})", "link must be"},
      {R"({"stage": {"points": [[1, 1]]}, "link": {"latency": "x"}})", "link.latency"},
      {R"({"stage": {"points": [[1, 1]]}, "link": {"jitter": 1.5}})", "link.jitter must be from 0 to 1"},
      {R"({"stage": {"points": [[1, 1]]}, "link": {"latancy": 1}})",
       "link: there is no key \"latancy\"; there are latency, bandwidth, jitter"},
      {R"({"stage": {"points": [[1, 1]]}, "edges": {"latency": 1}})", "edges must be a list of links"},
      {R"({"stage": {"points": [[1, 1]]}, "edges": [{}]})", "edges must be a list of links: from the coordinator to"},
      {R"({"stage": {"points": [[1, 1]]}, "edges": [{}, 0.045]})", "edges[1] must be an object such as {\"latency\""},
      {R"({"stage": {"points": [[1, 1]]}, "edges": [{}, {}, {"bandwidth": -1}]})", "edges[2].bandwidth must be from"},
      {R"({"stage": {"points": [[1, 1]]}, "edges": [{}, {}], "direct": [{}, {}]})", "one link less than edges"},
      {R"({"stage": {"points": [[1, 1]]}, "direct": [{}]})", "one link less than edges"},
      {R"({"stage": {"points": [[1, 1]]}, "speeds": []})", "speeds must be a list of numbers, one for each stage"},
      {R"({"stage": {"points": [[1, 1]]}, "speeds": [1, 0]})", "speeds[1] must be from"},
      {R"({"stage": {"points": [[1, 1]]}, "draft_on": -1})", "draft_on must be the number of a stage"},
      {R"({"stage": {"points": [[1, 1]]}, "seed": -1})", "seed must be a whole number from 0"},
      {R"({"stage": {"points": [[1, 1]], "points2": 1}})", "stage: there is no key \"points2\""},
      {R"({"stage": {"points": [[1, 1]]}, "links": []})", "there is no key \"links\"; there are name, "},
      {"{\"stage\": {\n\"points\": [[1, 1],,]}}", "wrong in line 2"},
      {R"({"stage": {"points": [[1, 1]]}, "name": 7})", "name must be"}};
  for (const auto& [json, why] : wrong) {
    const std::string error = error_of(json);
    EXPECT_NE(error.find(why), std::string::npos) << json << " gave: " << error;
    EXPECT_NE(error.find("test.json"), std::string::npos) << json;
    EXPECT_EQ(error.find('\n'), std::string::npos) << json;
  }
}

TEST(Profile, AnUnknownNameIsAnErrorThatListsTheShippedOnes) {
  const auto missing = Profile::load("no such profile");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("--profile no such profile"), std::string::npos);
  for (const auto& name : Profile::shipped()) EXPECT_NE(missing.error().message.find(name), std::string::npos);
}

}  // namespace
}  // namespace sluice
