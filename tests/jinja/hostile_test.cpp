// Templates come with model files from anywhere: whatever they hold, rendering ends, quickly, with a text or an error.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "jinja/oracle.h"

namespace sluice::test {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

void expect_one_line_error(const std::string& source, const std::string& part) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result = render_ours({source, {{"x", 1}}});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_FALSE(result) << source.substr(0, 200);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  EXPECT_LT(seconds.count(), 60) << source.substr(0, 200);
}

TEST(HostileTemplate, DeepNestingIsAnError) {
  const int n = 100'000;
  expect_one_line_error("{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}", "too deeply");
  expect_one_line_error("{{ " + repeated("[", n) + repeated("]", n) + " }}", "too deeply");
  expect_one_line_error("{{ " + repeated("not ", n) + "1 }}", "too deeply");
  expect_one_line_error("{{ " + repeated("-", n) + "1 }}", "too deeply");
  expect_one_line_error("{{ 1" + repeated(" + 1", n) + " }}", "too deeply");
  expect_one_line_error("{{ x" + repeated(".a", n) + " }}", "too deeply");
  expect_one_line_error("{{ x" + repeated("|abs", n) + " }}", "too deeply");
  expect_one_line_error("{{ x" + repeated("()", n) + " }}", "too deeply");
  expect_one_line_error("{{ 1" + repeated(" if x else 1", n) + " }}", "too deeply");
  expect_one_line_error(repeated("{% if x %}", n) + repeated("{% endif %}", n), "too deeply");
  expect_one_line_error("{{ " + repeated("(", 150) + "x" + repeated(repeated("|abs", 150) + ")", 150) + " }}",
                        "too deeply");
}

TEST(HostileTemplate, EndlessRecursionIsAnError) {
  expect_one_line_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deeply");
  expect_one_line_error("{% macro f(x) %}{% call f(x) %}{% endcall %}{{ caller }}{% endmacro %}{{ f(1) }}",
                        "too deeply");
}

TEST(HostileTemplate, ValuesThatGrowOrNestWithoutEndAreErrors) {
  const std::string loop = "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ";
  expect_one_line_error(loop + "[ns.x] %}{% endfor %}", "too deeply");
  expect_one_line_error(loop + "{'a': ns.x} %}{% endfor %}", "too deeply");
  expect_one_line_error(loop + "(ns.x, ns.x) %}{% if i == 90 %}{{ ns.x }}{% endif %}{% endfor %}", "");
  expect_one_line_error(loop + "[ns.x, ns.x] %}{% if i == 90 %}{{ ns.x == [ns.x[0], ns.x[1]] }}{% endif %}{% endfor %}",
                        "too");
  expect_one_line_error(loop + "[ns.x, ns.x] %}{% if i == 90 %}{{ ns.x|tojson }}{% endif %}{% endfor %}", "");
  expect_one_line_error(loop + "[0] + ns.x + ns.x %}{% endfor %}", "too much work");
  expect_one_line_error(
      "{% set ns = namespace(x={}) %}{% for i in range(1000) %}{% set ns.x = ns.x.get %}{% set ns.x = {'a': ns.x} %}"
      "{% set ns.x = ns.x.get %}{{ ns.x.y }}{% endfor %}{{ ns.x.y.z }}",
      "attribute");
}

TEST(HostileTemplate, NamespacesMayHoldThemselves) {
  EXPECT_TRUE(render_ours({"{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.l = [ns] %}{{ ns == ns.self }}",
                           nlohmann::ordered_json::object()}));
  expect_one_line_error("{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns }}", "too deeply");
  const auto chain = render_ours(
      {"{% set ns = namespace() %}{% for i in range(100000) %}{% set ns.p = namespace(p=ns.p) %}{% endfor %}ok",
       nlohmann::ordered_json::object()});
  EXPECT_EQ(chain.value_or(""), "ok");
}

TEST(HostileTemplate, LargeTextsAreErrors) {
  expect_one_line_error("{{ 'x' * 999999999999 }}", "16 MiB");
  expect_one_line_error("{{ [1] * 999999999999 }}", "too much work");
  expect_one_line_error("{{ ('x' * 1000000).replace('x', 'y' * 1000) }}", "16 MiB");
  expect_one_line_error("{{ (['x'] * 10000)|join('y' * 10000) }}", "16 MiB");
  expect_one_line_error("{{ 'x'.rjust(99999999999) }}", "16 MiB");
  expect_one_line_error("{{ '%99999999999d' % 1 }}", "too large");
  expect_one_line_error("{{ ('\\n' * 1000000)|indent(10000, blank=true) }}", "16 MiB");
  expect_one_line_error("{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}", "");
  expect_one_line_error(
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "");
}

TEST(HostileTemplate, EndlessWorkIsAnError) {
  const std::string loops = "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}";
  expect_one_line_error(loops + "{% endfor %}{% endfor %}{% endfor %}", "too much work");
  expect_one_line_error("{{ range(1000000000) }}", "100000");
  expect_one_line_error(
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.find('b') }}{{ 'b' in s }}{% endfor %}",
      "too much work");
  expect_one_line_error("{% set s = 'a' * 8000000 %}{% set t = 'b' + 'a' * 4000000 %}{{ s.rfind(t) }}", "");
  expect_one_line_error("{% for i in range(100000) %}{{ range(100000)|sort }}{% endfor %}", "");
  expect_one_line_error("{{ range(100000)|unique|list }}", "too much work");
}

TEST(HostileTemplate, NumbersOutOfRangeAreErrors) {
  expect_one_line_error("{{ 9223372036854775807 + x }}", "64 bits");
  expect_one_line_error("{{ -9223372036854775807 - 2 }}", "64 bits");
  expect_one_line_error("{{ 99999999999999999999 }}", "out of range");
  expect_one_line_error("{{ 10 ** 100 }}", "64 bits");
  expect_one_line_error("{{ '9' * 30 | int }}{{ ('9' * 30) | int }}", "64 bits");
  expect_one_line_error("{{ (0 - 9223372036854775807 - 1) // -1 }}", "64 bits");
  EXPECT_EQ(render_ours({"{{ (0 - 9223372036854775807 - 1) % -1 }}", nlohmann::ordered_json::object()}).value_or(""),
            "0");
}

TEST(HostileTemplate, ErrorsNameTheLine) {
  expect_one_line_error("a\nb\n{{ 1 / 0 }}", "line 3");
  expect_one_line_error("a\n{% if %}", "line 2");
  expect_one_line_error("\n\n\n{{ raise_exception('two\\nlines') }}", "line 4: two lines");
}

// Random edits of real-looking templates, by a fixed seed.
TEST(HostileTemplate, MutatedTemplatesNeverCrash) {
  std::vector<std::string> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(SLUICE_SOURCE_DIR) + "/tests/jinja/templates")) {
    seeds.push_back(read_file(entry.path()));
  }
  std::sort(seeds.begin(), seeds.end());
  ASSERT_FALSE(seeds.empty());
  const std::vector<std::string> pieces = {
      "{{", "}}",   "{%", "%}",     "{#",    "#}",      "-",        "'",    "\"",          "(",    ")", "[",     "]",
      "{",  "}",    "|",  "if",     "endif", "for",     "endfor",   "not",  "1e9",         "**",   "~", "is",    "in",
      "\\", "\xff", "\n", "[::-1]", ".",     "|tojson", "messages", "loop", "namespace()", "else", "é", "99999", "*"};
  const auto variables = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}], "tools": [{"type": "function"}],
          "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true})");
  std::mt19937 random(1);
  const auto pick = [&](size_t n) { return random() % std::max<size_t>(n, 1); };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int rendered = 0, mutants = 0;
  for (; mutants < 5000 && std::chrono::steady_clock::now() < end; ++mutants) {
    std::string text = seeds[pick(seeds.size())];
    for (size_t edits = 1 + pick(4); edits > 0; --edits) {
      const size_t at = pick(text.size()), size = std::min<size_t>(pick(12), text.size() - at);
      switch (pick(4)) {
        case 0:
          text.erase(at, size);
          break;
        case 1:
          text.insert(at, pieces[pick(pieces.size())]);
          break;
        case 2:
          text.insert(pick(text.size()), text.substr(at, size * 8));
          break;
        default:
          text[at] = static_cast<char>(random());
      }
    }
    const auto result = render_ours({text, variables});
    rendered += result.has_value();
    EXPECT_TRUE(result || !result.error().message.empty());
  }
  EXPECT_GT(mutants, 1000);
  EXPECT_GT(rendered, 50);
}

}  // namespace
}  // namespace sluice::test
