// Templates come with model files from anywhere: whatever they hold, rendering ends, quickly, with a text or an error.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "chat/oracle.h"

namespace sluice::test {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// The error, of one line; empty if there was a text.
std::string error_of(const std::string& source) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result = render_ours({source, {{"x", 1}}});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 60) << source.substr(0, 200);
  if (result) return "";
  EXPECT_TRUE(result.error().message.starts_with("chat template: ")) << result.error().message;
  EXPECT_EQ(result.error().message.find_first_of("\r\n"), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().kind, ErrorKind::kInput);
  return result.error().message;
}

void expect_error(const std::string& source, const std::string& part) {
  const std::string error = error_of(source);
  EXPECT_NE(error, "") << source.substr(0, 200);
  EXPECT_NE(error.find(part), std::string::npos) << source.substr(0, 200) << "\n" << error;
}

TEST(HostileTemplate, DeepNestingIsAnError) {
  const int n = 100'000;
  for (const std::string& source :
       {"{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}", "{{ " + repeated("[", n) + repeated("]", n) + " }}",
        "{{ " + repeated("not ", n) + "1 }}", "{{ " + repeated("-", n) + "1 }}", "{{ 1" + repeated(" + 1", n) + " }}",
        "{{ x" + repeated(".a", n) + " }}", "{{ x" + repeated("|abs", n) + " }}", "{{ x" + repeated("()", n) + " }}",
        "{{ 1" + repeated(" if x else 1", n) + " }}", repeated("{% if x %}", n) + repeated("{% endif %}", n),
        "{{ " + repeated("(", 150) + "x" + repeated(repeated("|abs", 150) + ")", 150) + " }}"})
    expect_error(source, "it nests too deeply");
}

TEST(HostileTemplate, EndlessRecursionIsAnError) {
  expect_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "it nests too deeply");
  expect_error("{% macro f(x) %}{% call f(x) %}{% endcall %}{{ caller }}{% endmacro %}{{ f(1) }}",
               "it nests too deeply");
  expect_error("{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns|tojson }}", "it nests too deeply");
}

TEST(HostileTemplate, ValuesThatGrowOrNestWithoutEndHaveAnEnd) {
  const std::string loop = "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ";
  expect_error(loop + "(ns.x, ns.x) %}{% if i == 90 %}{{ ns.x }}{% endif %}{% endfor %}", "it took more than");
  expect_error(loop + "[ns.x, ns.x] %}{% if i == 90 %}{{ ns.x|tojson }}{% endif %}{% endfor %}", "it took more than");
  expect_error(loop + "[0] + ns.x + ns.x %}{% endfor %}", "it took more than");
  expect_error(
      "{% set ns = namespace(x={}) %}{% for i in range(1000) %}{% set ns.x = ns.x.get %}{% set ns.x = {'a': ns.x} %}"
      "{% set ns.x = ns.x.get %}{{ ns.x.y }}{% endfor %}{{ ns.x.y.z }}",
      "line 1");
  for (const std::string& source :
       {loop + "[ns.x] %}{% endfor %}", loop + "{'a': ns.x} %}{% endfor %}",
        loop + "[ns.x, ns.x] %}{% if i == 90 %}{{ ns.x == [ns.x[0], ns.x[1]] }}{% endif %}{% endfor %}",
        loop + "namespace(p=ns.x) %}{% endfor %}ok",
        std::string("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.l = [ns] %}{{ ns == ns.self }}"),
        std::string("{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns }}")})
    error_of(source);
}

TEST(HostileTemplate, LargeTextsAreErrors) {
  expect_error("{% for i in range(17) %}" + std::string(1 << 20, 'x') + "{% endfor %}",
               "its result has more than 16 MiB");
  for (const std::string source :
       {"{{ 'x' * 999999999999 }}", "{{ ('x' * 1000000).replace('x', 'y' * 1000) }}",
        "{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ range(1000000000) }}", "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s[::-1] }}{% endfor %}"})
    expect_error(source, "it took more than");
  for (const std::string source :
       {"{{ [1] * 999999999999 }}", "{{ (['x'] * 10000)|join('y' * 10000) }}", "{{ 'x'.rjust(99999999999) }}",
        "{{ '%99999999999d' % 1 }}", "{{ ('\\n' * 1000000)|indent(10000, blank=true) }}"})
    error_of(source);
}

TEST(HostileTemplate, EndlessWorkIsAnError) {
  const std::string loops = "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}";
  expect_error(loops + "{% endfor %}{% endfor %}{% endfor %}", "it took more than 3 s of computing");
  expect_error("{% for i in range(100000) %}{{ range(100000)|sort }}{% endfor %}", "it took more than");
  expect_error("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}",
               "it took more than");
}

TEST(HostileTemplate, NumbersOutOfRangeHaveSomeResult) {
  for (const std::string source :
       {"{{ 9223372036854775807 + x }}", "{{ -9223372036854775807 - 2 }}", "{{ 99999999999999999999 }}",
        "{{ ('9' * 30) | int }}", "{{ (0 - 9223372036854775807 - 1) / -1 }}",
        "{{ (0 - 9223372036854775807 - 1) % -1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ [1][99999999999999:] }}",
        "{{ [1,2,3][1:9223372036854775807:9223372036854775807] }}", "{{ range(0, 9223372036854775807, x) }}"})
    error_of(source);
}

TEST(HostileTemplate, ErrorsNameTheLineOrQuoteThePlace) {
  expect_error("a\nb\n{{ x.y.z() }}", "line 3: ");
  expect_error("\n\n\n{{ raise_exception('two\\nlines') }}", "line 4: two lines");
  expect_error("a\n{% if x }}", "near \"a");
  for (const std::string source : {"{{", "{%", "{#", "{{ 'a", "{% if %}", "{% for %}", "{% for x in %}", "{% macro %}",
                                   "{% set %}", "{% if x %}", "{% nonsense %}", "{% break %}"})
    expect_error(source, "");
}

// Random edits of real-looking templates, by a fixed seed.
TEST(HostileTemplate, MutatedTemplatesNeverCrash) {
  std::vector<std::string> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(SLUICE_SOURCE_DIR) + "/tests/chat/templates")) {
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
