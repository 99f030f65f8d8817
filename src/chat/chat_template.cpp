#include "chat/chat_template.h"

#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>
#include <jinja/value.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "chat/template_engine.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// What the template sees.
Json variables_of(const ChatTemplateInput& input) {
  Json variables = {{"messages", messages_of(input)}, {"add_generation_prompt", input.add_generation_prompt},
                    {"bos_token", input.bos_token},   {"eos_token", input.eos_token},
                    {"tools", input.tools},           {"documents", nullptr}};
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
  SLUICE_TRY(auto helper, HelperProcess::start(work, kEngineLimits));
  SLUICE_TRY([[maybe_unused]] const auto nothing, ask(helper, ""));
  return ChatTemplate(std::move(helper));
}

Result<std::string> ChatTemplate::render(const ChatTemplateInput& input) const {
  SLUICE_TRY_STATUS(check(input));
  const Json question = {{"variables", variables_of(input)}, {"now", input.now.value_or(std::time(nullptr))}};
  std::string bytes;
  Json::to_cbor(question, bytes);
  return ask(helper_, bytes);
}

}  // namespace sluice
