// Small templates, rendered byte for byte as Jinja renders them; where Jinja fails, we fail.
#include <gtest/gtest.h>

#include <sstream>

#include "jinja/oracle.h"

namespace sluice::test {
namespace {

// snippets.txt: one template a line; ⏎ stands for a line end, ⇥ for a tab; lines that begin with "##" are comments.
std::vector<std::string> snippets() {
  std::vector<std::string> result;
  std::istringstream file(read_file(std::string(SLUICE_SOURCE_DIR) + "/tests/jinja/snippets.txt"));
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with("##")) continue;
    for (const auto& [mark, meaning] : {std::pair<std::string, std::string>{"⏎", "\n"}, {"⇥", "\t"}}) {
      for (size_t at; (at = line.find(mark)) != std::string::npos;) line.replace(at, mark.size(), meaning);
    }
    result.push_back(line);
  }
  return result;
}

const char* const kVariables = R"json({
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Grüße, <b>Welt</b>!\n"},
               {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"x": 1, "y": [true, null, 2.5]}}]}],
  "name": "ada", "n": 7, "pi": 3.14159, "yes": true, "no": false, "nothing": null, "empty": "", "zero": 0,
  "words": ["pear", "Apple", "fig", "apple"], "numbers": [3, 1, 2, 3], "mixed": [1, "a", null, true, 2.5, [1], {"k": "v"}],
  "dict": {"b": 2, "a": 1, "C": 3}, "items_key": {"items": 5, "x": {"y": {"z": "deep"}}},
  "text": "The quick brown fox", "unicode": "naïve 🙂 ÅNGSTRÖM", "quote": "it's \"so\"\\\n", "lines": "one\n\n two\r\nthree",
  "users": [{"n": "Bo", "age": 30, "ok": true}, {"n": "al", "age": 20, "ok": false}, {"n": "Cy", "age": 25}],
  "tools": [{"type": "function", "function": {"name": "add", "description": "Adds <two> & more — ü", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}]
})json";

TEST(Snippets, RenderAsJinjaRendersThem) {
  std::vector<OracleCase> cases;
  for (const std::string& snippet : snippets()) cases.push_back({snippet, nlohmann::ordered_json::parse(kVariables)});
  ASSERT_GT(cases.size(), 300u);
  const auto answers = ask_jinja(cases);
  if (!answers) GTEST_SKIP() << "no Python with jinja2: install python3-jinja2";
  ASSERT_EQ(answers->size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto ours = render_ours(cases[i]);
    const OracleAnswer& jinja = (*answers)[i];
    if (jinja.text) {
      EXPECT_TRUE(ours) << cases[i].template_text << "\n  ours: " << ours.error().message
                        << "\n  Jinja: " << *jinja.text;
      EXPECT_EQ(ours.value_or(""), *jinja.text) << cases[i].template_text;
    } else {
      EXPECT_FALSE(ours) << cases[i].template_text << "\n  ours: " << *ours << "\n  Jinja: " << jinja.error;
    }
  }
}

}  // namespace
}  // namespace sluice::test
