// Input files that are not what they should be: the message names the file, and every command says the same.
#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/program.h"
#include "model/model_file.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_refused(const std::string& file, const std::vector<std::string>& words) {
  std::vector<std::string> all = words;
  all.push_back(file);
  EXPECT_TRUE(fails(run_program({"run", "-m", file, "hello"}), 2, all));
  EXPECT_TRUE(fails(run_program({"inspect", file}), 2, all));
  EXPECT_TRUE(fails(run_program({"inspect", file, "--json"}), 2, all));
  EXPECT_TRUE(fails(run_program({"chat", "-m", file}, {.input = "hello\n"}), 2, all));
}

TEST(ModelFile, MissingEmptyOrAFolder) {
  expect_refused(temp_path("missing.gguf"), {});
  expect_refused(write_file("empty.gguf", ""), {});
  const std::string folder = temp_path("folder.gguf");
  std::filesystem::create_directory(folder);
  expect_refused(folder, {});
}

TEST(ModelFile, OfTheEnvironmentIsNamedSo) {
  const auto with = [](const Program::Arguments& arguments) {
    Program::Arguments all = {"SLUICE_MODEL=missing.gguf", program_path()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program(all, {.program = "/usr/bin/env"});
  };
  EXPECT_TRUE(fails(with({"run", "hello"}), 2, {"SLUICE_MODEL=missing.gguf: no such file"}));
  EXPECT_TRUE(fails(with({"inspect"}), 2, {"SLUICE_MODEL=missing.gguf: no such file"}));
  EXPECT_TRUE(fails(with({"run", "-m", "other.gguf", "hello"}), 2, {"sluice: other.gguf: no such file"}));
}

TEST(ModelFile, ThatIsNoGguf) {
  expect_refused(write_file("text.gguf", "Once upon a time there was a file.\n"), {"GGUF"});
}

TEST(ModelFile, Truncated) {
  const std::string whole = contents(small_model());
  for (const size_t length : {size_t{3}, size_t{20}, whole.size() / 100, whole.size() / 2, whole.size() - 1})
    expect_refused(write_file("truncated.gguf", whole.substr(0, length)), {});
}

TEST(ModelFile, OfAnUnknownArchitecture) {
  TinyModelSpec spec;
  spec.architecture = "llama";
  std::string bytes = contents(write_tiny_model(spec, temp_path("known.gguf")));
  size_t at = bytes.find("general.architecture");
  ASSERT_NE(at, std::string::npos);
  at = bytes.find("llama", at);
  bytes.replace(at, 5, "gizmo");
  expect_refused(write_file("gizmo.gguf", bytes), {"gizmo"});
}

TEST(ModelFile, ThatIsAHeadIsToldApart) {
  const auto model = ModelFile::open(small_model());
  for (const char* kind : {"spd", "eagle3", "draft"}) {
    const std::string head = temp_path(std::string("no-model-") + kind + ".gguf");
    tiny_head(*model, {.kind = kind}).write(head);
    EXPECT_TRUE(fails(run_program({"run", "-m", head, "hello"}), 2,
                      {head, "a trained head, not a model", "-m", "--head", "--draft", "sluice inspect"}));
  }
}

TEST(ModelFile, Unreadable) {
  const std::string path = write_file("secret.gguf", "x");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  if (::access(path.c_str(), R_OK) == 0) GTEST_SKIP() << "root can read everything";
  expect_refused(path, {});
}

TEST(ModelFile, ADeviceOrAPipeIsNone) {
  expect_refused("/dev/null", {});
  expect_refused("/dev/zero", {});
}

TEST(ModelFile, WithABrokenChatTemplateCanBeUsedRaw) {
  TinyModelSpec spec;
  spec.chat_template = "{% for m in messages %}";
  const std::string model = write_tiny_model(spec, temp_path("broken-template.gguf"));
  EXPECT_TRUE(fails(run_program({"run", "-m", model, "hello"}), 2, {model, "template", "--raw"}));
  EXPECT_EQ(run_program({"run", "-m", model, "--raw", "-n", "2", "hello"}).status, 0);
}

TEST(Inspect, SaysWhatAModelIs) {
  const Ran people = run_program({"inspect", small_model(), "--tensors"});
  EXPECT_EQ(people.status, 0);
  EXPECT_NE(people.out.find("4 layers"), std::string::npos);
  EXPECT_NE(people.out.find("token_embd.weight"), std::string::npos);
  const Ran machine = run_program({"inspect", "-m", small_model(), "--json"});
  EXPECT_EQ(machine.err, "");
  const json j = json::parse(machine.out, nullptr, false);
  ASSERT_TRUE(j.is_object());
  EXPECT_EQ(j["layers"], 4);
  EXPECT_EQ(j["context"], 512);
  EXPECT_EQ(j["supported"], true);
  EXPECT_TRUE(j["not_supported"].empty());
  EXPECT_FALSE(j["tensor_types"].empty());
  EXPECT_EQ(j["tokenizer"]["model"], "gpt2");
  EXPECT_FALSE(j["methods"].empty());
  EXPECT_TRUE(fails(run_program({"inspect", small_model()}, {.out = "/dev/full"}), 1, {"stdout"}));
}

TEST(Inspect, SaysOfAModelThatCannotRunWhatItIsAndAllThatIsMissing) {
  TinyModelSpec spec;
  spec.edit_metadata = [](gguf_context* file) {
    gguf_set_val_str(file, "general.architecture", "gizmo");
    gguf_set_val_u32(file, "gizmo.block_count", 4);
    gguf_set_val_str(file, "tokenizer.ggml.pre", "whatever");
  };
  const std::string path = write_tiny_model(spec, temp_path("unsupported.gguf"));
  const Ran people = run_program({"inspect", path});
  EXPECT_TRUE(fails(people, 2, {path, "gizmo"}));
  for (const char* line : {"architecture gizmo", "4 layers", "f32 in ", "not supported:\n", "'gizmo'", "'whatever'"})
    EXPECT_NE(people.out.find(line), std::string::npos) << line << " in\n" << people.out;
  const Ran machine = run_program({"inspect", path, "--json"});
  EXPECT_TRUE(fails(machine, 2, {path, "gizmo"}));
  const json j = json::parse(machine.out, nullptr, false);
  EXPECT_EQ(j["supported"], false);
  EXPECT_EQ(j["not_supported"].size(), 2);
  EXPECT_EQ(j["tokenizer"]["pre"], "whatever");
  EXPECT_GT(j["tensor_types"]["f32"]["tensors"], 30);
}

TEST(Inspect, SaysHowAModelWouldRunHere) {
  const json j = json::parse(run_program({"inspect", "--json", small_model()}).out, nullptr, false);
  const json& memory = j["memory"];
  EXPECT_TRUE(memory["fits"].get<bool>());
  EXPECT_EQ(memory["context"], 512);
  EXPECT_GT(memory["needed"], j["bytes"].get<int64_t>() / 2);
  EXPECT_LT(memory["needed"], memory["there"]);
  int64_t sum = 0;
  for (const char* n : {"1", "2", "3", "4"}) {
    ASSERT_EQ(memory["stages"][n].size(), static_cast<size_t>(n[0] - '0'));
    sum = 0;
    for (const json& bytes : memory["stages"][n]) sum += bytes.get<int64_t>();
    EXPECT_GE(sum, memory["needed"]) << n << " stages hold the whole model";
  }
  EXPECT_LT(sum, 2 * memory["needed"].get<int64_t>());
  // Nothing comes with the program for this model: what needs a head can't run.
  EXPECT_TRUE(j["trained_heads"].empty());
  const std::vector<std::string> methods = j["methods"];
  for (const char* method : {"ar", "sd", "specpipe", "surge"})
    EXPECT_NE(std::find(methods.begin(), methods.end(), method), methods.end()) << method;
  for (const char* method : {"spd", "ppsd", "eagle3", "p-eagle"})
    EXPECT_EQ(std::find(methods.begin(), methods.end(), method), methods.end()) << method;
  const std::string people = run_program({"inspect", small_model()}).out;
  for (const std::string& line : {std::string("fits here"), std::string("4 stages: "),
                                  "sluice run -m " + small_model() + " \"Why is the sky blue?\""})
    EXPECT_NE(people.find(line), std::string::npos) << people;
}

TEST(Inspect, FindsTheHeadsOfTheDefaultModel) {
  const Ran ran = run_program({"inspect", "--json"});
  if (ran.err.find("no default model is installed") != std::string::npos) GTEST_SKIP() << ran.err;
  const json j = json::parse(ran.out, nullptr, false);
  std::set<std::string> kinds;
  for (const json& head : j["trained_heads"]) kinds.insert(head["head"]);
  EXPECT_EQ(kinds, (std::set<std::string>{"spd", "eagle3", "p-eagle", "exit"}));
  EXPECT_FALSE(j["drafts"].empty()) << "a draft head comes along";
  const std::vector<std::string> methods = j["methods"];
  for (const char* method : {"spd", "ppsd", "eagle3", "p-eagle"})
    EXPECT_NE(std::find(methods.begin(), methods.end(), method), methods.end()) << method;
}

Ran run_with_profile(const std::string& profile) {
  return run_program({"run", "-m", small_model(), "-n", "4", "--executor", "virtual", "--profile", profile, "hello"});
}

TEST(ProfileFile, MissingOrNotMeasuredYet) {
  EXPECT_TRUE(fails(run_with_profile("nowhere.json"), 2, {"--profile nowhere.json", "uniform", "paper-8x"}));
  EXPECT_TRUE(fails(run_with_profile("/"), 2, {"--profile /"}));
  EXPECT_TRUE(fails(run_with_profile("local"), 2, {"--profile local", "sluice plan"}));
}

TEST(ProfileFile, NamesTheFieldThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"", "JSON"},
      {"{\"stage\": ", "JSON"},
      {"[1, 2]", "JSON object"},
      {"{}", "\"stage\" or \"layer\""},
      {R"({"stage": 3})", "stage"},
      {R"({"stage": {"points": []}})", "stage"},
      {R"({"stage": {"points": [[1]]}})", "stage.points"},
      {R"({"stage": {"points": [["one", 1]]}})", "stage.points: rows"},
      {R"({"stage": {"points": [[0, 1]]}})", "stage.points: rows"},
      {R"({"stage": {"points": [[1, -1]]}})", "stage.points: seconds"},
      {R"({"stage": {"points": [[1, 1e300]]}})", "stage.points: seconds"},
      {R"({"stage": {"points": [[2, 1], [1, 1]]}})", "rising"},
      {R"({"stage": {"points": [[1, 1]], "between": "lines"}})", "stage.between"},
      {R"({"stage": {"points": [[1, 1]], "every": 64}})", "\"add\""},
      {R"({"stage": {"points": [[1, 1]], "every": 0, "add": 1}})", "stage.every"},
      {R"({"stage": {"points": [[1, 1]]}, "link": 5})", "link"},
      {R"({"stage": {"points": [[1, 1]]}, "link": {"latency": "slow"}})", "link.latency"},
      {R"({"stage": {"points": [[1, 1]]}, "link": {"bandwidth": 1e-300}})", "link.bandwidth"},
      {R"({"stage": {"points": [[1, 1]]}, "edges": [{"latency": 1}, {"latency": "far"}]})", "edges[1].latency"},
      {R"({"stage": {"points": [[1, 1]]}, "edges": [{}, {}, {}, {}]})", "give --stages 3"},
      {R"({"stage": {"points": [[1, 1]]}, "name": 5})", "name"},
      {std::string(100000, '['), "JSON"},
  };
  for (const auto& [text, word] : all) {
    const std::string path = write_file("profile.json", text);
    EXPECT_TRUE(fails(run_with_profile(path), 2, {path, word})) << text.substr(0, 100);
  }
}

TEST(ProfileFile, OddCostsAreCosts) {
  for (const char* text : {R"({"stage": {"points": [[1, 0]]}})", R"({"stage": {"points": [[1, 1], [2, 0]]}})",
                           R"({"layer": {"points": [[1, 1e6], [1.000001, 0]]}, "head": {"points": [[1000, 1e6]]}})",
                           R"({"stage": {"points": [[1, 1], [1.0000001, 1e6]]}, "link": {"latency": 1e6}})"}) {
    const Ran ran = run_with_profile(write_file("profile.json", text));
    EXPECT_EQ(ran.status, 0) << text << ran.err;
  }
}

}  // namespace
}  // namespace sluice::test
