// A head on a host of its own, or on one that holds a stage: stages send it what it reads, and it says what it would
// say in the coordinator's process.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "engine/head_notes.h"
#include "support/harness.h"
#include "support/tiny_head.h"
#include "transport/stage_host.h"

namespace sluice {
namespace {

using namespace test;

const Opened& target() { return six_layers(); }

struct Kind {
  const char *kind, *method;
  bool is_waited_for;  // else, on a busy machine, the whole answer may come before the head's first word
};
constexpr Kind kKinds[] = {
    {"eagle3", "eagle3", true}, {"p-eagle", "p-eagle", true}, {"exit", "ppsd", false}, {"spd", "spd", false}};

HeadFile head_of(const Kind& kind) {
  static int number = 0;  // files that are open stay as they are
  const std::string path = temp_path("head-host-" + std::to_string(number++) + ".gguf");
  const GgufDraft head = tiny_head(target().model, {.kind = kind.kind, .cuts = {0, 3, 6}});
  return HeadFile::open(head.write(path), target().model).value();
}

RequestSpec asking(const Kind& kind, int32_t max_tokens = 24) {
  return {.prompt = {60, 61, 62, 60, 61}, .max_tokens = max_tokens, .method = kind.method, .ignore_end = true};
}

std::unique_ptr<StageHost> host() {
  return StageHost::open({.listen = {"127.0.0.1", 0}, .secret = {}, .threads = 1}).value();
}

// A pass of the target takes longer than one of the head, so that it pays to ask: here and there alike.
PipelineSpec paced(const HeadFile& head) {
  return {.cuts = {3},
          .threads = true,
          .head = &head,
          .paced = true,
          .profile = R"({"name": "slow", "stage": {"points": [[1, 0.001], [256, 0.001]]},
                         "draft": {"points": [[1, 0.0002], [256, 0.0002]]}, "link": {"latency": 0}})"};
}

// Lines for the user, by any thread.
class Lines {
 public:
  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    text_ += line + "\n";
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  bool has(const std::string& words) { return text().find(words) != std::string::npos; }
  bool shows(const std::string& words) {
    for (int i = 0; i < 6000 && !has(words); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return has(words);
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

class HeadOnAHost : public ::testing::Test {
 protected:
  PipelineSpec setup(const HeadFile& head, const StageHost& place) {
    PipelineSpec setup = paced(head);
    setup.hosts = {a_->address(), b_->address()};
    setup.head_host = place.address();
    setup.on_host = [this](const std::string& line) { said_.add(line); };
    return setup;
  }

  Lines said_;  // the last to go
  std::unique_ptr<StageHost> a_ = host(), b_ = host(), c_ = host();
};

constexpr size_t kEnough = 8;  // paths that it was asked for in both places

// What it says of a path depends, beside the path, on how far tokens in flight had got: most often on nothing else.
struct Compared {
  size_t paths = 0, same = 0;
  bool enough() const { return paths >= kEnough; }
  bool alike() const { return 2 * same > paths; }
};
Compared compared(const Notes& there, const Notes& here) {
  Compared both;
  for (const auto& [path, said] : there.said) {
    const auto at_home = here.said.find(path);
    if (at_home == here.said.end()) continue;
    ++both.paths;
    both.same += said == at_home->second;
  }
  return both;
}
void expect_alike(const Notes& there, const Notes& here, const std::string& what) {
  const Compared both = compared(there, here);
  EXPECT_TRUE(both.enough() && both.alike()) << what << ": " << both.same << " of " << both.paths;
}

TEST_F(HeadOnAHost, SaysWhatItWouldSayHere) {
  for (const Kind& kind : kKinds) {
    const HeadFile head = head_of(kind);
    const RequestSpec spec = asking(kind);
    const std::vector<Token> expected = plain_decoding(target(), spec);
    // Again until enough was asked; anew where tokens in flight had got further, as they do beside other work.
    const auto run = [&](const PipelineSpec& setup, const std::string& what, const Notes* here = nullptr) {
      Notes notes;
      const auto is_enough = [&] {
        return here != nullptr ? compared(notes, *here).enough() : notes.said.size() >= 2 * kEnough;
      };
      const auto is_other = [&] { return here != nullptr && is_enough() && !compared(notes, *here).alike(); };
      for (int attempt = 0; attempt < 20 && (!is_enough() || is_other()); ++attempt) {
        if (is_other()) notes = {};
        const auto engine =
            make_engine(target(), setup, [&](auto executor) { return listened_to(notes, std::move(executor)); });
        const RequestId id = submit(*engine, spec);
        finish(*engine);
        EXPECT_EQ(answer(*engine, id), expected) << what;
      }
      return notes;
    };
    const Notes here = run(paced(head), kind.kind);
    for (const auto& [name, place] :
         {std::pair("of its own", &c_), {"of the first stage", &a_}, {"of the last", &b_}}) {
      const std::string what = std::string(kind.kind) + " on the host " + name;
      expect_alike(run(setup(head, **place), what, &here), here, what);
    }
    PipelineSpec relayed = setup(head, *c_);
    relayed.head_host->relay = true;
    const std::string what = std::string(kind.kind) + " by way of the coordinator";
    expect_alike(run(relayed, what, &here), here, what);
    EXPECT_EQ(said_.text(), "");
  }
}

TEST_F(HeadOnAHost, ServesASecondTurnAndSeveralAtATime) {
  const Kind kind = kKinds[0];
  const HeadFile head = head_of(kind);
  const auto engine = make_engine(target(), setup(head, *c_));
  RequestSpec first = asking(kind), other = asking(kind);
  other.prompt = {70, 71, 72, 73};
  const RequestId id = submit(*engine, first), beside = submit(*engine, other);
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), plain_decoding(target(), first));
  EXPECT_EQ(answer(*engine, beside), plain_decoding(target(), other));
  RequestSpec second = asking(kind);
  second.prompt = engine->request(id).tokens;
  second.prompt.push_back(77);
  second.continues = id;
  const RequestId next = submit(*engine, second);
  finish(*engine);
  second.continues.reset();
  EXPECT_EQ(answer(*engine, next), plain_decoding(target(), second));
}

// An answer in the middle of which a host goes.
class LosingIt : public HeadOnAHost {
 protected:
  void goes_on(const Kind& kind, PipelineSpec setup, std::unique_ptr<StageHost>& victim, const std::string& heir) {
    const HeadFile head = head_of(kind);
    setup.head = &head;
    const RequestSpec spec = asking(kind, 60);
    const auto engine = make_engine(target(), setup);
    const RequestId id = submit(*engine, spec);
    while (engine->request(id).n_answer() < 10) ASSERT_TRUE(engine->step());
    const int64_t drafted = engine->request(id).stats.drafted;
    victim.reset();
    ASSERT_TRUE(said_.shows("to others")) << said_.text();
    finish(*engine);
    EXPECT_EQ(answer(*engine, id), plain_decoding(target(), spec)) << kind.kind;
    EXPECT_GE(engine->request(id).stats.replays, 1) << kind.kind;
    if (kind.is_waited_for) {
      EXPECT_GT(engine->request(id).stats.drafted, drafted) << kind.kind << " is asked again";
    }
    EXPECT_TRUE(said_.has(heir)) << said_.text();
    engine->release(id);
    EXPECT_EQ(engine->held_cells(), 0u) << kind.kind;
  }
  const HeadFile any_ = head_of(kKinds[0]);
};

TEST_F(LosingIt, ItsHostIsReplacedByASpare) {
  for (const Kind& kind : kKinds) {
    const auto spare = host();
    PipelineSpec there = setup(any_, *c_);
    there.spares = {spare->address()};
    goes_on(kind, there, c_, "host " + spare->address().text() + " has the head of " + there.head_host->text());
    c_ = host();
  }
}

TEST_F(LosingIt, AStageIsReplacedBesideIt) {
  for (const Kind& kind : kKinds) {
    const auto spare = host();
    PipelineSpec there = setup(any_, *c_);
    there.spares = {spare->address()};
    goes_on(kind, there, b_, "host " + spare->address().text() + " has the layers of " + there.hosts[1].text());
    b_ = host();
  }
}

TEST_F(LosingIt, AHostOfAStageAndTheHeadGivesBothToOthers) {
  const PipelineSpec there = setup(any_, *b_);
  goes_on(kKinds[3], there, b_, "host " + a_->address().text() + " has the ");
}

}  // namespace
}  // namespace sluice
