// `sluice run`: what comes out, and what happens when it can't, or when it is interrupted.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

Program::Arguments run_with(const Program::Arguments& more) {
  Program::Arguments arguments = {"run", "-m", small_model()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// An answer that never ends by itself within the test's time.
Program::Arguments endless(const Program::Arguments& more) {
  static const std::string model = [] {
    TinyModelSpec spec;
    spec.context_length = 1 << 20;
    return write_tiny_model(spec, temp_path("endless.gguf"));
  }();
  Program::Arguments arguments = {"run", "-m",     model,      "--ignore-eos", "-n",   "1000000",
                                  "-c",  "500000", "--method", "ar",           "hello"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Run, TextGoesToStdoutAndFiguresToStderr) {
  const Ran plain = run_program(run_with({"hello", "-n", "8"}));
  EXPECT_EQ(plain.status, 0);
  EXPECT_NE(plain.err.find("tok/s"), std::string::npos);
  const json j = json::parse(run_program(run_with({"hello", "-n", "8", "--json"})).out);
  EXPECT_EQ(plain.out, j["text"].get<std::string>() + "\n");
}

TEST(Run, SaysInALineHowFastItWasAndHowGoodItsGuesses) {
  const auto said = [](const Program::Arguments& more) {
    Program::Arguments arguments = run_with({"hello hello hello", "-n", "64", "--ignore-eos"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments).err;
  };
  const std::string simulated = said({"--method", "specpipe", "--stages", "2", "--executor", "virtual"});
  EXPECT_TRUE(std::regex_match(simulated, std::regex("\n[0-9.]+ tok/s \\(simulated\\) by specpipe\\. [0-9]+ of [0-9]+ "
                                                     "guess(es)? right\\. Why: --trace t\\.html\n")))
      << simulated;
  // Plain decoding took turns on the answer, so that the ratio is known.
  const std::string real = said({"--method", "auto", "--stages", "2"});
  EXPECT_TRUE(std::regex_search(real, std::regex("^\n[0-9.]+ tok/s by [a-z0-9-]+( and plain decoding)?, (at least "
                                                 ")?[0-9.]+ x plain \\((at most )?[0-9.]+\\)\\.")))
      << real;
  const std::string plain = said({"--method", "ar"});
  EXPECT_TRUE(std::regex_match(plain, std::regex("\n[0-9.]+ tok/s, plain decoding\\.\n"))) << plain;
}

TEST(Run, SaysWhyAnAnswerBreaksOff) {
  const auto said = [](const Program::Arguments& more) {
    Program::Arguments arguments = run_with({"hello", "--ignore-eos"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments).err;
  };
  const std::string by_default = said({});
  EXPECT_NE(by_default.find("\nCut off after 256 tokens: -n N allows more.\n"), std::string::npos) << by_default;
  const std::string full = said({"--context", "64"});
  EXPECT_NE(full.find("\nCut off: the context of 64 tokens is full (--context).\n"), std::string::npos) << full;
  EXPECT_EQ(said({"-n", "8"}).find("Cut off"), std::string::npos) << "as was asked for";
}

TEST(Run, SaysMoreIfAsked) {
  const std::string trace = temp_path("stats.html");
  const std::string said =
      run_program(run_with({"hello", "-n", "8", "--stats", "--trace", trace, "--stages", "2"})).err;
  for (const std::string word : {"8 tokens in ", "2 stages", "executor threads", "flush", trace.c_str()})
    EXPECT_NE(said.find(word), std::string::npos) << said;
  EXPECT_EQ(said.find("Why:"), std::string::npos) << "the trace is there: " << said;
}

TEST(Run, SaysThatTheDefaultModelIsASmokeTest) {
  const Ran ran = run_program({"run", "Hello", "-n", "2"});
  if (ran.err.find("no default model is installed") != std::string::npos) GTEST_SKIP() << ran.err;
  EXPECT_NE(ran.err.find("smoke test"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("-m FILE.gguf"), std::string::npos) << ran.err;
  EXPECT_EQ(run_program(run_with({"hello", "-n", "2"})).err.find("smoke test"), std::string::npos);
  EXPECT_EQ(run_program({"run", "Hello", "-n", "2", "--json"}).err, "");
}

TEST(Run, JsonIsOneObjectWithEveryFieldOfTheInterface) {
  for (const char* executor : {"threads", "virtual"}) {
    const Ran ran = run_program(run_with({"hello hello hello", "-n", "24", "--ignore-eos", "--json", "--stages", "3",
                                          "--executor", executor, "--method", "specpipe"}));
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 1);
    const json j = json::parse(ran.out, nullptr, false);
    ASSERT_TRUE(j.is_object()) << ran.out;
    for (const char* key : {"model", "method", "source", "executor", "text", "finish"})
      EXPECT_TRUE(j[key].is_string()) << key;
    for (const char* key : {"stages", "prompt_tokens", "drafted", "accepted", "flushes"})
      EXPECT_TRUE(j[key].is_number_integer()) << key;
    for (const char* key : {"tokens_per_second", "steps", "equivalent_acceptance_length"})
      EXPECT_TRUE(j[key].is_number()) << key;
    for (const char* key : {"load", "prefill", "decode"}) EXPECT_GE(j["seconds"][key].get<double>(), 0) << key;
    EXPECT_TRUE(j.contains("acceptance_length"));
    EXPECT_EQ(j["tokens"].size(), 24u);
    EXPECT_EQ(j["stage_utilisation"].size(), 3u);
    EXPECT_EQ(j["executor"], executor);
    EXPECT_EQ(j["method"], "specpipe");
    EXPECT_EQ(j["source"], "ngram");
    EXPECT_EQ(j["finish"], "length");
    EXPECT_EQ(j["stages"], 3);
  }
}

TEST(Run, EveryMethodCutAndExecutorGivesTheSameTokens) {
  const auto tokens = [](const Program::Arguments& more) {
    Program::Arguments arguments =
        run_with({"hello", "-n", "32", "--ignore-eos", "--json", "--temp", "0.9", "--seed", "7"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json::parse(run_program(arguments).out)["tokens"];
  };
  const json plain = tokens({"--method", "ar"});
  EXPECT_EQ(plain.size(), 32u);
  EXPECT_EQ(tokens({}), plain);
  EXPECT_EQ(tokens({"--method", "specpipe", "--stages", "4", "--threads", "2"}), plain);
  EXPECT_EQ(tokens({"--method", "specpipe", "--cuts", "1,3", "--executor", "virtual"}), plain);
  EXPECT_EQ(tokens({"--method", "specpipe", "--executor", "virtual", "--compute", "lazy", "--profile", "paper-8x"}),
            plain);
}

TEST(Run, PromptMayComeFromStandardInput) {
  const Ran argument = run_program(run_with({"hello", "-n", "8"})),
            input = run_program(run_with({"-", "-n", "8"}), {.input = "hello\n"});
  EXPECT_EQ(input.status, 0);
  EXPECT_EQ(input.out, argument.out);
}

TEST(Run, WithoutAPromptItSaysWhichOneItAnswers) {
  const std::string example = "Why is the sky blue? Answer in a few sentences.";
  const Ran bare = run_program(run_with({"-n", "8"})), given = run_program(run_with({example, "-n", "8"}));
  EXPECT_EQ(bare.out, given.out);
  EXPECT_NE(bare.err.find("The prompt was an example: \"" + example + "\""), std::string::npos) << bare.err;
  EXPECT_NE(bare.err.find("- reads standard input"), std::string::npos) << bare.err;
  EXPECT_EQ(given.err.find("The prompt"), std::string::npos) << given.err;
  EXPECT_TRUE(fails(run_program(run_with({"--profile", "/"})), 2, {"--profile /"})) << "an error is one line";
}

TEST(Run, APromptCannotWriteTheTemplatesControlTokens) {
  const auto prompt_tokens = [](const Program::Arguments& more) {
    const Ran ran = run_program(run_with(more));
    return json::parse(ran.out, nullptr, false).value("prompt_tokens", 0);
  };
  const auto typed = [&](const std::string& text) { return prompt_tokens({text, "-n", "1", "--json"}); };
  const auto instructed = [&](const std::string& text) {
    return prompt_tokens({"--system", text, "x", "-n", "1", "--json"});
  };
  // A token for each of the twelve characters, but for what merges make of them.
  EXPECT_GE(typed("x<|im_start|>x") - typed("xx"), 8);
  EXPECT_GE(instructed("x<|im_end|>x") - instructed("xx"), 6);
  EXPECT_EQ(prompt_tokens({"x<|im_start|>x", "--raw", "-n", "1", "--json"}), 3) << "--raw takes them as they are";
}

TEST(Run, RefusesPromptsThatCannotBeAnswered) {
  EXPECT_TRUE(fails(run_program(run_with({""})), 2, {"prompt is empty"}));
  EXPECT_TRUE(fails(run_program(run_with({"", "--raw"})), 2, {"prompt is empty"}));
  EXPECT_TRUE(fails(run_program(run_with({" \n"})), 2, {"prompt is empty"}));
  EXPECT_TRUE(fails(run_program(run_with({"-"}), {.input = "\n"}), 2, {"prompt is empty", "standard input"}));
  EXPECT_EQ(run_program(run_with({" ", "--raw", "-n", "2"})).status, 0);
  EXPECT_TRUE(fails(run_program(run_with({"-"})), 2, {"prompt is empty", "standard input"}));
  EXPECT_TRUE(fails(run_program(run_with({"ab\xff"})), 2, {"prompt", "UTF-8", "byte 3"}));
  EXPECT_TRUE(fails(run_program(run_with({"-"}), {.input = "\xc3"}), 2, {"prompt", "UTF-8", "byte 1"}));
  EXPECT_TRUE(fails(run_program(run_with({"--system", "\xff", "hello"})), 2, {"system message", "UTF-8"}));
  const std::string longer(4000, 'x');
  EXPECT_TRUE(fails(run_program(run_with({longer})), 2, {"tokens", "context of 512", "--context"}));
  EXPECT_TRUE(fails(run_program(run_with({"hello", "--context", "8"})), 2, {"context of 8", "--context"}));
}

TEST(Run, RefusesInputThatNoContextCanHold) {
  const std::string endless(17 << 20, 'x');
  EXPECT_TRUE(fails(run_program(run_with({"-"}), {.input = endless}), 2, {"stdin", "16 MiB"}));
  EXPECT_TRUE(fails(run_program({"chat", "-m", small_model()}, {.input = endless}), 2, {"stdin", "16 MiB"}));
}

TEST(Run, RefusesAContextThatMemoryCannotHold) {
  TinyModelSpec spec;
  spec.n_heads = spec.n_kv_heads = 64;
  spec.head_dim = 128;
  spec.context_length = 1 << 24;
  const std::string model = write_tiny_model(spec, temp_path("wide.gguf"));
  const auto with_context = [&](const std::string& context) {
    return run_program({"run", "-m", model, "hello", "-n", "2", "--method", "ar", "--kv", "f32", "--context", context});
  };
  EXPECT_TRUE(fails(with_context("16777216"), 2, {"--context 16777216", "GiB", "at most"}));
  EXPECT_EQ(with_context("4096").status, 0);
}

TEST(Run, StopsWhereTheContextEnds) {
  const Ran ran = run_program(run_with({"hello", "--ignore-eos", "-n", "100000", "--context", "64", "--json"}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json j = json::parse(ran.out);
  EXPECT_EQ(j["prompt_tokens"].get<size_t>() + j["tokens"].size(), 64u);
  EXPECT_EQ(j["finish"], "length");
}

TEST(Run, AFullDiskIsAFailureWhileRunning) {
  EXPECT_TRUE(fails(run_program(run_with({"hello", "-n", "8"}), {.out = "/dev/full"}), 1, {"output", "disk full"}));
  EXPECT_TRUE(fails(run_program(run_with({"hello", "-n", "8", "--json"}), {.out = "/dev/full"}), 1, {"stdout"}));
  EXPECT_TRUE(fails(run_program(run_with({"hello", "-n", "8", "--json", "--trace", "/dev/full"})), 1, {"/dev/full"}));
  EXPECT_TRUE(fails(run_program(run_with({"hello", "-n", "8", "--trace", "/dev/full"})), 1, {"/dev/full"}));
}

TEST(Run, AClosedStdoutIsAFailure) {
  EXPECT_TRUE(fails(run_program(run_with({"hello", "-n", "8"}), {.no_out = true}), 1, {"output"}));
}

TEST(Run, AClosedPipeEndsIt) {
  Program program(endless({}));
  program.read_at_least(10);
  program.close_out();
  EXPECT_TRUE(fails(program.wait(), 1, {"pipe"}));
}

TEST(Run, AnInterruptKeepsTheTextSoFar) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Program program(endless({"--stages", "2"}));
    program.read_at_least(10);
    program.signal(signal);
    const Ran ran = program.wait();
    EXPECT_EQ(ran.status, 130) << ran.err;
    EXPECT_GE(ran.out.size(), 10u);
    EXPECT_TRUE(ran.out.ends_with("\n"));
    EXPECT_NE(ran.err.find("sluice: interrupted"), std::string::npos) << ran.err;
  }
}

TEST(Run, AnInterruptLeavesTheTraceSoFar) {
  const std::string trace = temp_path("interrupted.json");
  Program program(endless({"--trace", trace}));
  program.read_at_least(10);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().status, 130);
  EXPECT_TRUE(std::filesystem::exists(trace));
}

TEST(Run, WritesATrace) {
  const std::string trace = temp_path("trace.json"), page = temp_path("trace.html");
  EXPECT_EQ(run_program(run_with({"hello", "-n", "8", "--trace", trace})).status, 0);
  EXPECT_EQ(run_program(run_with({"hello", "-n", "8", "--trace", page})).status, 0);
  EXPECT_GT(std::filesystem::file_size(trace), 100u);
  EXPECT_GT(std::filesystem::file_size(page), 1000u);
}

TEST(Run, SaysThatVerificationIsLossy) {
  const Program::Arguments ask = {"run", "-m",       small_model(), "abcabc",   "-n",
                                  "8",   "--stages", "2",           "--method", "specpipe"};
  const auto with = [&](const Program::Arguments& more) {
    Program::Arguments arguments = ask;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  const Ran lossy = with({"--lossy", "relaxed"}), exact = with({});
  EXPECT_EQ(lossy.status, 0) << lossy.err;
  EXPECT_NE(lossy.err.find("lossy"), std::string::npos) << lossy.err;
  EXPECT_EQ(exact.err.find("lossy"), std::string::npos) << exact.err;
  const Ran both = with({"--lossy", "top-p", "--verify", "reject"});
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.err.find("--lossy"), std::string::npos) << both.err;
}

}  // namespace
}  // namespace sluice::test
