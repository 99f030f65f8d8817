// `sluice bench`: its table and its file, and what it refuses before it has computed anything.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
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

  static json read(const std::string& path) {
    std::ifstream file(path);
    return json::parse(file, nullptr, false);
  }
  static void write(const std::string& path, const json& j) { std::ofstream(path) << j; }

  std::string folder_;
};

// What a conversation says after its first other token is an answer to something else.
TEST_F(Bench, CountsHowOftenAnswersLeaveTheReference) {
  const std::string out = temp_path("forks.json");
  const auto arguments = with({"--tasks", "talk", "--methods", "ar,specpipe", "--json", out});
  ASSERT_EQ(run_program(arguments).status, 0);
  json j = read(out);
  EXPECT_EQ(j["forks_per_1000"], 0.0);
  for (json& run : j["runs"])
    if (run["method"] == "specpipe" && run["id"] == "a") run["tokens"][3] = run["tokens"][3].get<int32_t>() + 1;
  write(out, j);
  const Ran ran = run_program(arguments);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("specpipe differs at token 3; 71 forks in 1,000 tokens"), std::string::npos) << ran.out;
  EXPECT_DOUBLE_EQ(read(out)["forks_per_1000"].get<double>(), 1000.0 / (4 + 10));
}

TEST_F(Bench, ComparesMethodsAndFindsThemIdentical) {
  const std::string out = temp_path("bench.json");
  const Ran ran = run_program(with({"--tasks", "talk,sums", "--methods", "ar,specpipe", "--temps", "0,1", "--stages",
                                    "2", "--executor", "virtual", "--json", out}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const char* word : {"talk", "sums", "ar", "specpipe", "tok/s", "identical: yes", "profile uniform"})
    EXPECT_NE(ran.out.find(word), std::string::npos) << word << "\n" << ran.out;
  const json j = read(out);
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j["settings"]["stages"], 2);
  EXPECT_EQ(j["runs"].size(), 2u * 2u * (2u + 1u + 1u));  // methods, temperatures, turns
  for (const auto& run : j["runs"]) {
    for (const char* key : {"id", "task", "temp", "tokens", "seconds"}) EXPECT_TRUE(run.contains(key)) << key;
    EXPECT_EQ(run["runs"].size(), run["flushes"].get<size_t>() + 1);
  }
  EXPECT_EQ(j["summary"].size(), 2u * 2u * 2u);
  EXPECT_EQ(j["complete"], true);
  EXPECT_EQ(j["identical"], true);
}

TEST_F(Bench, WithoutPlainDecodingNothingIsTimesIt) {
  const Ran ran = run_program(with({"--tasks", "talk", "--methods", "specpipe", "--json", temp_path("alone.json")}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out.find("0.00 "), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("identical"), std::string::npos) << ran.out;
}

TEST_F(Bench, PromptsComeWithTheProgram) {
  const std::string out = temp_path("shipped.json");
  const Ran ran = run_program(
      {"bench", "-m", small_model(), "-n", "2", "--methods", "ar", "--context", "512", "--turns", "1", "--json", out});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json j = read(out);
  std::map<std::string, int> prompts;
  for (const json& run : j["runs"]) ++prompts[run["task"]];
  EXPECT_EQ(prompts, (std::map<std::string, int>{{"code", 10}, {"math", 10}, {"chat", 10}}));
}

TEST_F(Bench, TheLimitCountsPrompts) {
  const std::string out = temp_path("limited.json");
  ASSERT_EQ(run_program(with({"--tasks", "talk", "--methods", "ar", "--limit", "1", "--json", out})).status, 0);
  EXPECT_EQ(read(out)["runs"].size(), 2u);
}

TEST_F(Bench, RefusesBadDataBeforeItStarts) {
  const std::filesystem::path elsewhere = temp_path("elsewhere");  // no prompts come with this program
  std::filesystem::create_directories(elsewhere / "bin");
  std::filesystem::copy_file(program_path(), elsewhere / "bin" / "sluice",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(fails(run_program({"bench", "-m", small_model()}, {.program = elsewhere / "bin" / "sluice"}), 2,
                    {"--data", "elsewhere/prompts/code.jsonl"}));
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
  write_task("twins", "{\"id\": 1, \"turns\": [\"a\"]}\n{\"id\": \"1\", \"turns\": [\"b\"]}\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "twins"})), 2, {"twins.jsonl:2:", "id"}));
  write_task("long", "{\"id\": \"war\", \"turns\": [\"" + std::string(4000, 'x') + "\"]}\n");
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk,long"})), 2, {"long war", "context of 512"}));
}

TEST_F(Bench, MethodAutoIsComparedAsItRuns) {
  const std::string out = temp_path("auto.json");
  const Ran ran =
      run_program({"bench", "-m", small_model(), "--data", folder_, "--tasks", "sums", "--methods", "ar,auto,surge",
                   "-n", "40", "--stages", "2", "--executor", "virtual", "--width", "4", "--json", out});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("identical: yes"), std::string::npos) << ran.out;
  std::map<std::string, int> runs;
  const json j = read(out);
  for (const auto& run : j["runs"]) ++runs[run["method"]];
  EXPECT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs["auto"], runs["surge"]);
}

TEST_F(Bench, RefusesBadOptionsBeforeItStarts) {
  EXPECT_TRUE(fails(run_program(with({"--methods", "ar,psychic"})), 2, {"--methods", "'psychic'"}));
  EXPECT_TRUE(fails(run_program(with({"--methods", "ar,ar"})), 2, {"--methods", "twice"}));
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk,talk"})), 2, {"--tasks", "twice"}));
  EXPECT_TRUE(fails(run_program(with({"--temps", "0,-1"})), 2, {"--temps", "'-1'"}));
  EXPECT_TRUE(fails(run_program(with({"--limit", "0"})), 2, {"--limit"}));
  EXPECT_TRUE(fails(run_program(with({"--json", folder_})), 2, {"--json", "folder"}));
  EXPECT_TRUE(fails(run_program(with({"--json", folder_ + "/no/out.json"})), 2, {"--json", "there is no folder"}));
  EXPECT_TRUE(fails(run_program(with({"--method", "ar"})), 2, {"--method"}));
  const Ran headless = run_program(with({"--tasks", "talk", "--methods", "ar,eagle3"}));
  EXPECT_TRUE(fails(headless, 2, {"--method eagle3", "--head FILE"}));
  EXPECT_EQ(headless.out, "");
}

// A run that was there is known by a field that nobody writes.
TEST_F(Bench, GoesOnWhereItWas) {
  const std::string out = temp_path("resumed.json");
  const Program::Arguments one = {"--tasks",  "talk", "--methods",  "ar",      "--limit", "1",
                                  "--stages", "2",    "--executor", "virtual", "--json",  out};
  ASSERT_EQ(run_program(with(one)).status, 0);
  json first = read(out);
  ASSERT_EQ(first["runs"].size(), 2u);
  for (auto& run : first["runs"]) run["kept"] = true;
  write(out, first);

  const Ran more = run_program(with({"--tasks", "sums,talk", "--methods", "ar,specpipe", "--temps", "0,0.6", "--stages",
                                     "2", "--executor", "virtual", "--json", out}));
  ASSERT_EQ(more.status, 0) << more.err;
  const json all = read(out);
  EXPECT_EQ(all["runs"].size(), 2u * 2u * (2u + 1u + 1u));
  EXPECT_EQ(all["complete"], true);
  EXPECT_EQ(all["identical"], true);
  size_t kept = 0;
  for (const auto& run : all["runs"]) kept += run.contains("kept");
  EXPECT_EQ(kept, 2u);

  const Ran again = run_program(with({"--tasks", "sums,talk", "--methods", "ar,specpipe", "--temps", "0,0.6",
                                      "--stages", "2", "--executor", "virtual", "--json", out}));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, more.out);
  EXPECT_EQ(read(out), all);
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
}

TEST_F(Bench, AConversationThatLacksTurnsIsHeldAnew) {
  const std::string out = temp_path("turns.json");
  const Program::Arguments one = {"--tasks", "talk", "--methods", "ar", "--limit", "1", "--json", out};
  Program::Arguments short_one = one;
  short_one.insert(short_one.end(), {"--turns", "1"});
  ASSERT_EQ(run_program(with(short_one)).status, 0);
  EXPECT_EQ(read(out)["runs"].size(), 1u);
  ASSERT_EQ(run_program(with(one)).status, 0);
  const json both = read(out);
  EXPECT_EQ(both["runs"].size(), 2u);
  ASSERT_EQ(run_program(with(short_one)).status, 0);  // the second turn stays, but is not counted
  EXPECT_EQ(read(out)["runs"], both["runs"]);
  EXPECT_LT(read(out)["summary"][0]["tokens"], both["summary"][0]["tokens"]);
}

TEST_F(Bench, KeepsTheFileOfOtherSettingsUnlessTold) {
  const std::string out = temp_path("settings.json");
  const auto bench = [&](const Program::Arguments& more) {
    Program::Arguments arguments = {"--tasks",    "sums",    "--methods", "ar,specpipe",
                                    "--executor", "virtual", "--json",    out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(with(arguments));
  };
  ASSERT_EQ(bench({}).status, 0);
  const json before = read(out);
  EXPECT_TRUE(fails(bench({"--width", "4"}), 2, {"--json", "width was 16 and is 4", "--overwrite"}));
  EXPECT_TRUE(fails(bench({"--stages", "2", "--width", "4"}), 2, {"stages was 1 and is 2"}));
  EXPECT_TRUE(fails(bench({"--seed", "7"}), 2, {"seed was 0 and is 7"}));
  EXPECT_TRUE(fails(bench({"--top-p", "0.9"}), 2, {"top_p"}));
  EXPECT_TRUE(fails(bench({"--lossy", "relaxed"}), 2, {"lossy was \"none\" and is \"relaxed\""}));
  EXPECT_TRUE(fails(bench({"--group", "2"}), 2, {"group was 1 and is 2"}));
  EXPECT_TRUE(fails(bench({"--arrivals", "2"}), 2, {"arrivals was 0.0 and is 2.0"}));
  EXPECT_TRUE(fails(bench({"--also", "talk:2"}), 2, {"also was \"\" and is \"talk\""}));
  EXPECT_TRUE(fails(bench({"--profile", write_file("half.json", R"({"stage": {"points": [[1, 0.5]]}})")}), 2,
                    {"profile was \"uniform\""}));
  write_task("sums", "{\"turns\": [\"two and two\"]}\n");
  EXPECT_TRUE(fails(bench({}), 2, {"sums 1", "another text"}));
  EXPECT_EQ(read(out), before);
  EXPECT_EQ(bench({"--width", "4", "--overwrite"}).status, 0);
  EXPECT_EQ(read(out)["settings"]["width"], 4);

  for (const char* text : {"my diary", "[]", "{\"settings\": {}}", "{\"settings\": 3, \"runs\": []}"}) {
    std::ofstream(out) << text;
    EXPECT_TRUE(fails(bench({}), 2, {"--json", "not a file of sluice bench", "--overwrite"})) << text;
  }
  for (const char* field : {"seconds", "tokens", "turn", "id"}) {
    json damaged = before;
    damaged["runs"][0][field] = nullptr;
    write(out, damaged);
    EXPECT_TRUE(fails(bench({}), 2, {"--json"})) << field;
  }
}

TEST_F(Bench, ShowsItsTableEvenIfTheFileCannotBeWritten) {
  const Ran ran = run_program(with({"--tasks", "sums", "--json", "/dev/full"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("identical: yes"), std::string::npos);
  EXPECT_NE(ran.err.find("sluice: --json /dev/full"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("name a file on a disk with room"), std::string::npos) << ran.err;
}

TEST_F(Bench, RunsWithRoundedStatesAreMarkedAndNeverTakenForOthers) {
  const std::string out = temp_path("f16-bench.json");
  const auto bench = [&](const Program::Arguments& more) {
    Program::Arguments arguments = {"--tasks", "sums",       "--methods", "ar,specpipe", "--stages",
                                    "2",       "--executor", "virtual",   "--json",      out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(with(arguments));
  };
  const Ran ran = bench({"--activations", "f16"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("inexact: activations f16; the methods agree: yes"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("identical"), std::string::npos);
  const json j = read(out);
  EXPECT_TRUE(j["identical"].is_null());
  EXPECT_EQ(j["methods_agree"], true);
  for (const json& run : j["runs"]) EXPECT_EQ(run["exactness"], "inexact: activations f16");
  EXPECT_TRUE(fails(bench({}), 2, {"activations was \"f16\" and is \"f32\""}));
}

TEST_F(Bench, LossyRunsAreMarkedAndNeverTakenForOthers) {
  const std::string out = temp_path("lossy-bench.json");
  const auto bench = [&](const Program::Arguments& more) {
    Program::Arguments arguments = {"--tasks", "sums", "--stages", "2", "--executor", "virtual", "--json", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(with(arguments));
  };
  const Ran lossy = bench({"--lossy", "relaxed"});
  ASSERT_EQ(lossy.status, 0) << lossy.err;
  EXPECT_NE(lossy.out.find("LOSSY"), std::string::npos);
  EXPECT_EQ(lossy.out.find("identical"), std::string::npos);
  EXPECT_TRUE(fails(bench({}), 2, {"lossy was \"relaxed\" and is \"none\""}));
  const std::string by_share = temp_path("top-p.json");
  const auto shared = [&](const std::string& p) {
    return run_program(with({"--tasks", "sums", "--stages", "2", "--executor", "virtual", "--lossy", "top-p",
                             "--lossy-p", p, "--json", by_share}));
  };
  EXPECT_EQ(shared("0.9").status, 0);
  EXPECT_TRUE(fails(shared("0.5"), 2, {"lossy_p"}));
  json older = read(out);  // a file from before there was such a setting
  for (const char* key : {"lossy", "lossy_p", "group", "concurrency", "head_file"}) older["settings"].erase(key);
  write(out, older);
  EXPECT_TRUE(fails(bench({"--lossy", "relaxed"}), 2, {"lossy was \"none\""}));
  EXPECT_EQ(bench({}).status, 0);
}

TEST_F(Bench, SeveralConversationsAtATimeGiveTheSameAnswers) {
  write_task("talks",
             "{\"turns\": [\"one\", \"two\"]}\n{\"turns\": [\"three\"]}\n{\"turns\": [\"four\", \"five\", \"six\"]}\n");
  const auto tokens = [&](const std::string& concurrency) {
    const std::string out = temp_path("together-" + concurrency + ".json");
    EXPECT_EQ(run_program(with({"--tasks", "talks", "--methods", "ar,sd,specpipe", "--concurrency", concurrency,
                                "--executor", "virtual", "--json", out}))
                  .status,
              0);
    const json j = read(out);
    EXPECT_EQ(j["complete"], true);
    EXPECT_EQ(j["identical"], true);
    std::map<std::string, json> answers;
    for (const json& run : j["runs"])
      answers[run["id"].get<std::string>() + run["method"].get<std::string>() + run["turn"].dump()] = run["tokens"];
    return answers;
  };
  const auto alone = tokens("1");
  EXPECT_EQ(alone.size(), 18u);
  EXPECT_EQ(tokens("2"), alone);
  EXPECT_EQ(tokens("3"), alone);
}

TEST_F(Bench, ASettingMustBeReadByOneOfItsMethods) {
  const auto bench = [&](const std::string& methods) {
    return run_program(
        with({"--tasks", "sums", "--executor", "virtual", "--methods", methods, "--width", "2", "--depth", "2"}));
  };
  EXPECT_TRUE(fails(bench("ar,sd"), 2, {"--width is read by", "here ar and sd run"}));
  EXPECT_TRUE(fails(bench("ar,specpipe"), 2, {"--depth is read by", "here ar and specpipe run"}));
  EXPECT_EQ(bench("ar,sd,specpipe").status, 0);
}

// When the last token of a run's answer came, on its load's clock.
double end_of(const json& run) {
  double end = run["arrival"].get<double>() + run["time_to_first_token"].get<double>();
  for (const json& gap : run["between_tokens"]) end += gap.get<double>();
  return end;
}

TEST_F(Bench, EachConcurrencyIsARowWithTheLoadsFigures) {
  write_task("talks", "{\"turns\": [\"one\", \"two\"]}\n{\"turns\": [\"three\"]}\n{\"turns\": [\"four\", \"five\"]}\n");
  const std::string out = temp_path("rows.json");
  const Ran ran = run_program(with({"--tasks", "talks", "--methods", "ar,specpipe", "--concurrency", "1,3",
                                    "--executor", "virtual", "--ignore-eos", "--json", out}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const char* word : {"conc", "in flight: 1, 3", "all tok/s", "first token", "between tokens", "identical: yes"})
    EXPECT_NE(ran.out.find(word), std::string::npos) << word << "\n" << ran.out;
  const json j = read(out);
  EXPECT_EQ(j["settings"]["concurrency"], json({1, 3}));
  EXPECT_EQ(j["runs"].size(), 2u * 2u * 5u);
  std::map<std::pair<std::string, int>, json> rows;
  for (const json& row : j["summary"]) rows[{row["method"], row["concurrency"]}] = row;
  ASSERT_EQ(rows.size(), 4u);
  // Every stage takes 1 ms, so alone each token of plain decoding comes 1 ms after the one before.
  const json& alone = rows[{"ar", 1}];
  EXPECT_NEAR(alone["between_tokens"]["mean"], 0.001, 1e-9);
  EXPECT_NEAR(alone["between_tokens"]["p99"], 0.001, 1e-9);
  EXPECT_NEAR(alone["elapsed"].get<double>() * alone["tokens_per_second"].get<double>(), 50, 1e-6) << "all tokens";
  double elapsed = 0;
  for (const json& run : j["runs"])
    if (run["method"] == "ar" && run["concurrency"] == 3) elapsed = std::max(elapsed, end_of(run));
  const json& together = rows[{"ar", 3}];
  EXPECT_NEAR(together["elapsed"], elapsed, 1e-6);
  EXPECT_NEAR(together["tokens_per_second"], 50 / elapsed, 1e-3);
  EXPECT_GT(together["tokens_per_second"], 2.0 * alone["tokens_per_second"].get<double>());
}

TEST_F(Bench, TheNextConversationBeginsWhenOneEnds) {
  std::string talks = "{\"id\": \"long\", \"turns\": [\"one\"], \"max_tokens\": 60}\n";
  for (int i = 0; i < 4; ++i) talks += "{\"id\": " + std::to_string(i) + ", \"turns\": [\"two\"]}\n";
  write_task("rolling", talks);
  const std::string out = temp_path("rolling.json");
  const Ran ran = run_program(with({"--tasks", "rolling", "--methods", "ar", "--concurrency", "2", "--executor",
                                    "virtual", "--ignore-eos", "--json", out}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json j = read(out);
  std::map<std::string, json> runs;
  for (const json& run : j["runs"]) runs[run["id"]] = run;
  EXPECT_EQ(runs["long"]["arrival"], 0.0);
  EXPECT_EQ(runs["long"]["tokens"].size(), 60u);
  EXPECT_EQ(runs["0"]["arrival"], 0.0);
  for (int i = 1; i < 4; ++i)
    EXPECT_NEAR(runs[std::to_string(i)]["arrival"], end_of(runs[std::to_string(i - 1)]), 1e-5) << i;
  EXPECT_LT(end_of(runs["3"]), end_of(runs["long"])) << "nobody waits for the slowest";
}

TEST_F(Bench, ConversationsComeByChanceWhateverGoesOn) {
  std::string talks;
  for (int i = 0; i < 200; ++i) talks += "{\"turns\": [\"one\"], \"max_tokens\": 2}\n";
  write_task("many", talks);
  const auto arrivals = [&](const Program::Arguments& more) {
    const std::string out = temp_path("arrivals.json");
    Program::Arguments arguments = {"--tasks", "many", "--ignore-eos", "--overwrite", "--json", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = run_program(with(arguments));
    EXPECT_EQ(ran.status, 0) << ran.err;
    const json j = read(out);
    std::map<std::string, std::vector<double>> times;
    for (const json& run : j["runs"]) {
      times[run["method"]].push_back(run["arrival"]);
      EXPECT_GT(run["time_to_first_token"], 0.0);
    }
    return times;
  };
  const auto simulated =
      arrivals({"--limit", "200", "--methods", "ar,specpipe", "--arrivals", "50", "--executor", "virtual"});
  const auto& times = simulated.at("ar");
  ASSERT_EQ(times.size(), 200u);
  EXPECT_EQ(times, simulated.at("specpipe")) << "all methods meet the same load";
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_NEAR(times.back() / 200, 1 / 50.0, 3 / 50.0 / std::sqrt(200.0)) << "the mean of the times between";
  size_t within_mean = 0;  // of exponential times 1 - 1/e are shorter than the mean
  for (size_t i = 0; i < times.size(); ++i) within_mean += times[i] - (i > 0 ? times[i - 1] : 0.0) < 1 / 50.0;
  EXPECT_NEAR(static_cast<double>(within_mean) / 200, 0.632, 3 * std::sqrt(0.632 * 0.368 / 200));
  const Program::Arguments real = {"--limit", "20", "--methods", "ar", "--arrivals", "50"};
  const auto in_real_time = arrivals(real).at("ar");
  EXPECT_EQ(in_real_time, std::vector(times.begin(), times.begin() + 20)) << "whatever the clock";
  const auto other = arrivals({"--limit", "20", "--methods", "ar", "--arrivals", "50", "--arrivals-seed", "7"});
  EXPECT_NE(other.at("ar"), in_real_time);
}

TEST_F(Bench, PromptsOfAnotherTaskComeBesideInAPeriodOfTheirOwn) {
  write_task("beside", "{\"id\": \"x\", \"turns\": [\"so?\"]}\n{\"id\": \"y\", \"turns\": [\"why?\"]}\n");
  const std::string out = temp_path("beside.json");
  const Program::Arguments one = {"--tasks",    "talk",    "--methods",    "ar",     "--also", "beside:0.025",
                                  "--executor", "virtual", "--ignore-eos", "--json", out};
  const Ran ran = run_program(with(one));
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("one of beside every 0.025 s"), std::string::npos) << ran.out;
  const json j = read(out);
  std::map<std::string, double> arrivals;
  for (const json& run : j["runs"])
    if (run["turn"] == 0)
      arrivals[run["task"].get<std::string>() + " " + run["id"].get<std::string>()] = run["arrival"];
  EXPECT_EQ(arrivals.size(), 4u);
  EXPECT_EQ(arrivals["talk a"], 0.0);
  EXPECT_NEAR(arrivals["beside x"], 0.025, 1e-9);
  EXPECT_NEAR(arrivals["beside y"], 0.05, 1e-9) << "also when nothing else is running";
  EXPECT_EQ(j["summary"].size(), 2u);
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk,sums", "--also", "beside:1"})), 2, {"--also", "one task"}));
  EXPECT_TRUE(fails(run_program(with({"--tasks", "talk", "--also", "talk:1"})), 2, {"--also", "--tasks"}));
  for (const char* bad : {"beside", "beside:", "beside:0", "beside:-1", ":3", "beside:x", "beside:nan"})
    EXPECT_TRUE(fails(run_program(with({"--tasks", "talk", "--also", bad})), 2, {"--also", "as in"})) << bad;
}

TEST_F(Bench, ACrowdWaitsForRoom) {
  std::string talks;
  for (int i = 0; i < 60; ++i) talks += "{\"turns\": [\"one\"], \"max_tokens\": 500}\n";
  write_task("crowd", talks);
  const Ran ran = run_program(with({"--tasks", "crowd", "--limit", "60", "--methods", "ar", "--arrivals", "1000",
                                    "--concurrency", "1", "--ignore-eos", "--executor", "virtual"}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out.find("incomplete"), std::string::npos) << ran.out;
}

TEST_F(Bench, AnInterruptLeavesWhatWasDone) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "{\"turns\": [\"hello\"]}\n";
  write_task("many", many);
  const std::string out = temp_path("interrupted-bench.json");
  std::filesystem::remove(out);
  Program program(with({"--tasks", "many", "--limit", "1000", "--ignore-eos", "--json", out, "--profile",
                        write_file("slow.json", R"({"stage": {"points": [[1, 0.005]]}})")}));
  for (int i = 0; i < 600 && !std::filesystem::exists(out); ++i) ::usleep(100'000);  // until something was done
  program.signal(SIGINT);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.status, 130) << ran.err;
  EXPECT_NE(ran.err.find("sluice: interrupted; "), std::string::npos) << ran.err;
  EXPECT_NE(ran.out.find("incomplete"), std::string::npos) << ran.out;
  const json j = read(out);
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j["complete"], false);
  EXPECT_EQ(j["identical"], true);
  EXPECT_FALSE(j["runs"].empty());
}

TEST_F(Bench, AnInterruptEndsAWaitForTheNextArrival) {
  Program program(with({"--tasks", "sums", "--methods", "ar", "--arrivals", "0.0001"}));
  ::usleep(500'000);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().status, 130);
}

TEST_F(Bench, RefusesMoreConversationsAtOnceThanCellsCanBeNumberedFor) {
  TinyModelSpec spec;
  spec.context_length = 1 << 24;
  const std::string model = write_tiny_model(spec, temp_path("far.gguf"));
  std::string many;
  for (int i = 0; i < 256; ++i) many += "{\"turns\": [\"hello\"]}\n";
  write_task("many", many);
  const auto ran = run_program({"bench", "-m", model, "--data", folder_, "--tasks", "many", "--limit", "256",
                                "--methods", "ar", "-n", "2", "--context", "16777216", "--concurrency", "256"});
  EXPECT_TRUE(fails(ran, 2, {"--context 16777216", "--concurrency 256", "GiB", "at most"}));
  EXPECT_EQ(ran.out, "");
}

}  // namespace
}  // namespace sluice::test
