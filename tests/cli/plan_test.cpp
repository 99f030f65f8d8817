// `sluice plan`: what it measures, what it says, and what `sluice run` makes of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;
using Arguments = Program::Arguments;

json read(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, false);
}

// A target and a draft of its own, so that no other test runs by the plans of these.
const std::string& target() {
  static const std::string path = write_tiny_model({.seed = 71}, temp_path("plan-target.gguf"));
  return path;
}
const std::string& draft() {
  static const std::string path = write_tiny_model({.n_layers = 2, .seed = 71}, temp_path("plan-draft.gguf"));
  return path;
}

Arguments planning(const Arguments& more, const std::string& max_tokens = "16") {
  const std::string folder = temp_path("plan-data");
  std::filesystem::create_directories(folder);
  write_file("plan-data/few.jsonl", "{\"turns\": [\"one two one two\"]}\n{\"turns\": [\"so?\"]}\n");
  Arguments all = {"plan", "-m", target(), "--data", folder, "--tasks", "few", "-n", max_tokens, "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Plan, MeasuresThisMachineAndADraft) {
  const std::string out = temp_path("measured.json");
  const Ran ran = run_program({"plan", "-m", target(), "--draft", draft(), "--threads", "1", "--out", out});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find(out), std::string::npos) << ran.out;
  const json profile = read(out);
  EXPECT_EQ(profile["draft"].size(), 1u) << profile;
  EXPECT_GT(profile["layer"]["points"].size(), 5u);
}

TEST(Plan, NamesTheMethodThatPromisesMostAndRunBeginsWithIt) {
  const Arguments there = {"--draft", draft(), "--stages", "2", "--profile", "paper-8x"};
  const Ran ran = run_program(planning(there));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json plan = json::parse(ran.out, nullptr, false);
  EXPECT_EQ(plan["stages"], 2);
  EXPECT_EQ(plan["texts"], 2);
  EXPECT_EQ(plan["profile"], "paper-8x");
  ASSERT_GE(plan["methods"].size(), 8u) << plan;
  double rate = plan["methods"][0]["tokens_per_second"];
  for (const json& method : plan["methods"]) {
    EXPECT_LE(method["tokens_per_second"], rate);
    EXPECT_LE(method["low"], method["tokens_per_second"]);
    EXPECT_GE(method["high"], method["tokens_per_second"]);
    rate = method["tokens_per_second"];
  }
  const std::string best = plan["best"], command = plan["command"];
  EXPECT_NE(command.find("--method " + best + " "), std::string::npos) << command;
  Arguments run = {"run", "one two one two", "-m", target(), "-n", "16", "--executor", "virtual", "--json"};
  run.insert(run.end(), there.begin(), there.end());
  const Ran ran_by_it = run_program(run);
  ASSERT_EQ(ran_by_it.status, 0) << ran_by_it.err;
  EXPECT_NE(ran_by_it.err.find("by sluice plan: auto begins with " + best + "\n"), std::string::npos) << ran_by_it.err;
  run.insert(run.end(), {"--method", "specpipe"});
  EXPECT_EQ(run_program(run).err, "") << "what is named stays";
}

TEST(Plan, MeasuresWhatNoProfileSays) {
  const Ran ran = run_program(planning({"--stages", "2", "--threads", "1"}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json plan = json::parse(ran.out, nullptr, false);
  EXPECT_GT(read(plan["profile"])["layer"]["points"][0][1].get<double>(), 0) << plan;
  EXPECT_EQ(plan["command"].get<std::string>().find("--profile"), std::string::npos);
  EXPECT_GT(plan["seconds"]["alone"], plan["seconds"]["step"]);
}

TEST(Plan, SaysWhatItCannotUse) {
  EXPECT_TRUE(fails(run_program({"plan", "-m", target(), "--tasks", "code"}), 2, {"--tasks", "--stages"}));
  EXPECT_TRUE(fails(run_program({"plan", "-m", target(), "--profile", "nowhere"}), 2, {"--profile nowhere"}));
  EXPECT_TRUE(fails(run_program(planning({"--stages", "9"})), 2, {"--stages 9", "4 layers"}));
  EXPECT_TRUE(fails(run_program(planning({"--stages", "2"}, "5000")), 2, {"--data", "smaller -n"}));
  EXPECT_TRUE(fails(run_program(planning({"--stages", "2", "--memo", "/nowhere/m"})), 2, {"--memo /nowhere/m"}));
  EXPECT_TRUE(fails(run_program(planning({"--hosts", "127.0.0.1:1"})), 1, {"127.0.0.1:1", "sluice stage"}));
  EXPECT_TRUE(fails(run_program({"plan", "-m", target(), "--out", "/nowhere/x.json"}), 2, {"--out", "/nowhere"}));
}

}  // namespace
}  // namespace sluice::test
