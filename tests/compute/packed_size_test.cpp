#include "compute/packed_size.h"

#include <gtest/gtest.h>

#include "compute/decoding.h"
#include "compute/kernels/pack.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

// Bytes of 256 inputs, as kernels/packed.h lays them out.
TEST(PackedSize, OfAModelIsThatOfItsKernelsLayout) {
  TinyModelSpec spec{.n_layers = 1, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
  const auto growth = [&](ggml_type type) {
    spec.type = spec.embedding_type = type;
    spec.tied = true;
    return packed_growth(open_model(write_tiny_model(spec, temp_path("packed.gguf"))));
  };
  EXPECT_NEAR(growth(GGML_TYPE_Q8_0), 1.0, 0.02) << "rows come in groups of 16";
  EXPECT_NEAR(growth(GGML_TYPE_Q4_K), 148.0 / 144.0, 0.02);
  for (const ggml_type type : {GGML_TYPE_Q2_K, GGML_TYPE_TQ2_0, GGML_TYPE_Q1_0, GGML_TYPE_Q2_0})
    EXPECT_NEAR(growth(type), 1.0, 0.02) << ggml_type_name(type);
  EXPECT_NEAR(growth(GGML_TYPE_TQ1_0), 66.0 / 54.0, 0.02);
  EXPECT_EQ(growth(GGML_TYPE_NVFP4), 1.0);
}

TEST(PackedSize, OfTypesWithGridsIsThatOfTheFileOnceAModelIsMadeCompact) {
  TinyModelSpec spec{.n_layers = 1, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
  spec.tied = true;
  const auto model_of = [&](ggml_type type) {
    spec.type = spec.embedding_type = type;
    return open_model(write_tiny_model(spec, temp_path("compact.gguf")));
  };
  const ModelFile other = model_of(GGML_TYPE_Q4_K), model = model_of(GGML_TYPE_IQ3_S);
  EXPECT_FALSE(make_compact(other));
  EXPECT_FALSE(kernels::indices_are_kept()) << "what gains nothing changes nothing";
  EXPECT_GT(packed_growth(model), 1.25);
  EXPECT_TRUE(make_compact(model));
  EXPECT_NEAR(packed_growth(model), 1.0, 0.02);
  EXPECT_FALSE(make_compact(model)) << "it is already";
  kernels::keep_indices(false);
}

}  // namespace
}  // namespace sluice::test
