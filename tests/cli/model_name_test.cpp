// Models by name, from the command line: those that the cache holds (tests/model/hub_test.cpp downloads some).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The cache as llama.cpp and Python leave it.
class ModelName : public testing::Test {
 protected:
  ModelName() {
    ::setenv("LLAMA_CACHE", cache_.c_str(), 1);
    ::setenv("MODEL_ENDPOINT", "http://127.0.0.1:9", 1);  // nothing is there
  }
  ~ModelName() override {
    ::unsetenv("LLAMA_CACHE");
    ::unsetenv("MODEL_ENDPOINT");
  }
  // Of so many layers, with the tests' vocabulary unless `extra_tokens` says otherwise.
  std::string put(const std::string& model, int32_t layers, int32_t extra_tokens = TinyModelSpec().extra_tokens) {
    const std::string commit(40, 'a');
    const fs::path folder = cache_ / ("models--ada--" + model), snapshot = folder / "snapshots" / commit;
    fs::create_directories(snapshot);
    fs::create_directories(folder / "refs");
    std::ofstream(folder / "refs" / "main") << commit;
    TinyModelSpec spec;
    spec.n_layers = layers;
    spec.extra_tokens = extra_tokens;
    return write_tiny_model(spec, (snapshot / (model + "-F32.gguf")).string());
  }

  const fs::path cache_ = temp_path("models");
};

TEST_F(ModelName, StandsForItsFile) {
  const std::string path = put("large", 12);
  for (const Program::Arguments& named : {Program::Arguments{"-m", "hf:ada/large:F32"},
                                          {"-hf", "ada/large"},
                                          {"--hf-repo", "ada/large:F32"},
                                          {"hf:ada/large"}}) {
    Program::Arguments arguments = {"inspect", "--json"};
    arguments.insert(arguments.end(), named.begin(), named.end());
    const Ran ran = run_program(arguments);
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(json::parse(ran.out)["file"], path);
  }
}

TEST_F(ModelName, AutoFindsADraftOfTheSameVocabulary) {
  const Program::Arguments run = {"run", "-hf", "ada/large", "--draft", "auto", "--method",
                                  "sd",  "-n",  "4",         "--json",  "hello"};
  put("large", 12);
  put("stranger", 1, 1000);
  EXPECT_TRUE(fails(run_program(run), 2, {"--draft auto", "vocabulary"}));
  put("small", 1);
  const Ran ran = run_program(run);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["source"], "draft");
}

TEST_F(ModelName, InspectFindsDraftsOfTheSameVocabulary) {
  put("large", 12);
  put("stranger", 1, 1000);
  put("small", 1);
  const json j = json::parse(run_program({"inspect", "--json", "hf:ada/large"}).out, nullptr, false);
  EXPECT_EQ(j["drafts"], json({"hf:ada/small:F32"}));
  EXPECT_EQ(j["command"], "sluice run -m hf:ada/large --draft hf:ada/small:F32 \"Why is the sky blue?\"");
}

TEST_F(ModelName, MistakesAreNamed) {
  EXPECT_TRUE(fails(run_program({"run", "-m", "ada/large:F32", "hello"}), 2,
                    {"ada/large:F32", "no such file", "hf:ada/large:F32"}));
  EXPECT_TRUE(fails(run_program({"run", "-m", "hf:large", "hello"}), 2, {"hf:large", "hf:OWNER/MODEL"}));
  EXPECT_TRUE(fails(run_program({"run", "-hf", "ada/nowhere", "hello"}), 1, {"hf:ada/nowhere", "network"}));
}

}  // namespace
}  // namespace sluice::test
