#include "model/survey.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/family.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

Survey survey_of(const TinyModelSpec& spec) {
  auto survey = Survey::open(write_tiny_model(spec, temp_path("survey.gguf")));
  if (!survey) throw std::runtime_error(survey.error().message);
  return std::move(*survey);
}

void expect_reasons(const Survey& survey, const std::vector<std::string>& expected) {
  const std::vector<std::string> reasons = survey.unsupported();
  EXPECT_EQ(reasons.size(), expected.size()) << testing::PrintToString(reasons);
  for (const std::string& words : expected) {
    const auto says = [&](const std::string& reason) { return reason.find(words) != std::string::npos; };
    EXPECT_EQ(std::ranges::count_if(reasons, says), 1) << words << " in " << testing::PrintToString(reasons);
  }
}

TEST(Survey, NothingStandsAgainstAModelOfAFamilyThatIsKnown) {
  for (const ModelFamily& family : kModelFamilies) {
    const Survey survey = survey_of(of_family({}, std::string(family.architecture)));
    EXPECT_EQ(survey.hparams().architecture, family.architecture);
    EXPECT_EQ(survey.hparams().d_model, 64);
    expect_reasons(survey, {});
  }
}

TEST(Survey, NamesAllThatStandsAgainstAModelAndLayersTogether) {
  TinyModelSpec spec;
  spec.without_tensors = {"blk.0.ffn_up.weight", "blk.2.ffn_up.weight", "output_norm.weight"};
  spec.edit_metadata = [](gguf_context* file) {
    gguf_set_val_f32(file, "llama.logit_scale", 2.0f);
    gguf_set_val_bool(file, "llama.attention.causal", false);
    gguf_set_val_str(file, "tokenizer.ggml.pre", "whatever");
  };
  expect_reasons(survey_of(spec), {"llama.logit_scale", "llama.attention.causal", "'output_norm.weight' is missing",
                                   "'blk.*.ffn_up.weight' is missing (2 layers)", "'whatever'"});
}

TEST(Survey, SaysWhatAModelOfAnUnknownArchitectureHolds) {
  TinyModelSpec spec;
  spec.type = GGML_TYPE_Q8_0;
  spec.edit_metadata = [](gguf_context* file) {
    gguf_set_val_str(file, "general.architecture", "gizmo");
    gguf_set_val_u32(file, "gizmo.block_count", 4);
    gguf_set_val_str(file, "gizmo.embedding_length", "wide");
    gguf_set_val_str(file, "tokenizer.ggml.model", "letters");
  };
  const Survey survey = survey_of(spec);
  EXPECT_EQ(survey.hparams().architecture, "gizmo");
  EXPECT_EQ(survey.hparams().n_layers, 4);
  EXPECT_EQ(survey.hparams().d_model, 0) << "it isn't a number";
  EXPECT_EQ(survey.general_type(), "Q8_0 mostly");
  expect_reasons(survey, {"architecture 'gizmo'", "'letters'"});
}

TEST(Survey, OfAFileThatCannotBeReadIsAnError) {
  EXPECT_EQ(Survey::open(temp_path("nowhere.gguf")).error().kind, ErrorKind::kInput);
}

}  // namespace
}  // namespace sluice::test
