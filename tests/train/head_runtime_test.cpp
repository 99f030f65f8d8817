// What a head says in the running pipeline is what it was trained to say: every guess that entered is compared with
// libtorch's forward pass on the states of its path.
#include <gtest/gtest.h>

#include "model/head_file.h"
#include "train/eagle3.h"
#include "train/head_writer.h"
#include "train/heads.h"
#include "train/p_eagle.h"
#include "train/shallow.h"
#include "train/spd.h"
#include "train/states.h"

namespace sluice::test {
namespace {

constexpr int32_t kStages = 3;
constexpr double kClose = 2e-5;  // of a probability

// Its matrices become what their f16 copies in the file say.
HeadFile written(Trainee& trainee, const Opened& target, const std::string& name) {
  const std::string path = temp_path(name + ".gguf");
  EXPECT_TRUE(write_head(trainee, target.model, {GGML_TYPE_F16}, path).has_value());
  for (const auto& [parameter, tensor] : trainee.parameters().all())
    if (tensor.dim() == 2) tensor.copy_(tensor.to(torch::kHalf));
  auto opened = HeadFile::open(path, target.model);
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(*opened);
}

// A guess that entered the pipeline.
struct Guess {
  std::vector<Token> path;  // up to the token after which it was guessed
  int32_t active = 0;       // tokens of it that were in flight when the last one of it entered
  Token token;
  float probability;
};

// Runs a method whose trees are single paths and reads the guesses from what entered.
std::vector<Guess> run(const Opened& target, const HeadFile& head, const std::string& method, int32_t depth) {
  PipelineSpec setup{.stages = kStages, .head = &head, .guesses = depth, .trace = true};
  const auto engine = make_engine(target, setup);
  RequestSpec spec{.prompt = {3, 14, 15, 92, 65, 35}, .max_tokens = 40, .method = method};
  spec.method_options.width = 1;
  spec.method_options.depth = depth;
  spec.ignore_end = true;
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), plain_decoding(target, spec));
  const Trace trace = engine->trace();
  const std::vector<Token>& tokens = engine->request(id).tokens;
  std::vector<Token> path = spec.prompt;
  std::vector<int32_t> active(spec.prompt.size());  // by position
  std::vector<Guess> guesses;
  for (const TraceBatch& batch : trace.batches) {
    if (batch.model != kTarget) continue;
    int32_t root = static_cast<int32_t>(spec.prompt.size()) - 1;  // before this batch was submitted
    for (const TraceEmission& e : trace.emissions)
      if (e.time <= batch.submitted) root = std::max(root, e.position);
    for (const TraceRow& row : batch.rows) {
      if (row.fate == Fate::kPrompt) continue;
      path.resize(static_cast<size_t>(row.position));
      active.resize(path.size());
      for (int32_t i = 0; i <= std::min(root, row.position - 1); ++i)
        path[static_cast<size_t>(i)] = tokens[static_cast<size_t>(i)];
      if (row.position > root && row.probability < 1.0f)
        guesses.push_back({path, active.back(), row.token, row.probability});
      path.push_back(row.token);
      active.push_back(row.position - root + 1);
    }
  }
  EXPECT_GT(guesses.size(), 20u);
  return guesses;
}

// The states of a path, at every layer.
class States {
 public:
  explicit States(const Opened& target) {
    CaptureOptions options{.max_tokens = 256};
    for (int32_t l = 0; l <= target.model.hparams().n_layers; ++l) options.taps.push_back(l);
    capture_.emplace(*Capture::create(target.model, options));
  }
  // `path` is the example; it must outlive the result.
  Captured of(Example& example, const std::vector<Token>& path) {
    example = {};
    example.tokens = path;
    example.n_prompt = 1;
    return capture_->run(example);
  }

 private:
  std::optional<Capture> capture_;
};

double probability_of(Token token, const torch::Tensor& logits, const std::vector<Token>& vocabulary) {
  const auto at = std::find(vocabulary.begin(), vocabulary.end(), token);
  if (at == vocabulary.end()) return -1;
  return torch::softmax(logits.view({-1}), 0)[at - vocabulary.begin()].item<double>();
}

void expect_spd(SpdOptions options) {
  const torch::NoGradGuard frozen;
  const Opened& target = six_layers();
  options.cuts = {0, 2, 4, 6};
  const auto vocabulary = first_tokens(120);
  Spd spd(target.model.hparams(), tensors_of(target), options, vocabulary);
  const HeadFile head = written(spd, target, "spd");
  States states(target);
  std::set<int32_t> fills;
  for (const Guess& guess : run(target, head, "spd", 1)) {
    Example example;
    const auto captured = states.of(example, guess.path);
    const auto n = static_cast<int64_t>(guess.path.size());
    const int32_t active = std::min(guess.active, options.output_timing ? kStages - 1 : kStages);
    const auto logits = spd.forward(spd.states(captured), n - 1, n, active);
    EXPECT_NEAR(guess.probability, probability_of(guess.token, logits, vocabulary), kClose)
        << "with " << active << " in flight";
    fills.insert(active);
  }
  EXPECT_GE(fills.size(), 2u) << "several states of filling were seen";
}

TEST(HeadRuntime, SpdSaysAtEveryFillWhatItWasTrainedToSay) {
  expect_spd({.layers = 2, .attention = Attention::kSingle, .init = Init::kLast});
}
TEST(HeadRuntime, SpdWithAllRowsAsQueries) {
  expect_spd({.layers = 2, .attention = Attention::kFull, .init = Init::kLast});
}
TEST(HeadRuntime, SpdOneLayerWithoutNorms) {
  expect_spd({.layers = 1, .attention = Attention::kSingle, .feature_norm = false, .init = Init::kLast});
}
TEST(HeadRuntime, SpdSharedMatrixSingleDepth) {
  expect_spd(
      {.layers = 2, .attention = Attention::kFull, .init = Init::kLast, .single_depth = true, .shared_fc = true});
}

TEST(HeadRuntime, SpdFromTheStatesAfterAStep) {
  expect_spd({.layers = 2, .attention = Attention::kSingle, .init = Init::kLast, .output_timing = true});
}

TEST(HeadRuntime, Eagle3) {
  const torch::NoGradGuard frozen;
  const Opened& target = six_layers();
  const auto vocabulary = first_tokens(120);
  constexpr int32_t kDepth = 4;
  Eagle3Options options{.taps = {1, 3, 5}};
  Eagle3 eagle(target.model, tensors_of(target), options, vocabulary);
  const HeadFile head = written(eagle, target, "eagle3");
  States states(target);
  for (const Guess& guess : run(target, head, "eagle3", kDepth)) {
    Example example;
    auto path = guess.path;
    const auto first = static_cast<int64_t>(path.size()) - guess.active - 1;
    path.push_back(guess.token);
    const auto captured = states.of(example, path);
    const auto steps = eagle.unroll(eagle.features(captured), path, first, guess.active);
    EXPECT_NEAR(guess.probability, probability_of(guess.token, steps.back().logits()[0], vocabulary), kClose)
        << "step " << guess.active;
  }
}

TEST(HeadRuntime, PEagle) {
  const torch::NoGradGuard frozen;
  const Opened& target = six_layers();
  const auto vocabulary = first_tokens(120);
  constexpr int32_t kDepth = 4;
  PEagleOptions options{.taps = {1, 3, 5}, .layers = 2, .groups = 4};
  PEagle eagle(target.model.hparams(), tensors_of(target), options, vocabulary);
  const HeadFile head = written(eagle, target, "p-eagle");
  States states(target);
  for (const Guess& guess : run(target, head, "p-eagle", kDepth)) {
    Example example;
    const auto captured = states.of(example, guess.path);
    const auto last = static_cast<int32_t>(guess.path.size()) - guess.active - 1;  // the newest with features
    Segment segment;
    for (int32_t p = 0; p < last; ++p) segment.context.push_back({.position = p, .depth = 0});
    for (int32_t j = 0; j < guess.active; ++j) segment.own.push_back({.position = last + j, .depth = j});
    const auto out = eagle.forward(eagle.features(captured), guess.path, segment);
    const auto logits = eagle.logits(out[guess.active - 1]);
    EXPECT_NEAR(guess.probability, probability_of(guess.token, logits, vocabulary), kClose) << "depth " << guess.active;
  }
}

void expect_exit(std::vector<int32_t> layers) {
  const torch::NoGradGuard frozen;
  const Opened& target = six_layers();
  const auto vocabulary = first_tokens(120);
  ShallowOptions options{.input = 2, .layers = std::move(layers), .stages = kStages};
  Shallow early(target.model.hparams(), tensors_of(target), options, vocabulary);
  const HeadFile head = written(early, target, "exit");
  States states(target);
  for (const Guess& guess : run(target, head, "ppsd", 1)) {
    Example example;
    const auto captured = states.of(example, guess.path);
    const auto logits = early.forward(states_of(captured, 2, target.model.hparams().d_model),
                                      static_cast<int64_t>(guess.path.size()) - 1);
    EXPECT_NEAR(guess.probability, probability_of(guess.token, logits, vocabulary), kClose);
  }
}

TEST(HeadRuntime, EarlyExitWithALayer) { expect_exit({2}); }
TEST(HeadRuntime, EarlyExitOfANormAndAMatrix) { expect_exit({}); }

}  // namespace
}  // namespace sluice::test
