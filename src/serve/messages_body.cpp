#include "serve/messages_body.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "serve/json_values.h"
#include "serve/message_reader.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;

using Messages = std::vector<ChatMessage>;

const TextParts& text_blocks() {
  static const TextParts blocks = {.types = {"text"}, .ignored = {"cache_control", "citations"}};
  return blocks;
}

std::string type_of(const json& block) {
  const json type = block.is_object() ? block.value("type", json()) : json();
  return type.is_string() ? type.get<std::string>() : "";
}

ApiResult<ChatMessage> read_result(const json& block, const std::string& param) {
  SLUICE_API_TRY_STATUS(check_members(block, param, {"type", "tool_use_id", "content", "is_error", "cache_control"}));
  if (is_given(block, "is_error")) {
    SLUICE_API_TRY([[maybe_unused]] const bool failed, read_flag(block["is_error"], param + ".is_error"));
  }
  ChatMessage result{.role = "tool", .content = ""};
  SLUICE_API_TRY(result.extra["tool_call_id"], read_member(block, "tool_use_id", param));
  if (is_given(block, "content")) {
    SLUICE_API_TRY(result.content, read_text(block["content"], param + ".content", text_blocks()));
  }
  return result;
}

ApiResult<json> read_use(const json& block, const std::string& param) {
  SLUICE_API_TRY_STATUS(check_members(block, param, {"type", "id", "name", "input", "cache_control", "caller"}));
  SLUICE_API_TRY(std::string id, read_member(block, "id", param));
  SLUICE_API_TRY(std::string name, read_member(block, "name", param));
  const json input = block.value("input", json());
  if (!input.is_object()) return bad_parameter(param + ".input", "must be an object");
  json call = {{"id", std::move(id)}, {"type", "function"}};
  call["function"] = {{"name", std::move(name)}, {"arguments", input.dump()}};
  return call;
}

// Text and results in the order in which they come, each result as a message of its own.
ApiStatus add_user_block(const json& block, const std::string& param, Messages& messages, bool& in_text) {
  const bool is_text = type_of(block) != "tool_result";
  if (is_text) {
    if (type_of(block) != "text") return bad_parameter(param + ".type", "must be text or tool_result");
    SLUICE_API_TRY(const std::string text, read_text_part(block, param, text_blocks()));
    if (!in_text) messages.push_back({.role = "user", .content = ""});
    messages.back().content += text;
  } else {
    SLUICE_API_TRY(ChatMessage result, read_result(block, param));
    messages.push_back(std::move(result));
  }
  in_text = is_text;
  return {};
}

ApiStatus add_assistant_block(const json& block, const std::string& param, ChatMessage& message) {
  const std::string type = type_of(block);
  if (type == "text") {
    SLUICE_API_TRY(const std::string text, read_text_part(block, param, text_blocks()));
    message.content += text;
  } else if (type == "thinking") {
    SLUICE_API_TRY_STATUS(check_members(block, param, {"type", "thinking", "signature"}));
    SLUICE_API_TRY(const std::string thinking, read_member(block, "thinking", param));
    if (!thinking.empty())
      message.extra["reasoning_content"] = message.extra.value("reasoning_content", std::string()) + thinking;
  } else if (type == "tool_use") {
    SLUICE_API_TRY(json call, read_use(block, param));
    message.extra["tool_calls"].push_back(std::move(call));
  } else {
    return bad_parameter(param + ".type", "must be text, thinking or tool_use");
  }
  return {};
}

ApiStatus add_blocks(const std::string& role, const json& content, const std::string& param, Messages& messages) {
  bool in_text = false;
  ChatMessage assistants{.role = "assistant", .content = "", .extra = json::object()};
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = param + "[" + std::to_string(i) + "]";
    SLUICE_API_TRY_STATUS(role == "user" ? add_user_block(content[i], at, messages, in_text)
                                         : add_assistant_block(content[i], at, assistants));
  }
  if (role == "assistant") messages.push_back(std::move(assistants));
  return {};
}

ApiStatus add_message(const json& message, const std::string& param, Messages& messages) {
  if (!message.is_object()) return bad_parameter(param, "must be an object with role and content");
  SLUICE_API_TRY_STATUS(check_members(message, param, {"role", "content"}));
  SLUICE_API_TRY(const std::string role, read_member(message, "role", param));
  if (role != "user" && role != "assistant" && role != "system")
    return bad_parameter(param + ".role", "must be user, assistant or system");
  const json content = message.value("content", json());
  const std::string at = param + ".content";
  if (content.is_array() && content.empty()) return bad_parameter(at, "must hold at least one block");
  if (content.is_array() && role != "system") return add_blocks(role, content, at, messages);
  SLUICE_API_TRY(std::string text, read_text(content, at, text_blocks()));
  messages.push_back({.role = role, .content = std::move(text)});
  return {};
}

ApiStatus read_messages_of(const json& body, Messages& messages) {
  if (is_given(body, "system")) {
    SLUICE_API_TRY(std::string text, read_text(body["system"], "system", text_blocks()));
    if (!text.empty()) messages.push_back({.role = "system", .content = std::move(text)});
  }
  if (!is_given(body, "messages")) return bad_parameter("messages", "is missing");
  const json& all = body["messages"];
  if (!all.is_array() || all.empty()) return bad_parameter("messages", "must be a list of at least one message");
  for (size_t i = 0; i < all.size(); ++i)
    SLUICE_API_TRY_STATUS(add_message(all[i], "messages[" + std::to_string(i) + "]", messages));
  if (messages.back().role == "assistant")
    return bad_parameter("messages", "the last one must be the user's: an answer can't be begun for the model here");
  return {};
}

ApiStatus read_choice(const json& body, AnswerRequest& request) {
  request.parallel_tool_calls = true;
  if (!is_given(body, "tool_choice")) return {};
  const json& choice = body["tool_choice"];
  const std::string type = type_of(choice);
  const json name = type == "tool" ? choice.value("name", json()) : json("");
  if (!name.is_string() || (type == "tool" && name == "") ||
      (type != "auto" && type != "none" && type != "any" && type != "tool"))
    return bad_parameter("tool_choice", R"(must be of type auto, none or any, or {"type": "tool", "name": …})");
  SLUICE_API_TRY_STATUS(check_members(choice, "tool_choice", {"type", "name", "disable_parallel_tool_use"}));
  request.tool_choice = type == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
  if (type == "any" || type == "tool") SLUICE_API_TRY_STATUS(force_call(name.get<std::string>(), request));
  if (is_given(choice, "disable_parallel_tool_use")) {
    SLUICE_API_TRY(const bool one,
                   read_flag(choice["disable_parallel_tool_use"], "tool_choice.disable_parallel_tool_use"));
    request.parallel_tool_calls = !one;
  }
  return {};
}

ApiResult<json> read_tool(const json& tool, const std::string& param) {
  const bool is_ours =
      tool.is_object() && is_given(tool, "input_schema") && (!is_given(tool, "type") || tool["type"] == "custom");
  json read = is_ours ? tool_of(tool, "input_schema") : json();
  if (read.is_null()) return bad_parameter(param, R"(must be {"name": …, "description": …, "input_schema": {…}})");
  SLUICE_API_TRY_STATUS(check_members(
      tool, param,
      {"type", "name", "description", "input_schema", "strict", "cache_control", "eager_input_streaming"}));
  return read;
}

const std::vector<IdleParameter>& idle_parameters() {
  static const std::vector<IdleParameter> idle = {
      {"container"},
      {"context_management"},
      {"diagnostics"},
      {"mcp_servers", {json::array()}},
      {"output_config.effort", {"high"}},
      {"output_config.format"},
      {"speed", {"standard"}},
      {"thinking.budget_tokens", {}, R"(reasoning can't be bounded here: give {"type": "adaptive"} or "disabled")"},
      {"thinking.display", {"summarized"}},
      {"thinking.type", {"adaptive", "disabled"}}};
  return idle;
}

}  // namespace

ApiStatus read_messages_input(const json& body, AnswerRequest& request) {
  SLUICE_API_TRY_STATUS(read_messages_of(body, request.conversation.messages));
  SLUICE_API_TRY_STATUS(read_tool_list(body, read_tool, request));
  request.thinking = !(is_given(body, "thinking") && type_of(body["thinking"]) == "disabled");
  return read_choice(body, request);
}

ApiStatus read_messages_parameter(const std::string& name, const json& value, Asked& asked) {
  constexpr std::string_view kInput[] = {"system", "messages", "tools", "tool_choice"};
  constexpr std::string_view kIgnored[] = {"metadata", "service_tier", "cache_control", "inference_geo",
                                           "user_profile_id"};
  if (std::ranges::count(kInput, name) + std::ranges::count(kIgnored, name) > 0) return {};
  if (name == "stop_sequences") return read_parameter("stop", value, asked, name);
  if (name == "max_tokens" || is_common_parameter(name)) return read_parameter(name, value, asked);
  return read_idle(name, value, idle_parameters());
}

}  // namespace sluice
