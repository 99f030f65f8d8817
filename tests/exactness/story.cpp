#include "exactness/story.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "support/tiny_head.h"
#include "support/trace_check.h"

namespace sluice::test {

namespace {

SamplingParams random_sampling(Dice& dice, int32_t n_vocab) {
  SamplingParams s;
  s.temperature = dice.pick({0.0f, 0.0f, 0.5f, 1.0f, 1.7f});
  s.top_k = dice.pick({0, 0, 1, 5, 40});
  s.top_p = dice.pick({1.0f, 1.0f, 0.9f, 0.3f});
  s.min_p = dice.pick({0.0f, 0.0f, 0.05f, 0.5f});
  s.repeat_penalty = dice.pick({1.0f, 1.0f, 1.1f, 1.5f, 0.8f});
  s.seed = static_cast<uint64_t>(dice.below(1 << 20));
  s.choice = static_cast<uint32_t>(dice.below(3));
  for (int32_t n = dice.pick({0, 0, 1, 4}); n > 0; --n)
    s.logit_bias.emplace_back(dice.below(n_vocab), static_cast<float>(20.0 * dice.uniform() - 10.0));
  s.presence_penalty = dice.pick({0.0f, 0.0f, 0.7f, -1.0f});
  s.frequency_penalty = dice.pick({0.0f, 0.0f, 0.3f, -0.5f});
  s.grammar.rules =
      dice.pick<const char*>({"", "", "", "root ::= [a-z ]+\n", "root ::= (\"o\" [n-o]{1,4} | [0-9]{1,9} \" \")*\n"});
  if (!s.grammar.empty() && dice.chance(0.4))
    s.grammar.triggers = dice.pick<std::vector<GrammarTrigger>>(
        {{{GrammarTrigger::Kind::kWord, "o"}},
         {{GrammarTrigger::Kind::kPattern, "[a-z]([0-9])"}},
         {{GrammarTrigger::Kind::kWord, "n"}, {GrammarTrigger::Kind::kWholePattern, "[\\s\\S]*(e)"}}});
  return s;
}

// Few different tokens, so that n-grams find something.
std::vector<Token> random_text(Dice& dice, int32_t length, int32_t n_vocab) {
  const int32_t first = dice.below(n_vocab - 4);
  std::vector<Token> text;
  for (int32_t i = 0; i < length; ++i) text.push_back(first + dice.below(4));
  return text;
}

// Heads of six layers; untrained, so they are right now and then.
const HeadFile& head_of(const Opened& target, const std::string& kind) {
  static std::map<std::pair<const Opened*, std::string>, HeadFile> heads;
  const auto at = heads.find({&target, kind});
  if (at != heads.end()) return at->second;
  TinyHeadSpec spec{.kind = kind, .cuts = {0, 2, 4, 6}};
  if (kind == "exit") spec.layers = {5};
  const std::string path = temp_path(kind + "_" + std::to_string(heads.size()) + ".gguf");
  auto opened = HeadFile::open(tiny_head(target.model, spec).write(path), target.model);
  if (!opened) throw std::runtime_error(opened.error().message);
  return heads.emplace(std::pair(&target, kind), std::move(*opened)).first->second;
}

std::string random_method(Dice& dice, const HeadFile* head) {
  if (head != nullptr && dice.chance(0.5)) return method_of(head->parameters().kind);
  return dice.chance(0.3) ? "specpipe" : dice.pick<const char*>({"ar", "sd", "specinfer", "surge", "pipespec", "ssd"});
}

RequestSpec random_request(Dice& dice, int32_t n_vocab, bool drafts, const HeadFile* head) {
  RequestSpec spec;
  spec.prompt = random_text(dice, dice.pick({1, 2, 7, 20, 45}), n_vocab);
  spec.sampling = random_sampling(dice, n_vocab);
  spec.max_tokens = dice.pick({1, 2, 12, 12, 25, 200});
  spec.method = random_method(dice, head);
  spec.sources =
      dice.pick<std::vector<SourceKind>>({{}, {SourceKind::kNgram}, {SourceKind::kNgram, SourceKind::kDraft}});
  if (!drafts && spec.sources.size() == 2) spec.sources.clear();
  if (head != nullptr && dice.chance(0.5))
    spec.sources = dice.pick<std::vector<SourceKind>>({{SourceKind::kHead}, {SourceKind::kNgram, SourceKind::kHead}});
  spec.method_options = {.width = dice.pick({1, 2, 4, 16, 64}),
                         .levels = dice.pick({1, 1, 2, 5}),
                         .group = dice.pick({1, 1, 2, 3}),
                         .children = dice.pick({1, 4, 16}),
                         .depth = dice.pick({1, 2, 6, 12}),
                         .draft_rows = dice.pick({1, 4, 16}),
                         .draft_p_min = dice.pick({0.0, 0.0, 0.3}),
                         .budget = dice.pick({1, 8, 24}),
                         .lookahead = dice.pick({0, kWaitForDoubt, 1, 5}),
                         .tree_nodes = dice.pick({0, 0, 8})};
  if (dice.chance(0.5)) spec.method_options.branching = {2, 1, 2};
  spec.ignore_end = dice.chance(0.5);
  return spec;
}

PipelineSpec random_setup(Dice& dice, const Opened& target, uint64_t seed) {
  const int32_t n_layers = target.model.hparams().n_layers;
  PipelineSpec setup;
  for (int32_t layer = 1; layer < n_layers; ++layer)
    if (dice.chance(0.5)) setup.cuts.push_back(layer);
  if (setup.cuts.empty()) setup.stages = 1;
  std::ostringstream profile;  // stages of 1 ms or by layer and row; links from none to slower than stages
  profile << R"({"layer": {"points": [[1, 0.001], [8, )" << 0.001 + 0.004 * dice.uniform()
          << R"(]]}, "head": {"points": [[1, )" << 0.002 * dice.uniform() << R"(]]}, "link": {"latency": )"
          << dice.pick({0.0, 0.0001, 0.001, 0.02}) << R"(, "bandwidth": )" << dice.pick({0.0, 1e5, 1e7})
          << R"(}, "draft": {"points": [[1, )" << dice.pick({0.0001, 0.001, 0.01}) << "]]}}";
  setup.profile = dice.chance(0.3) ? "uniform" : profile.str();
  setup.jitter = {.amount = dice.pick({0.0, 0.1, 1.0, 10.0}), .seed = seed};
  setup.context = dice.pick({64, 96});
  if (target.model.hparams().window > 0) setup.context *= 4;  // much more than a window
  setup.kv = dice.pick({KvType::kF16, KvType::kF32, KvType::kQ8_0});
  setup.n_cells = 3 * setup.context + dice.pick({0, 1, 10, 100, 1000});  // from no room for guesses to plenty
  // States of up to three requests at a time, checkpoints in nearly all prompts.
  setup.folding = {
      .most_sequences = 1 + seed % 3, .worth_a_checkpoint = 5 + seed % 7, .behind_checkpoint = 2 + seed % 3};
  setup.scheduler = {.row_budget = dice.pick({4, 16, 64, 256}), .prompt_chunk = dice.pick({1, 3, 16, 128})};
  setup.kept_behind = setup.scheduler.row_budget + static_cast<int32_t>(seed % 16);  // of little more than a window
  setup.lazy = dice.chance(0.15);
  // No draft model, one that is right always, often or hardly ever, or a hierarchy.
  setup.drafts = dice.pick<std::vector<const Opened*>>(
      {{}, {&six_layers()}, {&five_layers()}, {&two_layers()}, {&two_layers(), &five_layers()}});
  if (dice.chance(0.4)) {
    setup.head = &head_of(target, dice.pick<const char*>({"spd", "spd", "eagle3", "p-eagle", "exit"}));
    setup.guesses = dice.pick({1, 2, 5});
    setup.lazy = false;  // heads read states
    if (setup.head->parameters().kind == HeadKind::kSpd) setup.cuts = {2, 4};
  }
  setup.trace = true;
  return setup;
}

// Messages are held up by up to many passes, so that whatever goes over two channels comes in any order.
Faults random_faults(Dice& dice, uint64_t seed) {
  Faults faults{.seed = seed,
                .delays = dice.pick({0.01, 0.1, 0.5}),
                .duplicates = dice.pick({0.0, 0.2, 1.0}),
                .stalls = dice.pick({0.0, 0.02, 0.2}),
                .longest = dice.pick({0.0005, 0.005, 0.05})};
  const auto some_time = [&] { return static_cast<uint64_t>(dice.below(dice.pick({30, 300, 3000}))); };
  if (dice.chance(0.25)) {
    faults.crash = some_time();
  } else if (dice.chance(0.5)) {
    for (int32_t n = dice.between(1, 4); n > 0; --n) faults.losses.insert(some_time());
    faults.nobody = dice.pick({0.0, 0.0, 0.3});
    faults.journal = dice.pick<int64_t>({0, 20000, 1 << 20});
  }
  return faults;
}

// Each edge a link of its own, the first stage often so far off that batches are sent ahead.
std::string far_apart(Dice& dice, size_t n_stages) {
  std::ostringstream profile;
  profile << R"({"stage": {"points": [[1, 0.001], [8, )" << 0.001 + 0.004 * dice.uniform()
          << R"(]]}, "draft": {"points": [[1, )" << dice.pick({0.0001, 0.001, 0.01}) << R"(]]}, "seed": )"
          << dice.below(1000) << R"(, "edges": [)";
  for (size_t i = 0; i <= n_stages; ++i)
    profile << (i > 0 ? ", " : "") << R"({"latency": )" << 0.01 * dice.uniform() << R"(, "bandwidth": )"
            << dice.pick({0.0, 1e5, 1e7}) << R"(, "jitter": )" << dice.pick({0.0, 0.1, 1.0}) << "}";
  profile << "]}";
  return profile.str();
}

}  // namespace

Story::Story(uint64_t seed, bool faults, const Opened& target)
    : dice_(seed), opened_(target), setup_(random_setup(dice_, target, seed)) {
  if (faults) setup_.faults = random_faults(dice_, seed);
  if (const auto n_drafts = static_cast<int32_t>(setup_.drafts.size()); n_drafts > 0 && dice_.chance(0.4))
    setup_.faults.whose = ModelId(dice_.between(1, n_drafts));
  if (faults && dice_.chance(0.5)) setup_.profile = far_apart(dice_, setup_.cuts.size() + 1);
  setup_.faults.on_submit = [this](ModelId model, const Batch& batch) { watch_.submitted(model, batch); };
  setup_.faults.on_computed = [this](ModelId model, StageId stage, const Batch& batch) {
    watch_.computed(model, stage, batch);
  };
  setup_.faults.on_replaced = [this](ModelId model) {
    watch_.replaced(model);
    ++losses;
  };
  engine_ = make_engine(opened_, setup_);
  note("seed " + std::to_string(seed) + ": " + describe(setup_));
}

void Story::run() {
  int32_t to_come = dice_.between(1, 4);
  while (to_come > 0 || engine_->busy()) {
    if (to_come > 0 && running() < 3 && (!engine_->busy() || dice_.chance(0.1))) {
      begin();
      --to_come;
      continue;
    }
    const auto progress = engine_->step();
    if (!progress && setup_.faults.crash) return judge_failure(progress.error());
    ASSERT_TRUE(progress) << progress.error().message << '\n' << log;
    for (const Progress& p : *progress)
      streamed_[p.request].insert(streamed_[p.request].end(), p.tokens.begin(), p.tokens.end());
    if (setup_.faults.crash && has_failed()) {
      const auto next = engine_->step();
      ASSERT_FALSE(next) << log;
      return judge_failure(next.error());
    }
    if (dice_.chance(0.004)) interrupt();
    if (dice_.chance(0.01)) switch_method();
  }
  judge_all();
}

bool Story::has_failed() const {
  return std::ranges::any_of(
      asked_, [&](const auto& asked) { return engine_->request(asked.first).finish == Finish::kFailed; });
}

void Story::judge_all() {
  for (const auto& [id, spec] : asked_) judge(id, spec);
  for (const auto& [id, spec] : asked_) engine_->release(id);
  EXPECT_EQ(engine_->held_cells(), 0u) << log;
  EXPECT_EQ(watch_.trouble(), "") << log;
  const Trace trace = engine_->trace();
  if (setup_.faults.longest <= 0.0) {  // else reports may be still to come
    EXPECT_EQ(check_order(trace, false), "") << log;
  }
  EXPECT_EQ(check_fates(trace), "") << log;
}

// A worker has crashed: all that was running has ended with the one error, which is all that the engine says from then
// on, and what was said before is a beginning of the answer.
void Story::judge_failure(const Error& error) {
  crashed = true;
  EXPECT_NE(error.message.find("has crashed"), std::string::npos) << error.message << '\n' << log;
  EXPECT_FALSE(engine_->busy()) << log;
  for (const auto& [id, spec] : asked_) {
    const Request& request = engine_->request(id);
    ASSERT_NE(request.finish, Finish::kNone) << log;
    if (request.finish == Finish::kFailed) {
      EXPECT_EQ(request.error.message, error.message) << log;
      std::vector<Token> expected = plain_decoding(opened_, spec, setup_.kv, setup_.context);
      const std::vector<Token> got = answer(*engine_, id);
      ASSERT_LE(got.size(), expected.size()) << log;
      expected.resize(got.size());
      ASSERT_EQ(got, expected) << "request " << id.value << '\n' << log;
    } else {
      judge(id, spec);
    }
  }
  const auto again = engine_->submit(random_request(dice_, opened_.model.hparams().n_vocab, false, nullptr));
  ASSERT_FALSE(again) << log;
  EXPECT_EQ(again.error().message, error.message) << log;
  const auto step = engine_->step();
  ASSERT_FALSE(step) << log;
  EXPECT_EQ(step.error().message, error.message) << log;
  EXPECT_EQ(watch_.trouble(), "") << log;
}

void Story::tell(RequestId id, const std::string& what) {
  note("  at " + std::to_string(engine_->now()) + " request " + std::to_string(id.value) + ": " + what);
}

int32_t Story::running() const {
  return static_cast<int32_t>(std::count_if(asked_.begin(), asked_.end(), [&](const auto& asked) {
    return engine_->request(asked.first).finish == Finish::kNone;
  }));
}

// A request, or the next turn of a finished one; finished ones that nobody continues make room.
void Story::begin() {
  RequestSpec spec = random_request(dice_, opened_.model.hparams().n_vocab, !setup_.drafts.empty(), setup_.head);
  std::vector<RequestId> finished;
  for (const auto& [id, asked] : asked_)
    if (engine_->request(id).finish != Finish::kNone) finished.push_back(id);
  const bool continues = !finished.empty() && dice_.chance(0.6);
  for (size_t i = continues ? 1 : 0; i < finished.size(); ++i) {
    judge(finished[i], asked_.at(finished[i]));
    engine_->release(finished[i]);
    asked_.erase(finished[i]);
  }
  if (continues) {
    const Request& previous = engine_->request(finished[0]);
    const auto overlap = dice_.between(0, static_cast<int32_t>(previous.tokens.size()));
    if (overlap > 0 && dice_.chance(0.3)) spec.prompt.clear();  // nothing new: from the middle of what was said
    spec.prompt.insert(spec.prompt.begin(), previous.tokens.begin(), previous.tokens.begin() + overlap);
    const size_t most = static_cast<size_t>(setup_.context) - 1;
    if (spec.prompt.size() > most) spec.prompt.resize(most);
    spec.continues = finished[0];
    judge(finished[0], asked_.at(finished[0]));
    asked_.erase(finished[0]);
  }
  if (!continues && !asked_.empty() && dice_.chance(0.5)) share(spec);
  const RequestId id = submit(*engine_, spec);
  tell(id, describe(spec));
  asked_.emplace(id, std::move(spec));
}

// Begins as one that is there, running or not, and shares its cells.
void Story::share(RequestSpec& spec) {
  const auto& [id, other] = *std::next(asked_.begin(), dice_.below(static_cast<int32_t>(asked_.size())));
  const auto& tokens = engine_->request(id).tokens;
  const auto overlap = dice_.between(0, static_cast<int32_t>(tokens.size()));
  if (overlap > 0 && dice_.chance(0.5)) spec.prompt.clear();
  spec.prompt.insert(spec.prompt.begin(), tokens.begin(), tokens.begin() + overlap);
  spec.prompt.resize(std::min(spec.prompt.size(), static_cast<size_t>(setup_.context) - 1));
  spec.shares = id;
}

void Story::interrupt() {
  for (const auto& [id, spec] : asked_) {
    if (engine_->request(id).finish != Finish::kNone) continue;
    tell(id, "cancelled");
    engine_->cancel(id);
    return;
  }
}

void Story::switch_method() {
  for (const auto& [id, spec] : asked_) {
    if (engine_->request(id).finish != Finish::kNone) continue;
    const std::string method = random_method(dice_, setup_.head);
    tell(id, "goes on with " + method);
    ASSERT_TRUE(engine_->set_method(id, method, {})) << log;
    return;
  }
}

void Story::judge(RequestId id, const RequestSpec& spec) {
  const Request& request = engine_->request(id);
  std::vector<Token> expected = plain_decoding(opened_, spec, setup_.kv, setup_.context);
  const std::vector<Token> got = answer(*engine_, id);
  if (request.finish == Finish::kFailed) {
    ASSERT_NE(request.error.message.find("nobody has room"), std::string::npos) << request.error.message << log;
    ASSERT_GT(setup_.faults.nobody, 0.0) << log;
  }
  if (request.finish == Finish::kCancelled || request.finish == Finish::kFailed) {
    ASSERT_LE(got.size(), expected.size()) << "request " << id.value << '\n' << log;
    expected.resize(got.size());
  }
  ASSERT_EQ(got, expected) << "request " << id.value << '\n' << log;
  ASSERT_EQ(streamed_[id], got) << "request " << id.value << '\n' << log;
  hits += request.stats.accepted;
  replays += request.stats.replays;
  shared += spec.shares ? request.stats.reused_tokens : 0;
  flushes += request.stats.flushes;
}

void tell_story_when_aborted() {
  std::signal(SIGABRT, [](int) {
    std::fputs(Story::log.c_str(), stderr);
    std::_Exit(1);
  });
}

}  // namespace sluice::test
