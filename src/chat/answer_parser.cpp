#include "chat/answer_parser.h"

#include <chat.h>
#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <json-schema-to-grammar.h>
#include <log.h>

#include <chrono>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/recent.h"
#include "chat/template_engine.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRefused = 64;  // schemas

enum class Task : uint8_t { kCheck, kFormat, kParse, kGrammar };

// --- in the helper process ---

common_json in_their_json(const Json& json) { return common_json::parse(json.dump()); }

common_chat_tool_choice in_their_words(ToolChoice choice) {
  switch (choice) {
    case ToolChoice::kRequired:
      return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    case ToolChoice::kNone:
      return COMMON_CHAT_TOOL_CHOICE_NONE;
    case ToolChoice::kAuto:
      break;
  }
  return COMMON_CHAT_TOOL_CHOICE_AUTO;
}

GrammarTrigger::Kind kind_of(common_grammar_trigger_type type) {
  if (type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN) return GrammarTrigger::Kind::kPattern;
  return type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL ? GrammarTrigger::Kind::kWholePattern
                                                          : GrammarTrigger::Kind::kWord;
}

Json format(const std::string& source, const Json& asked) {
  common_chat_templates_inputs inputs;
  inputs.messages = common_chat_msgs_parse_oaicompat(in_their_json(asked["messages"]));
  inputs.tools = common_chat_tools_parse_oaicompat(in_their_json(asked["tools"]));
  inputs.tool_choice = in_their_words(asked["tool_choice"].get<ToolChoice>());
  inputs.parallel_tool_calls = asked["parallel_tool_calls"];
  inputs.add_generation_prompt = asked["add_generation_prompt"];
  inputs.enable_thinking = asked["thinking"];
  inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  inputs.json_schema = asked["schema"];
  inputs.now = std::chrono::system_clock::from_time_t(asked["now"].get<std::time_t>());
  for (const auto& [name, value] : asked["extra"].items()) inputs.chat_template_kwargs[name] = value.dump();
  const auto apply = [&](const std::string& bos, const std::string& eos, const common_chat_templates_inputs& what) {
    return common_chat_templates_apply(common_chat_templates_init(nullptr, source, bos, eos).get(), what);
  };
  // The library finds out by examples what a template writes around calls, and takes "</s>" for a part of it.
  const common_chat_params params = apply("", "", inputs);
  std::string grammar = params.grammar;
  if (const std::string tool = asked["forced_tool"]; !tool.empty()) {  // the prompt tells the others too
    common_chat_templates_inputs alone = inputs;
    std::erase_if(alone.tools, [&](const common_chat_tool& one) { return one.name != tool; });
    grammar = apply("", "", alone).grammar;
  }
  Json triggers = Json::array();
  for (const auto& trigger : params.grammar_triggers) triggers.push_back({kind_of(trigger.type), trigger.value});
  const Json reader = {{"format", params.format}, {"begin", params.generation_prompt}, {"parser", params.parser}};
  std::string bytes;
  Json::to_cbor(reader, bytes);
  return {{"prompt", apply(asked["bos_token"], asked["eos_token"], inputs).prompt},
          {"grammar", grammar},
          {"grammar_begin", params.generation_prompt},
          {"lazy", params.grammar_lazy},
          {"triggers", triggers},
          {"shown", params.preserved_tokens},
          {"stops", params.additional_stops},
          {"reasoning_begin", params.thinking_start_tag},
          {"reasoning_ends", params.thinking_end_tags},
          {"reader", bytes}};
}

// What the text is read as; nothing: it is none of the format.
std::optional<common_chat_msg> read(const std::string& text, bool partial, const common_chat_parser_params& params) {
  try {
    return common_chat_parse(text, partial, params);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

// Cuts `end` off and says whether it was there.
bool cut_end(std::string& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.resize(text.size() - end.size());
  return true;
}

bool says_nothing(const common_chat_msg& message) {
  return message.content.empty() && message.reasoning_content.empty() && message.tool_calls.empty();
}

// Nothing follows a text that has ended, but the library holds back what may still become a marker ("<tool_ca"). It
// does not where a character follows that is part of none, so the text is read with one behind it too. A text of which
// the library leaves nothing is none of the format.
std::optional<common_chat_msg> read_ended(const std::string& text, const common_chat_parser_params& params) {
  constexpr std::string_view kEnd = "\xEF\xB7\x90";  // U+FDD0, a noncharacter
  auto held = read(text, false, params), all = read(text + std::string(kEnd), false, params);
  if (!held || !all || !(cut_end(all->content, kEnd) || cut_end(all->reasoning_content, kEnd)))
    return held && says_nothing(*held) && text.find_first_not_of(" \t\r\n") != text.npos ? std::nullopt : held;
  const bool more = all->content.starts_with(held->content) &&
                    all->reasoning_content.starts_with(held->reasoning_content) &&
                    all->tool_calls.size() == held->tool_calls.size();
  return more ? all : held;
}

Json parse(const Json& asked) {
  const Json reader = Json::from_cbor(asked["reader"].get_ref<const std::string&>());
  common_chat_parser_params params;
  params.format = reader["format"];
  params.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  params.generation_prompt = reader["begin"];
  if (const std::string parser = reader["parser"]; !parser.empty()) params.parser.load(parser);
  const std::string text = asked["text"];
  const auto message = asked["partial"] ? read(text, true, params) : read_ended(text, params);
  if (!message) return nullptr;
  Json calls = Json::array();
  for (const auto& call : message->tool_calls) calls.push_back({call.id, call.name, call.arguments});
  return {{"content", message->content}, {"reasoning", message->reasoning_content}, {"tool_calls", calls}};
}

Json answer_to(const std::string& source, Task task, const Json& asked) {
  switch (task) {
    case Task::kCheck:
      jinja::parse_from_tokens(jinja::lexer().tokenize(source));
      return nullptr;
    case Task::kFormat:
      return format(source, asked);
    case Task::kParse:
      return parse(asked);
    case Task::kGrammar:
      break;
  }
  return json_schema_to_grammar(common_json::parse(asked["schema"]), /*force_gbnf=*/true);
}

Result<std::string> answer(const std::string& source, std::string_view question) {
  common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT);
  try {
    const Json asked = Json::from_cbor(question);
    std::string bytes;
    Json::to_cbor(answer_to(source, asked["task"].get<Task>(), asked), bytes);
    return bytes;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return input_error(one_line(error.what()));
  }
}

// ---

Result<Json> ask(const HelperProcess& helper, Task task, Json question, const char* what) {
  question["task"] = task;
  std::string bytes;
  Json::to_cbor(question, bytes);
  auto answer = helper.ask(bytes);
  if (answer) return Json::from_cbor(*answer);
  answer.error().message.insert(0, std::string(what) + ": ");
  return tl::unexpected<Error>(answer.error());
}

Json question_of(const AnswerRequest& request) {
  const ChatTemplateInput& input = request.conversation;
  return {{"messages", messages_of(input)},
          {"tools", input.tools},
          {"tool_choice", request.tool_choice},
          {"forced_tool", request.forced_tool},
          {"parallel_tool_calls", request.parallel_tool_calls},
          {"add_generation_prompt", input.add_generation_prompt},
          {"thinking", request.thinking},
          {"schema", request.schema},
          {"now", input.now.value_or(std::time(nullptr))},
          {"extra", input.extra},
          {"bos_token", input.bos_token},
          {"eos_token", input.eos_token}};
}

AnswerFormat format_of(const Json& said) {
  AnswerFormat format{.prompt = said["prompt"],
                      .grammar = said["grammar"],
                      .grammar_begin = said["grammar_begin"],
                      .lazy = said["lazy"],
                      .shown = said["shown"],
                      .stops = said["stops"],
                      .reasoning_begin = said["reasoning_begin"],
                      .reasoning_ends = said["reasoning_ends"],
                      .reader = said["reader"]};
  for (const Json& trigger : said["triggers"]) format.triggers.push_back({trigger[0], trigger[1]});
  return format;
}

}  // namespace

struct AnswerParser::State {
  const HelperProcess plain, with_tools, with_schemas;  // each for requests of its kind
  Recent<Error> refused{kMostRefused};                  // schemas; reading them again may take as long as is allowed

  const HelperProcess& helper_for(const AnswerRequest& request) const {
    if (!request.schema.empty() || request.tool_choice == ToolChoice::kRequired) return with_schemas;
    return request.conversation.tools.empty() ? plain : with_tools;
  }
  Result<Json> format(const AnswerRequest& request) const {
    return ask(helper_for(request), Task::kFormat, question_of(request), "chat template");
  }
};

AnswerParser::AnswerParser(std::unique_ptr<State> state) : state_(std::move(state)) {}
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;
AnswerParser::~AnswerParser() = default;

Result<AnswerParser> AnswerParser::open(std::string template_source) {
  const auto work = [source = std::move(template_source)](std::string_view question) {
    return answer(source, question);
  };
  SLUICE_TRY(auto plain, HelperProcess::start(work, kEngineLimits));
  SLUICE_TRY(auto with_tools, HelperProcess::start(work, kEngineLimits));
  SLUICE_TRY(auto with_schemas, HelperProcess::start(work, kEngineLimits));
  SLUICE_TRY([[maybe_unused]] const auto nothing, ask(plain, Task::kCheck, Json::object(), "chat template"));
  return AnswerParser(std::unique_ptr<State>(new State{
      .plain = std::move(plain), .with_tools = std::move(with_tools), .with_schemas = std::move(with_schemas)}));
}

Result<AnswerFormat> AnswerParser::format(const AnswerRequest& request) const {
  SLUICE_TRY_STATUS(check(request.conversation));
  const bool has_schema = !request.schema.empty();
  if (auto wrong = has_schema ? state_->refused.find(request.schema) : std::nullopt)
    return tl::unexpected<Error>(std::move(*wrong));
  const Result<Json> said = state_->format(request);
  if (said) return format_of(*said);
  if (has_schema && said.error().kind == ErrorKind::kInput) {
    AnswerRequest without = request;
    without.schema.clear();
    if (state_->format(without)) state_->refused.keep(request.schema, said.error());
  }
  return tl::unexpected<Error>(said.error());
}

Result<std::optional<AssistantMessage>> AnswerParser::parse(const AnswerFormat& format, std::string_view text,
                                                            bool partial) const {
  Json question = {{"reader", format.reader}, {"text", text}, {"partial", partial}};
  SLUICE_TRY(const Json said, ask(state_->plain, Task::kParse, std::move(question), "answer"));
  if (said.is_null()) return std::nullopt;
  AssistantMessage message{.content = said["content"], .reasoning = said["reasoning"], .tool_calls = {}};
  for (const Json& call : said["tool_calls"]) message.tool_calls.push_back({call[0], call[1], call[2]});
  return message;
}

Result<std::string> AnswerParser::grammar(const std::string& schema) const {
  SLUICE_TRY(const Json said, ask(state_->with_schemas, Task::kGrammar, {{"schema", schema}}, "JSON schema"));
  return said.get<std::string>();
}

}  // namespace sluice
