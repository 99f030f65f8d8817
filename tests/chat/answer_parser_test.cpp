// What models of several families write is read as what they mean, whole and while it grows; hostile texts, schemas and
// templates end in an error, or in the text as it stands.
#include "chat/answer_parser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "chat/answer_stream.h"
#include "chat/oracle.h"

namespace sluice {

void PrintTo(const AssistantMessage& message, std::ostream* out) {
  *out << "content [" << message.content << "] reasoning [" << message.reasoning << "]";
  for (const ToolCall& call : message.tool_calls)
    *out << " call [" << call.id << "] " << call.name << " [" << call.arguments << "]";
}

namespace test {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

const fs::path kOurs = fs::path(SLUICE_SOURCE_DIR) / "tests/chat/templates",
               kPublished = fs::path(SLUICE_SOURCE_DIR) / ".venv/llama/share/llama-common/templates";

AnswerRequest request(bool tools) {
  AnswerRequest request{.conversation = {.messages = {{"user", "What is the weather in Paris?"}}, .now = kNow}};
  request.conversation.bos_token = "<s>";
  request.conversation.eos_token = "</s>";
  if (tools)
    request.conversation.tools = ordered_json::parse(R"([{"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a place", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])");
  return request;
}

struct Family {
  std::string name;
  fs::path file;
  bool tools;
  std::string text;
  AssistantMessage message;
};

const std::string kArguments = R"({"city": "Paris"})";

std::vector<Family> families() {
  const auto hermes_call = [](const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  const ToolCall call{.id = "", .name = "get_weather", .arguments = kArguments};
  return {
      {"ChatMl", kOurs / "chatml.jinja", false, " Hi <there>\n\n{} ", {.content = " Hi <there>\n\n{} "}},
      {"Qwen2WithoutCalls", kPublished / "Qwen-Qwen2.5-7B-Instruct.jinja", true, "It rains.", {.content = "It rains."}},
      {"Qwen2",
       kPublished / "Qwen-Qwen2.5-7B-Instruct.jinja",
       true,
       "Let me see. " + hermes_call(kArguments),
       {.content = "Let me see. ", .tool_calls = {call}}},
      {"Hermes",
       kPublished / "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
       true,
       hermes_call(kArguments),
       {.tool_calls = {call}}},
      {"Qwen3",
       kPublished / "Qwen-Qwen3-0.6B.jinja",
       true,
       "<think>\nRain?\n</think>\n\n" + hermes_call(kArguments),
       {.reasoning = "Rain?\n", .tool_calls = {call}}},
      {"Qwen3WithoutTools",
       kPublished / "Qwen-Qwen3-0.6B.jinja",
       false,
       "<think>\nRain?\n</think>\n\nIt rains.",
       {.content = "It rains.", .reasoning = "Rain?\n"}},
      {"Llama3",
       kPublished / "meta-llama-Llama-3.1-8B-Instruct.jinja",
       true,
       R"({"name": "get_weather", "parameters": {"city": "Paris"}})",
       {.tool_calls = {call}}},
      {"MistralNemo",
       kPublished / "mistralai-Mistral-Nemo-Instruct-2407.jinja",
       true,
       R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "123456789"}])",
       {.tool_calls = {{.id = "123456789", .name = "get_weather", .arguments = kArguments}}}},
      {"MistralSmall",
       kPublished / "Mistral-Small-3.2-24B-Instruct-2506.jinja",
       true,
       R"(Yes.[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "Paris"})",
       {.content = "Yes.", .tool_calls = {{.id = "123456789", .name = "get_weather", .arguments = kArguments}}}},
      {"DeepSeekR1",
       kPublished / "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
       false,
       "Rain?\n</think>\n\nIt rains.",
       {.content = "\n\nIt rains.", .reasoning = "\nRain?\n"}},
      {"GptOss",
       kPublished / "openai-gpt-oss-120b.jinja",
       true,
       "<|channel|>analysis<|message|>Rain?<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>" +
           kArguments,
       {.reasoning = "Rain?", .tool_calls = {call}}},
      {"QwenCoder",
       kPublished / "Qwen3-Coder.jinja",
       true,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
       {.tool_calls = {{.id = "", .name = "get_weather", .arguments = R"({"city":"Paris"})"}}}},
  };
}

class Families : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!fs::exists(GetParam().file)) GTEST_SKIP() << "tools/setup installs " << GetParam().file;
    auto opened = AnswerParser::open(read_file(GetParam().file));
    ASSERT_TRUE(opened) << opened.error().message;
    parser_.emplace(std::move(*opened));
    auto format = parser_->format(request(GetParam().tools));
    ASSERT_TRUE(format) << format.error().message;
    format_ = std::move(*format);
  }
  // In pieces of so many bytes.
  AssistantMessage streamed(const std::string& text, size_t size) {
    AnswerStream stream(*parser_, format_);
    AssistantMessage sum;
    const auto add = [&](const AssistantDelta& delta) {
      sum.content += delta.content;
      sum.reasoning += delta.reasoning;
      for (const auto& [index, more] : delta.tool_calls) {
        EXPECT_LE(index, sum.tool_calls.size());
        if (index == sum.tool_calls.size()) {
          sum.tool_calls.emplace_back();
          EXPECT_FALSE(more.name.empty());
        } else {
          EXPECT_TRUE(more.name.empty()) << "told twice";
        }
        sum.tool_calls[index].id += more.id;
        sum.tool_calls[index].name += more.name;
        sum.tool_calls[index].arguments += more.arguments;
      }
    };
    for (size_t at = 0; at < text.size(); at += size) add(stream.push(std::string_view(text).substr(at, size)));
    add(stream.finish());
    EXPECT_EQ(stream.message(), sum);
    return sum;
  }

  std::optional<AnswerParser> parser_;
  AnswerFormat format_;
};

TEST_P(Families, AnAnswerIsReadAsAWhole) {
  const auto read = parser_->parse(format_, GetParam().text, /*partial=*/false);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(*read) << "none of the format";
  EXPECT_EQ(**read, GetParam().message);
}

TEST_P(Families, AnAnswerThatGrowsIsReadInPieces) {
  for (const size_t size : {1, 7}) EXPECT_EQ(streamed(GetParam().text, size), GetParam().message) << size;
}

TEST_P(Families, AnAnswerThatBreaksOffIsTheSameInHoweverManyPiecesItCame) {
  const std::string& text = GetParam().text;
  for (size_t length = 1; length < text.size(); length += 3) {
    const std::string begin = text.substr(0, length);
    const AssistantMessage whole = streamed(begin, length);
    EXPECT_EQ(streamed(begin, 5), whole) << begin;
    EXPECT_EQ(parser_->parse(format_, begin, /*partial=*/false).value().value_or(whole), whole) << begin;
  }
}

TEST_P(Families, AnAnswerMayBreakOffAnywhereOrBeDamaged) {
  const std::string& text = GetParam().text;
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) {
    std::string damaged = text.substr(0, random() % (text.size() + 1));
    for (int edits = i % 3; edits > 0 && !damaged.empty(); --edits)
      damaged[random() % damaged.size()] =
          "{}<>[]|\"\\/\0 \n\x80\xff"
          "a"[random() % 16];
    streamed(damaged, damaged.size() + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(AnswerParser, Families, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name; });

AnswerParser ours(const std::string& name) { return AnswerParser::open(read_file(kOurs / name)).value(); }

// In pieces of so many bytes, and more to the end of a character.
AssistantMessage in_pieces(const AnswerParser& parser, const AnswerFormat& format, const std::string& text,
                           size_t size) {
  AnswerStream stream(parser, format);
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    for (end = std::min(at + size, text.size()); end < text.size() && (text[end] & 0xC0) == 0x80;) ++end;
    stream.push(std::string_view(text).substr(at, end - at));
  }
  stream.finish();
  return stream.message();
}

TEST(AnswerStream, WhatMightHaveBecomeAMarkerIsTextWhereTheAnswerEnds) {
  const AnswerParser calls = ours("qwen2_tools.jinja"), thinks = ours("qwen3_thinking.jinja");
  const auto with_calls = calls.format(request(/*tools=*/true)), with_thoughts = thinks.format(request(false));
  ASSERT_TRUE(with_calls && with_thoughts);
  const std::string before = "It rains. ", call = "<tool_call>", begin = "<think>", end = "</think>";
  for (const size_t size : {1, 3, 100}) {
    for (size_t n = 0; n < call.size(); ++n) {
      const std::string text = before + call.substr(0, n);
      EXPECT_EQ(in_pieces(calls, *with_calls, text, size), (AssistantMessage{.content = text}));
    }
    for (size_t n = 1; n < begin.size(); ++n) {
      const std::string text = begin.substr(0, n);
      EXPECT_EQ(in_pieces(thinks, *with_thoughts, text, size), (AssistantMessage{.content = text}));
    }
    for (size_t n = 1; n < end.size(); ++n) {
      const std::string thought = "\nRain? " + end.substr(0, n);
      const AssistantMessage read = in_pieces(thinks, *with_thoughts, begin + thought, size);
      EXPECT_TRUE(thought.ends_with(read.reasoning) && read.reasoning.ends_with(end.substr(0, n))) << read.reasoning;
      EXPECT_EQ(read.content, "");
    }
  }
}

TEST(AnswerStream, WhatTurnsOutToBeNoCallIsContentAsItStands) {
  const AnswerParser parser = ours("qwen2_tools.jinja");
  const auto format = parser.format(request(/*tools=*/true));
  ASSERT_TRUE(format);
  const std::string begun = "Rain? <tool_call>\n{\"name\": \"get_weather\"", damaged = ", \"arg\\ments\": 1}";
  for (const size_t size : {100, 7, 5, 4, 3, 1}) {
    for (const std::string text :
         {"It rains. <tool_call>\nno call\n</tool_call> So there.", "<tool_call>\n{\"name\": 7}",
          "Für Öl: <tool_call>[] ü</tool_call>", "1 <tool_calls> 2 <tool_cal 3",
          "Let me see. <tool_call>\n{\"n}me\": \"get_weather\", \"arguments\": {}}\n</tool_call>"})
      EXPECT_EQ(in_pieces(parser, *format, text, size), (AssistantMessage{.content = text})) << size;
    // A call may have been told of before it went wrong; then what follows is content.
    const AssistantMessage read = in_pieces(parser, *format, begun + damaged, size);
    EXPECT_EQ(read.content, "Rain? " + damaged) << size;
    EXPECT_EQ(read.tool_calls.size(), 1u);
  }
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

void expect_one_line(const Error& error, const std::string& begin) {
  EXPECT_EQ(error.kind, ErrorKind::kInput);
  EXPECT_TRUE(error.message.starts_with(begin)) << error.message;
  EXPECT_EQ(error.message.find_first_of("\r\n"), std::string::npos) << error.message;
  EXPECT_LT(error.message.size(), 1200u);
}

// Where the template itself begins a thought, the text is the thought's.
TEST(AnswerParser, PlainTextIsLeftAsItIsByEveryPublishedTemplate) {
  if (!fs::exists(kPublished)) GTEST_SKIP() << "tools/setup installs them";
  const std::string text = "It rains in Paris:\n\n* \"1 < 2\" {and} [so] on\n";
  int n = 0;
  for (const auto& entry : fs::directory_iterator(kPublished)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename());
    const auto parser = AnswerParser::open(read_file(entry.path()));
    ASSERT_TRUE(parser) << parser.error().message;
    const auto format = parser->format(request(/*tools=*/false));
    if (!format) continue;  // a template may want a system message, or tools
    ++n;
    AnswerStream stream(*parser, *format);
    stream.push(text);
    stream.finish();
    const AssistantMessage& message = stream.message();
    EXPECT_TRUE(message.content == text || message.reasoning.ends_with(text)) << testing::PrintToString(message);
    EXPECT_TRUE(stream.message().tool_calls.empty());
  }
  EXPECT_GT(n, 60);
}

TEST(AnswerParser, TheGrammarIsLazyUnlessACallIsRequired) {
  const AnswerParser parser = ours("qwen2_tools.jinja");
  AnswerRequest asked = request(/*tools=*/true);
  const auto lazy = parser.format(asked);
  ASSERT_TRUE(lazy) << lazy.error().message;
  EXPECT_TRUE(lazy->lazy);
  ASSERT_FALSE(lazy->triggers.empty());
  EXPECT_EQ(lazy->triggers[0].kind, GrammarTrigger::Kind::kWord);
  EXPECT_NE(lazy->triggers[0].text.find("<tool_call>"), std::string::npos);
  EXPECT_NE(lazy->grammar.find("get_weather"), std::string::npos);
  EXPECT_NE(std::ranges::find(lazy->shown, "<tool_call>"), lazy->shown.end());

  asked.tool_choice = ToolChoice::kRequired;
  const auto required = parser.format(asked);
  ASSERT_TRUE(required) << required.error().message;
  EXPECT_FALSE(required->lazy);
  EXPECT_NE(required->grammar.find("root ::="), std::string::npos);

  asked.tool_choice = ToolChoice::kNone;
  const auto none = parser.format(asked);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->grammar, "");
}

TEST(AnswerParser, ASchemaGivesAGrammarOfTheContent) {
  const AnswerParser parser = ours("chatml.jinja");
  AnswerRequest asked = request(/*tools=*/false);
  asked.schema = R"({"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]})";
  const auto format = parser.format(asked);
  ASSERT_TRUE(format) << format.error().message;
  EXPECT_FALSE(format->lazy);
  EXPECT_NE(format->grammar.find("rain"), std::string::npos);
  const auto read = parser.parse(*format, R"({"rain": true})", /*partial=*/false);
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->content, R"({"rain": true})");

  const auto grammar = parser.grammar(asked.schema);
  ASSERT_TRUE(grammar) << grammar.error().message;
  EXPECT_NE(grammar->find("root ::= "), std::string::npos);
  EXPECT_NE(grammar->find("rain"), std::string::npos);
}

TEST(AnswerParser, TheFormatTellsOfReasoning) {
  const AnswerParser thinks = ours("qwen3_thinking.jinja"), does_not = ours("chatml.jinja");
  AnswerRequest asked = request(/*tools=*/false);
  EXPECT_EQ(thinks.format(asked)->reasoning_begin, "<think>");
  EXPECT_EQ(thinks.format(asked)->reasoning_ends, std::vector<std::string>{"</think>"});
  EXPECT_EQ(does_not.format(asked)->reasoning_begin, "");
  const std::string with = thinks.format(asked)->prompt;
  asked.thinking = false;
  EXPECT_NE(thinks.format(asked)->prompt, with);
}

TEST(AnswerParser, ThePromptIsTheTemplates) {
  const std::string source = read_file(kOurs / "chatml.jinja");
  const AnswerRequest asked = request(/*tools=*/false);
  EXPECT_EQ(ours("chatml.jinja").format(asked)->prompt, ChatTemplate::open(source)->render(asked.conversation).value());
}

TEST(AnswerParser, HostileAnswersAreReadOrLeftAsTheyAre) {
  const AnswerParser parser = ours("qwen2_tools.jinja");
  const auto format = parser.format(request(/*tools=*/true));
  ASSERT_TRUE(format) << format.error().message;
  const std::string call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": ";
  for (const std::string& text :
       {call + repeated("[", 200'000), call + repeated("{\"a\":", 100'000), repeated("<tool_call>\n", 50'000),
        call + "\"" + repeated("\\u", 100'000), "x" + repeated("\xff\xfe", 1000), std::string(1000, '\0'),
        call + "\"" + std::string(2'000'000, 'x'), repeated(call + "\"a\"}}\n</tool_call>\n", 3000),
        repeated("<", 500'000), call + "nul", call + "\"Paris\"}"}) {
    const auto begin = std::chrono::steady_clock::now();
    AnswerStream stream(parser, *format);
    const AssistantDelta first = stream.push(text), last = stream.finish();
    EXPECT_NE(stream.message(), AssistantMessage()) << text.substr(0, 100);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    EXPECT_EQ(first.content + last.content, stream.message().content);
  }
}

TEST(AnswerParser, HostileSchemasAreRefused) {
  const AnswerParser parser = ours("chatml.jinja");
  std::string doubling = R"({"$ref": "#/$defs/d30", "$defs": {"d0": {"type": "null"})";
  for (int i = 1; i <= 30; ++i) {
    const std::string below = R"({"$ref": "#/$defs/d)" + std::to_string(i - 1) + "\"}";
    doubling += ", \"d" + std::to_string(i) + R"(": {"allOf": [)" + below + "," + below + "]}";
  }
  for (const std::string& schema :
       {std::string("{"), std::string("nul"), std::string(R"({"type": "sorcery"})"),
        std::string(R"({"$ref": "#/nowhere"})"), repeated("[", 200'000), std::string("\xff"),
        repeated(R"({"type": "array", "items": )", 100'000) + "{}" + repeated("}", 100'000)}) {
    const auto grammar = parser.grammar(schema);
    ASSERT_FALSE(grammar) << schema.substr(0, 100);
    expect_one_line(grammar.error(), "JSON schema: ");
    AnswerRequest asked = request(/*tools=*/false);
    asked.schema = schema;
    const auto format = parser.format(asked);
    ASSERT_FALSE(format) << schema.substr(0, 100);
    expect_one_line(format.error(), "chat template: ");
  }
  // What may be refused, but ends.
  for (const std::string& schema :
       {doubling + "}}", std::string("[]"), std::string(R"({"$ref": "#"})"),
        std::string(R"({"$ref": "https://example.org/schema.json"})"),
        std::string(R"({"type": "string", "minLength": 4000000000})"),
        std::string(R"({"type": "array", "items": {"type": "string"}, "maxItems": 2000000000})"),
        std::string(R"({"type": "integer", "minimum": -9223372036854775807, "maximum": 9223372036854775807})"),
        std::string(R"({"type": "string", "pattern": "^(a{1000}){1000}$"})"),
        R"({"type": "string", "pattern": "^)" + repeated("(", 100'000) + "a" + repeated(")", 100'000) + "$\"}"}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = parser.grammar(schema);
    if (!grammar) expect_one_line(grammar.error(), "JSON schema: ");
    AnswerRequest asked = request(/*tools=*/false);
    asked.schema = schema;
    if (const auto format = parser.format(asked); !format) expect_one_line(format.error(), "chat template: ");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << schema.substr(0, 100);
  }
}

TEST(AnswerParser, WhatIsAskedWronglyIsRefused) {
  const AnswerParser parser = ours("qwen2_tools.jinja");
  for (const char* tools : {R"({})", R"([1])", R"([{"type": "function"}])", R"([{"type": "function", "function": {}}])",
                            R"("get_weather")"}) {
    AnswerRequest asked = request(/*tools=*/false);
    asked.conversation.tools = ordered_json::parse(tools);
    const auto format = parser.format(asked);
    ASSERT_FALSE(format) << tools;
    expect_one_line(format.error(), "chat template: ");
  }
  AnswerRequest asked = request(/*tools=*/false);
  ordered_json deep;
  for (int i = 0; i < 200; ++i) deep = ordered_json::array({std::move(deep)});
  asked.conversation.tools = deep;
  EXPECT_NE(parser.format(asked).error().message.find("nest too deeply"), std::string::npos);
}

TEST(AnswerParser, HostileTemplatesAreRefused) {
  EXPECT_FALSE(AnswerParser::open("{% if"));
  const auto endless = AnswerParser::open(
      "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}"
      "{% endfor %}");
  ASSERT_TRUE(endless);
  const auto format = endless->format(request(/*tools=*/false));
  ASSERT_FALSE(format);
  expect_one_line(format.error(), "chat template: it took more than");
}

}  // namespace
}  // namespace test
}  // namespace sluice
