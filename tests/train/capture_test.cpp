#include "train/capture.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/fingerprint.h"
#include "support/harness.h"
#include "train/draft_vocabulary.h"
#include "train/gguf_writer.h"
#include "train/target_tensors.h"

namespace sluice::test {
namespace {

TEST(Capture, GivesTheStatesThatDecodingComputes) {
  const Opened& opened = six_layers();
  const auto& h = opened.model.hparams();
  RequestSpec spec{.prompt = {1, 2, 3}, .max_tokens = 150, .ignore_end = true};
  Example example{.n_prompt = 3, .tokens = spec.prompt};
  const auto answer = plain_decoding(opened, spec);
  example.tokens.insert(example.tokens.end(), answer.begin(), answer.end());
  auto capture = Capture::create(opened.model, {.taps = {6, 0, 3, 3}, .max_tokens = 200});
  ASSERT_TRUE(capture) << capture.error().message;
  const Captured captured = capture->run(example);
  EXPECT_EQ(captured.layers, (std::vector<int32_t>{0, 3, 6}));
  // Its last states name the tokens that were said.
  const auto runner = std::move(*make_stage_runner(opened.model, {.range = {0, h.n_layers}, .n_cells = 4}));
  std::vector<float> logits(static_cast<size_t>(h.n_vocab));
  const auto last = captured.layer(6);
  for (size_t t = 2; t + 1 < example.tokens.size(); ++t) {
    runner->logits(last.subspan(t * static_cast<size_t>(h.d_model), static_cast<size_t>(h.d_model)), logits);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), example.tokens[t + 1]);
  }
  // A second sequence knows nothing of the first.
  const Captured again = capture->run(example);
  EXPECT_EQ(again.states, captured.states);
}

TEST(Capture, ComputesACommonBeginningOnceWithoutATrace) {
  const Opened& opened = six_layers();
  Dice dice(3);
  std::vector<Token> tokens;
  for (int32_t i = 0; i < 100; ++i) tokens.push_back(dice.below(opened.model.hparams().n_vocab));
  auto capture = Capture::create(opened.model, {.taps = {0, 4}, .max_tokens = 200});
  for (const size_t differs_at : {0u, 10u, 90u, 40u, 99u}) {
    Example example{.n_prompt = 1, .tokens = tokens};
    example.tokens[differs_at] ^= 1;
    auto fresh = Capture::create(opened.model, {.taps = {0, 4}, .max_tokens = 200});
    EXPECT_EQ(capture->run(example).states, fresh->run(example).states) << differs_at;
    example.tokens.resize(7);
    EXPECT_EQ(capture->run(example).layer(4).size(), 7u * static_cast<size_t>(opened.model.hparams().d_model));
  }
}

TEST(Capture, LeavesOutWhatIsTooLong) {
  const Opened& opened = six_layers();
  const Example example{.n_prompt = 1, .tokens = std::vector<Token>(50, 7)};
  auto capture = Capture::create(opened.model, {.taps = {2}, .max_tokens = 20});
  EXPECT_EQ(capture->run(example).layer(2).size(), 20u * static_cast<size_t>(opened.model.hparams().d_model));
}

TEST(Fingerprint, IsTheSameForTheSameWeightsAndAnotherForOthers) {
  TinyModelSpec spec;
  const auto a = *fingerprint(open(write_tiny_model(spec, temp_path("print-a.gguf"))).model);
  spec.chat_template = "{{ messages }}";
  const auto b = *fingerprint(open(write_tiny_model(spec, temp_path("print-b.gguf"))).model);
  spec.seed = 2;
  const auto c = *fingerprint(open(write_tiny_model(spec, temp_path("print-c.gguf"))).model);
  EXPECT_EQ(a.size(), 16u);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(GgufWriter, WritesWhatOurReaderReads) {
  const std::string path = temp_path("written.gguf");
  GgufWriter file;
  file.set("general.architecture", "sluice-head");
  file.set("x.list", std::vector<int32_t>{1, 2});
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 8;
  file.add("m", std::array<int64_t, 2>{2, 32}, values, GGML_TYPE_F16);
  file.add("q", std::array<int64_t, 2>{2, 32}, values, GGML_TYPE_Q8_0);
  file.add("v", std::array<int64_t, 1>{64}, values, GGML_TYPE_F32);
  file.add("d2t", std::vector<int32_t>{3, 5});
  ASSERT_TRUE(file.write(path));
  const auto contents = read_gguf(path);
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->strings.at("general.architecture"), "sluice-head");
  EXPECT_EQ(contents->tensors.at("m").shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(contents->tensors.at("m").values, values);
  EXPECT_EQ(contents->tensors.at("v").values, values);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(contents->tensors.at("q").values[i], values[i], 0.05);
  EXPECT_FALSE(file.write("/nowhere/at/all.gguf"));
}

TEST(DraftVocabulary, HoldsTheMostFrequentTokensOfTheAnswers) {
  const std::vector<Example> examples = {{.n_prompt = 2, .tokens = {9, 9, 5, 5, 7, 3}},
                                         {.n_prompt = 1, .tokens = {9, 7, 5}}};
  EXPECT_EQ(choose_draft_vocabulary(examples, 10, 2), (std::vector<Token>{5, 7}));
  EXPECT_EQ(choose_draft_vocabulary(examples, 10, 4), (std::vector<Token>{0, 3, 5, 7}));
  EXPECT_DOUBLE_EQ(coverage(examples, {5, 7}), 5.0 / 6.0);
}

}  // namespace
}  // namespace sluice::test
