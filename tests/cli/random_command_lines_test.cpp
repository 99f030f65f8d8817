// Command lines drawn at random: whatever is typed, the program ends by itself, with a status that it knows, and a
// failure is one line.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using Words = std::vector<std::string>;

class CommandLines {
 public:
  explicit CommandLines(uint32_t seed) : random_(seed) {
    std::ofstream(data_ + "/task.jsonl") << "{\"turns\": [\"hello\"]}\n";
  }

  Words draw() {
    const std::string command =
        one_of({"run", "run", "run", "chat", "bench", "inspect", "inspect", "rum", "", "--help"});
    Words words = {command};
    if (command == "inspect") {
      if (chance(0.8)) words.push_back(model());
    } else {
      words.insert(words.end(), {"-m", model(), "-n", number({"1", "5", "9"})});
      if (command == "bench") words.insert(words.end(), {"--data", data_, "--tasks", one_of({"task", "tusk"})});
      if (command == "run" && chance(0.9)) words.push_back(one_of({"hello", "", "-", "\xff", "a b c", "<|im_end|>"}));
    }
    for (int n = static_cast<int>(random_() % 4); n > 0; --n) add_option(words);
    return words;
  }

 private:
  std::string one_of(const Words& words) { return words[random_() % words.size()]; }
  bool chance(double p) { return static_cast<double>(random_() % 1000) < 1000 * p; }
  std::string model() { return chance(0.9) ? small_model() : one_of({"/dev/null", "/", "nowhere.gguf", "", data_}); }
  // Mostly one of these, else something that is seldom right.
  std::string number(const Words& usual) {
    return chance(0.8)
               ? one_of(usual)
               : one_of({"0", "-1", "1e9", "4294967296", "99999999999999999999", "nan", "", "x", "0x10", " 1", "1,2"});
  }

  void add_option(Words& words) {
    const std::string option =
        one_of({"--stages",  "--cuts",    "--width",          "--children", "--threads", "--temp",     "--top-k",
                "--top-p",   "--min-p",   "--repeat-penalty", "--seed",     "--context", "--executor", "--compute",
                "--kv",      "--profile", "--method",         "--source",   "--raw",     "--json",     "--ignore-eos",
                "--tensors", "--trace",   "--system",         "--bogus",    "--",        "-x",         "--help"});
    words.push_back(option);
    if (option == "--executor") words.push_back(one_of({"threads", "virtual", "v"}));
    if (option == "--compute") words.push_back(one_of({"full", "lazy", "l"}));
    if (option == "--kv") words.push_back(one_of({"f16", "f32", "q8_0", "f8"}));
    if (option == "--profile") words.push_back(one_of({"uniform", "local", "/", "none"}));
    if (option == "--method") words.push_back(one_of({"auto", "ar", "specpipe", "none"}));
    if (option == "--source") words.push_back(one_of({"ngram", "none", "ngram,none"}));
    if (option == "--cuts") words.push_back(one_of({"1", "1,2,3", "3,2", "4", "0", ","}));
    if (option == "--trace") words.push_back(one_of({"/dev/null", "/dev/full", "/", "no/where"}));
    if (option == "--system") words.push_back(one_of({"Be terse.", "", "\xc0"}));
    if (option == "--stages" || option == "--width" || option == "--children" || option == "--top-k" ||
        option == "--seed")
      words.push_back(number({"1", "2", "3", "4"}));
    if (option == "--threads") words.push_back(number({"1", "2"}));
    if (option == "--context") words.push_back(number({"32", "64", "512"}));
    if (option == "--temp" || option == "--top-p" || option == "--min-p" || option == "--repeat-penalty")
      words.push_back(number({"1", "0.5", "0.9"}));
  }

  std::mt19937 random_;
  std::string data_ = [] {
    const std::string folder = temp_path("random-data");
    std::filesystem::create_directory(folder);
    return folder;
  }();
};

TEST(RandomCommandLines, EndInAnOrderlyWay) {
  CommandLines command_lines(20260101);
  int done = 0;
  for (int i = 0; i < 200; ++i) {
    const Words words = command_lines.draw();
    const Ran ran = run_program(words, {.input = "hello\nand again\n"});
    done += ran.status == 0;
    EXPECT_TRUE(ran.status == 0 || ran.status == 1 || ran.status == 2)
        << ran.status << ": " << testing::PrintToString(words) << ran.err;
    if (ran.status != 0) {
      EXPECT_TRUE(fails(ran, ran.status, {})) << testing::PrintToString(words);
    }
  }
  EXPECT_GT(done, 20);  // the others would prove little
}

}  // namespace
}  // namespace sluice::test
