#include "serve/message_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "serve/json_values.h"
#include "serve/policy.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;

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
  read.extra[name] = value;
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
      SLUICE_API_TRY(read.content, read_text(value, member, {.types = {"text"}}));
      has_content = true;
    } else if (!value.empty()) {  // null, or a list of none
      SLUICE_API_TRY_STATUS(read_more(name, value, member, read));
    }
  }
  SLUICE_API_TRY_STATUS(check_role(read, has_content, param));
  return read;
}

// Whether a function has a name, and what else it may have is of the right kind.
bool is_function(const json& function, const char* schema) {
  const auto is = [&](const char* name, bool (json::*kind)() const noexcept) {
    return !is_given(function, name) || (function[name].*kind)();
  };
  return function.is_object() && is_given(function, "name") && is("name", &json::is_string) &&
         is("description", &json::is_string) && is(schema, &json::is_object) && is("strict", &json::is_boolean);
}

ApiResult<json> read_chat_tool(const json& tool, const std::string& param) {
  const json function = tool.is_object() ? tool.value("function", json()) : json();
  if (is_function(function, "parameters") && tool.value("type", json()) == "function") return tool;
  return bad_parameter(param,
                       R"(must be {"type": "function", "function": {"name": …, "description": …, "parameters": {…}}})");
}

// Of a tool that is to be called, as chats have it, or flat; empty: it is no such choice.
std::string name_of_choice(const json& choice) {
  if (!choice.is_object() || choice.value("type", json()) != "function") return "";
  const json function = choice.value("function", choice);
  const json name = function.is_object() ? function.value("name", json()) : json();
  return name.is_string() ? name.get<std::string>() : "";
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

ApiResult<std::string> read_text_part(const json& part, const std::string& param, const TextParts& parts) {
  const json type = part.is_object() ? part.value("type", json()) : json();
  const bool is_text = type.is_string() && std::ranges::count(parts.types, type.get_ref<const std::string&>()) > 0 &&
                       is_given(part, "text") && part["text"].is_string();
  if (!is_text)
    return bad_parameter(param, R"(must be {"type": ")" + std::string(parts.types.front()) + R"(", "text": …})");
  std::vector<std::string_view> known = parts.ignored;
  for (const char* own : {"type", "text"}) known.emplace_back(own);
  SLUICE_API_TRY_STATUS(check_members(part, param, known));
  return part["text"].get<std::string>();
}

ApiResult<std::string> read_text(const json& content, const std::string& param, const TextParts& parts) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return bad_parameter(param, "must be a text or a list of parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    SLUICE_API_TRY(const std::string more, read_text_part(content[i], param + "[" + std::to_string(i) + "]", parts));
    text += more;
  }
  return text;
}

json tool_of(const json& flat, const char* schema) {
  if (!is_function(flat, schema)) return nullptr;
  json function = {{"name", flat["name"].get<std::string>()}};
  if (is_given(flat, "description")) function["description"] = flat["description"].get<std::string>();
  if (is_given(flat, schema)) function["parameters"] = flat[schema];
  return {{"type", "function"}, {"function", std::move(function)}};
}

ApiStatus read_tool_list(const json& body, ReadTool read, AnswerRequest& request) {
  if (!is_given(body, "tools")) return {};
  const json& tools = body["tools"];
  if (!tools.is_array() || tools.size() > policy::kMostTools)
    return bad_parameter("tools", "must be a list of up to " + std::to_string(policy::kMostTools) + " tools");
  for (size_t i = 0; i < tools.size(); ++i) {
    SLUICE_API_TRY(auto tool, read(tools[i], "tools[" + std::to_string(i) + "]"));
    request.conversation.tools.push_back(std::move(tool));
  }
  return {};
}

ApiStatus read_tools(const json& body, AnswerRequest& request) {
  SLUICE_API_TRY_STATUS(read_tool_list(body, read_chat_tool, request));
  return read_tool_choice(body, request);
}

ApiStatus force_call(const std::string& tool, AnswerRequest& request) {
  const auto is_it = [&](const auto& one) { return tool.empty() || one["function"]["name"] == tool; };
  if (std::ranges::none_of(request.conversation.tools, is_it))
    return bad_parameter("tool_choice", "there is no such tool among tools");
  request.tool_choice = ToolChoice::kRequired;
  request.forced_tool = tool;
  return {};
}

ApiStatus read_tool_choice(const json& body, AnswerRequest& request) {
  const json choice = is_given(body, "tool_choice") ? body["tool_choice"] : json("auto");
  request.tool_choice = choice == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
  if (const std::string name = name_of_choice(choice); !name.empty() || choice == "required") {
    SLUICE_API_TRY_STATUS(force_call(name, request));
  } else if (choice != "auto" && choice != "none") {
    return bad_parameter("tool_choice", "must be auto, none, required, or of type function with the name of a tool");
  }
  request.parallel_tool_calls = true;
  if (is_given(body, "parallel_tool_calls")) {
    SLUICE_API_TRY(request.parallel_tool_calls, read_flag(body["parallel_tool_calls"], "parallel_tool_calls"));
  }
  return {};
}

}  // namespace sluice
