// Models by name, from a small hub on this machine (hub_server.py).
#include "model/hub.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "support/tiny_model.h"

extern char** environ;

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::temp_path;

std::string read_file(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// The server, with one cache for all tests of the process: the library asks for its folder once.
class Hub : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string root = temp_path("hub"), port = temp_path("port");
    log_ = temp_path("hub.log");
    fs::create_directories(root);
    std::vector<std::string> words = {"python3", SLUICE_SOURCE_DIR "/tests/model/hub_server.py", root, port, log_};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ASSERT_EQ(::posix_spawnp(&server_, "python3", nullptr, nullptr, arguments.data(), environ), 0);
    for (int i = 0; i < 600 && !fs::exists(port); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    endpoint_ = "http://127.0.0.1:" + read_file(port);
    ::setenv("LLAMA_CACHE", temp_path("models").c_str(), 1);
  }
  static void TearDownTestSuite() {
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
  }
  void SetUp() override {
    ::setenv("MODEL_ENDPOINT", endpoint_.c_str(), 1);
    fs::remove(log_);
  }

  static void put(const std::string& repository, const std::string& file, const std::string& contents) {
    fs::create_directories(temp_path("hub") + "/" + repository);
    std::ofstream(temp_path("hub") + "/" + repository + "/" + file, std::ios::binary) << contents;
  }
  static Result<std::string> locate(const std::string& model) {
    return locate_model(model, [](const std::string&, uint64_t, uint64_t) { return true; });
  }
  static std::string contents(const std::string& model) {
    const auto path = locate(model);
    return path ? read_file(*path) : "error: " + path.error().message;
  }
  static std::string error(const std::string& model) {
    const auto path = locate(model);
    return path ? "found " + *path : path.error().message;
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  static inline pid_t server_ = 0;
  static inline std::string endpoint_, log_;
};

TEST_F(Hub, AModelIsDownloadedOnceAndIsThenThereWithoutANetwork) {
  put("ada/once", "model-Q8_0.gguf", "eight");
  EXPECT_EQ(contents("hf:ada/once"), "eight");
  ::setenv("MODEL_ENDPOINT", "http://127.0.0.1:9", 1);
  EXPECT_EQ(contents("hf:ada/once"), "eight");
  EXPECT_EQ(contents("hf:ada/once:Q8_0"), "eight");
  const auto cached = cached_models();
  EXPECT_TRUE(std::any_of(cached.begin(), cached.end(), [](const CachedModel& model) {
    return model.name == "hf:ada/once:Q8_0" && read_file(model.path) == "eight";
  }));
}

TEST_F(Hub, TheNameSaysWhichFile) {
  put("ada/several", "model-Q2_K.gguf", "two");
  put("ada/several", "model-Q4_K_M.gguf", "four");
  put("ada/several", "model-Q8_0.gguf", "eight");
  put("ada/several", "mmproj-Q8_0.gguf", "eyes");
  EXPECT_EQ(contents("hf:ada/several:q8_0"), "eight");
  EXPECT_EQ(contents("hf:ada/several:Q4_K_M"), "four");
  const std::string unknown = error("hf:ada/several:Q6_K");
  EXPECT_TRUE(contains(unknown, "hf:ada/several:Q6_K: no GGUF file") && contains(unknown, "model-Q2_K.gguf"))
      << unknown;
}

TEST_F(Hub, AllFilesOfAModelCome) {
  for (const char* part : {"1", "2", "3"}) put("ada/split", "m-Q4_0-0000" + std::string(part) + "-of-00003.gguf", part);
  const auto path = locate("hf:ada/split");
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_EQ(fs::path(*path).filename(), "m-Q4_0-00001-of-00003.gguf");
  for (const char* part : {"1", "2", "3"})
    EXPECT_EQ(
        read_file((fs::path(*path).parent_path() / ("m-Q4_0-0000" + std::string(part) + "-of-00003.gguf")).string()),
        part);
}

TEST_F(Hub, WhatWasStoppedGoesOnWhereItStopped) {
  const std::string large(5'000'000, 'x');
  put("ada/large", "large-Q4_0.gguf", large);
  uint64_t seen = 0;
  const auto stopped = locate_model("hf:ada/large", [&](const std::string& file, uint64_t bytes, uint64_t all) {
    EXPECT_EQ(file, "large-Q4_0.gguf");
    EXPECT_EQ(all, large.size());
    seen = bytes;
    return bytes < 1'000'000;
  });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kInterrupted);
  EXPECT_LT(seen, large.size());
  EXPECT_EQ(contents("hf:ada/large"), large);
  EXPECT_TRUE(contains(read_file(log_), "bytes=" + std::to_string(seen) + "-")) << read_file(log_);
}

TEST_F(Hub, AConnectionThatBreaksIsTakenUpAgain) {
  const std::string text(6'000, 'y');
  put("ada/unsteady", "broken-Q4_0.gguf", text);
  EXPECT_EQ(contents("hf:ada/unsteady"), text);
}

TEST_F(Hub, WhatCameDamagedIsNotKept) {
  put("ada/noise", "damaged-Q4_0.gguf", "something");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(error("hf:ada/noise"), "hf:ada/noise: damaged-Q4_0.gguf came damaged and was deleted: try again");
}

TEST_F(Hub, ErrorsSayWhatToDo) {
  put("ada/empty", "README.md", "nothing here");
  EXPECT_TRUE(contains(error("hf:ada/empty"), "hf:ada/empty: it has no GGUF file"));
  EXPECT_TRUE(contains(error("hf:ada/nobody"), "has no such repository"));
  for (const char* name :
       {"hf:", "hf:ada", "hf:ada/", "hf:/x", "hf:a/b/c", "hf:a/b:", "hf:a/b:c:d", "hf:a/b:(", "hf:a b/c"})
    EXPECT_TRUE(contains(error(name), "a model's name is hf:OWNER/MODEL")) << name;
  ::setenv("MODEL_ENDPOINT", "http://127.0.0.1:9", 1);
  EXPECT_TRUE(contains(error("hf:ada/never"), "can't be reached: is there a network?")) << error("hf:ada/never");
}

TEST_F(Hub, APathIsTakenAsItIs) {
  const std::string file = temp_path("there.gguf");
  std::ofstream(file) << "GGUF";
  EXPECT_EQ(locate(file).value(), file);
  EXPECT_EQ(locate("/dev/null").value(), "/dev/null");
}

TEST_F(Hub, APathWhereNoModelCanBeIsRefusedWithWhatWouldBeRight) {
  EXPECT_EQ(error("models/there.gguf"),
            "models/there.gguf: no such file; give a GGUF file, or a model's name, hf:OWNER/MODEL[:QUANT]");
  for (const char* address : {"https://huggingface.co/ada/once", "https://huggingface.co/ada/once/blob/main/x.gguf"})
    EXPECT_TRUE(contains(error(address), "is named hf:ada/once")) << error(address);
  const std::string folder = temp_path("unpacked");
  std::filesystem::create_directory(folder);
  EXPECT_TRUE(contains(error(folder), "a folder without a GGUF file"));
  std::ofstream(folder + "/model.safetensors") << "x";
  EXPECT_TRUE(contains(error(folder), "convert_hf_to_gguf.py")) << error(folder);
  EXPECT_TRUE(contains(error(folder + "/model.safetensors"), "convert_hf_to_gguf.py"));
  for (const char* shard : {"/m-00002-of-00002.gguf", "/m-00001-of-00002.gguf"}) std::ofstream(folder + shard) << "x";
  EXPECT_EQ(error(folder), folder + ": a folder; name the file in it, as " + folder + "/m-00001-of-00002.gguf");
  EXPECT_EQ(error("ada/once:Q8_0"),
            "ada/once:Q8_0: no such file; a repository of the Hugging Face hub is named hf:ada/once:Q8_0");
}

}  // namespace
}  // namespace sluice
