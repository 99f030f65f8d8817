// A trained draft head as the draft model of a pipeline.
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/recipe.h"
#include "support/harness.h"
#include "support/tiny_head.h"

namespace sluice {
namespace {

using namespace test;

constexpr int32_t kGuessed = 40;  // tokens of the small vocabulary: far fewer than a source keeps of a row

const Opened& target() { return six_layers(); }

Opened draft_head(const TinyHeadSpec& spec) {
  static int number = 0;  // files that are open stay as they are
  const std::string path = temp_path("draft-head-" + std::to_string(number++) + ".gguf");
  ModelFile draft = ModelFile::open_draft(tiny_head(target().model, spec).write(path), target().model).value();
  Tokenizer tokenizer = Tokenizer::load(draft).value();
  return {std::move(draft), std::move(tokenizer)};
}

// Every other token, those that the answers are made of among them.
std::vector<Token> some_tokens() {
  std::vector<Token> tokens;
  for (Token t = 200; t < 200 + 2 * kGuessed; t += 2) tokens.push_back(t % target().tokenizer.size());
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

struct Ran {
  std::vector<Token> tokens;
  int64_t drafted = 0, accepted = 0;
  bool operator==(const Ran&) const = default;
};

Ran run(const Opened& draft, const std::string& method, bool lazy, float temperature = 0.0f) {
  const auto engine = make_engine(target(), {.stages = 2, .lazy = lazy, .drafts = {&draft}, .profile = "uniform"});
  RequestSpec spec{.prompt = {60, 61, 62, 60, 61}, .max_tokens = 40, .method = method, .ignore_end = true};
  spec.sampling.temperature = temperature;
  spec.sampling.seed = 4;
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  const Request& request = engine->request(id);
  EXPECT_EQ(answer(*engine, id), plain_decoding(target(), spec)) << method;
  return {request.tokens, request.stats.drafted, request.stats.accepted};
}

TEST(DraftHead, OfAllOfTheTargetsLayersDraftsAsTheTargetItself) {
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5};
  for (const bool own_output : {false, true}) {
    const Opened head = draft_head({.kind = "draft", .layers = all, .own_output = own_output});
    for (const char* method : {"sd", "surge"})
      for (const bool lazy : {false, true})
        for (const float temperature : {0.0f, 0.9f}) {
          const Ran ours = run(head, method, lazy, temperature);
          EXPECT_EQ(ours, run(target(), method, lazy, temperature)) << method << (lazy ? ", lazy" : "");
          EXPECT_GT(ours.accepted, 0);
        }
  }
}

// The guesses of a head whose matrix has some rows only are those of the whole one that are among its tokens.
TEST(DraftHead, TranslatesItsRowsIntoTokens) {
  const std::vector<Token> vocabulary = some_tokens();
  const Opened whole = draft_head({.kind = "draft", .layers = {0, 1}});
  const Opened part = draft_head({.kind = "draft", .layers = {0, 1}, .vocabulary = vocabulary});
  const int32_t n_vocab = target().tokenizer.size();
  const auto candidates = [&](const Opened& head, std::shared_ptr<Memo> memo, int32_t guessable) {
    auto workers = make_workers(head.model, {.cuts = {{0, 2}},
                                             .stage = {.kv = KvType::kF16, .n_cells = 16, .max_rows = 16},
                                             .memo = std::move(memo),
                                             .candidates = n_vocab,
                                             .guessable = guessable})
                       .value();
    Batch batch{.id = BatchId(0), .updates = {Open{SequenceId(0), {}}}, .rows = {}, .hidden = {}};
    for (int32_t i = 0; i < 3; ++i)
      batch.rows.push_back({.sequence = SequenceId(0),
                            .token = 60 + i,
                            .position = i,
                            .cell = Cell(i),
                            .parent = Cell(i - 1),
                            .kind = i == 0 ? Row::Kind::kPrompt : Row::Kind::kNode,
                            .index = static_cast<uint16_t>(i)});
    return workers.front().process(std::move(batch)).outcome.drafted;
  };
  const auto memo = std::make_shared<Memo>();
  const auto among = [&](Token t) { return std::ranges::binary_search(vocabulary, t); };
  const auto all = candidates(whole, nullptr, n_vocab), some = candidates(part, nullptr, n_vocab);
  ASSERT_EQ(some.size(), 2u);
  for (size_t i = 0; i < some.size(); ++i) {
    ASSERT_EQ(some[i].candidates.size(), vocabulary.size());
    std::vector<Token> expected, got;
    for (const Candidate& c : all[i].candidates)
      if (among(c.token)) expected.push_back(c.token);
    for (const Candidate& c : some[i].candidates) {
      EXPECT_TRUE(among(c.token)) << c.token;
      got.push_back(c.token);
    }
    ASSERT_GE(expected.size(), 3u) << "the whole head keeps its likeliest only";
    got.resize(expected.size());
    EXPECT_EQ(got, expected);
  }
  for (int round = 0; round < 2; ++round) {  // computed, then from the memo
    const auto lazy = candidates(part, memo, n_vocab);
    for (size_t i = 0; i < some.size(); ++i) {
      ASSERT_EQ(lazy[i].candidates.size(), some[i].candidates.size());
      for (size_t c = 0; c < some[i].candidates.size(); ++c)
        EXPECT_EQ(lazy[i].candidates[c].token, some[i].candidates[c].token);
    }
  }
  EXPECT_NE(candidates(whole, memo, n_vocab)[0].candidates.size(), vocabulary.size()) << "a memo keeps heads apart";
  const Token bound = vocabulary[5];
  for (const Drafted& drafted : candidates(part, nullptr, bound)) {
    EXPECT_EQ(drafted.candidates.size(), 5u);
    for (const Candidate& c : drafted.candidates) EXPECT_LT(c.token, bound);
  }
  const std::vector<Drafted> first_rows = candidates(whole, nullptr, bound);  // of the whole matrix no more are read
  for (size_t i = 0; i < first_rows.size(); ++i) {
    std::vector<Token> expected, got;
    for (const Candidate& c : all[i].candidates)
      if (c.token < bound) expected.push_back(c.token);
    for (const Candidate& c : first_rows[i].candidates) {
      EXPECT_LT(c.token, bound);
      got.push_back(c.token);
    }
    ASSERT_GE(got.size(), expected.size());
    got.resize(expected.size());
    EXPECT_EQ(got, expected);
  }
}

TEST(DraftHead, WithSomeTokensOnlyChangesNoAnswer) {
  const Opened head = draft_head({.kind = "draft", .layers = {0, 5}, .vocabulary = some_tokens()});
  for (const char* method : {"sd", "surge", "specpipe"}) {
    EXPECT_EQ(run(head, method, false), run(head, method, true)) << method;
    run(head, method, false, 1.2f);
  }
}

}  // namespace
}  // namespace sluice
