// Ranks that mpirun starts on this machine: the same tokens as in one process, and what is said when something fails.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/program.h"
#include "model/model_file.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Arguments = Program::Arguments;

std::string find_on_path(const std::string& name) {
  std::istringstream path(std::getenv("PATH"));
  for (std::string folder; std::getline(path, folder, ':');)
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return {};
}

class Mpi : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // A container's root, and more ranks than cores; other MPIs than Open MPI don't mind.
    for (const char* variable :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
      ::setenv(variable, "1", 1);
    ::setenv("LSAN_OPTIONS", "detect_leaks=0", 1);  // Open MPI leaves memory behind
  }
  void SetUp() override {
    mpirun_ = find_on_path("mpirun");
    if (mpirun_.empty()) GTEST_SKIP() << "there is no mpirun here: apt-get install openmpi-bin libopenmpi-dev";
    if (!fs::exists(fs::path(program_path()).parent_path() / "libsluice-mpi.so"))
      GTEST_SKIP() << "sluice was built without MPI: apt-get install libopenmpi-dev, and configure it again";
  }

  Arguments ranks(int n, const Arguments& arguments) const {
    Arguments all = {"-n", std::to_string(n), program_path()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
  Ran run_ranks(int n, const Arguments& arguments, const std::string& input = {}) const {
    return run_program(ranks(n, arguments), {.input = input, .program = mpirun_});
  }

  std::string mpirun_;
};

Arguments question(const Arguments& more) {
  Arguments all = {"run", "-m", small_model(),  "--threads", "1",
                   "-n",  "40", "--ignore-eos", "--json",    "one two one two"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::string& head_of_small_model() {
  static const std::string path =
      tiny_head(*ModelFile::open(small_model()), {.kind = "eagle3"}).write(temp_path("mpi-eagle3.gguf"));
  return path;
}

const std::string& draft_of_small_model() {
  static const std::string path = [] {
    TinyModelSpec spec;
    spec.n_layers = 2;
    return write_tiny_model(spec, temp_path("mpi-draft.gguf"));
  }();
  return path;
}

// mpirun adds lines of its own.
testing::AssertionResult says_once(const Ran& ran, int status, const std::vector<std::string>& words) {
  std::istringstream lines(ran.err);
  std::string ours;
  int n = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("sluice: ")) {
      ours = line;
      ++n;
    }
  if (ran.status != status || n != 1)
    return testing::AssertionFailure() << "status " << ran.status << ", " << n << " lines:\n" << ran.err;
  for (const std::string& word : words)
    if (ours.find(word) == std::string::npos) return testing::AssertionFailure() << ours << " lacks " << word;
  return testing::AssertionSuccess();
}

TEST_F(Mpi, TwoAndFourRanksGiveTheTokensOfOneProcess) {
  const std::vector<Arguments> methods = {
      {"--method", "ar"},
      {"--method", "specpipe", "--source", "ngram"},
      {"--method", "eagle3", "--head", head_of_small_model()},
      {"--method", "surge", "--draft", draft_of_small_model(), "--temp", "0.8", "--seed", "3"},
  };
  for (const Arguments& method : methods) {
    const json here = json::parse(run_program(question(method)).out);
    for (const int n : {2, 4}) {
      const Ran ran = run_ranks(n, question(method));
      ASSERT_EQ(ran.status, 0) << ran.err;
      const json there = json::parse(ran.out, nullptr, false);
      ASSERT_TRUE(there.is_object()) << "the other ranks print nothing: " << ran.out;
      EXPECT_EQ(there["tokens"], here["tokens"]) << method[1] << ", ranks: " << n;
      EXPECT_EQ(there["executor"], "mpi");
      EXPECT_EQ(there["stages"], n);
      EXPECT_EQ(ran.err, "");
    }
  }
}

TEST_F(Mpi, RanksServeChatsAndBenches) {
  const Arguments chat = {"chat", "-m", small_model(), "-n", "8", "--threads", "1"};
  const Ran here = run_program(chat, {.input = "hello\nagain\n"}), there = run_ranks(2, chat, "hello\nagain\n");
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_EQ(there.out, here.out);
  const std::string folder = temp_path("mpi-data");
  fs::create_directories(folder);
  write_file("mpi-data/few.jsonl", "{\"id\": \"1\", \"turns\": [\"one two one two\", \"three\"]}\n");
  const Ran bench = run_ranks(2, {"bench", "-m", small_model(), "--data", folder, "--tasks", "few", "--methods",
                                  "ar,specpipe", "-n", "16", "--threads", "1"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_NE(bench.out.find("identical: yes"), std::string::npos) << bench.out;
  EXPECT_NE(bench.out.find("executor mpi"), std::string::npos) << bench.out;
}

TEST_F(Mpi, WhatIsWrongIsSaidByRankZeroAlone) {
  EXPECT_TRUE(says_once(run_ranks(2, question({"--no-such-option"})), 2, {"--no-such-option"}));
  EXPECT_TRUE(says_once(run_ranks(2, question({"--hosts", "a:1,b:1"})), 2, {"--hosts", "mpirun", "2 ranks"}));
  EXPECT_TRUE(says_once(run_ranks(2, question({"--stages", "3"})), 2, {"--stages 3", "2 ranks", "--executor threads"}));
  EXPECT_TRUE(says_once(run_ranks(2, question({"--cuts", "1,2"})), 2, {"--cuts", "3 stages", "2 ranks"}));
  EXPECT_TRUE(says_once(run_ranks(2, {"run", "-m", "nowhere.gguf", "hello"}), 2, {"nowhere.gguf"}));
  EXPECT_TRUE(says_once(run_ranks(5, question({})), 2, {"4 layers"}));
  const Ran help = run_ranks(2, {"run", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.out, run_program({"run", "--help"}).out);
}

TEST_F(Mpi, RanksThatShallNotWorkTogetherAnswerEachForItself) {
  const Ran ran = run_ranks(2, question({"--executor", "threads"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  size_t n = 0;
  for (size_t at = 0; (at = ran.out.find("\"tokens\"", at)) != ran.out.npos; ++at) ++n;
  EXPECT_EQ(n, 2u) << ran.out;
}

TEST(WithoutMpirun, ThereAreNoRanks) {
  EXPECT_TRUE(fails(run_program(question({"--executor", "mpi"})), 2, {"--executor mpi", "mpirun -n 4"}));
}

// An answer that goes on for long, over two ranks.
class LosingARank : public Mpi {
 protected:
  static Arguments endless(const std::string& n) {
    static const std::string model = [] {
      TinyModelSpec spec;
      spec.context_length = 1 << 20;
      return write_tiny_model(spec, temp_path("mpi-endless.gguf"));
    }();
    return {"run",    "-m",       model, "--threads",  "1", "--ignore-eos", "-n", n, "-c",
            "200000", "--method", "ar",  "--patience", "2", "hello"};
  }
  static std::vector<pid_t> children(pid_t of) {
    std::vector<pid_t> all;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "stat");
      std::string text;
      std::getline(file, text);
      const size_t name = text.rfind(')');  // then: a space, the state, a space, the parent
      if (name != text.npos && std::atoi(text.c_str() + std::min(name + 4, text.size())) == of)
        all.push_back(std::atoi(text.c_str()));
    }
    return all;
  }
  // Rank 1's process of a job; 0: it has none.
  static pid_t second_rank(pid_t mpirun) {
    for (const pid_t pid : children(mpirun)) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
      for (std::string variable; std::getline(file, variable, '\0');)
        if (variable == "OMPI_COMM_WORLD_RANK=1" || variable == "PMI_RANK=1") return pid;
    }
    return 0;
  }
};

TEST_F(LosingARank, ARankThatDiesEndsTheJob) {
  Program answering(ranks(2, endless("100000")), {.program = mpirun_});
  answering.read_at_least(20);
  const pid_t rank = second_rank(answering.pid());
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGKILL);
  const Ran ran = answering.wait();
  EXPECT_NE(ran.status, 0);
  EXPECT_NE(ran.err, "") << "mpirun names the rank";
}

TEST_F(LosingARank, ARankThatStopsIsGivenUpByItsName) {
  Program answering(ranks(2, endless("100000")), {.program = mpirun_});
  answering.read_at_least(20);
  const pid_t rank = second_rank(answering.pid());
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGSTOP);
  const Ran ran = answering.wait();
  ::kill(rank, SIGKILL);
  EXPECT_TRUE(says_once(ran, 1, {"sluice: rank 1 (", "silent for 2 s"}));
}

// Passes of 5 ms: 300 tokens over two ranks take 3 s at least.
TEST_F(LosingARank, ASupervisorStartsTheJobAgainAndTheAnswerIsTheSame) {
  const Ran undisturbed = run_program(endless("300"));
  Arguments slow = endless("300");
  slow.insert(slow.end(), {"--profile", write_file("mpi-slow.json",
                                                   R"({"name": "slow", "stage": {"points": [[1, 0.005], [256, 0.005]]},
                                                       "link": {"latency": 0}})")});
  Arguments all = ranks(2, slow);
  all.insert(all.begin(), mpirun_);
  Program supervised(all, {.program = std::string(SLUICE_SOURCE) + "/tools/supervise"});
  supervised.read_at_least(20);
  pid_t rank = 0;
  for (const pid_t mpirun : children(supervised.pid())) rank = std::max(rank, second_rank(mpirun));
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGKILL);
  const Ran ran = supervised.wait();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, undisturbed.out);
  EXPECT_NE(ran.err.find("started again"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace sluice::test
