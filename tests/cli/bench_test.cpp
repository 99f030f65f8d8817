// `sluice bench`: its table and its file, and what it refuses before it has computed anything.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

class Bench : public testing::Test {
 protected:
  Bench() : folder_(temp_path("prompts")) {
    std::filesystem::create_directory(folder_);
    write_task("talk", "{\"id\": \"a\", \"turns\": [\"hello\", \"and again\"]}\n\n{\"id\": 7, \"turns\": [\"so?\"]}\n");
    write_task("sums", "{\"turns\": [\"one and one\"]}\n");
  }

  void write_task(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name + ".jsonl") << text;
  }
  Program::Arguments with(const Program::Arguments& more) const {
    Program::Arguments arguments = {"bench", "-m", small_model(), "--data", folder_, "-n", "10"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::string folder_;
};

TEST_F(Bench, ComparesMethodsAndFindsThemIdentical) {
  const std::string out = temp_path("bench.json");
  const Ran ran = run_program(with({"--tasks", "talk,sums", "--methods", "ar,specpipe", "--temps", "0,1", "--stages",
                                    "2", "--executor", "virtual", "--json", out}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const char* word : {"talk", "sums", "ar", "specpipe", "tok/s", "identical: yes", "profile uniform"})
    EXPECT_NE(ran.out.find(word), std::string::npos) << word << "\n" << ran.out;
  std::ifstream file(out);
  const json j = json::parse(file, nullptr, false);
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j["settings"]["stages"], 2);
  EXPECT_EQ(j["runs"].size(), 2u * 2u * (2u + 1u + 1u));  // methods, temperatures, turns
  for (const auto& run : j["runs"])
    for (const char* key : {"id", "task", "temp", "tokens", "seconds"}) EXPECT_TRUE(run.contains(key)) << key;
  EXPECT_EQ(j["summary"].size(), 2u * 2u * 2u);
  EXPECT_EQ(j["complete"], true);
  EXPECT_EQ(j["identical"], true);
}

TEST_F(Bench, TheLimitCountsPrompts) {
  const std::string out = temp_path("limited.json");
  ASSERT_EQ(run_program(with({"--tasks", "talk", "--methods", "ar", "--limit", "1", "--json", out})).status, 0);
  std::ifstream file(out);
  EXPECT_EQ(json::parse(file, nullptr, false)["runs"].size(), 2u);
}

TEST_F(Bench, RefusesBadDataBeforeItStarts) {
  EXPECT_TRUE(fails(run_program({"bench", "-m", small_model()}), 2, {"--data"}));
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk,absent"})), 2, {"--data", "absent.jsonl"}));
  write_task("broken", "{\"turns\": [\"fine\"]}\n{\"turns\": [\"bro\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk,broken"})), 2, {"broken.jsonl:2:"}));
  write_task("wrong", "{\"turns\": \"hello\"}\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "wrong"})), 2, {"wrong.jsonl:1:", "turns"}));
  write_task("numbers", "\n{\"turns\": [5]}\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "numbers"})), 2, {"numbers.jsonl:2:"}));
  write_task("nothing", "\n\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "nothing"})), 2, {"nothing.jsonl"}));
  write_task("bytes", "{\"turns\": [\"\xff\"]}\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "bytes"})), 2, {"bytes.jsonl:1:"}));
  write_task("long", "{\"id\": \"war\", \"turns\": [\"" + std::string(4000, 'x') + "\"]}\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk,long"})), 2, {"long war", "context of 512"}));
}

TEST_F(Bench, RefusesBadOptionsBeforeItStarts) {
  EXPECT_TRUE(fails(run_program(with({"--methods", "ar,psychic"})), 2, {"--methods", "'psychic'"}));
  EXPECT_TRUE(fails(run_program(with({"--methods", "ar,auto"})), 2, {"--methods", "'auto'"}));
  EXPECT_TRUE(fails(run_program(with({"--methods", "ar,ar"})), 2, {"--methods", "twice"}));
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk,talk"})), 2, {"--tasks", "twice"}));
  EXPECT_TRUE(fails(run_program(with({"--temps", "0,-1"})), 2, {"--temps", "'-1'"}));
  EXPECT_TRUE(fails(run_program(with({"--limit", "0"})), 2, {"--limit"}));
  EXPECT_TRUE(fails(run_program(with({"--json", folder_})), 2, {"--json", "folder"}));
  EXPECT_TRUE(fails(run_program(with({"--json", folder_ + "/no/out.json"})), 2, {"--json", "there is no folder"}));
  EXPECT_TRUE(fails(run_program(with({"--method", "ar"})), 2, {"--method"}));
}

TEST_F(Bench, ShowsItsTableEvenIfTheFileCannotBeWritten) {
  const Ran ran = run_program(with({"--tasks", "sums", "--json", "/dev/full"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("identical: yes"), std::string::npos);
  EXPECT_NE(ran.err.find("sluice: --json /dev/full"), std::string::npos) << ran.err;
}

TEST_F(Bench, AnInterruptLeavesWhatWasDone) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "{\"turns\": [\"hello\"]}\n";
  write_task("many", many);
  const std::string out = temp_path("interrupted-bench.json");
  Program program(with({"--tasks", "many", "--limit", "1000", "--ignore-eos", "--json", out, "--profile",
                        write_file("slow.json", R"({"stage": {"points": [[1, 0.005]]}})")}));
  ::usleep(1'500'000);
  program.signal(SIGINT);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.status, 130) << ran.err;
  EXPECT_NE(ran.err.find("sluice: interrupted; "), std::string::npos) << ran.err;
  EXPECT_NE(ran.out.find("incomplete"), std::string::npos) << ran.out;
  std::ifstream file(out);
  const json j = json::parse(file, nullptr, false);
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j["complete"], false);
  EXPECT_EQ(j["identical"], true);
  EXPECT_FALSE(j["runs"].empty());
}

}  // namespace
}  // namespace sluice::test
