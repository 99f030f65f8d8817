#include "model/chat_template.h"

#include <algorithm>
#include <new>
#include <utility>

#include "model/jinja/interpreter.h"
#include "model/jinja/json.h"
#include "model/jinja/parser.h"

namespace sluice {
namespace {

// One line, whatever text the template put into its message.
tl::unexpected<Error> template_error(const jinja::TemplateError& error) {
  std::string message = error.message.substr(0, 1000);
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  const std::string place = error.line > 0 ? "chat template, line " + std::to_string(error.line) : "chat template";
  return input_error(place + ": " + message);
}

// Runs `work`, with what it throws as an error value.
template <class T, class Work>
Result<T> guarded(Work&& work) {
  try {
    return work();
  } catch (const jinja::TemplateError& error) {
    return template_error(error);
  } catch (const std::bad_alloc&) {
    return runtime_error("chat template: out of memory");
  }
}

using Variables = std::vector<std::pair<std::string, jinja::Value>>;

void add_members(Variables& variables, const nlohmann::ordered_json& object) {
  if (object.is_null()) return;
  if (!object.is_object()) jinja::fail("the extra variables and message members must be JSON objects");
  for (const auto& [name, value] : object.items()) variables.emplace_back(name, jinja::from_json(value));
}

jinja::Value message_value(const ChatMessage& message) {
  Variables members = {{"role", message.role}, {"content", message.content}};
  add_members(members, message.extra);
  auto dict = std::make_shared<jinja::Dict>();
  for (auto& [name, value] : members) dict->set(jinja::Value(name), std::move(value));
  return std::shared_ptr<const jinja::Dict>(std::move(dict));
}

Variables variables_of(const ChatTemplateInput& input) {
  std::vector<jinja::Value> messages;
  for (const ChatMessage& message : input.messages) messages.push_back(message_value(message));
  Variables variables = {{"messages", jinja::Value::list(std::move(messages))},
                         {"add_generation_prompt", input.add_generation_prompt},
                         {"bos_token", input.bos_token},
                         {"eos_token", input.eos_token},
                         {"tools", jinja::from_json(input.tools)},
                         {"documents", jinja::None{}}};
  add_members(variables, input.extra);
  return variables;
}

}  // namespace

struct ChatTemplate::Program {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > jinja::Budget::kMaxText) return input_error("chat template: more than 16 MiB");
  return guarded<ChatTemplate>([&] { return ChatTemplate(std::make_unique<Program>(Program{jinja::parse(source)})); });
}

Result<std::string> ChatTemplate::render(const ChatTemplateInput& input) const {
  return guarded<std::string>(
      [&] { return jinja::render(program_->body, variables_of(input), input.now.value_or(std::time(nullptr))); });
}

}  // namespace sluice
