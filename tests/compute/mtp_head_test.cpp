// The layer that predicts further tokens: what our head of kind mtp says, against libllama's on the same file.
#include <gtest/gtest.h>

#include <algorithm>

#include "compute/oracle.h"
#include "source/heads/head_module.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

// A model's states after its last layer, as a head gets them.
Taps last_states(const ModelFile& model, const std::vector<Token>& tokens) {
  const int32_t n_layers = model.hparams().n_layers;
  const StageOptions options{.range = {0, n_layers},
                             .with_embedding = true,
                             .kv = KvType::kF32,
                             .n_cells = 256,
                             .max_rows = 256,
                             .threads = 1,
                             .taps = {n_layers}};
  auto runner = std::move(*make_stage_runner(model, options));
  Taps taps{.batch = BatchId(1), .stage = StageId(0), .rows = {}, .layers = {n_layers}, .states = {}};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    taps.rows.push_back({.sequence = SequenceId(0),
                         .token = tokens[i],
                         .position = at,
                         .cell = Cell(at),
                         .parent = i == 0 ? Cell() : Cell(at - 1),
                         .kind = Row::Kind::kPrompt});
  }
  std::vector<float> hidden(tokens.size() * static_cast<size_t>(model.hparams().d_model));
  const PathUpdate open = Open{.sequence = SequenceId(0), .sampling = {}};
  runner->enter({&open, 1}, taps.rows);
  runner->run(taps.rows, hidden);
  taps.states.assign(runner->tap(0).begin(), runner->tap(0).end());
  return taps;
}

// As Oracle::further_logits.
Logits further_logits(const ModelFile& model, const std::vector<Token>& tokens, int32_t n) {
  const auto file = HeadFile::open(model.path(), model);
  if (!file) throw std::runtime_error(file.error().message);
  const auto head = std::move(*HeadModule::create(*file, {.n_cells = 256}));
  Taps taps = last_states(model, tokens);
  for (Row& row : taps.rows) row.kind = Row::Kind::kNode;
  head->receive(taps);
  Logits out;
  const auto end = static_cast<int32_t>(tokens.size()) + n;
  for (int32_t at = 0; at < end; ++at) {
    const bool forced = at < static_cast<int32_t>(tokens.size());
    Batch batch;
    batch.rows = {{.sequence = SequenceId(0),
                   .token = forced ? tokens[static_cast<size_t>(at)]
                                   : static_cast<Token>(std::ranges::max_element(out.back()) - out.back().begin()),
                   .position = at,
                   .cell = Cell(at),
                   .parent = at == 0 ? Cell() : Cell(at - 1),
                   .kind = Row::Kind::kNode}};
    if (forced && at > 0) batch.features = {{.row = 0, .cell = Cell(at - 1)}};
    const PathUpdate open = Open{.sequence = SequenceId(0), .sampling = {}};
    head->enter({&open, at == 0 ? 1u : 0u}, batch.rows);
    std::vector<float> hidden;
    head->run(batch, hidden);
    if (at == 0) continue;  // has no row
    std::vector<float> logits(static_cast<size_t>(model.hparams().n_vocab));
    head->logits(hidden, logits);
    out.push_back(std::move(logits));
  }
  return out;
}

constexpr const char* kFamilies[] = {"glm4moe", "deepseek2", "qwen3next", "qwen35", "qwen35moe"};

TinyModelSpec narrow_f32() {
  TinyModelSpec spec = narrow_model(4);
  spec.type = GGML_TYPE_F32;
  return spec;
}

TEST(MtpHead, SaysWhatLibllamasFurtherLayerSays) {
  for (const char* architecture : kFamilies) {
    const std::string path = write_tiny_model(of_family({}, architecture), temp_path("further.gguf"));
    const Opened opened = open(path);
    const ModelFile& model = opened.model;
    Dice dice(5);
    std::vector<Token> tokens(60);
    for (Token& token : tokens) token = dice.below(model.hparams().n_vocab);
    constexpr int32_t kOnItsOwn = 6;
    const Logits theirs = Oracle(path, 128).further_logits(tokens, kOnItsOwn);
    const Logits ours = further_logits(model, tokens, kOnItsOwn);
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_LT(largest_difference(ours[i], theirs[i]), 1e-4) << architecture << ", row " << i;
  }
}

// A chain of K tokens drafted by libllama's further layer, verified by libllama, again and again; and `sd` on ours.
TEST(MtpHead, GetsAsManyTokensAVerificationAsLibllama) {
  constexpr int32_t kDraft = 4, kAnswer = 120;
  for (const char* architecture : kFamilies) {
    const std::string path = write_tiny_model(of_family(narrow_f32(), architecture), temp_path("further.gguf"));
    const Opened opened = open(path);
    RequestSpec spec{.max_tokens = kAnswer, .method = "sd", .sources = {SourceKind::kMtp}, .ignore_end = true};
    for (const char c : std::string("one two three")) spec.prompt.push_back(3 + c);
    spec.method_options.depth = kDraft;
    const auto head = HeadFile::open(path, opened.model);
    ASSERT_TRUE(head) << head.error().message;
    const auto engine = make_engine(opened, {.head = &*head, .kv = KvType::kF32});
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    const std::vector<Token> said = answer(*engine, id);
    ASSERT_EQ(said, plain_decoding(opened, spec, KvType::kF32));
    const auto verifications_of_ours = static_cast<double>(engine->request(id).stats.verifications);
    const double ours = static_cast<double>(said.size() - 1) / (verifications_of_ours - 1);  // the first: the prompt's

    Oracle libllama(path, 256);
    std::vector<Token> tokens = spec.prompt;
    tokens.push_back(said.front());
    std::vector<Token> whole = spec.prompt;
    whole.insert(whole.end(), said.begin(), said.end());
    int32_t verifications = 0;
    while (tokens.size() < whole.size()) {
      const Logits further = libllama.further_logits(tokens, kDraft - 1);
      ++verifications;
      size_t right = 0;
      for (; right < kDraft && tokens.size() + right + 1 < whole.size(); ++right) {
        const auto& logits = further[tokens.size() - 2 + right];
        const auto guess = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
        if (guess != whole[tokens.size() + right]) break;
      }
      tokens.assign(whole.begin(),
                    whole.begin() + static_cast<ptrdiff_t>(std::min(whole.size(), tokens.size() + right + 1)));
    }
    const double theirs = static_cast<double>(said.size() - 1) / verifications;
    std::printf("%s: %.3f tokens a verification, libllama %.3f\n", architecture, ours, theirs);
    EXPECT_GT(theirs, 1.2) << architecture << ": the comparison says little";
    EXPECT_NEAR(ours, theirs, 0.03 * theirs) << architecture;
  }
}

TEST(MtpHead, AFileWithoutTheLayerIsOneLine) {
  const auto error_of = [](const TinyModelSpec& spec) {
    const Opened opened = open(write_tiny_model(spec, temp_path("no-further.gguf")));
    const auto head = HeadFile::open(opened.model.path(), opened.model);
    return head ? std::string("(no error)") : head.error().message;
  };
  EXPECT_NE(error_of({}).find("has no layer to predict further tokens"), std::string::npos) << error_of({});
  TinyModelSpec spec = with_experts({}, "glm4moe");
  spec.without_tensors = {"blk.4.nextn.eh_proj.weight"};
  EXPECT_NE(error_of(spec).find("predicts further tokens: tensor 'blk.4.nextn.eh_proj.weight' is missing"),
            std::string::npos)
      << error_of(spec);
  spec.without_tensors = {"blk.4.attn_k.weight"};
  EXPECT_NE(error_of(spec).find("tokens: tensor 'blk.4.attn_k.weight' is missing"), std::string::npos)
      << error_of(spec);
}

}  // namespace
}  // namespace sluice::test
