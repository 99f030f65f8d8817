// Every method by its trace: whoever can work does, nothing is computed in vain, and the same request gives the same
// trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/engine.h"
#include "support/harness.h"
#include "support/trace_check.h"

namespace sluice {
namespace {

using namespace test;

// Stages of 1 ms; a draft pass of `draft` seconds; links that cost nothing.
PipelineSpec pipeline(int32_t stages, std::vector<const Opened*> drafts, double draft = 0.0003) {
  const std::string seconds = std::to_string(draft);
  return {.stages = stages,
          .drafts = std::move(drafts),
          .profile = R"({"stage": {"points": [[1, 0.001], [2, 0.001]]}, "draft": {"points": [[1, )" + seconds +
                     "], [2, " + seconds + "]]}}",
          .trace = true};
}

RequestSpec ask(const std::string& method, int32_t max_tokens = 30) {
  RequestSpec spec;
  for (const char c : std::string("abcabcabcabcab")) spec.prompt.push_back(3 + c);
  spec.max_tokens = max_tokens;
  spec.method = method;
  spec.method_options.width = 8;
  spec.method_options.depth = 4;
  spec.method_options.branching = {1, 2, 1};
  spec.ignore_end = true;
  return spec;
}

struct Ran {
  Trace trace;
  std::vector<Token> tokens;  // prompt and answer
  RequestStats stats;
  int32_t last_position = 0;
  double first_token = 0, last_token = 0;
};

Ran run(const PipelineSpec& setup, const RequestSpec& spec) {
  const auto engine = make_engine(six_layers(), setup);
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  const Request& request = engine->request(id);
  return {engine->trace(),           request.tokens,          request.stats, request.speculation.last_position,
          request.stats.first_token, request.stats.last_token};
}

// The span of a batch at a stage; stages of draft models follow those of the target.
const TraceSpan* span(const Trace& trace, BatchId batch, int32_t stage) {
  for (const TraceSpan& s : trace.spans)
    if (s.batch == batch && s.stage.value == stage) return &s;
  return nullptr;
}

std::vector<const TraceBatch*> batches_of(const Trace& trace, bool target) {
  std::vector<const TraceBatch*> batches;
  for (const TraceBatch& batch : trace.batches)
    if ((batch.model == kTarget) == target) batches.push_back(&batch);
  return batches;
}

// Seconds within [begin, end] in which nothing at all is at work.
double quiet_seconds(const Trace& trace, double begin, double end) {
  std::vector<std::pair<double, double>> busy;
  for (const TraceSpan& s : trace.spans) busy.emplace_back(s.begin, s.end);
  std::sort(busy.begin(), busy.end());
  double quiet = 0, now = begin;
  for (const auto& [from, to] : busy) {
    if (from >= end) break;
    quiet += std::max(0.0, from - now);
    now = std::max(now, to);
  }
  return quiet + std::max(0.0, end - now);
}

// When something became known: a verdict came, or a draft model had spoken.
bool is_event(const Trace& trace, double time) {
  return std::any_of(trace.spans.begin(), trace.spans.end(), [&](const TraceSpan& s) {
    return s.stage.value >= trace.header.stages - 1 && std::abs(s.end - time) < 1e-9;
  });
}

struct Method {
  const char* name;
  int32_t tree_nodes = 0;
};
std::string describe(const Method& method) { return method.name + std::string(method.tree_nodes ? "Best" : ""); }

RequestSpec ask(const Method& method, float temperature = 0.0f) {
  RequestSpec spec = ask(method.name);
  spec.method_options.tree_nodes = method.tree_nodes;
  spec.sampling = {.temperature = temperature, .seed = 3};
  return spec;
}

const Method kMethods[] = {{"ar"},       {"sd"},    {"specinfer"}, {"specinfer", 8},
                           {"specpipe"}, {"surge"}, {"pipespec"},  {"ssd"}};

class EveryMethod : public ::testing::TestWithParam<Method> {};

// By the time a draft model begins with a batch, none of its rows is beside the tokens that are known by then.
void expect_sensible_questions(const Ran& ran, const std::string& where) {
  std::map<int32_t, double> known;  // since when, by position
  for (const TraceEmission& emission : ran.trace.emissions) known[emission.position] = emission.time;
  for (const TraceBatch* batch : batches_of(ran.trace, false)) {
    std::vector<bool> wrong;
    for (const TraceRow& row : batch->rows) {
      const auto since = known.find(row.position);
      const bool beside = since != known.end() && since->second <= batch->submitted &&
                          ran.tokens[static_cast<size_t>(row.position)] != row.token;
      wrong.push_back(beside || (row.parent_row >= 0 && wrong[static_cast<size_t>(row.parent_row)]));
      EXPECT_FALSE(wrong.back()) << "batch " << batch->id.value << ", position " << row.position << "; " << where;
    }
  }
}

// Whatever waits, waits for something: at every moment somebody is at work, and what enters late does so the moment
// that something has become known.
void expect_no_idling(const Ran& ran, const std::string& where) {
  EXPECT_NEAR(quiet_seconds(ran.trace, ran.first_token, ran.last_token), 0.0, 1e-9) << where;
  const auto batches = batches_of(ran.trace, true);
  for (size_t b = 1; b < batches.size(); ++b) {
    const TraceSpan* before = span(ran.trace, batches[b - 1]->id, 0);
    ASSERT_NE(before, nullptr);
    if (batches[b]->submitted <= before->end + 1e-9) continue;
    EXPECT_TRUE(is_event(ran.trace, batches[b]->submitted))
        << "batch " << batches[b]->id.value << " entered at " << batches[b]->submitted << "; " << where;
  }
}

TEST_P(EveryMethod, NothingIsComputedInVainAndNobodyIdlesWhoCouldWork) {
  for (const auto& drafts :
       std::vector<std::vector<const Opened*>>{{}, {&five_layers()}, {&two_layers(), &five_layers()}})
    for (const auto& [stages, draft, temperature] :
         {std::tuple{1, 0.0003, 0.0f}, {3, 0.0003, 1.0f}, {3, 0.0017, 0.0f}}) {
      const Ran ran = run(pipeline(stages, drafts, draft), ask(GetParam(), temperature));
      const std::string where = std::to_string(drafts.size()) + " drafts of " + std::to_string(draft) + " s, " +
                                std::to_string(stages) + " stages";
      EXPECT_EQ(check_order(ran.trace, true), "") << where;
      EXPECT_EQ(check_fates(ran.trace), "") << where;
      EXPECT_EQ(check_cancels(ran.trace), "") << where;
      expect_sensible_questions(ran, where);
      expect_no_idling(ran, where);
    }
}

TEST_P(EveryMethod, TheSameRequestGivesTheSameTraceAndLazyTheTraceOfFull) {
  PipelineSpec setup = pipeline(3, {&two_layers(), &five_layers()});
  setup.jitter = {.amount = 1.0, .seed = 4};
  const Ran full = run(setup, ask(GetParam(), 1.0f)), again = run(setup, ask(GetParam(), 1.0f));
  EXPECT_EQ(difference(full.trace, again.trace), "");
  setup.lazy = true;
  const Ran lazy = run(setup, ask(GetParam(), 1.0f));
  EXPECT_EQ(full.tokens, lazy.tokens);
  EXPECT_EQ(difference(full.trace, lazy.trace), "");
}

TEST_P(EveryMethod, ATurnOfPlainDecodingChangesNoToken) {
  for (const auto& drafts :
       std::vector<std::vector<const Opened*>>{{}, {&five_layers()}, {&two_layers(), &five_layers()}})
    for (const int32_t stages : {1, 3}) {
      const auto engine = make_engine(six_layers(), pipeline(stages, drafts, 0.0003));
      const RequestSpec spec = ask(GetParam(), 0.7f);
      const RequestId id = submit(*engine, spec);
      for (std::string method = "ar"; engine->busy();) {
        ASSERT_TRUE(engine->step());
        if (!engine->busy() || engine->request(id).n_answer() < (method == "ar" ? 8u : 16u)) continue;
        if (method.empty()) continue;
        ASSERT_TRUE(engine->set_method(id, method, spec.sources));
        method = method == "ar" ? GetParam().name : "";
      }
      EXPECT_EQ(answer(*engine, id), plain_decoding(six_layers(), spec)) << drafts.size() << ' ' << stages;
      EXPECT_EQ(engine->request(id).method.name, GetParam().name);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, EveryMethod, ::testing::ValuesIn(kMethods),
                         [](const auto& method) { return describe(method.param); });

// SD: one of the two is always idle, never both.
TEST(Sd, EitherTheDraftModelOrTheTargetIsAtWork) {
  const Ran ran = run(pipeline(3, {&five_layers()}), ask("sd", 60));
  std::vector<std::pair<double, double>> target, draft;
  for (const TraceBatch* batch : batches_of(ran.trace, true)) {
    const TraceSpan *first = span(ran.trace, batch->id, 0), *last = span(ran.trace, batch->id, 2);
    if (first != nullptr && last != nullptr && first->begin >= ran.first_token)
      target.emplace_back(first->begin, last->end);
  }
  for (const TraceSpan& s : ran.trace.spans)
    if (s.stage.value == 3 && s.begin >= ran.first_token) draft.emplace_back(s.begin, s.end);
  ASSERT_GT(target.size(), 5u);
  ASSERT_GT(draft.size(), 20u);
  for (const auto& t : target)
    for (const auto& d : draft)
      EXPECT_TRUE(d.second <= t.first + 1e-9 || t.second <= d.first + 1e-9) << "at " << d.first << " both";
}

// In real time too, where a draft model's answer and the word that it is free come one after the other.
TEST(Sd, NoVerificationGoesWithoutItsChain) {
  PipelineSpec setup = pipeline(1, {&two_layers()});
  setup.threads = true;
  setup.paced = true;  // so that no row has a price
  RequestSpec spec = ask("sd", 150);
  spec.method_options.depth = 2;
  const Ran ran = run(setup, spec);
  size_t chains = 0, short_ones = 0;
  for (const TraceBatch* batch : batches_of(ran.trace, true)) {
    if (batch->rows.front().fate == Fate::kPrompt) continue;
    (batch->rows.size() == 3 ? chains : short_ones) += 1;
  }
  EXPECT_GT(chains, 40u);
  EXPECT_LE(short_ones, 10u);  // the first, those at the end of the answer, and those that try what fewer rows take
}

TEST(Sd, WhatTheTextForetellsCostsNoDraftPassAndNoPlaceInTheChain) {
  RequestSpec spec = ask("sd", 100);
  spec.sampling.logit_bias = {{3 + 'a', 1000.0f}};
  spec.method_options.depth = 2;
  spec.sources = {SourceKind::kDraft};
  const Ran alone = run(pipeline(1, {&six_layers()}, 0.001), spec);
  spec.sources = {SourceKind::kNgram, SourceKind::kDraft};
  const Ran both = run(pipeline(1, {&six_layers()}, 0.001), spec);
  EXPECT_EQ(both.tokens, alone.tokens);
  EXPECT_LT(both.last_token - both.first_token, 0.5 * (alone.last_token - alone.first_token));
}

// A draft model that is right and needs less than a step: one level a step, every step, and no step longer.
TEST(SpecPipe, ADraftModelFasterThanAStageCostsNoTime) {
  for (const double draft : {0.0001, 0.0009}) {
    const Ran ran = run(pipeline(6, {&six_layers()}, draft), ask("specpipe", 100));
    EXPECT_EQ(ran.stats.flushes, 0);
    // The first levels fill the pipeline; then a token a step.
    EXPECT_LT(ran.last_token - ran.first_token, 0.001 * (99 + 6) + 6 * draft) << "draft " << draft;
  }
}

TEST(SpecPipe, StagesInAGroupShareALevel) {
  RequestSpec spec = ask("specpipe", 60);
  spec.method_options.group = 3;
  const Ran ran = run(pipeline(6, {&two_layers()}), spec);
  int32_t before = 0, parts = 0, most = 0;
  for (const TraceBatch* batch : batches_of(ran.trace, true)) {
    if (batch->rows.front().fate == Fate::kPrompt) continue;
    const int32_t level = batch->rows.front().position;
    for (const TraceRow& row : batch->rows) EXPECT_EQ(row.position, level);
    EXPECT_LE(batch->rows.size(), 3u);  // of 8
    parts = level == before ? parts + 1 : 1;
    before = level;
    most = std::max(most, parts);
  }
  EXPECT_GE(most, 3);  // and the root where a level was flushed
  EXPECT_EQ(ran.tokens, run(pipeline(6, {}), ask("ar", 60)).tokens);
}

// While the tree is verified the next one is drafted.
TEST(SpecInfer, TheDraftModelGoesOnAtTheMomentTheTreeEnters) {
  for (const auto& [method, stages] : {std::pair{"specinfer", 6}, {"ssd", 6}, {"specinfer", 1}, {"ssd", 1}}) {
    const Ran ran = run(pipeline(stages, {&five_layers()}), ask(method, 60));
    size_t at_once = 0, rounds = 0;
    for (const TraceBatch* batch : batches_of(ran.trace, true)) {
      if (batch->rows.front().fate == Fate::kPrompt || batch->submitted < ran.first_token) continue;
      if (batch->rows.back().position >= ran.last_position - 8) continue;
      ++rounds;
      for (const TraceBatch* drafted : batches_of(ran.trace, false))
        if (std::abs(drafted->submitted - batch->submitted) < 1e-9) {
          ++at_once;
          break;
        }
    }
    EXPECT_GT(rounds, 5u);
    EXPECT_EQ(at_once, rounds) << method;
  }
}

// PipeSpec: nobody waits for anybody. The target takes what is there as soon as it is free.
TEST(PipeSpec, TheTargetIsNeverIdle) {
  const Ran ran = run(pipeline(3, {&two_layers(), &five_layers()}), ask("pipespec"));
  const auto batches = batches_of(ran.trace, true);
  for (size_t b = 1; b < batches.size(); ++b) {
    if (batches[b - 1]->submitted < ran.first_token) continue;
    const TraceSpan* verdict = span(ran.trace, batches[b - 1]->id, 2);
    ASSERT_NE(verdict, nullptr);
    EXPECT_NEAR(batches[b]->submitted, verdict->end, 1e-9) << "batch " << batches[b]->id.value;
  }
}

TEST(PipeSpec, NoDraftModelIsIdleWhileTheAnswerIsFarFromItsEnd) {
  const Ran ran = run(pipeline(3, {&two_layers(), &five_layers()}), ask("pipespec", 60));
  for (const int32_t stage : {3, 4}) {
    double busy = 0;
    const double begin = ran.first_token, end = begin + (ran.last_token - begin) / 2;
    for (const TraceSpan& s : ran.trace.spans)
      if (s.stage.value == stage) busy += std::max(0.0, std::min(s.end, end) - std::max(s.begin, begin));
    EXPECT_GT(busy, 0.9 * (end - begin)) << "stage " << stage;
  }
}

// SSD: an outcome that was foreseen and drafted for enters with the verdict.
TEST(Ssd, AHitStartsTheNextRoundWithTheVerdict) {
  for (const int32_t stages : {1, 6}) {
    const Ran ran = run(pipeline(stages, {&six_layers()}, 0.0001), ask("ssd", 60));  // always right
    const auto batches = batches_of(ran.trace, true);
    size_t rounds = 0;
    for (size_t b = 1; b < batches.size(); ++b) {
      if (batches[b - 1]->submitted < ran.first_token) continue;
      EXPECT_NEAR(batches[b]->submitted, span(ran.trace, batches[b - 1]->id, stages - 1)->end, 1e-9) << stages;
      ++rounds;
    }
    EXPECT_GT(rounds, 5u);
  }
}

// Whoever drafts after a miss, and however many requests there are, the answers are the target's.
TEST(Ssd, ItsFallbackNeverShowsInTheAnswers) {
  for (const Fallback fallback : {Fallback::kDraft, Fallback::kNgram, Fallback::kAuto}) {
    PipelineSpec setup = pipeline(2, {&five_layers()});
    setup.n_cells = 4096;
    const auto engine = make_engine(six_layers(), setup);
    std::vector<std::pair<RequestId, RequestSpec>> asked;
    for (int32_t i = 0; i < 7; ++i) {
      RequestSpec spec = ask("ssd", 20 + i);
      spec.prompt.resize(spec.prompt.size() - static_cast<size_t>(i));
      spec.method_options.fallback = fallback;
      asked.emplace_back(submit(*engine, spec), spec);
    }
    finish(*engine);
    for (const auto& [id, spec] : asked) EXPECT_EQ(answer(*engine, id), plain_decoding(six_layers(), spec));
  }
}

// docs/theory.md: so the speed-up of every method that fills the pipeline is a pass over the mean of these gaps,
// whatever the tree held.
TEST(Schedule, TokensComeOutAsFarApartAsTheyEntered) {
  for (const char* method : {"ar", "specpipe", "surge"}) {
    const Ran ran = run(pipeline(6, {&two_layers()}), ask(method, 60));
    std::map<int32_t, double> entered, said;  // by position
    for (const TraceBatch& batch : ran.trace.batches)
      for (const TraceRow& row : batch.rows)
        if (batch.model == kTarget && row.fate == Fate::kAccepted)
          entered[row.position] = span(ran.trace, batch.id, 0)->begin;
    for (const TraceEmission& emission : ran.trace.emissions) said[emission.position] = emission.time;
    int32_t gaps = 0;
    for (const auto& [position, time] : said) {
      if (!entered.contains(position - 1) || !entered.contains(position - 2)) continue;
      ++gaps;
      EXPECT_NEAR(time - said[position - 1], entered[position - 1] - entered[position - 2], 1e-9) << method << position;
    }
    EXPECT_GT(gaps, 50) << method;
  }
}

// Surge with a fast draft model that is right gives more than a token a step.
TEST(Surge, MoreThanATokenComesOutOfAStep) {
  const Ran ran = run(pipeline(6, {&six_layers()}, 0.0003), ask("surge", 100));
  EXPECT_LT(ran.last_token - ran.first_token, 0.001 * 80);
}

// A draft pass as long as a step makes a token a step at best; where the text repeats itself it tells more of them
// beforehand, whatever the draft model thinks of it.
TEST(Surge, WhereTheTextIsCertainASlowDraftModelIsNotWaitedFor) {
  RequestSpec spec = ask("surge", 100);
  spec.sampling.logit_bias = {{3 + 'a', 1000.0f}};
  spec.sources = {SourceKind::kDraft};
  const Ran alone = run(pipeline(6, {&six_layers()}, 0.001), spec);
  spec.sources.clear();  // by default it looks at the text as well
  const Ran both = run(pipeline(6, {&six_layers()}, 0.001), spec);
  EXPECT_EQ(both.tokens, alone.tokens);
  EXPECT_LT(both.last_token - both.first_token, 0.8 * (alone.last_token - alone.first_token));
}

// A text that repeats itself is as good as certain: what a source that answers at once is asked must stay within
// bounds.
TEST(Coordinator, TakesLittleTimeWhateverIsCertain) {
  for (const Method& method : kMethods) {
    RequestSpec spec = ask(method);
    spec.prompt.assign(150, 3 + 'a');
    spec.sampling.logit_bias = {{3 + 'a', 1000.0f}};
    spec.max_tokens = 90;
    PipelineSpec setup = pipeline(6, {&two_layers()});
    spec.sources = {SourceKind::kNgram};
    const auto engine = make_engine(six_layers(), setup);
    submit(*engine, spec);
    finish(*engine);
    EXPECT_LT(engine->coordinator_seconds(), 1.0) << describe(method);
  }
}

// The draft is the target itself, so every guess is right, and its answers come a message after it has fallen free. As
// many levels enter a step as it makes passes.
TEST(SurgeBesideASureDraft, NoPassAndNoStepIsLost) {
  for (const int passes : {1, 2}) {  // with more, its guesses, though right, are too unsure of themselves to go deep
    PipelineSpec setup = pipeline(3, {&six_layers()}, 0.001 / passes);
    setup.profile.insert(setup.profile.size() - 1, R"(, "link": {"latency": 1e-6, "bandwidth": 1e15})");
    const Ran ran = run(setup, ask("surge", 61));
    EXPECT_EQ(ran.stats.flushes, 0) << passes;
    EXPECT_LT(ran.last_token - ran.first_token, 1.05 * 0.001 * (60.0 / passes + 2)) << passes;
  }
}

// Its vocabulary is the beginning of the target's; the prompt and most of the answer lie beyond.
TEST(Methods, ADraftModelOfFewerTokensChangesNoAnswer) {
  TinyModelSpec shape{.n_layers = 2, .d_model = 32, .n_heads = 2, .n_kv_heads = 1, .d_ff = 64, .seed = 5};
  shape.extra_tokens = 400;
  const Opened& target = open_tiny("many-tokens", shape);
  shape.extra_tokens = 0;
  const Opened& draft = open_tiny("few-tokens", shape);
  const Token few = draft.tokenizer.size(), many = target.tokenizer.size();
  ASSERT_LT(few + 100, many);
  for (const char* method : {"sd", "specinfer", "specpipe", "pipespec", "ssd", "surge"})
    for (const bool lazy : {false, true}) {
      const auto engine = make_engine(target, {.stages = 2, .lazy = lazy, .drafts = {&draft}});
      const RequestSpec spec{
          .prompt = {few, many - 1, 60, few + 7}, .max_tokens = 24, .method = method, .ignore_end = true};
      const RequestId id = submit(*engine, spec);
      finish(*engine);
      EXPECT_EQ(answer(*engine, id), plain_decoding(target, spec)) << method << (lazy ? ", lazy" : "");
      EXPECT_GT(engine->request(id).stats.drafted, 0) << method;
    }
}

}  // namespace
}  // namespace sluice
