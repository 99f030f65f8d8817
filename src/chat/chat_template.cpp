#include "chat/chat_template.h"

#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>
#include <jinja/value.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr HelperProcess::Limits kLimits = {
    .cpu_seconds = 3, .memory_bytes = size_t{512} << 20, .answer_bytes = size_t{16} << 20};

// What the template sees.
Json variables_of(const ChatTemplateInput& input) {
  Json messages = Json::array();
  for (const ChatMessage& message : input.messages) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
    if (!message.extra.is_null()) messages.back().update(message.extra);
  }
  Json variables = {{"messages", std::move(messages)},
                    {"add_generation_prompt", input.add_generation_prompt},
                    {"bos_token", input.bos_token},
                    {"eos_token", input.eos_token},
                    {"tools", input.tools},
                    {"documents", nullptr}};
  if (!input.extra.is_null()) variables.update(input.extra);
  return variables;
}

// --- in the helper process ---

jinja::value value_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return jinja::mk_val<jinja::value_bool>(json.get<bool>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return jinja::mk_val<jinja::value_float>(json.get<double>());
      [[fallthrough]];
    case Json::value_t::number_integer:
      return jinja::mk_val<jinja::value_int>(json.get<int64_t>());
    case Json::value_t::number_float:
      return jinja::mk_val<jinja::value_float>(json.get<double>());
    case Json::value_t::string:
      return jinja::mk_val<jinja::value_string>(json.get<std::string>());
    case Json::value_t::array: {
      auto array = jinja::mk_val<jinja::value_array>();
      for (const Json& item : json) array->push_back(value_of(item));
      return array;
    }
    case Json::value_t::object: {
      auto object = jinja::mk_val<jinja::value_object>();
      for (const auto& [name, item] : json.items()) object->insert(name, value_of(item));
      return object;
    }
    default:
      return jinja::mk_val<jinja::value_none>();
  }
}

std::string_view before(std::string_view text, std::string_view mark) { return text.substr(0, text.find(mark)); }
std::string_view after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == text.npos ? std::string_view() : text.substr(at + mark.size());
}

// One line of the engine's several. While it renders: "… at line 3, column 5 in source:\n<text around>\n  ^\nError:
// <message>"; of its parser: "parser: Parser Error: <message>\n...<text around>...\n  ^".
std::string one_line(std::string_view what) {
  const std::string place(before(after(what, " at line "), ","));
  std::string message(after(what, "\nError: "));
  if (message == "std::bad_alloc") throw std::bad_alloc();  // the engine made a message of it
  if (message.empty()) {
    message = before(what, "\n");
    if (const auto near = before(after(what, "\n..."), "\n"); !near.empty())
      message += " near \"" + std::string(near.substr(0, near.rfind("..."))) + "\"";
  }
  for (const std::string_view prefix : {"Jinja Exception: ", "lexer: ", "parser: ", "Parser Error: "})
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return (place.empty() ? "" : "line " + place + ": ") + message.substr(0, 1000);
}

// `question`: CBOR of the variables and the time, which holds any bytes; or nothing: to see if the template is one.
Result<std::string> answer(const std::string& source, std::string_view question) {
  try {
    const auto lexed = jinja::lexer().tokenize(source);
    const auto program = jinja::parse_from_tokens(lexed);
    if (question.empty()) return "";
    const Json input = Json::from_cbor(question);
    jinja::context context(lexed.source);
    context.current_time = input["now"].get<std::time_t>();
    for (const auto& [name, value] : input["variables"].items()) context.set_val(name, value_of(value));
    return jinja::render_string_parts(jinja::runtime::gather_string_parts(jinja::runtime(context).execute(program)));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return input_error(one_line(error.what()));
  }
}

// ---

Result<std::string> ask(const HelperProcess& helper, std::string_view question) {
  auto answer = helper.ask(question);
  if (!answer) answer.error().message.insert(0, "chat template: ");
  return answer;
}

}  // namespace

ChatTemplate::ChatTemplate(HelperProcess helper) : helper_(std::move(helper)) {}

Result<ChatTemplate> ChatTemplate::open(std::string source) {
  const auto work = [source = std::move(source)](std::string_view question) { return answer(source, question); };
  SLUICE_TRY(auto helper, HelperProcess::start(work, kLimits));
  SLUICE_TRY([[maybe_unused]] const auto nothing, ask(helper, ""));
  return ChatTemplate(std::move(helper));
}

Result<std::string> ChatTemplate::render(const ChatTemplateInput& input) const {
  for (const ChatMessage& message : input.messages)
    if (!message.extra.is_null() && !message.extra.is_object())
      return input_error("chat template: a message's extra members must be a JSON object");
  if (!input.extra.is_null() && !input.extra.is_object())
    return input_error("chat template: the extra variables must be a JSON object");
  const Json question = {{"variables", variables_of(input)}, {"now", input.now.value_or(std::time(nullptr))}};
  std::string bytes;
  Json::to_cbor(question, bytes);
  return ask(helper_, bytes);
}

}  // namespace sluice
