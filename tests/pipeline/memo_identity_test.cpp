// A memo serves a model what that model computed, and no other, however alike they are.
#include <gguf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "pipeline/recipe.h"
#include "support/harness.h"
#include "support/tiny_head.h"

namespace sluice {
namespace {

using namespace test;

using Seen = std::vector<std::pair<Token, float>>;  // tokens and what was said of each

// What lazy workers say after a short prompt: as a target, then as a draft model.
Seen asked(const ModelFile& model, std::shared_ptr<Memo> memo, KvType kv = KvType::kF16) {
  Seen seen;
  for (const int32_t candidates : {0, 8}) {
    auto workers = make_workers(model, {.cuts = {{0, model.hparams().n_layers}},
                                        .stage = {.kv = kv, .n_cells = 16, .max_rows = 16},
                                        .memo = memo,
                                        .candidates = candidates,
                                        .guessable = candidates == 0 ? 0 : model.hparams().n_vocab})
                       .value();
    Batch batch{.id = BatchId(0), .updates = {Open{SequenceId(0), {}}}, .rows = {}, .hidden = {}};
    for (int32_t i = 0; i < 6; ++i)
      batch.rows.push_back({.sequence = SequenceId(0),
                            .token = 60 + i,
                            .position = i,
                            .cell = Cell(i),
                            .parent = Cell(i - 1),
                            .kind = i < 5 ? Row::Kind::kPrompt : Row::Kind::kNode,
                            .index = static_cast<uint16_t>(i)});
    const Outcome outcome = workers.front().process(std::move(batch)).outcome;
    for (const Accepted& accepted : outcome.accepted) seen.emplace_back(accepted.next, accepted.logprob);
    for (const Drafted& drafted : outcome.drafted)
      for (const Candidate& candidate : drafted.candidates) seen.emplace_back(candidate.token, candidate.probability);
  }
  EXPECT_EQ(seen.size(), 9u);
  return seen;
}

Seen asked(const ModelFile& model) { return asked(model, std::make_shared<Memo>()); }

// Both compute something else, and each gets its own from a memo that has seen the other.
void expect_apart(const ModelFile& one, const ModelFile& other) {
  const Seen of_one = asked(one), of_other = asked(other);
  ASSERT_NE(of_one, of_other) << "the test's models differ in what they compute";
  const auto memo = std::make_shared<Memo>();
  EXPECT_EQ(asked(one, memo), of_one);
  EXPECT_EQ(asked(other, memo), of_other) << "the memo gave what the other model had said";
  EXPECT_EQ(asked(one, memo), of_one);
}

// Gives a weight in the middle of a tensor of f32 another value.
void change_weight(const std::string& path, const char* tensor) {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> header(
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}), &gguf_free);
  const int64_t id = gguf_find_tensor(header.get(), tensor);
  ASSERT_GE(id, 0) << tensor;
  const size_t middle = gguf_get_tensor_size(header.get(), id) / 2 / sizeof(float) * sizeof(float);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = static_cast<std::streamoff>(gguf_get_data_offset(header.get()) +
                                                 gguf_get_tensor_offset(header.get(), id) + middle);
  const float weight = 3.0f;
  file.seekp(place);
  file.write(reinterpret_cast<const char*>(&weight), sizeof weight);
  ASSERT_TRUE(file.flush());
}

ModelFile tiny(const std::string& name, const TinyModelSpec& spec) {
  return ModelFile::open(write_tiny_model(spec, temp_path(name + ".gguf"))).value();
}

TEST(MemoIdentity, OneWeightInTheMiddleOfATensorIsAnotherModel) {
  for (const char* tensor : {"blk.1.ffn_down.weight", "blk.2.attn_q.weight", "output.weight"}) {
    const ModelFile one = tiny("one", {});
    const std::string path = write_tiny_model({}, temp_path("other.gguf"));
    change_weight(path, tensor);
    expect_apart(one, ModelFile::open(path).value());
  }
}

TEST(MemoIdentity, BiasesAndNormsAreOfTheModel) {
  for (const auto& [architecture, tensor] : std::vector<std::pair<std::string, const char*>>{
           {"qwen2", "blk.1.attn_v.bias"}, {"qwen3", "blk.1.attn_q_norm.weight"}, {"llama", "blk.1.ffn_norm.weight"}}) {
    const ModelFile one = tiny("one-" + architecture, {.architecture = architecture});
    const std::string path =
        write_tiny_model({.architecture = architecture}, temp_path("other-" + architecture + ".gguf"));
    change_weight(path, tensor);
    expect_apart(one, ModelFile::open(path).value());
  }
}

TEST(MemoIdentity, TheBaseOfRopeIsOfTheModel) {
  expect_apart(tiny("base-1e4", {.rope_base = 10000.0f}), tiny("base-1e6", {.rope_base = 1000000.0f}));
}

TEST(MemoIdentity, TheScalingOfRopeIsOfTheModel) {
  expect_apart(tiny("linear", {.rope_scaling = "linear"}), tiny("yarn", {.rope_scaling = "yarn"}));
}

TEST(MemoIdentity, EpsilonIsOfTheModel) {
  const auto with = [](float epsilon) {
    return TinyModelSpec{.edit_metadata = [epsilon](gguf_context* file) {
      gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", epsilon);
    }};
  };
  expect_apart(tiny("small-epsilon", with(1e-5f)), tiny("large-epsilon", with(0.5f)));
}

TEST(MemoIdentity, TheTypeOfTheKvCacheIsToo) {
  const ModelFile model = tiny("kv", {});
  const auto memo = std::make_shared<Memo>();
  const Seen half = asked(model, memo, KvType::kF16), whole = asked(model, memo, KvType::kF32);
  EXPECT_EQ(whole, asked(model, std::make_shared<Memo>(), KvType::kF32));
  EXPECT_NE(half, whole);
}

// It computes with the target's embedding. Only its first and last rows are in what the head's file says of its target.
TEST(MemoIdentity, ADraftHeadIsToldApartByItsTargetToo) {
  const ModelFile target = tiny("target", {});
  const std::string path = write_tiny_model({}, temp_path("other-target.gguf"));
  change_weight(path, "token_embd.weight");
  const ModelFile other_target = ModelFile::open(path).value();
  const std::string head = tiny_head(target, {.kind = "draft"}).write(temp_path("draft-head.gguf"));
  const auto memo = std::make_shared<Memo>();
  const ModelFile one = ModelFile::open_draft(head, target).value();
  const ModelFile other = ModelFile::open_draft(head, other_target).value();
  const int32_t changed = target.hparams().n_vocab / 2;  // the row that the weight is in
  ASSERT_GE(changed, 60);
  ASSERT_LT(changed, 512);
  const auto said = [&](const ModelFile& draft, std::shared_ptr<Memo> there) {
    auto workers = make_workers(draft, {.cuts = {{0, draft.hparams().n_layers}},
                                        .stage = {.n_cells = 4, .max_rows = 4},
                                        .memo = std::move(there),
                                        .candidates = 8,
                                        .guessable = draft.hparams().n_vocab})
                       .value();
    Batch batch{.id = BatchId(0), .updates = {Open{SequenceId(0), {}}}, .rows = {}, .hidden = {}};
    batch.rows.push_back({.sequence = SequenceId(0), .token = changed, .position = 0, .cell = Cell(0)});
    const Outcome outcome = workers.front().process(std::move(batch)).outcome;
    std::vector<float> numbers;
    for (const Candidate& c : outcome.drafted.at(0).candidates) numbers.push_back(c.probability);
    return numbers;
  };
  const auto own = said(other, std::make_shared<Memo>());
  ASSERT_NE(said(one, memo), own);
  EXPECT_EQ(said(other, memo), own);
}

}  // namespace
}  // namespace sluice
