// A head's file as the engine sees it: what it says, its weights, and what it borrows.
#include "model/head_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice {
namespace {

using test::temp_path;
using test::tiny_head;
using test::TinyHeadSpec;

const ModelFile& target(bool tied = false) {
  static const ModelFile untied = ModelFile::open(test::write_tiny_model({}, temp_path("target.gguf"))).value();
  static const ModelFile with_tie =
      ModelFile::open(test::write_tiny_model({.embedding_type = GGML_TYPE_Q8_0, .tied = true}, temp_path("tied.gguf")))
          .value();
  return tied ? with_tie : untied;
}

HeadFile open_head(const TinyHeadSpec& spec, const ModelFile& of = target()) {
  const std::string path = tiny_head(of, spec).write(temp_path("head.gguf"));
  EXPECT_TRUE(HeadFile::is_head(path));
  auto head = HeadFile::open(path, of);
  EXPECT_TRUE(head) << head.error().message;
  return std::move(*head);
}

void expect_shape(const Tensor& tensor, int64_t n_in, int64_t n_out) {
  ASSERT_TRUE(tensor) << "a tensor [" << n_out << ", " << n_in << "]";
  EXPECT_EQ(tensor.ne[0], n_in) << tensor.name;
  EXPECT_EQ(tensor.ne[1], n_out) << tensor.name;
}

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_TRUE(a && b);
  ASSERT_EQ(a.type, b.type);
  ASSERT_EQ(a.ne[1], b.ne[1]);
  EXPECT_EQ(std::memcmp(a.data, b.data, a.row_bytes * static_cast<size_t>(a.ne[1])), 0) << a.name;
}

TEST(HeadFile, SpdHasAMatrixForEveryDepth) {
  const HeadFile head = open_head({.kind = "spd", .layers = {2, 3}, .cuts = {0, 1, 3, 4}});
  const HeadParameters& p = head.parameters();
  EXPECT_EQ(p.kind, HeadKind::kSpd);
  EXPECT_EQ(p.stages(), 3);
  EXPECT_EQ(p.cuts, (std::vector<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(p.taps, (std::vector<std::vector<int32_t>>{{0}, {0, 0, 1}, {0, 1, 3}, {0, 2, 4}}));
  EXPECT_TRUE(p.full_attention);
  EXPECT_FALSE(p.output_timing);
  EXPECT_TRUE(p.feature_norm);
  EXPECT_EQ(p.hparams.n_layers, 2);
  EXPECT_EQ(p.hparams.context_length, target().hparams().context_length);
  EXPECT_EQ(p.n_guessable(), target().hparams().n_vocab);
  const auto weights = head.map().value();
  const auto model = target().map({0, 4}, true, true).value();
  ASSERT_EQ(weights.layers.size(), 2u);
  expect_equal(weights.layers[0].q, model.layers[2].q);
  expect_equal(weights.layers[1].down, model.layers[3].down);
  ASSERT_EQ(weights.fc.size(), 4u);
  expect_shape(weights.fc[0], 64, 64);
  for (size_t k = 1; k < 4; ++k) expect_shape(weights.fc[k], 192, 64);
  expect_equal(weights.token_embedding, model.token_embedding);
  expect_equal(weights.output, model.output);
}

TEST(HeadFile, SpdsAblationsShareAMatrixOrLackTheFirst) {
  const auto shared = open_head({.kind = "spd", .shared_fc = true});
  const auto weights = shared.map().value();
  ASSERT_EQ(weights.fc.size(), 3u);
  EXPECT_EQ(weights.fc[1].data, weights.fc[2].data);
  EXPECT_NE(weights.fc[0].data, weights.fc[1].data);
  const auto late = open_head({.kind = "spd", .output_timing = true});
  EXPECT_TRUE(late.parameters().output_timing);
  EXPECT_FALSE(late.map()->fc[0]);
  expect_shape(late.map()->fc[2], 192, 64);
}

TEST(HeadFile, Eagle3TakesPairsAndGuessesSomeTokens) {
  const HeadFile head = open_head({.kind = "eagle3", .vocabulary = {0, 7, 8, 300}});
  const HeadParameters& p = head.parameters();
  EXPECT_EQ(p.kind, HeadKind::kEagle3);
  EXPECT_EQ(p.vocabulary, (std::vector<Token>{0, 7, 8, 300}));
  EXPECT_EQ(p.taps, (std::vector<std::vector<int32_t>>{{1, 2, 3}}));
  EXPECT_FALSE(p.norm_before_residual);
  EXPECT_EQ(p.hparams.rope.pairing, RopeParameters::Pairing::kAdjacent);
  const auto weights = head.map().value();
  expect_shape(weights.layers[0].q, 128, 64);
  expect_shape(weights.layers[0].k, 128, 32);
  expect_shape(weights.layers[0].attention_out, 64, 64);
  expect_shape(weights.hidden_norm, 64, 1);
  expect_shape(weights.feature_norm, 192, 1);
  expect_shape(weights.fc[0], 192, 64);
  expect_shape(weights.output, 64, 4);
  EXPECT_FALSE(open_head({.kind = "eagle3", .feature_norm = false}).map()->feature_norm);
}

TEST(HeadFile, AnEagle3HeadOfOthersIsHeldToItsSizes) {
  const HeadFile head = open_head({.kind = "eagle3", .signed_by_us = false});
  EXPECT_EQ(head.target().fingerprint, "");
  EXPECT_EQ(head.target().n_vocab, target().hparams().n_vocab);
  auto deep = tiny_head(target(), {.kind = "eagle3", .signed_by_us = false});
  deep.set("eagle3.target_layers", std::vector<int32_t>{1, 2, 5});
  const auto refused = HeadFile::open(deep.write(temp_path("deep.gguf")), target());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another model"), std::string::npos) << refused.error().message;
}

TEST(HeadFile, PEagleMasksMayDifferFromDepthToDepth) {
  const HeadFile head = open_head({.kind = "p-eagle", .layers = {2, 3}});
  EXPECT_EQ(head.parameters().groups, 5);
  EXPECT_TRUE(head.parameters().feature_norm);
  const auto weights = head.map().value();
  expect_shape(weights.layers[0].v, 128, 32);
  expect_shape(weights.layers[1].v, 64, 32);
  expect_shape(weights.mask_hidden, 64, 1);
  expect_shape(weights.mask_embedding, 64, 1);
  expect_equal(weights.token_embedding, target().map({0, 0}, true, false)->token_embedding);
  const HeadFile by_depth = open_head({.kind = "p-eagle", .masks_by_depth = true, .own_embedding = true});
  expect_shape(by_depth.map()->mask_hidden, 64, 5);
  EXPECT_EQ(by_depth.map()->mappings.size(), 1u) << "nothing is borrowed";
}

TEST(HeadFile, AnExitMayHaveNoLayers) {
  const HeadFile head = open_head({.kind = "exit", .own_output = false});
  EXPECT_EQ(head.parameters().hparams.n_layers, 0);
  EXPECT_EQ(head.parameters().taps, (std::vector<std::vector<int32_t>>{{2}}));
  const auto weights = head.map().value();
  EXPECT_TRUE(weights.layers.empty());
  EXPECT_FALSE(weights.token_embedding);
  const auto model = target().map({0, 0}, false, true).value();
  expect_equal(weights.output_norm, model.output_norm);
  expect_equal(weights.output, model.output);
}

TEST(HeadFile, WithoutAMatrixOfItsOwnATiedTargetsEmbeddingIsTheOutput) {
  const auto weights = open_head({.kind = "draft", .own_output = false}, target(true)).map().value();
  EXPECT_EQ(weights.output.data, weights.token_embedding.data);
  expect_shape(weights.output, 64, target(true).hparams().n_vocab);
}

TEST(HeadFile, PositionsTurnAsTheFileSays) {
  static const ModelFile qwen =
      ModelFile::open(test::write_tiny_model({.architecture = "qwen3"}, temp_path("qwen.gguf"))).value();
  EXPECT_EQ(open_head({.kind = "exit", .layers = {3}}, qwen).parameters().hparams.rope.pairing,
            RopeParameters::Pairing::kHalves);
}

TEST(HeadFile, CanBeLookedAtWithoutItsTarget) {
  const std::string path = tiny_head(target(), {.kind = "draft"}).write(temp_path("alone.gguf"));
  const auto head = HeadFile::inspect(path);
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->path(), path);
  EXPECT_EQ(head->target().name, "tiny-llama");
  EXPECT_EQ(head->target().fingerprint.size(), 16u);
  EXPECT_EQ(head->target().n_layers, 4);
  EXPECT_EQ(head->general_type(), "F32");
  EXPECT_GT(head->parameter_count(), 0);
  EXPECT_EQ(head->tensors().size(), 11u);
  EXPECT_FALSE(head->metadata().empty());
}

TEST(HeadFile, AModelIsNoHeadAndNeitherIsWhatIsNoFile) {
  EXPECT_FALSE(HeadFile::is_head(target().path()));
  EXPECT_FALSE(HeadFile::is_head(temp_path("not-there.gguf")));
  EXPECT_FALSE(HeadFile::is_head("/"));
}

TEST(DraftHead, IsAModelWithTheTargetsEmbeddingAndVocabulary) {
  for (const bool tied : {false, true}) {
    const ModelFile& of = target(tied);
    const std::string path =
        tiny_head(of, {.kind = "draft", .layers = {0, 3}, .own_output = false}).write(temp_path("draft.gguf"));
    const auto draft = ModelFile::open_draft(path, of);
    ASSERT_TRUE(draft) << draft.error().message;
    EXPECT_EQ(draft->path(), path);
    EXPECT_EQ(draft->vocabulary_path(), of.path());
    EXPECT_EQ(draft->hparams().n_layers, 2);
    EXPECT_EQ(draft->n_logits(), of.hparams().n_vocab);
    EXPECT_EQ(draft->tied_head(), tied);
    const auto own = draft->map({0, 2}, true, true).value(), whole = of.map({0, 4}, true, true).value();
    expect_equal(own.layers[1].gate, whole.layers[3].gate);
    expect_equal(own.token_embedding, whole.token_embedding);
    expect_equal(own.output, whole.output);
    expect_equal(own.output_norm, whole.output_norm);
    EXPECT_EQ(draft->layer_bytes(0), of.layer_bytes(0));
    EXPECT_EQ(draft->head_bytes(), of.head_bytes());
  }
}

TEST(DraftHead, OutlivesTheFileThatItsTargetWasOpenedFrom) {
  auto of = std::make_unique<ModelFile>(ModelFile::open(target().path()).value());
  const auto draft =
      ModelFile::open_draft(tiny_head(*of, {.kind = "draft"}).write(temp_path("orphan.gguf")), *of).value();
  of.reset();
  EXPECT_TRUE(draft.map({0, 1}, true, true));
}

TEST(DraftHead, MayGuessSomeTokensOnly) {
  const std::string path =
      tiny_head(target(), {.kind = "draft", .vocabulary = {3, 70, 71}}).write(temp_path("few.gguf"));
  const auto draft = ModelFile::open_draft(path, target());
  ASSERT_TRUE(draft) << draft.error().message;
  EXPECT_EQ(draft->head_tokens(), (std::vector<Token>{3, 70, 71}));
  EXPECT_EQ(draft->n_logits(), 3);
  EXPECT_EQ(draft->hparams().n_vocab, target().hparams().n_vocab);
  EXPECT_TRUE(target().head_tokens().empty());
}

}  // namespace
}  // namespace sluice
