// An engine whose stages are elsewhere: every message goes as bytes, is decoded and checked before it is believed. The
// tokens are those of plain decoding; and what a spoilt message ends in is an error that says whose it was.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <regex>

#include "support/byte_executor.h"
#include "support/spy.h"
#include "support/tiny_head.h"

namespace sluice {
namespace {

using namespace test;

const HeadFile& head(const std::string& kind) {
  static std::map<std::string, HeadFile> heads;
  if (const auto at = heads.find(kind); at != heads.end()) return at->second;
  const std::string path = temp_path("bytes-" + kind + ".gguf");
  tiny_head(six_layers().model, {.kind = kind, .cuts = {0, 3, 6}}).write(path);
  return heads.emplace(kind, HeadFile::open(path, six_layers().model).value()).first->second;
}

// What is asked by means of what.
struct Play {
  std::string name, method;
  std::vector<const Opened*> drafts = {};
  std::string head = {};
  Rule rule = Rule::kMatch;
};

std::vector<Play> plays() {
  return {{"Ar", "ar"},
          {"SpecPipe", "specpipe"},
          {"Surge", "surge", {&two_layers()}},
          {"Sd", "sd", {&two_layers()}},
          {"Ssd", "ssd", {&two_layers()}},
          {"PipeSpec", "pipespec", {&two_layers(), &five_layers()}},
          {"Spd", "spd", {}, "spd"},
          {"Eagle3", "eagle3", {}, "eagle3"},
          {"Exit", "ppsd", {}, "exit"},
          {"Reject", "surge", {&two_layers()}, {}, Rule::kReject}};
}

PipelineSpec pipeline(const Play& play) {
  PipelineSpec setup{.cuts = {3}, .drafts = play.drafts, .context = 96, .n_cells = 2048};
  if (!play.head.empty()) setup.head = &head(play.head);
  return setup;
}

RequestSpec request(const Play& play, float temperature) {
  RequestSpec spec{.sampling = {.temperature = temperature, .seed = 3, .rule = play.rule},
                   .max_tokens = 24,
                   .method = play.method,
                   .ignore_end = true};
  for (const char c : std::string("one two one two one")) spec.prompt.push_back(3 + c);
  return spec;
}

std::unique_ptr<Engine> engine_over_bytes(const Play& play, uint64_t seed, Tamper tamper = {}) {
  const PipelineSpec setup = pipeline(play);
  return make_engine(six_layers(), setup, [&](std::unique_ptr<Executor>) {
    return make_byte_executor(six_layers(), setup, seed, std::move(tamper));
  });
}

class OverBytes : public testing::TestWithParam<Play> {};

TEST_P(OverBytes, TheTokensAreThoseOfPlainDecodingInWhateverOrderMessagesArrive) {
  if (GetParam().rule != Rule::kMatch) GTEST_SKIP() << "other tokens, of the same distribution";
  int64_t drafted = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const float temperature = seed % 2 == 0 ? 0.0f : 1.0f;
    const auto engine = engine_over_bytes(GetParam(), seed);
    std::vector<RequestId> ids;
    for (uint32_t choice = 0; choice < 2; ++choice) {
      RequestSpec spec = request(GetParam(), temperature);
      spec.sampling.choice = choice;
      ids.push_back(submit(*engine, spec));
    }
    finish(*engine);
    for (uint32_t choice = 0; choice < 2; ++choice) {
      RequestSpec spec = request(GetParam(), temperature);
      spec.sampling.choice = choice;
      EXPECT_EQ(answer(*engine, ids[choice]), plain_decoding(six_layers(), spec)) << "seed " << seed;
      drafted += engine->request(ids[choice]).stats.drafted;
    }
  }
  EXPECT_TRUE(GetParam().method == "ar" || drafted > 0) << "nothing was ever guessed";
}

// Changes a bit of the n-th message.
Tamper spoil(uint64_t n, uint64_t seed, std::string& what) {
  return [n, seed, &what, at = uint64_t{0}](const std::string& way, std::vector<std::byte>& bytes) mutable {
    if (at++ != n) return;
    std::mt19937_64 random(seed);
    const size_t byte = random() % bytes.size();
    bytes[byte] ^= std::byte(1u << random() % 8);
    what = "byte " + std::to_string(byte) + " of " + std::to_string(bytes.size()) + ", " + way;
  };
}

// Submits and steps until there is an answer or an error, which it returns.
std::optional<std::string> error_of(Engine& engine, const RequestSpec& spec) {
  const auto id = engine.submit(spec);
  if (!id) return id.error().message;
  for (int steps = 0; engine.busy(); ++steps) {
    if (steps == 20'000) return "it goes on for ever";
    if (const auto done = engine.step(); !done) return done.error().message;
  }
  const Request& request = engine.request(*id);
  if (request.finish == Finish::kFailed) return request.error.message;
  EXPECT_EQ(request.n_answer(), static_cast<size_t>(spec.max_tokens));
  return std::nullopt;
}

// A bit of a token, a number or a state may make another honest message, and the answer another one. All else is found
// out, by whoever it reaches first.
TEST_P(OverBytes, ASpoiltMessageEndsInAnAnswerOrAnErrorThatNamesTheStage) {
  const RequestSpec spec = request(GetParam(), 0.7f);
  uint64_t n_messages = 0;
  {
    const auto engine =
        engine_over_bytes(GetParam(), 1, [&](const std::string&, std::vector<std::byte>&) { ++n_messages; });
    ASSERT_EQ(error_of(*engine, spec), std::nullopt);
  }
  int answers = 0, errors = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    std::string what = "nothing";
    const auto engine = engine_over_bytes(GetParam(), 1, spoil(seed * 7919 % n_messages, seed, what));
    const auto error = error_of(*engine, spec);
    ++(error ? errors : answers);
    if (error) {
      EXPECT_TRUE(std::regex_search(*error, std::regex("stage [0-9]|target's last stage")))
          << *error << "; spoilt: " << what;
    }
  }
  EXPECT_GT(errors, 20);
  EXPECT_GT(answers, 0);
}

INSTANTIATE_TEST_SUITE_P(Engine, OverBytes, testing::ValuesIn(plays()),
                         [](const auto& info) { return info.param.name; });

// An executor that lies.
TEST(Engine, EventsThatCannotBeEndTheEngineAndNotTheProgram) {
  const Play surge = plays()[2], spd = plays()[6];
  const auto ends = [](const Play& play, const char* why, const std::function<bool(Event&)>& change) {
    bool changed = false;
    const auto engine = make_engine(six_layers(), pipeline(play), [&](std::unique_ptr<Executor> executor) {
      auto spy = std::make_unique<Spy>(std::move(executor));
      spy->on_event = [&](Event& event) { changed = changed || change(event); };
      return spy;
    });
    const auto error = error_of(*engine, request(play, 0.0f));
    EXPECT_TRUE(changed);
    ASSERT_TRUE(error) << why;
    EXPECT_NE(error->find(why), std::string::npos) << *error;
  };
  const auto report = [&](const char* why, const std::function<void(StageReport&)>& change) {
    ends(surge, why, [&](Event& event) {
      auto* said = std::get_if<StageReport>(&event);
      if (said != nullptr) change(*said);
      return said != nullptr;
    });
  };
  report("one of the model's stages", [](StageReport& r) { r.stage = StageId(1'000'000'000); });
  report("one of the model's stages", [](StageReport& r) { r.stage = StageId(-2); });
  report("one of this engine", [](StageReport& r) { r.model = ModelId(1'000'000'000); });
  report("one of this engine", [](StageReport& r) { r.model = ModelId(-1); });
  ends(surge, "a row that was asked", [](Event& event) {
    auto* outcome = std::get_if<Outcome>(&event);
    if (outcome == nullptr || outcome->drafted.empty()) return false;
    outcome->drafted.front().row = 65'000;
    return true;
  });
  ends(spd, "one of the target's stages", [](Event& event) {
    auto* taps = std::get_if<TapsArrived>(&event);
    if (taps != nullptr) taps->stage = StageId(1'000'000'000);
    return taps != nullptr;
  });
}

}  // namespace
}  // namespace sluice
