// What training exports is what the engine opens.
#include "model/head_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "train/gguf_writer.h"
#include "train/heads.h"
#include "train/train.h"

namespace sluice::test {
namespace {

class TrainedHead : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::filesystem::remove_all(temp_path("head-corpus"));
    auto corpus = *CorpusWriter::open(temp_path("head-corpus"), {{"test", 2}});
    for (int32_t i = 0; i < 4; ++i) {
      const RequestSpec spec{.prompt = {i + 1, 2 * i + 1, 5}, .max_tokens = 12, .ignore_end = true};
      Example example{.id = static_cast<uint64_t>(i), .n_prompt = 3, .tokens = spec.prompt};
      for (const Token token : plain_decoding(six_layers(), spec)) example.tokens.push_back(token);
      ASSERT_TRUE(corpus.append(i < 3 ? Split::kTrain : Split::kHeldOut, example));
    }
  }

  // Options for a head of this name that guesses some tokens only.
  TrainOptions options(const std::string& name, ggml_type type) {
    const std::string out = temp_path("trained-" + name);
    std::filesystem::remove_all(out);
    return {.corpora = {temp_path("head-corpus")},
            .out = out,
            .tokens = 20,
            .batch = 2,
            .draft_vocab = 64,
            .max_tokens = 32,
            .evaluate_every = 1000,
            .held_out = 1,
            .threads = 1,
            .type = type};
  }

  // All the parameters, as the last checkpoint has them, and nothing else, in the type that was asked for.
  void expect_opens(const TrainOptions& options, HeadKind kind) {
    const auto head = HeadFile::open(options.out + "/head.gguf", model_);
    ASSERT_TRUE(head) << head.error().message;
    const HeadParameters& p = head->parameters();
    EXPECT_EQ(p.kind, kind);
    EXPECT_EQ(p.vocabulary.size(), 64u);
    EXPECT_EQ(head->target().name, model_.hparams().name);
    const auto checkpoint = read_gguf(options.out + "/checkpoint.gguf");
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const HeadWeights weights = head->map().value();
    size_t found = 0;
    const auto expect_equal = [&](const Tensor& tensor) {
      if (!tensor || tensor.name == "token_embd.weight") return;
      const auto at = checkpoint->tensors.find(tensor.name);
      ASSERT_NE(at, checkpoint->tensors.end()) << tensor.name;
      const auto& [shape, values] = at->second;
      const bool output = tensor.name == "output.weight";
      const ggml_type matrix = output ? options.output_type.value_or(options.type) : options.type;
      const ggml_type type = shape.size() == 1 ? GGML_TYPE_F32 : matrix;
      ASSERT_EQ(tensor.type, type) << tensor.name;
      ASSERT_EQ(tensor.ne[0] * tensor.ne[1], static_cast<int64_t>(values.size())) << tensor.name;
      std::vector<std::byte> bytes(tensor.row_bytes * static_cast<size_t>(tensor.ne[1]));
      if (type == GGML_TYPE_F32)
        std::memcpy(bytes.data(), values.data(), bytes.size());
      else
        ggml_quantize_chunk(type, values.data(), bytes.data(), 0, tensor.ne[1], tensor.ne[0], nullptr);
      EXPECT_EQ(std::memcmp(bytes.data(), tensor.data, bytes.size()), 0) << tensor.name;
      ++found;
    };
    for (const LayerWeights& layer : weights.layers)
      for (const Tensor* tensor : {&layer.attention_norm, &layer.q, &layer.k, &layer.v, &layer.attention_out,
                                   &layer.ffn_norm, &layer.gate, &layer.up, &layer.down})
        expect_equal(*tensor);
    for (const Tensor& fc : weights.fc) expect_equal(fc);
    for (const Tensor* tensor : {&weights.hidden_norm, &weights.feature_norm, &weights.mask_hidden,
                                 &weights.mask_embedding, &weights.output_norm, &weights.output})
      expect_equal(*tensor);
    EXPECT_EQ(found + 1, head->tensors().size()) << "all but d2t";
    EXPECT_EQ(static_cast<bool>(weights.token_embedding), kind != HeadKind::kExit);
  }

  const ModelFile& model_ = six_layers().model;
  TrainHooks hooks_{.interrupted = [] { return false; }, .progress = [](double, const std::string&) {}};
};

TEST_F(TrainedHead, OfEveryKindOpens) {
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0}) {
    const auto spd = options("spd", type);
    ASSERT_TRUE(train_head(model_, SpdOptions{.cuts = {0, 2, 4, 6}, .layers = 2, .init = Init::kLast}, spd, hooks_));
    expect_opens(spd, HeadKind::kSpd);
    const auto eagle3 = options("eagle3", type);
    ASSERT_TRUE(train_head(model_, Eagle3Options{.taps = {1, 3, 5}, .unroll = 2}, eagle3, hooks_));
    expect_opens(eagle3, HeadKind::kEagle3);
    const auto p_eagle = options("p-eagle", type);
    ASSERT_TRUE(train_head(model_, PEagleOptions{.taps = {1, 3, 5}, .layers = 2, .groups = 3, .evaluate_depths = 2},
                           p_eagle, hooks_));
    expect_opens(p_eagle, HeadKind::kPEagle);
    const auto exit = options("exit", type);
    ASSERT_TRUE(train_head(model_, ShallowOptions{.input = 2, .layers = {5}}, exit, hooks_));
    expect_opens(exit, HeadKind::kExit);
    const auto draft = options("draft", type);
    ASSERT_TRUE(train_head(model_, ShallowOptions{.draft = true, .layers = {0, 5}}, draft, hooks_));
    expect_opens(draft, HeadKind::kDraft);
    EXPECT_TRUE(ModelFile::open_draft(draft.out + "/head.gguf", model_));
  }
}

TEST_F(TrainedHead, OutputMatrixMayHaveAnotherType) {
  auto spd = options("spd-mixed", GGML_TYPE_IQ4_NL);
  spd.output_type = GGML_TYPE_Q5_1;
  ASSERT_TRUE(train_head(model_, SpdOptions{.cuts = {0, 2, 4, 6}, .layers = 2, .init = Init::kLast}, spd, hooks_));
  expect_opens(spd, HeadKind::kSpd);
}

TEST_F(TrainedHead, SmallTypesStayCloseToWhatWasTrained) {
  // The largest step of a block of 32: its largest value over half of the levels.
  for (const auto& [type, levels] : {std::pair{GGML_TYPE_Q5_0, 16.0}, std::pair{GGML_TYPE_Q4_0, 8.0}}) {
    const auto spd = options("spd-small", type);
    ASSERT_TRUE(train_head(model_, SpdOptions{.cuts = {0, 2, 4, 6}, .layers = 2, .init = Init::kLast}, spd, hooks_));
    expect_opens(spd, HeadKind::kSpd);
    const auto trained = *read_gguf(spd.out + "/checkpoint.gguf"), exported = *read_gguf(spd.out + "/head.gguf");
    for (const auto& [name, tensor] : exported.tensors) {
      const auto& values = trained.tensors.at(name).values;
      ASSERT_EQ(tensor.values.size(), values.size()) << name;
      double largest = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        if (i % 32 == 0) {
          largest = 0;
          for (size_t j = i; j < std::min(i + 32, values.size()); ++j)
            largest = std::max(largest, std::abs(double{values[j]}));
        }
        ASSERT_NEAR(tensor.values[i], values[i], 1.01 * largest / levels) << name << ' ' << i << ' ' << type;
      }
    }
  }
}

TEST_F(TrainedHead, AblationsOpenToo) {
  const auto spd = options("spd-ablated", GGML_TYPE_F16);
  ASSERT_TRUE(train_head(model_,
                         SpdOptions{.cuts = {0, 3, 6},
                                    .layers = 1,
                                    .attention = Attention::kSingle,
                                    .feature_norm = false,
                                    .init = Init::kFirst,
                                    .output_timing = true,
                                    .single_depth = true,
                                    .shared_fc = true},
                         spd, hooks_));
  const auto head = HeadFile::open(spd.out + "/head.gguf", model_);
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->parameters().taps, (std::vector<std::vector<int32_t>>{{0}, {3}, {6}}));
  EXPECT_FALSE(head->parameters().full_attention);
  const auto p_eagle = options("p-eagle-ablated", GGML_TYPE_F16);
  ASSERT_TRUE(train_head(model_,
                         PEagleOptions{.taps = {1, 3, 5},
                                       .layers = 1,
                                       .groups = 3,
                                       .hidden = MaskedState::kByDepth,
                                       .train_embedding = true,
                                       .evaluate_depths = 2},
                         p_eagle, hooks_));
  const auto other = HeadFile::open(p_eagle.out + "/head.gguf", model_);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->map()->mask_hidden.ne[1], 3);
  EXPECT_EQ(other->map()->mappings.size(), 1u);
}

}  // namespace
}  // namespace sluice::test
