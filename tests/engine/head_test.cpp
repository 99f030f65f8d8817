// Heads and what they read of the target, request by request.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/head_notes.h"
#include "support/harness.h"
#include "support/tiny_head.h"

namespace sluice {
namespace {

using namespace test;

const Opened& target() { return six_layers(); }

HeadFile written(GgufDraft draft) {
  static int number = 0;  // files that are open stay as they are
  const std::string path = temp_path("head-" + std::to_string(number++) + ".gguf");
  return HeadFile::open(draft.write(path), target().model).value();
}

using Numbers = std::vector<int32_t>;

struct Kind {
  const char* kind;
  const char* method;
  const char* key;
  Numbers taps;
};

// The embedding, layer 0, is no state that a stage has to send: a head may read it beside others, and stages that no
// tap is in have nothing to send.
TEST(Head, MayReadTheEmbeddingBesideStatesOfSomeStages) {
  for (const Kind& k : {Kind{"spd", "spd", "sluice-head.spd.taps", {0, 0, 1, 2, 0, 1, 2}},
                        Kind{"spd", "spd", "sluice-head.spd.taps", {0, 0, 0, 0, 0, 0, 5}},
                        Kind{"eagle3", "eagle3", "eagle3.target_layers", {0, 1, 1}},
                        Kind{"eagle3", "eagle3", "eagle3.target_layers", {6, 0, 0}},
                        Kind{"p-eagle", "p-eagle", "sluice-head.p-eagle.taps", {0, 2, 1}}}) {
    GgufDraft file = tiny_head(target().model, {.kind = k.kind, .cuts = {0, 3, 6}});
    file.set(k.key, k.taps);
    const HeadFile head = written(std::move(file));
    for (const bool threads : {false, true}) {
      const auto engine = make_engine(target(), {.cuts = {3}, .threads = threads, .head = &head});
      const RequestSpec spec{.prompt = {60, 61, 62, 60, 61}, .max_tokens = 24, .method = k.method, .ignore_end = true};
      const RequestId id = submit(*engine, spec);
      finish(*engine);
      EXPECT_EQ(answer(*engine, id), plain_decoding(target(), spec)) << k.kind << (threads ? " on threads" : "");
      if (!threads) {  // a node enters as often as the first stage is free
        EXPECT_GT(engine->request(id).stats.drafted, 12) << k.kind << " is not asked when it can answer";
      }
    }
  }
}

std::unique_ptr<Engine> listened_to(const HeadFile& head, Notes& notes) {
  const PipelineSpec setup{.cuts = {3}, .head = &head, .context = 2000, .n_cells = 6000, .scheduler = {256, 64}};
  return make_engine(target(), setup, [&notes](auto executor) { return listened_to(notes, std::move(executor)); });
}

// Wherever the second prompt leaves the first conversation: what is guessed after it is what a fresh request guesses.
TEST(Head, InASecondTurnGuessesAsInAFreshRequest) {
  for (const auto& [kind, method] : std::vector<std::pair<const char*, const char*>>{
           {"eagle3", "eagle3"}, {"p-eagle", "p-eagle"}, {"exit", "ppsd"}, {"spd", "spd"}}) {
    const HeadFile head = written(tiny_head(target().model, {.kind = kind, .cuts = {0, 3, 6}}));
    for (const size_t shared : {size_t{0}, size_t{1}, size_t{3}, size_t{5}, size_t{9}, size_t{17}}) {
      Notes in_turn, fresh;
      const auto engine = listened_to(head, in_turn);
      const RequestSpec first{.prompt = {60, 61, 62, 60, 61}, .max_tokens = 16, .method = method, .ignore_end = true};
      const RequestId id = submit(*engine, first);
      finish(*engine);
      const auto& tokens = engine->request(id).tokens;
      RequestSpec second = first;
      second.prompt.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(shared));
      for (const Token token : {75, 76, 77}) second.prompt.push_back(token);
      second.continues = id;
      in_turn.said.clear();
      const RequestId next = submit(*engine, second);
      finish(*engine);
      second.continues.reset();
      EXPECT_EQ(answer(*engine, next), plain_decoding(target(), second)) << kind;
      const auto alone = listened_to(head, fresh);
      submit(*alone, first);  // so that both engines know what passes take
      finish(*alone);
      fresh.said.clear();
      submit(*alone, second);
      finish(*alone);
      size_t compared = 0, others = 0;
      for (const auto& [path, said] : in_turn.said) {
        const auto same = fresh.said.find(path);
        if (same == fresh.said.end()) continue;
        ++compared;
        others += said != same->second;
      }
      EXPECT_GT(compared, 10u) << kind;
      // What SPD's module says depends on how many tokens are in flight, too, and so now and then on the row's price.
      EXPECT_LE(others, std::string(kind) == "spd" ? compared / 20 : 0) << kind << ", " << shared << " tokens shared";
    }
  }
}

const std::vector<std::pair<const char*, const char*>> kKinds = {
    {"eagle3", "eagle3"}, {"p-eagle", "p-eagle"}, {"exit", "ppsd"}, {"spd", "spd"}};

// The head takes a long prompt chunk by chunk, as the target's stages finish it.
TEST(Head, OfALongPromptHoldsOnlyTheStatesOfWhatIsUnderWay) {
  for (const auto& [kind, method] : kKinds) {
    const HeadFile head = written(tiny_head(target().model, {.kind = kind, .cuts = {0, 3, 6}}));
    Notes notes;
    const auto engine = listened_to(head, notes);
    RequestSpec spec{.max_tokens = 8, .method = method, .ignore_end = true};
    for (int32_t i = 0; i < 1500; ++i) spec.prompt.push_back(60 + i * i % 41);
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    EXPECT_EQ(answer(*engine, id), plain_decoding(target(), spec, KvType::kF16, 2000)) << kind;
    EXPECT_GT(engine->request(id).stats.drafted, 0) << kind;
    EXPECT_LE(notes.most_held, 400u) << kind;
    EXPECT_LE(notes.held.size(), 100u) << kind;
  }
}

TEST(Head, HoldsNothingForRequestsThatDoNotAskIt) {
  for (const auto& [kind, method] : kKinds) {
    const HeadFile head = written(tiny_head(target().model, {.kind = kind, .cuts = {0, 3, 6}}));
    for (const char* other : {"ar", "specpipe"}) {
      Notes notes, fresh;
      const auto engine = listened_to(head, notes);
      RequestSpec spec{.prompt = {60, 61, 62, 60, 61},
                       .max_tokens = 16,
                       .method = other,
                       .sources = {SourceKind::kNgram},
                       .ignore_end = true};
      const RequestId id = submit(*engine, spec);
      finish(*engine);
      EXPECT_EQ(notes.most_held, 0u) << kind << ", " << other;
      // A second turn that asks it has all that it needs.
      spec.prompt = engine->request(id).tokens;
      spec.prompt.push_back(77);
      spec.method = method;
      spec.sources.clear();
      spec.continues = id;
      submit(*engine, spec);
      finish(*engine);
      spec.continues.reset();
      const auto alone = listened_to(head, fresh);
      submit(*alone, spec);
      finish(*alone);
      size_t common = 0;  // an engine that has learnt what passes take asks for other nodes
      for (const auto& [path, said] : notes.said) {
        const auto same = fresh.said.find(path);
        if (same == fresh.said.end()) continue;
        ++common;
        EXPECT_EQ(said, same->second) << kind << " after " << other << ", a path of " << path.size();
      }
      EXPECT_GT(2 * common, notes.said.size()) << kind << " after " << other;
    }
  }
}

// Before the first token of an answer a head knows nothing of it, and whoever asks it must not wait for others to end.
TEST(Head, OfALateRequestLetsItBeginBesideOthers) {
  for (const auto& [kind, method] : std::vector<std::pair<const char*, const char*>>{
           {"eagle3", "eagle3"}, {"p-eagle", "p-eagle"}, {"exit", "ppsd"}, {"spd", "spd"}}) {
    const HeadFile head = written(tiny_head(target().model, {.kind = kind, .cuts = {0, 3, 6}}));
    for (const char* other : {"ar", "surge", method}) {
      const auto engine = make_engine(target(), {.cuts = {3}, .head = &head});
      const RequestSpec first{.prompt = {60, 61, 62}, .max_tokens = 200, .method = other, .ignore_end = true};
      const RequestSpec late{.prompt = {60, 61, 62, 60, 61}, .max_tokens = 12, .method = method, .ignore_end = true};
      const RequestId running = submit(*engine, first);
      while (engine->request(running).n_answer() < 5) ASSERT_TRUE(engine->step());
      const RequestId id = submit(*engine, late);
      while (engine->request(id).finish == Finish::kNone && engine->busy()) ASSERT_TRUE(engine->step());
      EXPECT_LT(engine->request(running).n_answer(), 100u) << method << " waits for " << other;
      finish(*engine);
      EXPECT_EQ(answer(*engine, id), plain_decoding(target(), late)) << method << " beside " << other;
      EXPECT_EQ(answer(*engine, running), plain_decoding(target(), first)) << other << " beside " << method;
    }
  }
}

}  // namespace
}  // namespace sluice
