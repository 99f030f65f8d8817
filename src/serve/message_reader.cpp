#include "serve/message_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "serve/json_values.h"
#include "serve/policy.h"

namespace sluice {

namespace {

using nlohmann::json;

// A text, or a list of parts that are texts.
ApiResult<std::string> read_content(const json& content, const std::string& param) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return bad_parameter(param, "must be a text or a list of parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const json& part = content[i];
    const bool is_text = part.is_object() && part.size() == 2 && part.value("type", json()) == "text" &&
                         part.value("text", json()).is_string();
    if (!is_text)
      return bad_parameter(param + "[" + std::to_string(i) + "]", "must be {\"type\": \"text\", \"text\": …}");
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// A call that an earlier answer made, as this API writes it.
ApiStatus check_call(const json& call, const std::string& param) {
  const json function = call.is_object() ? call.value("function", json()) : json();
  const bool right = function.is_object() && call.value("type", json("function")) == "function" &&
                     function.value("name", json()).is_string() && function.value("arguments", json()).is_string() &&
                     call.value("id", json("")).is_string();
  if (right) return {};
  return bad_parameter(
      param, R"(must be {"id": …, "type": "function", "function": {"name": …, "arguments": …}}, both of them texts)");
}

// Members of messages beside role and content, which templates see as they are.
ApiStatus read_more(const std::string& name, const json& value, const std::string& param, ChatMessage& read) {
  if (name == "tool_calls" && value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i)
      SLUICE_API_TRY_STATUS(check_call(value[i], param + "[" + std::to_string(i) + "]"));
  } else if (name != "tool_call_id" && name != "reasoning_content") {
    return bad_parameter(param, "not supported: leave it out");
  } else if (!value.is_string()) {
    return bad_parameter(param, "must be a text");
  }
  read.extra[name] = nlohmann::ordered_json::parse(value.dump());
  return {};
}

// Whether members are there that belong to the role, and no others.
ApiStatus check_role(const ChatMessage& message, bool has_content, const std::string& param) {
  const bool calls = message.extra.contains("tool_calls");
  if (message.role.empty() || (!has_content && !calls)) return bad_parameter(param, "must have a role and a content");
  if ((calls || message.extra.contains("reasoning_content")) && message.role != "assistant")
    return bad_parameter(param, "tool_calls and reasoning_content are the assistant's");
  if (message.extra.contains("tool_call_id") != (message.role == "tool"))
    return bad_parameter(param, "tool_call_id belongs to role tool, and to that always");
  return {};
}

ApiResult<ChatMessage> read_message(const json& message, const std::string& param) {
  if (!message.is_object()) return bad_parameter(param, "must be an object with role and content");
  ChatMessage read;
  bool has_content = false;
  for (const auto& [name, value] : message.items()) {
    const std::string member = param + "." + name;
    if (name == "role") {
      constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
      if (!value.is_string() || std::ranges::count(kRoles, value.get_ref<const std::string&>()) == 0)
        return bad_parameter(member, "must be system, developer, user, assistant or tool");
      read.role = value == "developer" ? "system" : value.get<std::string>();
    } else if (name == "content" && !value.is_null()) {
      SLUICE_API_TRY(read.content, read_content(value, member));
      has_content = true;
    } else if (!value.empty()) {  // null, or a list of none
      SLUICE_API_TRY_STATUS(read_more(name, value, member, read));
    }
  }
  SLUICE_API_TRY_STATUS(check_role(read, has_content, param));
  return read;
}

ApiStatus check_tool(const json& tool, const std::string& param) {
  const json function = tool.is_object() ? tool.value("function", json()) : json();
  const auto is = [&](const char* name, bool (json::*kind)() const noexcept) {
    return !function.contains(name) || function[name].is_null() || (function[name].*kind)();
  };
  const bool right = function.is_object() && tool.value("type", json()) == "function" && function.contains("name") &&
                     function["name"].is_string() && is("description", &json::is_string) &&
                     is("parameters", &json::is_object) && is("strict", &json::is_boolean);
  if (right) return {};
  return bad_parameter(param,
                       R"(must be {"type": "function", "function": {"name": …, "description": …, "parameters": {…}}})");
}

}  // namespace

ApiResult<std::vector<ChatMessage>> read_messages(const json& messages, const std::string& param) {
  if (!messages.is_array() || messages.empty()) return bad_parameter(param, "must be a list of at least one message");
  std::vector<ChatMessage> read;
  for (size_t i = 0; i < messages.size(); ++i) {
    SLUICE_API_TRY(auto message, read_message(messages[i], param + "[" + std::to_string(i) + "]"));
    read.push_back(std::move(message));
  }
  return read;
}

// Nothing makes a model call one, and nothing keeps it from that.
ApiStatus read_tools(const json& body, AnswerRequest& request) {
  const auto given = [&](const char* name) { return body.contains(name) && !body[name].is_null(); };
  const json choice = given("tool_choice") ? body["tool_choice"] : json("auto");
  if (choice != "auto" && choice != "none")
    return bad_parameter("tool_choice", "must be auto or none: a call can't be forced here");
  request.tool_choice = choice == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
  request.parallel_tool_calls = true;
  if (given("parallel_tool_calls")) {
    SLUICE_API_TRY(request.parallel_tool_calls, read_flag(body["parallel_tool_calls"], "parallel_tool_calls"));
  }
  if (!given("tools")) return {};
  const json& tools = body["tools"];
  if (!tools.is_array() || tools.size() > policy::kMostTools)
    return bad_parameter("tools", "must be a list of up to " + std::to_string(policy::kMostTools) + " tools");
  for (size_t i = 0; i < tools.size(); ++i)
    SLUICE_API_TRY_STATUS(check_tool(tools[i], "tools[" + std::to_string(i) + "]"));
  if (!tools.empty()) request.conversation.tools = nlohmann::ordered_json::parse(tools.dump());
  return {};
}

}  // namespace sluice
