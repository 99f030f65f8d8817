// Rule `reject` keeps the target's distribution: successive tokens, over many seeds, against their exact
// probabilities.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/distribution.h"
#include "support/harness.h"
#include "support/tiny_head.h"
#include "verify/sampler.h"

namespace sluice {
namespace {

using namespace test;

const Opened& narrow(const std::string& name, int32_t n_layers, ggml_type type) {
  return open_tiny(name, {.n_layers = n_layers,
                          .d_model = 32,
                          .n_heads = 2,
                          .n_kv_heads = 1,
                          .d_ff = 32,
                          .extra_tokens = 0,
                          .type = type,
                          .weight_scale = 0.7f,
                          .output_scale = 4.0f,
                          .seed = 5});
}
// One layer, so that tens of thousands of answers take seconds; the draft guesses some of them.
const Opened& target() { return narrow("reject_target", 1, GGML_TYPE_Q8_0); }
const Opened& draft() { return narrow("reject_draft", 1, GGML_TYPE_Q4_0); }
// Deep enough for taps and stages.
const Opened& deep_target() { return narrow("reject_deep_target", 4, GGML_TYPE_Q8_0); }

const Opened& deep_draft() { return narrow("reject_deep_draft", 4, GGML_TYPE_Q4_0); }

// Heads are not trained, so they know few tokens, and these are made likely.
const std::vector<Token> kLikely = {20, 40, 60, 80, 100};
const HeadFile& head(const std::string& kind) {
  static std::map<std::string, HeadFile> heads;
  const auto at = heads.find(kind);
  if (at != heads.end()) return at->second;
  const ModelFile& model = deep_target().model;
  const TinyHeadSpec spec{.kind = kind, .vocabulary = kLikely, .cuts = {0, 2, 4}};
  auto opened = HeadFile::open(tiny_head(model, spec).write(temp_path(kind + ".gguf")), model);
  if (!opened) throw std::runtime_error(opened.error().message);
  return heads.emplace(kind, std::move(*opened)).first->second;
}

const std::vector<Token> kPrompt = {7, 9, 11};
using Text = std::vector<Token>;

SamplingParams sampling(bool with_head, int32_t top_k = 4) {
  SamplingParams s;
  s.temperature = 1.3f;
  s.top_k = top_k;
  s.rule = Rule::kReject;
  if (with_head)
    for (const Token token : kLikely) s.logit_bias.emplace_back(token, 12.0f);
  return s;
}

// The exact distribution of the three tokens after the prompt, by enumeration.
std::map<Text, double> enumerate(const Opened& opened, const SamplingParams& sampling, size_t n_tokens) {
  const auto runner =
      make_stage_runner(opened.model,
                        {.range = {0, opened.model.hparams().n_layers}, .n_cells = 64, .max_rows = 1, .taps = {}})
          .value();
  std::vector<float> hidden(static_cast<size_t>(opened.model.hparams().d_model));
  std::vector<float> logits(static_cast<size_t>(opened.model.hparams().n_vocab));
  Sampler sampler;
  bool open = false;
  std::map<Text, double> exact;
  const auto visit = [&](const auto& self, std::vector<Token> tokens, double probability) -> void {
    if (tokens.size() == kPrompt.size() + n_tokens) {
      exact[Text(tokens.begin() + static_cast<ptrdiff_t>(kPrompt.size()), tokens.end())] += probability;
      return;
    }
    std::vector<PathUpdate> updates;  // the path is computed anew for every node: it is short
    if (open) updates.emplace_back(Close{SequenceId(0)});
    updates.emplace_back(Open{SequenceId(0), sampling});
    open = true;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Row row{.sequence = SequenceId(0),
                    .token = tokens[i],
                    .position = static_cast<int32_t>(i),
                    .cell = Cell(static_cast<int32_t>(i)),
                    .parent = Cell(static_cast<int32_t>(i) - 1),
                    .kind = Row::Kind::kPrompt};
      runner->enter(updates, {&row, 1});
      updates.clear();
      runner->run({&row, 1}, hidden);
    }
    runner->logits(hidden, logits);
    for (const auto& [token, p] : distribution(sampler, sampling, logits, tokens)) {
      auto longer = tokens;
      longer.push_back(token);
      self(self, longer, probability * p);
    }
  };
  visit(visit, kPrompt, 1.0);
  return exact;
}

struct Combination {
  const char* name;
  const char* method;
  MethodOptions options;
  std::vector<SourceKind> sources = {SourceKind::kDraft};
  std::string head;     // its kind; empty: none
  size_t n_tokens = 3;  // that are looked at
  int32_t top_k = 4;
  int32_t stages = 1;
  int32_t n_cells = 0;  // 0: room enough
};
void PrintTo(const Combination& combination, std::ostream* out) { *out << combination.name; }

const std::vector<SourceKind> kDraft = {SourceKind::kDraft}, kHead = {SourceKind::kHead};
const std::vector<Combination> kCombinations = {
    {"Plain", "ar", {}},
    {"Chain", "sd", {.depth = 3}},
    {"ChainOfNgrams", "sd", {.depth = 3}, {SourceKind::kNgram}},
    {"TreeWithoutReplacement", "specinfer", {.branching = {2, 3}}},
    {"TreeWithReplacement", "specinfer", {.branching = {3, 2}, .replacement = true}},
    {"MoreDrawsThanChildren", "specinfer", {.branching = {1, 3}, .replacement = true}},
    {"BestTree", "specinfer", {.depth = 3, .tree_nodes = 4}},
    {"Ssd", "ssd", {.depth = 2, .budget = 8}},
    {"SsdWithSaguaroSampling", "ssd", {.depth = 2, .budget = 8, .saguaro = 0.3, .saguaro_tokens = 2}},
    {"SsdWithChosenSaguaroSampling",  // long enough that C has been chosen by then
     "ssd",
     {.depth = 2, .budget = 8, .saguaro = 0.0, .saguaro_tokens = 1},
     kDraft,
     "",
     6,
     2},
    {"SsdOfNgrams", "ssd", {.depth = 2, .budget = 8}, {SourceKind::kNgram}},
    {"SpecPipe", "specpipe", {.width = 2}, kDraft, "", 3, 4, 2},
    {"SpecPipeOfGroupsAndLevels", "specpipe", {.width = 2, .levels = 2, .group = 2}, kDraft, "", 3, 4, 2},
    {"Surge", "surge", {.width = 3, .draft_rows = 2}, kDraft, "", 3, 4, 2},
    {"SurgeOfFewCells", "surge", {.width = 3, .draft_rows = 2}, kDraft, "", 3, 4, 2, 10},
    {"Spd", "spd", {.width = 1}, kHead, "spd"},
    {"SpdOfFour", "spd", {.width = 4}, kHead, "spd"},
    {"SpdOfFewCells", "spd", {.width = 4}, kHead, "spd", 3, 4, 2, 10},
    {"Ppsd", "ppsd", {.width = 1}, kHead, "exit"},
    {"PpsdOfFour", "ppsd", {.width = 4}, kHead, "exit"},
    {"Eagle3", "eagle3", {.depth = 3}, kHead, "eagle3"},
    {"Eagle3Tree", "eagle3", {.depth = 3, .tree_nodes = 4}, kHead, "eagle3"},
    {"PEagle", "p-eagle", {.depth = 3}, kHead, "p-eagle"}};

// All combinations are right: with this probability one of them fails though it is.
constexpr double kLevel = 1e-3;

// Drafting takes its time, as methods expect that weigh it.
constexpr const char* kProfile =
    R"({"name": "test", "description": "a draft pass takes half a target pass", "source": "made up",
  "stage": {"points": [[1, 0.01]], "between": "step", "every": 1024, "add": 0},
  "draft": {"points": [[1, 0.005]], "between": "step", "every": 1024, "add": 0},
  "link": {"latency": 1e-5, "bandwidth": 1e10}})";

class Reject : public ::testing::TestWithParam<Combination> {};

TEST_P(Reject, SuccessiveTokensHaveTheTargetsJointDistribution) {
  const bool with_head = !GetParam().head.empty();
  const bool deep = with_head || GetParam().stages > 1;
  const Opened& opened = deep ? deep_target() : target();
  const SamplingParams params = sampling(with_head, GetParam().top_k);
  const std::map<Text, double> exact = enumerate(opened, params, GetParam().n_tokens);
  PipelineSpec setup{
      .stages = GetParam().stages, .drafts = {deep ? &deep_draft() : &draft()}, .profile = kProfile, .context = 16};
  // An exit guesses after a step, so that what is drawn needs stages in which it can overtake its parent.
  if (with_head)
    setup = {.stages = GetParam().head == "exit" ? 4 : 2, .head = &head(GetParam().head), .guesses = 3, .context = 16};
  setup.n_cells = GetParam().n_cells;
  constexpr int kAnswers = 12000;
  std::map<Text, int> seen;
  auto engine = make_engine(opened, setup);
  int64_t accepted = 0, flushes = 0, bent = 0;
  for (int seed = 0; seed < kAnswers; ++seed) {
    RequestSpec spec{
        .prompt = kPrompt,
        .sampling = params,
        .max_tokens = static_cast<int32_t>(GetParam().n_tokens) + 2,  // the chain may go beyond what is looked at
        .method = GetParam().method,
        .sources = GetParam().sources,
        .method_options = GetParam().options,
        .ignore_end = true};
    spec.sampling.seed = static_cast<uint64_t>(seed);
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    Text text = answer(*engine, id);
    text.resize(GetParam().n_tokens);
    ++seen[text];
    accepted += engine->request(id).stats.accepted;
    flushes += engine->request(id).stats.flushes;
    const auto figures = engine->request(id).method.policy->figures();
    bent += figures.contains("saguaro_c") && figures.at("saguaro_c")[0] < 1.0;
    engine->release(id);
  }
  if (GetParam().method !=
      std::string("ar")) {  // both branches of the rule are taken; n-grams of three tokens know little
    EXPECT_GT(accepted, GetParam().sources[0] != SourceKind::kNgram ? kAnswers / 10 : 0);
    EXPECT_GT(flushes, kAnswers / 10);
  }
  if (GetParam().options.saguaro == 0.0) {
    EXPECT_GT(bent, kAnswers / 10) << "no C but 1 was chosen";
  }
  // Chi-square over the outcomes expected at least 8 times, the others together.
  double statistic = 0, rare_expected = 0, rare_seen = 0;
  int cells = 0;
  for (const auto& [text, p] : exact) {
    const double expected = p * kAnswers, counted = seen.contains(text) ? seen.at(text) : 0;
    seen.erase(text);
    if (expected < 8) {
      rare_expected += expected;
      rare_seen += counted;
      continue;
    }
    statistic += (counted - expected) * (counted - expected) / expected;
    ++cells;
  }
  EXPECT_TRUE(seen.empty()) << "tokens came that the target cannot draw";
  if (rare_expected >= 8) {
    statistic += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    ++cells;
  }
  // Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is nearly normal.
  const double k = cells - 1;
  const double z = (std::cbrt(statistic / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
  const double as_far = std::erfc(z / std::sqrt(2.0)) / 2;  // what is right comes out as far off, or farther
  EXPECT_GT(as_far, kLevel / static_cast<double>(kCombinations.size()))  // Bonferroni
      << "chi-square " << statistic << " with " << k << " degrees of freedom, z " << z;
  RecordProperty("z", std::to_string(z));
}

INSTANTIATE_TEST_SUITE_P(Methods, Reject, ::testing::ValuesIn(kCombinations),
                         [](const auto& combination) { return std::string(combination.param.name); });

TEST(RejectIsRefused, WhereItIsNotDefined) {
  PipelineSpec setup{.stages = 1, .drafts = {&draft()}, .context = 16};
  auto engine = make_engine(target(), setup);
  const auto refused = engine->submit({.prompt = kPrompt, .sampling = sampling(false), .method = "pipespec"});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--verify"), std::string::npos);
  EXPECT_NE(refused.error().message.find("pipespec"), std::string::npos);
}

}  // namespace
}  // namespace sluice
