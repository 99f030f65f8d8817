#include "serve/request_reader.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>
#include <utility>

#include "method/option_table.h"
#include "serve/policy.h"
#include "wire/batch.h"

namespace sluice {

namespace {

using nlohmann::json;

// --- values

ApiResult<double> number(const json& value, const std::string& param, double low, double high, bool above = false) {
  const double x = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (x >= low && x <= high && !(above && x == low)) return x;
  const std::string from = (above ? "above " : "from ") + json(low).dump();
  return bad_parameter(param, "must be a number " + from + " to " + json(high).dump());
}

ApiResult<int32_t> whole(const json& value, const std::string& param, int32_t low, int32_t high) {
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT32_MAX);
  if (fits && value.get<int64_t>() >= low && value.get<int64_t>() <= high) return value.get<int32_t>();
  return bad_parameter(param, "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
}

ApiResult<bool> yes_or_no(const json& value, const std::string& param) {
  if (value.is_boolean()) return value.get<bool>();
  return bad_parameter(param, "must be true or false");
}

// --- what shapes a text

using Read = ApiStatus (*)(const json& value, const std::string& param, Asked& asked);

template <float SamplingParams::*kField>
ApiStatus read_float(const json& value, const std::string& param, double low, double high, bool above, Asked& asked) {
  SLUICE_API_TRY(const double x, number(value, param, low, high, above));
  asked.spec.sampling.*kField = static_cast<float>(x);
  return {};
}

ApiStatus read_temperature(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::temperature>(value, param, 0, 100, false, asked);
}
ApiStatus read_top_p(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::top_p>(value, param, 0, 1, true, asked);
}
ApiStatus read_min_p(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::min_p>(value, param, 0, 1, false, asked);
}
ApiStatus read_repeat_penalty(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::repeat_penalty>(value, param, 0, 100, true, asked);
}

ApiStatus read_presence_penalty(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::presence_penalty>(value, param, -2, 2, false, asked);
}
ApiStatus read_frequency_penalty(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::frequency_penalty>(value, param, -2, 2, false, asked);
}

ApiStatus read_top_k(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.spec.sampling.top_k, whole(value, param, 0, INT32_MAX));
  return {};
}

ApiStatus read_max_tokens(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.spec.max_tokens, whole(value, param, 1, INT32_MAX));
  return {};
}

ApiStatus read_seed(const json& value, const std::string& param, Asked& asked) {
  if (!value.is_number_integer()) return bad_parameter(param, "must be a whole number of 64 bits");
  asked.spec.sampling.seed = value.get<uint64_t>();  // a negative one as its two's complement
  return {};
}

ApiStatus read_stop(const json& value, const std::string& param, Asked& asked) {
  const json all = value.is_string() ? json::array({value}) : value;
  const auto is_stop = [](const json& stop) {
    return stop.is_string() && !stop.get_ref<const std::string&>().empty() &&
           stop.get_ref<const std::string&>().size() <= policy::kLongestStop;
  };
  if (!all.is_array() || all.size() > policy::kMostStops || !std::ranges::all_of(all, is_stop))
    return bad_parameter(param, "must be a text or a list of up to " + std::to_string(policy::kMostStops) +
                                    " texts, each of 1 to " + std::to_string(policy::kLongestStop) + " bytes");
  asked.stops = all.get<std::vector<std::string>>();
  return {};
}

ApiStatus read_logit_bias(const json& value, const std::string& param, Asked& asked) {
  const std::string wanted =
      "must be an object of up to " + std::to_string(policy::kMostBiases) + " token ids, each with a number";
  if (!value.is_object() || value.size() > policy::kMostBiases) return bad_parameter(param, wanted);
  for (const auto& [id, bias] : value.items()) {
    const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == id.npos;
    if (!digits) return bad_parameter(param, wanted);
    SLUICE_API_TRY(const double x, number(bias, param + "." + id, -100, 100));
    asked.spec.sampling.logit_bias.emplace_back(std::stoi(id), static_cast<float>(x));
  }
  return {};
}

ApiStatus read_n(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.choices, whole(value, param, 1, policy::kMostChoices));
  return {};
}

// Of chats whether, of texts of how many.
ApiStatus read_logprobs(const json& value, const std::string& param, Asked& asked) {
  if (asked.api == Api::kCompletions && value != false) {
    SLUICE_API_TRY(asked.spec.sampling.top_logprobs, whole(value, param, 0, kMostTopLogprobs));
    asked.spec.logprobs = true;
    return {};
  }
  SLUICE_API_TRY(asked.spec.logprobs, yes_or_no(value, param));
  return {};
}

ApiStatus read_top_logprobs(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(const int32_t n, whole(value, param, 0, kMostTopLogprobs));
  if (n == 0) return {};
  if (asked.api == Api::kCompletions) return bad_parameter(param, "is for chats: here logprobs says how many");
  asked.spec.sampling.top_logprobs = n;
  return {};
}

ApiStatus read_stream(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.stream, yes_or_no(value, param));
  return {};
}

ApiStatus read_stream_options(const json& value, const std::string& param, Asked& asked) {
  if (!value.is_object()) return bad_parameter(param, "must be an object, as in {\"include_usage\": true}");
  for (const auto& [name, option] : value.items()) {
    if (name != "include_usage") return bad_parameter(param + "." + name, "unknown; there is include_usage");
    SLUICE_API_TRY(asked.include_usage, yes_or_no(option, param + "." + name));
  }
  return {};
}

ApiStatus read_ignore_eos(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.spec.ignore_end, yes_or_no(value, param));
  return {};
}

// Read before all others.
ApiStatus nothing(const json&, const std::string&, Asked&) { return {}; }

struct Parameter {
  const char* name;
  Read read;
};
constexpr Parameter kParameters[] = {{"model", nothing},
                                     {"method", nothing},
                                     {"width", nothing},
                                     {"depth", nothing},
                                     {"max_tokens", read_max_tokens},
                                     {"max_completion_tokens", read_max_tokens},
                                     {"temperature", read_temperature},
                                     {"top_p", read_top_p},
                                     {"top_k", read_top_k},
                                     {"min_p", read_min_p},
                                     {"repeat_penalty", read_repeat_penalty},
                                     {"presence_penalty", read_presence_penalty},
                                     {"frequency_penalty", read_frequency_penalty},
                                     {"logit_bias", read_logit_bias},
                                     {"n", read_n},
                                     {"logprobs", read_logprobs},
                                     {"top_logprobs", read_top_logprobs},
                                     {"seed", read_seed},
                                     {"stop", read_stop},
                                     {"stream", read_stream},
                                     {"stream_options", read_stream_options},
                                     {"ignore_eos", read_ignore_eos}};

// Of which one value alone is supported, the one that changes nothing.
struct Fixed {
  const char* name;
  json value;
};
const std::vector<Fixed>& fixed_parameters() {
  static const std::vector<Fixed> fixed = {{"best_of", 1},
                                           {"echo", false},
                                           {"suffix", ""},
                                           {"tools", json::array()},
                                           {"tool_choice", "none"},
                                           {"response_format", {{"type", "text"}}},
                                           {"modalities", {"text"}}};
  return fixed;
}

// Which say nothing of the text.
constexpr std::string_view kIgnored[] = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"};

template <class T>
const T* find_named(const T* begin, const T* end, const std::string& name) {
  const T* const at = std::find_if(begin, end, [&](const T& one) { return name == one.name; });
  return at == end ? nullptr : at;
}

ApiStatus read_parameter(const std::string& name, const json& value, Asked& asked) {
  if (value.is_null() || std::ranges::count(kIgnored, name) > 0) return {};
  if (const Parameter* known = find_named(std::begin(kParameters), std::end(kParameters), name))
    return known->read(value, name, asked);
  const auto& fixed = fixed_parameters();
  const Fixed* const one = find_named(fixed.data(), fixed.data() + fixed.size(), name);
  if (one == nullptr) return bad_parameter(name, "there is no such parameter here");
  if (value == one->value) return {};
  return bad_parameter(
      name, "not supported: leave it out" + (one->value.empty() ? std::string() : ", or give " + one->value.dump()));
}

// --- what it is generated by

ApiStatus check_model(const json& body, const ServeDefaults& defaults) {
  const auto model = body.find("model");
  if (model == body.end() || model->is_null() || *model == defaults.model) return {};
  if (!model->is_string()) return bad_parameter("model", "must be a text");
  return tl::unexpected<ApiError>({.status = 404,
                                   .message = "model: there is only " + defaults.model + " here; leave it out",
                                   .param = "model",
                                   .code = "model_not_found"});
}

std::string without_dashes(std::string text) {
  for (size_t at = 0; (at = text.find("--", at)) != text.npos;) text.erase(at, 2);
  return text;
}

// The method, and those of its options that a request may choose.
ApiStatus read_method(const Session& session, const json& body, Asked& asked) {
  const auto given = [&](const char* name) { return body.contains(name) && !body[name].is_null(); };
  asked.method = session.options().request.method;
  if (given("method")) {
    if (!body["method"].is_string()) return bad_parameter("method", "must be a text");
    asked.method = body["method"].get<std::string>();
    if (asked.method != kAutoMethod && find_method(asked.method) == nullptr) {
      std::string names = kAutoMethod;
      for (const std::string& name : method_names()) names += ", " + name;
      return bad_parameter("method", "there are " + names);
    }
  }
  asked.spec = session.spec({}, asked.method);
  MethodOptions& options = asked.spec.method_options;
  if (given("width")) {
    SLUICE_API_TRY(options.width, whole(body["width"], "width", 1, kMostRows));
  }
  if (given("depth")) {
    SLUICE_API_TRY(options.depth, whole(body["depth"], "depth", 1, 64));
  }
  const bool head = session.head_for(asked.spec.method) != nullptr;
  for (const char* name : {"width", "depth"}) {
    if (!given(name)) continue;
    const auto is_given = [&](const std::string& flag) -> std::optional<std::string> {
      if (flag == std::string("--") + name || (head && flag == "--head")) return "";
      return std::nullopt;
    };
    const Status read = check_settings_are_read([&](const char* flag) { return is_given(flag); }, {asked.spec.method});
    if (!read) return bad_parameter(name, without_dashes(read.error().message));
  }
  return {};
}

// All parameters but those of the prompt, which are `handled`.
ApiResult<Asked> read_generation(Api api, const Session& session, const ServeDefaults& defaults, const json& body,
                                 const std::vector<std::string>& handled) {
  Asked asked{.api = api};
  if (body.contains("max_tokens") && body.contains("max_completion_tokens") &&
      body["max_tokens"] != body["max_completion_tokens"])
    return bad_parameter("max_tokens", "max_completion_tokens says something else: leave one of them out");
  SLUICE_API_TRY_STATUS(check_model(body, defaults));
  SLUICE_API_TRY_STATUS(read_method(session, body, asked));
  asked.spec.max_tokens = defaults.max_tokens.value_or(session.options().context);
  asked.spec.sampling.seed = defaults.seed ? *defaults.seed : std::random_device()();
  for (const auto& [name, value] : body.items())
    if (std::ranges::count(handled, name) == 0) SLUICE_API_TRY_STATUS(read_parameter(name, value, asked));
  if (asked.include_usage && !asked.stream)
    return bad_parameter("stream_options", "is for \"stream\": true; leave it out");
  if (asked.spec.sampling.top_logprobs > 0 && !asked.spec.logprobs)
    return bad_parameter("top_logprobs", "is for \"logprobs\": true; leave it out");
  if (const Status good = check(asked.spec.sampling, session.tokenizer().size()); !good)
    return bad_parameter("logit_bias", good.error().message);
  return asked;
}

ApiStatus take_prompt(const Session& session, std::vector<Token> prompt, const std::string& param, Asked& asked) {
  if (prompt.empty()) return bad_parameter(param, "is empty: it must give at least one token");
  if (prompt.size() >= static_cast<size_t>(session.options().context))
    return tl::unexpected<ApiError>({.status = 400,
                                     .message = param + ": it has " + std::to_string(prompt.size()) +
                                                " tokens, and the context is of " +
                                                std::to_string(session.options().context) +
                                                ": shorten it, or start the server with a larger "
                                                "--context",
                                     .param = param,
                                     .code = "context_length_exceeded"});
  asked.spec.prompt = std::move(prompt);
  return {};
}

// --- messages

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

// --- tools

ApiStatus check_tool(const json& tool, const std::string& param) {
  const json function = tool.is_object() ? tool.value("function", json()) : json();
  const auto is = [&](const char* name, bool (json::*kind)() const noexcept) {
    return !function.contains(name) || function[name].is_null() || (function[name].*kind)();
  };
  const bool right = function.is_object() && tool.value("type", json()) == "function" && function.contains("name") &&
                     function["name"].is_string() && is("description", &json::is_string) &&
                     is("parameters", &json::is_object) && is("strict", &json::is_boolean);
  if (right) return {};
  return bad_parameter(
      param, R"(must be {"type": "function", "function": {"name": …, "description": …, "parameters": {…}}})");
}

// Nothing makes a model call one, and nothing keeps it from that.
ApiStatus read_tools(const Session& session, const json& body, AnswerRequest& request) {
  const auto given = [&](const char* name) { return body.contains(name) && !body[name].is_null(); };
  const json choice = given("tool_choice") ? body["tool_choice"] : json("auto");
  if (choice != "auto" && choice != "none")
    return bad_parameter("tool_choice", "must be auto or none: a call can't be forced here");
  request.tool_choice = choice == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
  request.parallel_tool_calls = true;
  if (given("parallel_tool_calls")) {
    SLUICE_API_TRY(request.parallel_tool_calls, yes_or_no(body["parallel_tool_calls"], "parallel_tool_calls"));
  }
  if (!given("tools")) return {};
  const json& tools = body["tools"];
  if (!tools.is_array() || tools.size() > policy::kMostTools)
    return bad_parameter("tools", "must be a list of up to " + std::to_string(policy::kMostTools) + " tools");
  for (size_t i = 0; i < tools.size(); ++i)
    SLUICE_API_TRY_STATUS(check_tool(tools[i], "tools[" + std::to_string(i) + "]"));
  if (!tools.empty() && session.answers() == nullptr)
    return bad_parameter("tools", "answers of this server are not read for calls: leave them out");
  if (!tools.empty()) request.conversation.tools = nlohmann::ordered_json::parse(tools.dump());
  return {};
}

// The control tokens of these texts.
std::vector<Token> tokens_of(const std::vector<std::string>& texts, const Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  for (const SpecialText& special : tokenizer.specials())
    if (std::ranges::count(texts, special.text) > 0) tokens.push_back(special.token);
  return tokens;
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

ApiResult<std::vector<Token>> read_tokens(const json& ids, const std::string& param, int32_t n_vocab) {
  if (!ids.is_array()) return bad_parameter(param, "must be a list of token ids");
  std::vector<Token> tokens;
  for (const json& id : ids) {
    SLUICE_API_TRY(const Token token, whole(id, param, 0, n_vocab - 1));
    tokens.push_back(token);
  }
  return tokens;
}

ApiResult<Asked> read_chat(const Session& session, const ServeDefaults& defaults, const json& body) {
  if (!body.contains("messages")) return bad_parameter("messages", "is missing");
  AnswerRequest request;
  SLUICE_API_TRY(request.conversation.messages, read_messages(body["messages"], "messages"));
  SLUICE_API_TRY_STATUS(read_tools(session, body, request));
  SLUICE_API_TRY(Asked asked, read_generation(Api::kChat, session, defaults, body,
                                              {"messages", "tools", "tool_choice", "parallel_tool_calls"}));
  if (!session.has_template())
    return bad_parameter("messages", "the model has no chat template: ask /v1/completions for a text");
  const bool tools = !request.conversation.tools.empty();
  auto question = session.question(std::move(request));
  if (!question) return bad_parameter(tools ? "tools" : "messages", question.error().message);
  SLUICE_API_TRY_STATUS(take_prompt(session, std::move(question->prompt), "messages", asked));
  asked.format = std::move(question->format);
  if (!asked.format) return asked;
  asked.shown = tokens_of(asked.format->shown, session.tokenizer());
  asked.stops.insert(asked.stops.end(), asked.format->stops.begin(), asked.format->stops.end());
  std::erase(asked.stops, std::string());
  return asked;
}

ApiResult<Asked> read_completion(const Session& session, const ServeDefaults& defaults, const json& body) {
  if (!body.contains("prompt")) return bad_parameter("prompt", "is missing");
  SLUICE_API_TRY(Asked asked, read_generation(Api::kCompletions, session, defaults, body, {"prompt"}));
  const json* prompt = &body["prompt"];
  if (prompt->is_array() && prompt->size() == 1 && (prompt->front().is_string() || prompt->front().is_array()))
    prompt = &prompt->front();
  std::vector<Token> tokens;
  if (prompt->is_string()) {
    // Whoever gives it writes the template.
    auto encoded = session.tokenizer().encode(prompt->get_ref<const std::string&>(), /*add_special=*/true,
                                              /*parse_special=*/true);
    if (!encoded) return bad_parameter("prompt", encoded.error().message);
    tokens = std::move(*encoded);
  } else if (prompt->is_array()) {
    SLUICE_API_TRY(tokens, read_tokens(*prompt, "prompt", session.tokenizer().size()));
  } else {
    return bad_parameter("prompt", "must be a text or a list of token ids");
  }
  SLUICE_API_TRY_STATUS(take_prompt(session, std::move(tokens), "prompt", asked));
  return asked;
}

BodyReader::BodyReader(const json& body, std::vector<std::string> known) : body_(body), known_(std::move(known)) {}

ApiStatus BodyReader::check() const {
  for (const auto& [name, value] : body_.items())
    if (std::ranges::count(known_, name) == 0) return bad_parameter(name, "there is no such parameter here");
  return {};
}

ApiResult<std::string> BodyReader::text(const std::string& param) const {
  const auto at = body_.find(param);
  if (at == body_.end() || !at->is_string()) return bad_parameter(param, "must be a text");
  return at->get<std::string>();
}

ApiResult<bool> BodyReader::flag(const std::string& param, bool otherwise) const {
  const auto at = body_.find(param);
  return at == body_.end() || at->is_null() ? otherwise : yes_or_no(*at, param);
}

}  // namespace sluice
