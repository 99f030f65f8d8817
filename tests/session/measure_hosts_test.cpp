// What stages elsewhere and the links between them take, by what a trace says of them.
#include "session/measure_hosts.h"

#include <gtest/gtest.h>

#include "plan/measure.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

constexpr const char* kHosts = R"({"name": "hosts",
  "layer": {"points": [[1, 0.002], [64, 0.0335]]}, "head": {"points": [[1, 0.010], [2, 0.020]]},
  "speeds": [1, 0.5, 2],
  "edges": [{"latency": 0.001}, {"latency": 0.005, "bandwidth": 1e6}, {"latency": 0.020}, {"latency": 0.008}],
  "direct": [{"latency": 0.001}, {"latency": 0.005}, {"latency": 0.020}]})";

// The trace of prompts of rising lengths over hosts at other places: reports are dated by when they come.
Trace traced() {
  const auto engine = make_engine(six_layers(), {.stages = 3, .profile = kHosts, .trace = true});
  for (const size_t rows : {1, 4, 16, 64}) {
    RequestSpec spec{.prompt = {}, .sampling = {}, .max_tokens = 6, .method = "ar", .ignore_end = true};
    for (size_t t = 0; t <= rows; ++t) spec.prompt.push_back(static_cast<Token>(97 + t % 7));
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    engine->release(id);
  }
  Trace trace = engine->trace();
  const double way[] = {0.001, 0.005, 0.020};
  for (TraceSpan& span : trace.spans)
    for (double* time : {&span.begin, &span.end}) *time += way[span.stage.value];
  return trace;
}

TEST(MeasureHosts, FindsWhatStagesAndLinksTake) {
  const auto wanted = *Profile::parse(kHosts, "hosts");
  const Profile found =
      profile_of(traced(), cuts_of(six_layers(), {.stages = 3}), six_layers().model.hparams().d_model);
  ASSERT_EQ(found.speeds.size(), 3u);
  for (size_t s = 0; s < 3; ++s)
    EXPECT_NEAR(found.speeds[s] / found.speeds[0], wanted.speeds[s] / wanted.speeds[0], 0.01) << "stage " << s;
  for (const CostCurve::Point& point : found.layer.points)
    EXPECT_NEAR(point.seconds / found.speeds[0], wanted.layer.at(point.rows), 0.01 * wanted.layer.at(point.rows));
  EXPECT_GE(found.layer.points.size(), 3u);
  EXPECT_NEAR(found.head.at(1) / found.speeds[2], wanted.head.at(1) / 2, 1e-4);
  ASSERT_EQ(found.edges.size(), 4u);
  for (size_t e = 0; e < 4; ++e) EXPECT_NEAR(found.edges[e].latency, wanted.edges[e].latency, 0.0005) << "edge " << e;
  EXPECT_NEAR(found.edges[1].bandwidth, 1e6, 1e5);
  EXPECT_EQ(found.edges[2].bandwidth, 0.0) << "too fast to tell";
  EXPECT_TRUE(found.check_stages(3));
  EXPECT_TRUE(Profile::parse(found.to_json().dump(), "again")) << found.to_json().dump();
}

TEST(MeasureHosts, WhereFewerRowsSeemToTakeLongerTheyWereDisturbed) {
  CostCurve curve{.points = {{1, 4}, {2, 2}, {4, 3}, {8, 2.5}, {16, 5}}};
  mend(curve);
  std::vector<double> seconds;
  for (const CostCurve::Point& point : curve.points) seconds.push_back(point.seconds);
  EXPECT_EQ(seconds, (std::vector<double>{2, 2, 2.5, 2.5, 5}));
}

TEST(MeasureHosts, KnowsNothingWithoutATrace) {
  EXPECT_TRUE(profile_of({}, cuts_of(six_layers(), {.stages = 3}), 64).layer.points.empty());
}

}  // namespace
}  // namespace sluice::test
