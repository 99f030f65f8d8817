// Rule `reject` keeps the target's distribution exactly: the engine runs through all choices that drawing and rejecting
// can make, and the probabilities of what it answers add up to the target's, whatever the method, whichever rows are
// cut for want of room, and however late draws come.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "engine/scripted_pipeline.h"
#include "support/distribution.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;
using enum SourceKind;

const Text kPrompt = {1, 2};

// A number between 0 and 1 for each text and token.
double number(const Text& text, uint64_t more) {
  uint64_t x = more * 0x9E3779B97F4A7C15ull;
  for (const Token token : text) x = (x ^ static_cast<uint64_t>(token + 7)) * 0xBF58476D1CE4E5B9ull + (x >> 29);
  x = (x ^ (x >> 30)) * 0x94D049BB133111EBull;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

Logits random_logits(uint64_t seed, uint64_t n_tokens) {
  return [=](const Text& text) {
    std::vector<float> logits;
    for (uint64_t token = 0; token < n_tokens; ++token)
      logits.push_back(static_cast<float>(2.5 * number(text, 8 * seed + token)));
    return logits;
  };
}

Logits always(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return [=](const Text&) { return logits; };
}

struct Case {
  const char* name;
  const char* method;
  MethodOptions options = {};
  std::vector<SourceKind> sources = {kDraft};
  std::optional<HeadKind> head = {};
  bool many = false;  // ways to go: then every second play will do
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// How the pipeline is made, and where it is short of something.
struct Play {
  int32_t stages = 2;
  double draft_time = 0.5, message_time = 0.125;
  int32_t row_budget = 64;
  int32_t spare_cells = 64;  // beyond those that are promised to the answer
  uint64_t texts = 1;        // which distributions
  uint32_t requests = 1;     // that share rows and cells; the first one is looked at
  int32_t looked = 2;        // tokens of its answer that are looked at; a head guesses from the second one on
  uint64_t n_tokens = 3;     // that there are
  int32_t top_k = 0;         // so that draft and target may draw other tokens
};

HeadParameters head_of(HeadKind kind, int32_t stages) {
  HeadParameters head{.kind = kind};
  head.hparams.d_model = 8;
  for (int32_t depth = 0; depth <= stages; ++depth) head.cuts.push_back(depth);
  if (kind == HeadKind::kSpd)
    for (int32_t depth = 0; depth <= stages; ++depth) head.taps.push_back({depth});
  if (kind == HeadKind::kExit) head.taps = {{1}};
  if (kind == HeadKind::kEagle3 || kind == HeadKind::kPEagle) head.taps = {{1, stages}};
  return head;
}

struct Enumerated {
  std::map<Text, double> seen;
  int64_t runs = 0, accepted = 0;
  bool fresh = true;
};

Enumerated enumerate(const Case& c, const Play& play, const Logits& target, const Logits& source) {
  const int32_t looked = play.looked;
  AllChoices choices;
  Enumerated all;
  SamplingParams sampling{.temperature = 1.0f, .top_k = play.top_k, .rule = Rule::kReject};
  const Choose choose = [&](const DrawSite& site, uint32_t index, std::span<const double> weights) {
    return choices.choose(site, index, weights);
  };
  do {
    EngineOptions options{.context = 16,
                          .n_cells = static_cast<int32_t>(play.requests) * (2 + looked + 1) + play.spare_cells,
                          .drafts = {}};
    options.scheduler.row_budget = play.row_budget;
    for (int32_t s = 0; s < play.stages; ++s) options.cuts.push_back({s, s + 1});
    if (c.head)
      options.drafts.push_back({"head", 128, 1, head_of(*c.head, play.stages)});
    else
      options.drafts.push_back({"draft", 128, 1, {}});
    options.choose = choose;
    Engine engine(two_layers().tokenizer,
                  std::make_unique<ScriptedPipeline>(Script{.stages = play.stages,
                                                            .draft_time = play.draft_time,
                                                            .message_time = play.message_time,
                                                            .has_source = true,
                                                            .is_head = c.head.has_value(),
                                                            .guesses = c.head == HeadKind::kPEagle ? 2 : 1,
                                                            .sampling = sampling,
                                                            .target = target,
                                                            .source = source,
                                                            .choose = choose}),
                  std::move(options));
    for (; sampling.choice < play.requests; ++sampling.choice)
      submit(engine, {.prompt = kPrompt,
                      .sampling = sampling,
                      .max_tokens = looked + 1,  // what is drafted may go beyond what is looked at
                      .method = c.method,
                      .sources = c.sources,
                      .method_options = c.options,
                      .ignore_end = true});
    sampling.choice = 0;
    const RequestId id(0);
    while (answer(engine, id).size() < static_cast<size_t>(looked)) EXPECT_TRUE(engine.step());
    Text text = answer(engine, id);
    text.resize(static_cast<size_t>(looked));
    all.seen[text] += choices.probability();
    all.accepted += engine.request(id).stats.accepted;
    all.fresh = all.fresh && choices.fresh();
    ++all.runs;
  } while (choices.next());
  return all;
}

std::map<Text, double> exact(const Logits& target, int32_t looked, int32_t top_k) {
  std::map<Text, double> all = {{{}, 1.0}};
  Sampler sampler;
  for (int32_t i = 0; i < looked; ++i) {
    std::map<Text, double> longer;
    for (const auto& [text, probability] : all) {
      Text whole = kPrompt;
      whole.insert(whole.end(), text.begin(), text.end());
      for (const Chance& chance : distribution(sampler, {.temperature = 1.0f, .top_k = top_k}, target(whole), whole)) {
        Text next = text;
        next.push_back(chance.token);
        longer[next] = probability * chance.probability;
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string print(const std::map<Text, double>& distribution) {
  std::ostringstream text;
  text.precision(4);
  for (const auto& [tokens, p] : distribution) {
    for (const Token token : tokens) text << token << ' ';
    text << "with " << p << "; ";
  }
  return text.str();
}

void expect_exact(const Enumerated& all, const std::map<Text, double>& wanted) {
  double worst = 0.0;
  for (const auto& [text, p] : wanted)
    worst = std::max(worst, std::abs(p - (all.seen.contains(text) ? all.seen.at(text) : 0.0)));
  EXPECT_LT(worst, 1e-9) << "comes: " << print(all.seen) << "\nwanted: " << print(wanted);
  EXPECT_EQ(all.seen.size(), wanted.size());
  EXPECT_TRUE(all.fresh) << "two draws share their noise";
}

TEST(RejectIsExact, WhenDrawsWithReplacementAreMoreThanTheChildren) {
  const Case c{"", "specinfer", {.branching = {1, 3}, .replacement = true}};
  const auto p = always({0.40, 0.35, 0.25});
  expect_exact(enumerate(c, {.stages = 1, .looked = 1}, p, always({0.80, 0.15, 0.05})), exact(p, 1, 0));
}

class RejectIsExact : public ::testing::TestWithParam<Case> {};

TEST_P(RejectIsExact, ForEveryText) {
  const Case& c = GetParam();
  int64_t accepted = 0, runs = 0;
  const std::vector<Play> plays = {
      {},
      {.stages = 1, .texts = 2},
      {.stages = 3, .draft_time = 0.25, .texts = 3},
      {.stages = 3, .draft_time = 1.25, .message_time = 0.5, .texts = 4},
      {.stages = 3, .draft_time = 2.25, .texts = 5},
      {.stages = 2, .row_budget = 2, .texts = 6},
      {.stages = 3, .draft_time = 0.25, .row_budget = 2, .texts = 7},
      {.stages = 2, .spare_cells = 1, .texts = 8},
      {.stages = 3, .draft_time = 0.75, .spare_cells = 2, .texts = 9},
      {.stages = 2, .texts = 13, .top_k = 2},
      {.stages = 2, .spare_cells = 1, .texts = 10, .requests = 2, .looked = 1, .n_tokens = 2},
      {.stages = 2, .row_budget = 1, .texts = 11, .requests = 2, .looked = 1, .n_tokens = 2},
      {.stages = 3, .row_budget = 1, .texts = 12, .requests = 2, .looked = 1, .n_tokens = 2},
  };
  for (size_t i = 0; i < plays.size(); i += c.many ? 2 : 1) {
    Play play = plays[i];
    SCOPED_TRACE(std::to_string(play.stages) + " stages, a draft of " + std::to_string(play.draft_time) + ", " +
                 std::to_string(play.row_budget) + " rows, " + std::to_string(play.spare_cells) + " cells");
    if (c.head) ++play.looked;
    const Logits target = random_logits(2 * play.texts, play.n_tokens),
                 source = random_logits(2 * play.texts + 1, play.n_tokens);
    const Enumerated all = enumerate(c, play, target, source);
    expect_exact(all, exact(target, play.looked, play.top_k));
    accepted += all.accepted;
    runs += all.runs;
  }
  if (c.method != std::string("ar")) {
    EXPECT_GT(accepted, 0);
  }
  RecordProperty("runs", std::to_string(runs));
}

const std::vector<SourceKind> kHeads = {kHead};

INSTANTIATE_TEST_SUITE_P(
    Methods, RejectIsExact,
    ::testing::Values(
        Case{"Plain", "ar"}, Case{"Chain", "sd", {.depth = 2}}, Case{"ShortChain", "sd", {.depth = 1}},
        Case{"UnsureChain", "sd", {.depth = 2, .draft_p_min = 0.4}},
        Case{"ChainOfNgrams", "sd", {.depth = 2}, {kNgram}}, Case{"ChainOfBoth", "sd", {.depth = 2}, {kNgram, kDraft}},
        Case{"Tree", "specinfer", {.branching = {2, 1}}}, Case{"TreeWideBelow", "specinfer", {.branching = {1, 2}}},
        Case{"TreeWithReplacement", "specinfer", {.branching = {2, 1}, .replacement = true}, {kDraft}, {}, true},
        Case{"TreeWideBelowWithReplacement", "specinfer", {.branching = {1, 2}, .replacement = true}},
        Case{"Ssd", "ssd", {.depth = 1, .budget = 2, .fallback = Fallback::kDraft}},
        Case{"SsdOfTwo", "ssd", {.depth = 2, .budget = 2, .fallback = Fallback::kDraft}},
        Case{"SsdWithNgrams", "ssd", {.depth = 1, .budget = 2, .fallback = Fallback::kNgram}},
        Case{"SsdOfNgrams", "ssd", {.depth = 1, .budget = 2}, {kNgram}},
        Case{"SsdWithSaguaro", "ssd", {.depth = 1, .budget = 2, .saguaro = 0.4, .saguaro_tokens = 1}},
        Case{"SsdWithChosenSaguaro", "ssd", {.depth = 1, .budget = 2, .saguaro = 0.0, .saguaro_tokens = 1}},
        Case{"BestTree", "specinfer", {.children = 2, .depth = 2, .tree_nodes = 3}},
        Case{"BestTreeWithReplacement",
             "specinfer",
             {.children = 2, .depth = 2, .tree_nodes = 2, .replacement = true},
             {kDraft},
             {},
             true},
        Case{"SpecPipe", "specpipe", {.width = 2, .children = 2}}, Case{"SpecPipeOfAChain", "specpipe", {.width = 1}},
        Case{"SpecPipeWithReplacement",
             "specpipe",
             {.width = 2, .children = 2, .replacement = true},
             {kDraft},
             {},
             true},
        Case{"SpecPipeOfTwoLevels", "specpipe", {.width = 2, .levels = 2, .children = 2}},
        Case{"SpecPipeOfGroups", "specpipe", {.width = 2, .group = 2, .children = 2}},
        Case{"Surge", "surge", {.width = 2, .children = 2}}, Case{"NarrowSurge", "surge", {.width = 1, .children = 2}},
        Case{"SurgeOfTwoQuestions", "surge", {.width = 3, .children = 2, .draft_rows = 2}},
        Case{"SurgeOfBoth", "surge", {.width = 2, .children = 2}, {kNgram, kDraft}},
        Case{"WideSpd", "spd", {.width = 2, .children = 2}, kHeads, HeadKind::kSpd, true},
        Case{"WidePpsd", "ppsd", {.width = 2, .children = 2}, kHeads, HeadKind::kExit},
        Case{"Eagle3Tree", "eagle3", {.children = 2, .depth = 2, .tree_nodes = 2}, kHeads, HeadKind::kEagle3, true},
        Case{"Spd", "spd", {.width = 1}, kHeads, HeadKind::kSpd},
        Case{"Ppsd", "ppsd", {.width = 1}, kHeads, HeadKind::kExit},
        Case{"Eagle3", "eagle3", {.depth = 2}, kHeads, HeadKind::kEagle3},
        Case{"Eagle3UnsureChain", "eagle3", {.depth = 2, .draft_p_min = 0.4}, kHeads, HeadKind::kEagle3},
        Case{"PEagle", "p-eagle", {.depth = 2}, kHeads, HeadKind::kPEagle},
        Case{"PEagleUnsureChain", "p-eagle", {.depth = 2, .draft_p_min = 0.4}, kHeads, HeadKind::kPEagle}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice
