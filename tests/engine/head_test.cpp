// Heads and what they read of the target, request by request.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sluice
