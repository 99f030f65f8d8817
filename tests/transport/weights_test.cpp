#include "transport/weights.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/tiny_model.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using namespace test;

TEST(Weights, AreTakenFromWhereTheyAreIfTheyAreTheRightOnes) {
  const fs::path folder = temp_path("weights");
  fs::create_directories(folder);
  TinyModelSpec spec;
  spec.n_layers = 1;
  const std::string right = write_tiny_model(spec, temp_path("right.gguf"));
  spec.seed = 2;
  write_tiny_model(spec, folder / "right.gguf");  // the right name, other contents
  const Sha256 identity = ModelFile::open(right)->identity().value();

  EXPECT_EQ(find_model({.path = right, .target = {}, .identity = identity}, "")->path(), right);
  const WeightFiles elsewhere{.path = "/nowhere/right.gguf", .target = {}, .identity = identity};
  const auto missing = find_model(elsewhere, folder);
  ASSERT_FALSE(missing);
  for (const std::string& word : {std::string("right.gguf"), identity.hex(), folder.string()})
    EXPECT_NE(missing.error().message.find(word), std::string::npos) << missing.error().message;
  fs::copy_file(right, folder / "z.gguf");
  EXPECT_EQ(find_model(elsewhere, folder)->path(), (folder / "z.gguf").string());
}

}  // namespace
}  // namespace sluice
