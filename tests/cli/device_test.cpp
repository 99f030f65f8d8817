// Devices, from the command line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

Program::Arguments with(const Program::Arguments& more) {
  Program::Arguments arguments = {"run",         "-m", small_model(), "--threads",   "1",
                                  "hello hello", "-n", "24",          "--ignore-eos"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json answer(Program::Arguments more) {
  more.emplace_back("--json");
  const Ran ran = run_program(with(more));
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

TEST(Device, ClassAndDevicesArePrintedWithWhatCameOfThem) {
  const json ours = answer({"--method", "ar"});
  EXPECT_EQ(ours["exactness"], "bitwise");
  EXPECT_EQ(ours["devices"], json({"cpu"}));
  const json theirs = answer({"--method", "ar", "--device", "GGML:Cpu"});
  EXPECT_EQ(theirs["exactness"], "width-locked");
  EXPECT_EQ(theirs["devices"], json({"ggml:cpu"}));
  EXPECT_EQ(theirs["tokens"].size(), 24u);
  EXPECT_EQ(answer({"--method", "ar", "--device", "ggml:cpu", "--width-lock", "0"})["exactness"], "greedy-checked");
  const std::string said = run_program(with({"--method", "ar", "--device", "ggml:cpu"})).err;
  EXPECT_NE(said.find(", width-locked."), std::string::npos) << said;
}

TEST(Device, EveryMethodSaysTheSameOnADevice) {
  const json plain = answer({"--method", "ar", "--device", "ggml:cpu"})["tokens"];
  for (const char* method : {"auto", "sd", "specpipe", "surge", "pipespec"}) {
    TinyModelSpec draft;
    draft.n_layers = 2;
    const std::string path = write_tiny_model(draft, temp_path("device-draft.gguf"));
    // Without a lock bits may move, but an f32 model's likeliest tokens are far apart.
    for (const char* lock : {"16", "4", "1", "0"})
      EXPECT_EQ(answer({"--method", method, "--draft", path, "--draft-device", "ggml:cpu", "--device", "ggml:cpu",
                        "--width-lock", lock})["tokens"],
                plain)
          << method << " " << lock;
  }
}

TEST(Device, SeveralMakeAStageEach) {
  const json mixed = answer({"--method", "specpipe", "--source", "ngram", "--device", "cpu,ggml:cpu"});
  EXPECT_EQ(mixed["stages"], 2);
  EXPECT_EQ(mixed["exactness"], "width-locked");
  EXPECT_EQ(mixed["devices"], json({"cpu", "ggml:cpu"}));
  EXPECT_EQ(answer({"--method", "ar", "--device", "cpu,ggml:cpu"})["tokens"], mixed["tokens"]);
}

TEST(Device, WhatMakesNoSenseIsRefusedInALine) {
  const auto refused = [](const Program::Arguments& more) { return run_program(with(more)); };
  EXPECT_TRUE(fails(refused({"--device", "ggml:cuda7"}), 2, {"'ggml:cuda7'", "cpu, ggml:cpu"}));
  EXPECT_TRUE(fails(refused({"--device", "gpu"}), 2, {"'gpu'", "ggml:cpu"}));
  EXPECT_TRUE(fails(refused({"--device", ""}), 2, {"--device", "empty"}));
  EXPECT_TRUE(fails(refused({"--device", "cpu,cpu", "--stages", "3"}), 2, {"--device", "2 devices", "3 stages"}));
  EXPECT_TRUE(fails(refused({"--device", "cpu,ggml:cpu", "--executor", "virtual", "--compute", "lazy"}), 2,
                    {"--compute lazy", "--device"}));
  EXPECT_TRUE(fails(refused({"-ngl", "99"}), 2, {"--device"}));
  EXPECT_TRUE(fails(refused({"--width-lock", "8"}), 2, {"--width-lock", "--device"}));
  EXPECT_TRUE(fails(refused({"--width-lock", "513", "--device", "ggml:cpu"}), 2, {"--width-lock", "512"}));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which want to be loaded first themselves

// With a ggml that is broken in this way (broken_ggml.cpp).
Ran run_broken(const char* how, const Program::Arguments& more) {
  setenv("LD_PRELOAD", SLUICE_BROKEN_GGML, 1);
  setenv("BROKEN_GGML", how, 1);
  Ran ran = run_program(with(more));
  unsetenv("LD_PRELOAD");
  unsetenv("BROKEN_GGML");
  return ran;
}

TEST(Device, OneWhoseBitsMoveAnswersAndIsNamedInALine) {
  for (const char* devices : {"ggml:cpu", "cpu,ggml:cpu"}) {
    const Ran ran = run_broken("bits", {"--device", devices, "--method", "specpipe", "--source", "ngram"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("greedy-checked"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("--width-lock 4 does not keep the bits of ggml:cpu still"), std::string::npos) << ran.err;
  }
}

TEST(Device, OneThatIsLostEndsTheAnswerInALineThatNamesIt) {
  for (const char* devices : {"ggml:cpu", "cpu,ggml:cpu"}) {
    bool answered = false;
    for (const char* pass : {"1", "20", "60", "64", "68", "72", "76", "80"}) {
      const Ran ran = run_broken(("compute " + std::string(pass)).c_str(), {"--device", devices, "--method", "ar"});
      EXPECT_TRUE(fails(ran, 1, {"a pass on ggml:cpu came to nothing"})) << pass;
      answered = answered || ran.out.size() > 1;
    }
    EXPECT_TRUE(answered) << "nor was one in the middle of an answer";
  }
}

TEST(Device, TooLittleMemoryIsALineThatNamesIt) {
  for (const char* devices : {"ggml:cpu", "cpu,ggml:cpu"})
    EXPECT_TRUE(fails(run_broken("memory", {"--device", devices}), 1, {"ggml:cpu", "--context", "--cuts"}));
}

#endif

}  // namespace
}  // namespace sluice::test
