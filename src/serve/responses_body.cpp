#include "serve/responses_body.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "serve/format_reader.h"
#include "serve/json_values.h"
#include "serve/message_reader.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;

using Messages = std::vector<ChatMessage>;

// The assistant's last message if nobody has spoken since; else, or if `another` turn begins, a new one.
ChatMessage& assistants(Messages& messages, bool another) {
  const auto goes_on = [&] {
    const ChatMessage& last = messages.back();
    const bool has_answered = !last.content.empty() || last.extra.contains("tool_calls");
    return last.role == "assistant" && !(another && has_answered);
  };
  if (messages.empty() || !goes_on()) messages.push_back({.role = "assistant", .content = ""});
  return messages.back();
}

ApiStatus add_message(const json& item, const std::string& param, Messages& messages) {
  SLUICE_API_TRY_STATUS(check_members(item, param, {"type", "role", "content", "id", "status", "phase"}));
  const json role = item.value("role", json());
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};
  if (!role.is_string() || std::ranges::count(kRoles, role.get_ref<const std::string&>()) == 0)
    return bad_parameter(param + ".role", "must be system, developer, user or assistant");
  if (!is_given(item, "content")) return bad_parameter(param + ".content", "is missing");
  SLUICE_API_TRY(std::string text,
                 read_text(item["content"], param + ".content",
                           {.types = {"input_text", "output_text"}, .ignored = {"annotations", "logprobs"}}));
  if (role == "assistant")
    assistants(messages, /*another=*/true).content = std::move(text);
  else
    messages.push_back({.role = role == "user" ? "user" : "system", .content = std::move(text)});
  return {};
}

ApiStatus add_call(const json& item, const std::string& param, Messages& messages) {
  SLUICE_API_TRY_STATUS(check_members(item, param, {"type", "call_id", "name", "arguments", "id", "status"}));
  SLUICE_API_TRY(std::string id, read_member(item, "call_id", param));
  SLUICE_API_TRY(std::string name, read_member(item, "name", param));
  SLUICE_API_TRY(std::string arguments, read_member(item, "arguments", param));
  json call = {{"id", std::move(id)}, {"type", "function"}};
  call["function"] = {{"name", std::move(name)}, {"arguments", std::move(arguments)}};
  assistants(messages, /*another=*/false).extra["tool_calls"].push_back(std::move(call));
  return {};
}

ApiStatus add_output(const json& item, const std::string& param, Messages& messages) {
  SLUICE_API_TRY_STATUS(check_members(item, param, {"type", "call_id", "output", "id", "status"}));
  SLUICE_API_TRY(std::string id, read_member(item, "call_id", param));
  if (!is_given(item, "output")) return bad_parameter(param + ".output", "is missing");
  SLUICE_API_TRY(std::string text, read_text(item["output"], param + ".output", {.types = {"input_text"}}));
  messages.push_back({.role = "tool", .content = std::move(text)});
  messages.back().extra["tool_call_id"] = std::move(id);
  return {};
}

// Its summary, if there is one, says nothing that is not in the content.
ApiStatus add_reasoning(const json& item, const std::string& param, Messages& messages) {
  SLUICE_API_TRY_STATUS(check_members(item, param, {"type", "id", "status", "summary", "content"}));
  if (!is_given(item, "content")) return {};
  SLUICE_API_TRY(std::string text, read_text(item["content"], param + ".content", {.types = {"reasoning_text"}}));
  if (text.empty()) return {};
  auto& extra = assistants(messages, /*another=*/true).extra;
  const std::string before = extra.contains("reasoning_content") ? extra["reasoning_content"].get<std::string>() : "";
  extra["reasoning_content"] = before + text;
  return {};
}

struct Item {
  std::string_view type;
  ApiStatus (*add)(const json& item, const std::string& param, Messages& messages);
};
constexpr Item kItems[] = {{"message", add_message},
                           {"function_call", add_call},
                           {"function_call_output", add_output},
                           {"reasoning", add_reasoning}};

ApiStatus add_item(const json& item, const std::string& param, Messages& messages) {
  if (!item.is_object()) return bad_parameter(param, "must be an object with a type");
  const json type = item.value("type", json("message"));
  for (const auto& [name, add] : kItems)
    if (type.is_string() && type.get_ref<const std::string&>() == name) return add(item, param, messages);
  return bad_parameter(param + ".type",
                       "must be message, function_call, function_call_output or reasoning: nothing is stored here, and "
                       "there are no other tools than functions");
}

ApiStatus read_input(const json& body, Messages& messages) {
  if (is_given(body, "instructions")) {
    if (!body["instructions"].is_string()) return bad_parameter("instructions", "must be a text");
    messages.push_back({.role = "system", .content = body["instructions"].get<std::string>()});
  }
  if (!is_given(body, "input")) return bad_parameter("input", "is missing");
  const json& input = body["input"];
  if (input.is_string()) {
    messages.push_back({.role = "user", .content = input.get<std::string>()});
    return {};
  }
  if (!input.is_array() || input.empty())
    return bad_parameter("input", "must be a text or a list of at least one item");
  for (size_t i = 0; i < input.size(); ++i)
    SLUICE_API_TRY_STATUS(add_item(input[i], "input[" + std::to_string(i) + "]", messages));
  return {};
}

ApiResult<json> read_tool(const json& tool, const std::string& param) {
  const bool is_function = tool.is_object() && tool.value("type", json()) == "function";
  json read = is_function ? tool_of(tool, "parameters") : json();
  if (read.is_null())
    return bad_parameter(param, R"(must be {"type": "function", "name": …, "description": …, "parameters": {…}})");
  SLUICE_API_TRY_STATUS(check_members(tool, param, {"type", "name", "description", "parameters", "strict"}));
  return read;
}

const std::vector<IdleParameter>& idle_parameters() {
  static const std::string stateless = "nothing is stored here: give what was said before as items of input";
  static const std::vector<IdleParameter> idle = {
      {"background", {false}},
      {"context_management", {json::array()}},
      {"conversation", {}, stateless},
      {"include", {json::array(), json::array({"reasoning.encrypted_content"})}},  // reasoning comes as it is
      {"max_tool_calls"},
      {"previous_response_id", {}, stateless},
      {"prompt"},
      {"reasoning.effort", {"medium", "none"}},
      {"reasoning.generate_summary", {"auto"}},
      {"reasoning.summary", {"auto"}},
      {"store", {false}, "nothing is stored here: leave it out, or give false"},
      {"stream_options.include_obfuscation", {false}},
      {"text.verbosity", {"medium"}},
      {"top_logprobs", {0}},
      {"truncation", {"disabled"}}};
  return idle;
}

// What the text is to be, and how long.
ApiStatus read_text_setting(const json& text, Asked& asked) {
  if (!text.is_object()) return bad_parameter("text", "must be an object");
  for (const auto& [name, value] : text.items()) {
    if (name != "format") {
      SLUICE_API_TRY_STATUS(read_idle("text." + name, value, idle_parameters()));
    } else if (!value.is_null()) {
      SLUICE_API_TRY_STATUS(read_text_format(value, "text.format", asked));
    }
  }
  return {};
}

}  // namespace

ApiStatus read_responses_input(const json& body, AnswerRequest& request) {
  SLUICE_API_TRY_STATUS(read_input(body, request.conversation.messages));
  SLUICE_API_TRY_STATUS(read_tool_list(body, read_tool, request));
  const json reasoning = body.value("reasoning", json());
  request.thinking = !(reasoning.is_object() && reasoning.value("effort", json()) == "none");
  return read_tool_choice(body, request);
}

ApiStatus read_responses_parameter(const std::string& name, const json& value, Asked& asked) {
  constexpr std::string_view kInput[] = {"instructions", "input", "tools", "tool_choice", "parallel_tool_calls"};
  constexpr std::string_view kIgnored[] = {"metadata",
                                           "user",
                                           "safety_identifier",
                                           "prompt_cache_key",
                                           "service_tier",
                                           "prompt_cache_retention",
                                           "prompt_cache_options"};
  if (std::ranges::count(kInput, name) + std::ranges::count(kIgnored, name) > 0) return {};
  if (name == "max_output_tokens") return read_parameter("max_tokens", value, asked, name);
  if (name == "text") return value.is_null() ? ApiStatus() : read_text_setting(value, asked);
  if (is_common_parameter(name)) return read_parameter(name, value, asked);
  return read_idle(name, value, idle_parameters());
}

json responses_settings(const json& body, const SamplingParams& sampling) {
  json settings = {{"instructions", nullptr},
                   {"max_output_tokens", nullptr},
                   {"metadata", json::object()},
                   {"parallel_tool_calls", true},
                   {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                   {"temperature", sampling.temperature},
                   {"text", {{"format", {{"type", "text"}}}}},
                   {"tool_choice", "auto"},
                   {"tools", json::array()},
                   {"top_p", sampling.top_p},
                   {"truncation", "disabled"}};
  for (auto setting = settings.begin(); setting != settings.end(); ++setting)
    if (is_given(body, setting.key().c_str())) *setting = body[setting.key()];
  if (json& text = settings["text"]; !is_given(text, "format")) text["format"] = {{"type", "text"}};
  return settings;
}

}  // namespace sluice
