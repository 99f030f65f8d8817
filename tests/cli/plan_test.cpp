// `sluice plan`: what it measures, what it says, and what `sluice run` makes of it.
#include <gtest/gtest.h>

#include <algorithm>
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

Arguments planning(const Arguments& more, const std::string& max_tokens = "16", const std::string& model = target()) {
  const std::string folder = temp_path("plan-data");
  std::filesystem::create_directories(folder);
  write_file("plan-data/few.jsonl", "{\"turns\": [\"one two one two\"]}\n{\"turns\": [\"so?\"]}\n");
  Arguments all = {"plan", "-m", model, "--data", folder, "--tasks", "few", "-n", max_tokens, "--json"};
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

TEST(Plan, MeasuresADeviceAndListsThoseThatAreThere) {
  const std::string out = temp_path("device.json");
  const Program::Arguments arguments = {"plan", "-m",    target(), "--device",  "ggml:cpu", "--width-lock",
                                        "8",    "--out", out,      "--threads", "1"};
  const Ran ran = run_program(arguments);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("on ggml:cpu a layer of"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("\n  ggml:cpu, "), std::string::npos) << ran.out;
  EXPECT_NE(read(out)["description"].get<std::string>().find("on ggml:cpu"), std::string::npos);
  EXPECT_GT(read(out)["layer"]["points"].size(), 5u);
  Program::Arguments in_json = arguments;
  in_json.emplace_back("--json");
  const json said = json::parse(run_program(in_json).out, nullptr, false);
  EXPECT_EQ(said["device"], "ggml:cpu");
  ASSERT_FALSE(said["devices"].empty());
  EXPECT_TRUE(std::ranges::any_of(said["devices"], [](const json& device) { return device["name"] == "ggml:cpu"; }));
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

// A model that drafts for itself: what it guesses is right, and what that costs is the profile's.
const std::string& sure() {
  static const std::string path = write_tiny_model({.n_layers = 6,
                                                    .d_model = 32,
                                                    .n_heads = 2,
                                                    .n_kv_heads = 1,
                                                    .d_ff = 64,
                                                    .weight_scale = 0.7f,
                                                    .output_scale = 8.0f,
                                                    .seed = 72},
                                                   temp_path("plan-sure.gguf"));
  return path;
}

Arguments planning_at(const std::string& profile, const Arguments& more = {}) {
  Arguments all = {"--draft", sure(), "--stages", "2", "--profile", profile, "--limit", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return planning(all, "32", sure());
}

json planned_at(const std::string& profile, const Arguments& more = {}) {
  const Ran ran = run_program(planning_at(profile, more));
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

double promised(const json& plan, const std::string& place) {
  for (const json& tried : plan["draft_places"])
    if (tried["draft_on"] == place) return tried["tokens_per_second"];
  ADD_FAILURE() << place << " is not among " << plan["draft_places"];
  return 0;
}

// A row more costs the stages nothing, a draft pass a quarter of a step.
TEST(Plan, LeavesTheDraftModelWhereItSlowsNoStage) {
  const std::string profile =
      write_file("plan-own.json", R"({"name": "own", "stage": {"points": [[1, 0.002], [64, 0.002]]},
    "draft": {"points": [[1, 0.0005], [64, 0.0005]]}})");
  const json plan = planned_at(profile);
  EXPECT_EQ(plan["draft_on"], "here") << plan;
  EXPECT_EQ(plan["draft_places"].size(), 3u);
  EXPECT_GT(promised(plan, "here"), 1.05 * promised(plan, "0"));
  EXPECT_EQ(plan["command"].get<std::string>().find("--draft-on"), std::string::npos);
}

// Beside the coordinator a draft pass takes as long as eight steps, on the last stage's device a fifth of one.
TEST(Plan, PutsTheDraftModelOnAFasterDevice) {
  const std::string profile =
      write_file("plan-fast.json", R"({"name": "fast", "layer": {"points": [[1, 0.001], [64, 0.001]]},
    "draft": {"points": [[1, 0.008], [64, 0.008]]}, "speeds": [1, 40]})");
  const json plan = planned_at(profile);
  EXPECT_EQ(plan["draft_on"], "1") << plan;
  EXPECT_GT(promised(plan, "1"), 1.05 * promised(plan, "here"));
  EXPECT_NE(plan["command"].get<std::string>().find(" --draft-on 1 "), std::string::npos) << plan["command"];
  EXPECT_NEAR(plan["seconds"]["draft"], 0.008 / 40, 1e-9);
  Arguments run = {"run",    "one two one two", "-m",      sure(),     "--draft", sure(),      "-n",   "16",
                   "--json", "--executor",      "virtual", "--stages", "2",       "--profile", profile};
  const Ran by_it = run_program(run);
  EXPECT_NE(by_it.err.find("by sluice plan: the draft model with stage 1, auto begins with "), std::string::npos)
      << by_it.err;
  run.insert(run.end(), {"--draft-on", "here"});
  const Ran asked = run_program(run);
  EXPECT_EQ(asked.err.find("draft model"), std::string::npos) << asked.err;
  EXPECT_EQ(json::parse(asked.out, nullptr, false)["tokens"], json::parse(by_it.out, nullptr, false)["tokens"]);
}

TEST(Plan, KeepsTheDraftModelWhereTheProfileOrTheUserHasIt) {
  const std::string profile =
      write_file("plan-fixed.json", R"({"name": "fixed", "stage": {"points": [[1, 0.002], [64, 0.002]]},
    "draft": {"points": [[1, 0.002], [64, 0.002]]}, "draft_on": 1})");
  const json plan = planned_at(profile);
  EXPECT_EQ(plan["draft_on"], "1");
  EXPECT_EQ(plan["draft_places"], json::array());
  EXPECT_EQ(planned_at(profile, {"--draft-on", "here"})["draft_on"], "here");
  EXPECT_TRUE(fails(run_program(planning_at(profile, {"--draft-on", "2"})), 2, {"--draft-on 2", "0 to 1"}));
  EXPECT_TRUE(fails(run_program(planning_at(profile, {"--draft-on", "no where"})), 2, {"no where", "HOST:PORT"}));
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
  EXPECT_TRUE(fails(run_program({"plan", "-m", target(), "--device", "cpu,ggml:cpu"}), 2, {"--device", "give one"}));
  EXPECT_TRUE(fails(run_program({"plan", "-m", target(), "--device", "ggml:no"}), 2, {"'ggml:no'", "ggml:cpu"}));
  EXPECT_TRUE(fails(run_program({"plan", "-m", target(), "--profile", "nowhere"}), 2, {"--profile nowhere"}));
  EXPECT_TRUE(fails(run_program(planning({"--stages", "9"})), 2, {"--stages 9", "4 layers"}));
  EXPECT_TRUE(fails(run_program(planning({"--stages", "2"}, "5000")), 2, {"--data", "smaller -n"}));
  EXPECT_TRUE(fails(run_program(planning({"--stages", "2", "--memo", "/nowhere/m"})), 2, {"--memo /nowhere/m"}));
  EXPECT_TRUE(fails(run_program(planning({"--hosts", "127.0.0.1:1"})), 1, {"127.0.0.1:1", "sluice stage"}));
  EXPECT_TRUE(fails(run_program({"plan", "-m", target(), "--out", "/nowhere/x.json"}), 2, {"--out", "/nowhere"}));
}

}  // namespace
}  // namespace sluice::test
