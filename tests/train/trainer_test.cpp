#include "train/trainer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/optim/adamw.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "train/checkpoint.h"
#include "train/draft_vocabulary.h"
#include "train/head_writer.h"
#include "train/heads.h"
#include "train/spd.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A corpus of what the target says itself.
Corpus small_corpus(const Opened& opened) {
  Corpus corpus{.settings = {{"test", 1}}};
  for (int32_t i = 0; i < 14; ++i) {
    RequestSpec spec{.prompt = {i + 1, 2 * i + 1, 5}, .max_tokens = 10 + i, .ignore_end = true};
    Example example{.id = static_cast<uint64_t>(i), .n_prompt = 3, .tokens = spec.prompt};
    const auto answer = plain_decoding(opened, spec);
    example.tokens.insert(example.tokens.end(), answer.begin(), answer.end());
    (i < 12 ? corpus.train : corpus.held_out).push_back(example);
  }
  return corpus;
}

class Trainer : public testing::Test {
 protected:
  const Opened& opened_ = six_layers();
  Corpus corpus_ = small_corpus(opened_);
  std::vector<int32_t> cuts_ = {0, 2, 4, 6};
  Attention attention_ = Attention::kFull;
  TrainOptions options_{.tokens = 400,
                        .batch = 3,
                        .lr = 2e-3,
                        .max_tokens = 64,
                        .evaluate_every = 100,
                        .checkpoint_every = 60,
                        .held_out = 2,
                        .threads = 1};

  std::string fresh(const std::string& name) {
    const std::string path = temp_path(name);
    fs::remove_all(path);
    return options_.out = path;
  }
  std::unique_ptr<Spd> head() {
    torch::manual_seed(3);
    torch::set_num_threads(1);
    return std::make_unique<Spd>(opened_.model.hparams(), tensors_of(opened_),
                                 SpdOptions{.cuts = cuts_, .layers = 1, .attention = attention_, .init = Init::kLast},
                                 std::vector<Token>());
  }
  // Stops after so many calls of the interrupt's question.
  Result<TrainFigures> run(Trainee& trainee, int stop_after = 1 << 30) {
    int asked = 0;
    return train(trainee, opened_.model, corpus_, options_,
                 {.interrupted = [&] { return ++asked > stop_after; }, .progress = [](double, const std::string&) {}});
  }
  std::vector<json> log() const {
    std::vector<json> lines;
    std::ifstream file(options_.out + "/log.jsonl");
    for (std::string line; std::getline(file, line);) {
      lines.push_back(json::parse(line));
      lines.back().erase("seconds");
    }
    return lines;
  }
};

TEST_F(Trainer, ALossFallsAndGuessesGetBetter) {
  fresh("trainer-plain");
  options_.tokens = 3000;
  options_.evaluate_every = 1'000'000;
  const auto spd = head();
  ASSERT_TRUE(run(*spd));
  const auto lines = log();
  EXPECT_LT(lines.back()["evaluation"]["kl"].get<double>(), lines.front()["evaluation"]["kl"].get<double>());
  EXPECT_LT(lines[lines.size() - 2]["loss"].get<double>(), 0.7 * lines[1]["loss"].get<double>());
}

TEST_F(Trainer, AStoppedRunGoesOnToTheSameLosses) {
  fresh("trainer-whole");
  ASSERT_TRUE(run(*head()));
  const auto whole = log();
  for (const bool overlap : {true, false}) {
    fresh("trainer-stopped");
    options_.overlap = overlap;
    for (const int steps : {2, 3, 1}) ASSERT_TRUE(run(*head(), steps));
    corpus_.train.push_back(corpus_.train.front());  // the corpus grew meanwhile
    ASSERT_TRUE(run(*head()));
    corpus_.train.pop_back();
    EXPECT_EQ(log(), whole);
  }
}

// With one conversation a step many steps leave some FC alone, after the resumption too.
TEST_F(Trainer, AParameterThatFewExamplesUseGoesOnAsBefore) {
  cuts_ = {0, 1, 2, 3, 4, 5, 6};
  options_.batch = 1;
  fresh("trainer-rare");
  ASSERT_TRUE(run(*head()));
  const auto whole = log();
  fresh("trainer-rare-stopped");
  for (const int steps : {2, 3, 1, 4}) ASSERT_TRUE(run(*head(), steps));
  ASSERT_TRUE(run(*head()));
  EXPECT_EQ(log(), whole);
}

TEST_F(Trainer, OtherOptionsAreRefusedByName) {
  fresh("trainer-options");
  ASSERT_TRUE(run(*head(), 1));
  attention_ = Attention::kSingle;
  const auto refused = run(*head());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kInput);
  EXPECT_NE(refused.error().message.find(R"(was trained with attention "full", not "single")"), std::string::npos)
      << refused.error().message;
  attention_ = Attention::kFull;
  options_.seed = 1;
  EXPECT_FALSE(run(*head()));
  options_.seed = 0;
  EXPECT_TRUE(run(*head(), 1));
}

TEST_F(Trainer, AFinishedRunThatIsCalledAgainAddsNothingToItsLog) {
  fresh("trainer-again");
  options_.tokens = 600;
  options_.evaluate_every = 600;  // due where the run ends
  ASSERT_TRUE(run(*head()));
  const auto once = log();
  EXPECT_TRUE(once.back().contains("evaluation"));
  EXPECT_FALSE(once[once.size() - 2].contains("evaluation"));
  ASSERT_TRUE(run(*head()));
  EXPECT_EQ(log(), once);
}

TEST_F(Trainer, AKilledRunGoesOnFromItsCheckpoint) {
  fresh("trainer-whole-2");
  ASSERT_TRUE(run(*head()));
  const auto whole = log();
  fresh("trainer-killed");
  ASSERT_TRUE(run(*head(), 4));
  // What a run writes between its checkpoint and its death.
  std::ofstream(options_.out + "/log.jsonl", std::ios::app) << R"({"step": 5, "loss": 99})"
                                                            << "\n{\"step\":";
  std::ofstream(options_.out + "/checkpoint.gguf.4194305-0.tmp") << "half of it";  // no process has that number
  ASSERT_TRUE(run(*head()));
  EXPECT_EQ(log(), whole);
}

TEST_F(Trainer, ALossThatIsNotFiniteStopsAndKeepsTheCheckpoint) {
  fresh("trainer-nan");
  ASSERT_TRUE(run(*head(), 2));
  options_.lr = 1e30;
  options_.clip = 1e30;
  const auto failed = run(*head());
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("not finite at step"), std::string::npos) << failed.error().message;
  EXPECT_NE(failed.error().message.find("checkpoint.gguf keeps"), std::string::npos) << failed.error().message;
  const auto after = read_gguf(options_.out + "/checkpoint.gguf");
  ASSERT_TRUE(after);
  for (const auto& [name, entry] : after->tensors)
    for (const float value : entry.values) ASSERT_TRUE(std::isfinite(value)) << name;
}

TEST_F(Trainer, ALossThatIsNotFiniteNamesACheckpointOnlyWhereThereIsOne) {
  fresh("trainer-nan-at-once");
  options_.lr = 1e30;
  options_.clip = 1e30;
  const auto failed = run(*head());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message.find("checkpoint.gguf"), std::string::npos) << failed.error().message;
  EXPECT_NE(failed.error().message.find("begin again"), std::string::npos) << failed.error().message;
}

TEST_F(Trainer, AnotherHeadsCheckpointIsRefused) {
  fresh("trainer-other");
  ASSERT_TRUE(run(*head(), 1));
  Spd other(opened_.model.hparams(), tensors_of(opened_), {.cuts = {0, 2, 4, 6}, .layers = 2, .init = Init::kLast}, {});
  const auto refused = run(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kInput);
  EXPECT_NE(refused.error().message.find("blk.1."), std::string::npos) << refused.error().message;
  corpus_.settings = {{"test", 2}};
  EXPECT_FALSE(run(*head()));
}

TEST_F(Trainer, WithoutSpaceTheOldCheckpointStays) {
  fresh("trainer-full");
  ASSERT_TRUE(run(*head(), 1));
  const auto size = fs::file_size(options_.out + "/checkpoint.gguf");
  // As on a full disk, no file can become as long as a checkpoint.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit less{.rlim_cur = size / 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  const auto failed = run(*head());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("disk full"), std::string::npos) << failed.error().message;
  EXPECT_EQ(fs::file_size(options_.out + "/checkpoint.gguf"), size);
}

TEST_F(Trainer, TheExportedFileHoldsWhatWasTrained) {
  const auto spd = head();
  GgufWriter file;
  ASSERT_TRUE(spd->write(file, {GGML_TYPE_F32}));
  const std::string path = temp_path("spd-head.gguf");
  ASSERT_TRUE(file.write(path));
  const auto contents = read_gguf(path);
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->strings.at("sluice-head.kind"), "spd");
  EXPECT_EQ(contents->strings.at("sluice-head.spd.attention"), "full");
  for (const auto& entry : spd->parameters().all())
    EXPECT_EQ(contents->tensors.at(entry.name).values, to_floats(entry.values)) << entry.name;
  EXPECT_EQ(contents->tensors.at("fc.2.weight").shape,
            (std::vector<int64_t>{opened_.model.hparams().d_model, 3 * opened_.model.hparams().d_model}));
}

TEST_F(Trainer, BeginsWithAnExportedHead) {
  fresh("from-first");
  const auto first = head();
  ASSERT_TRUE(run(*first));
  const std::string path = temp_path("from.gguf");
  ASSERT_TRUE(write_head(*first, opened_.model, {GGML_TYPE_F32}, path));
  const json last = log().back()["evaluation"];

  fresh("from-second");
  options_.from = path;
  ASSERT_TRUE(run(*head()));
  EXPECT_EQ(log().front()["evaluation"], last);

  fresh("from-other");
  Spd other(opened_.model.hparams(), tensors_of(opened_), SpdOptions{.cuts = {0, 2, 4, 6}, .layers = 2}, {});
  const auto refused = run(other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(path + ": the tensor blk.1."), std::string::npos) << refused.error().message;
}

TEST_F(Trainer, ALongerVocabularyBeginsWithTheRowsOfTheShorter) {
  const std::vector<Token> few = {2, 3, 11, 40}, more = {2, 3, 7, 11, 40, 41};
  const auto head_of = [&](const std::vector<Token>& tokens) {
    return std::make_unique<Spd>(opened_.model.hparams(), tensors_of(opened_),
                                 SpdOptions{.cuts = cuts_, .layers = 1, .init = Init::kLast}, tokens);
  };
  fresh("few-tokens");
  const auto first = head_of(few);
  ASSERT_TRUE(run(*first));
  const std::string path = temp_path("few.gguf");
  ASSERT_TRUE(write_head(*first, opened_.model, {GGML_TYPE_F32}, path));
  const auto second = head_of(more);
  const auto fresh_row = second->parameters()["output.weight"][2].clone();
  ASSERT_TRUE(load_weights(path, second->parameters(), few, more));
  const auto &before = first->parameters()["output.weight"], &now = second->parameters()["output.weight"];
  for (const auto& [from, to] : {std::pair{0, 0}, {1, 1}, {2, 3}, {3, 4}})
    EXPECT_TRUE(torch::equal(before[from], now[to]));
  EXPECT_TRUE(torch::equal(now[2], fresh_row));
  const auto chosen = choose_draft_vocabulary(corpus_.train, opened_.model.hparams().n_vocab, 6, few);
  EXPECT_EQ(chosen.size(), 6u);
  EXPECT_TRUE(std::includes(chosen.begin(), chosen.end(), few.begin(), few.end()));
}

TEST(AdamW, IsLibtorchs) {
  torch::manual_seed(1);
  Parameters parameters;
  parameters.add("m", torch::randn({5, 3}));
  auto copy = parameters["m"].detach().clone().set_requires_grad(true);
  AdamW ours(parameters, {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
  torch::optim::AdamW theirs({copy}, torch::optim::AdamWOptions(1e-2).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  for (int i = 0; i < 20; ++i) {
    const auto target = torch::randn({5, 3});
    const auto loss = [&](const torch::Tensor& x) { return (x - target).pow(2).sum() + x.sin().sum(); };
    loss(parameters["m"]).backward();
    ours.step(1e-2, 1.0);
    theirs.zero_grad();
    loss(copy).backward();
    theirs.step();
    EXPECT_LT(distance(parameters["m"].detach(), copy.detach()), 1e-6);
  }
}

TEST(ExampleAt, GivesEachExampleOnceAnEpochInAnotherOrder) {
  for (const size_t n : {1u, 2u, 7u, 64u, 1000u}) {
    std::vector<size_t> first, second;
    for (size_t i = 0; i < n; ++i) first.push_back(example_at(i, n, 9)), second.push_back(example_at(n + i, n, 9));
    EXPECT_EQ(std::set<size_t>(first.begin(), first.end()).size(), n);
    EXPECT_EQ(std::set<size_t>(second.begin(), second.end()).size(), n);
    EXPECT_LT(*std::max_element(first.begin(), first.end()), n);
    if (n > 50) {
      EXPECT_NE(first, second);
    }
  }
}

TEST(LearningRate, RisesThenFallsToNothing) {
  const TrainOptions options{.lr = 1.0, .warmup = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.05), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.55), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.2), 0.0);
}

}  // namespace
}  // namespace sluice::test
