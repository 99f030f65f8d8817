#include "compute/packed_size.h"

#include <gtest/gtest.h>

#include "compute/decoding.h"
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
  EXPECT_NEAR(growth(GGML_TYPE_Q2_K), 100.0 / 84.0, 0.02);
  EXPECT_NEAR(growth(GGML_TYPE_TQ1_0), 80.0 / 54.0, 0.02);
  EXPECT_EQ(growth(GGML_TYPE_NVFP4), 1.0);
}

}  // namespace
}  // namespace sluice::test
