#include "serve/request_reader.h"

#include <algorithm>
#include <initializer_list>
#include <random>
#include <utility>

#include "method/option_table.h"
#include "serve/json_values.h"
#include "serve/message_reader.h"
#include "serve/messages_body.h"
#include "serve/native_body.h"
#include "serve/native_prompt.h"
#include "serve/responses_body.h"
#include "wire/batch.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;

ApiStatus check_model(const json& body, const ServeDefaults& defaults) {
  const auto model = body.find("model");
  if (model == body.end() || model->is_null() || *model == defaults.model) return {};
  if (!model->is_string()) return bad_parameter("model", "must be a text");
  if (std::ranges::count(defaults.aliases, model->get_ref<const std::string&>()) > 0) return {};
  return tl::unexpected<ApiError>({.status = 404,
                                   .message = "model: there is only " + defaults.model + " here; leave it out",
                                   .param = "model",
                                   .code = "model_not_found"});
}

std::string without_dashes(std::string text) {
  for (size_t at = 0; (at = text.find("--", at)) != text.npos;) text.erase(at, 2);
  return text;
}

// Which has two names in chats and texts.
ApiStatus check_longest(const json& body) {
  const json longest = body.value("max_tokens", json()), other = body.value("max_completion_tokens", json());
  if (longest.is_null() || other.is_null() || longest == other) return {};
  return bad_parameter("max_tokens", "max_completion_tokens says something else: leave one of them out");
}

// Whether the method reads an option that a request names.
Status check_is_read(const Session& session, const std::string& method, const std::string& name) {
  const bool head = session.head_for(method) != nullptr;
  return check_settings_are_read(
      [&](const std::string& flag) -> std::optional<std::string> {
        if (flag == "--" + name || (head && flag == "--head")) return "";
        return std::nullopt;
      },
      {method});
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
    SLUICE_API_TRY(options.width, read_whole(body["width"], "width", 1, kMostRows));
  }
  if (given("depth")) {
    SLUICE_API_TRY(options.depth, read_whole(body["depth"], "depth", 1, 64));
  }
  for (const char* name : {"width", "depth"}) {
    if (!given(name)) continue;
    const Status read = check_is_read(session, asked.spec.method, name);
    if (!read) return bad_parameter(name, without_dashes(read.error().message));
  }
  return {};
}

using ReadParameter = ApiStatus (*)(const std::string& name, const json& value, Asked& asked);

bool is_of_type(const json& value, std::initializer_list<const char*> types) {
  const json type = value.is_object() ? value.value("type", json()) : value;
  return std::ranges::any_of(types, [&](const char* one) { return type == one; });
}

// The answer is to be of a grammar.
ApiStatus take_grammar(const Session& session, const GrammarSource& source, const std::string& param, Asked& asked) {
  if (session.grammars() == nullptr) return bad_parameter(param, "answers of this server are of no form: leave it out");
  if (is_lossy(asked.spec.sampling.rule))
    return bad_parameter(param, "guesses are verified by a lossy rule here: start the server without --lossy");
  auto grammar = session.grammars()->read(source);
  if (!grammar) return cannot_read(param, grammar.error());
  asked.spec.sampling.grammar = std::move(*grammar);
  asked.form_param = param;
  return {};
}

ApiStatus take_form(const Session& session, Asked& asked) {
  return asked.form ? take_grammar(session, asked.form->source, asked.form->param, asked) : ApiStatus();
}

// Empty: it is none of JSON.
std::string schema_of(const GrammarSource& source) {
  if (source.kind == GrammarKind::kJson) return R"({"type": "object"})";
  return source.kind == GrammarKind::kJsonSchema ? source.text : "";
}

// All parameters but those of the prompt, which `read` passes over.
ApiResult<Asked> read_generation(Api api, const Session& session, const ServeDefaults& defaults, const json& body,
                                 ReadParameter read) {
  Asked asked{.api = api};
  SLUICE_API_TRY_STATUS(check_model(body, defaults));
  SLUICE_API_TRY_STATUS(read_method(session, body, asked));
  asked.spec.max_tokens = defaults.max_tokens.value_or(session.options().context);
  asked.spec.sampling.seed = defaults.seed ? *defaults.seed : std::random_device()();
  for (const auto& [name, value] : body.items()) SLUICE_API_TRY_STATUS(read(name, value, asked));
  SLUICE_API_TRY_STATUS(check_parameters(asked));
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

// The control tokens of these texts.
std::vector<Token> tokens_of(const std::vector<std::string>& texts, const Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  for (const SpecialText& special : tokenizer.specials())
    if (std::ranges::count(texts, special.text) > 0) tokens.push_back(special.token);
  return tokens;
}

// An API whose prompts are conversations.
struct ConversationApi {
  Api api;
  const char* param;  // that holds the messages
  // What the model is told, and what it may answer by.
  ApiStatus (*read_input)(const json& body, AnswerRequest& request);
  ReadParameter read_parameter;  // of any other kind; those of the input are passed over
};

ApiStatus read_chat_input(const json& body, AnswerRequest& request) {
  if (!body.contains("messages")) return bad_parameter("messages", "is missing");
  SLUICE_API_TRY(request.conversation.messages, read_messages(body["messages"], "messages"));
  SLUICE_API_TRY_STATUS(read_tools(body, request));
  return check_longest(body);
}

ApiStatus read_chat_parameter(const std::string& name, const json& value, Asked& asked) {
  constexpr std::string_view kInput[] = {"messages", "tools", "tool_choice", "parallel_tool_calls"};
  return std::ranges::count(kInput, name) > 0 ? ApiStatus() : read_parameter(name, value, asked);
}

ApiStatus read_completion_parameter(const std::string& name, const json& value, Asked& asked) {
  return name == "prompt" ? ApiStatus() : read_parameter(name, value, asked);
}

constexpr ConversationApi kChatApi = {Api::kChat, "messages", read_chat_input, read_chat_parameter};
constexpr ConversationApi kResponsesApi = {Api::kResponses, "input", read_responses_input, read_responses_parameter};
constexpr ConversationApi kMessagesApi = {Api::kMessages, "messages", read_messages_input, read_messages_parameter};

ApiResult<AnswerRequest> read_input(const ConversationApi& api, const Session& session, const json& body) {
  AnswerRequest request;
  SLUICE_API_TRY_STATUS(api.read_input(body, request));
  if (!request.conversation.tools.empty() && session.answers() == nullptr)
    return bad_parameter("tools", "answers of this server are not read for calls: leave them out");
  return request;
}

ApiResult<Session::Question> question_of(const ConversationApi& api, const Session& session, AnswerRequest request) {
  if (!session.has_template())
    return bad_parameter(api.param, "the model has no chat template: ask /v1/completions for a text");
  const bool tools = !request.conversation.tools.empty();
  auto question = session.question(std::move(request));
  if (!question) return cannot_read(tools ? "tools" : api.param, question.error());
  return std::move(*question);
}

// The grammar with which the family writes such answers: with its reasoning, and its marks.
ApiStatus take_family_grammar(const Session& session, const std::string& param, Asked& asked) {
  if (!asked.format || asked.format->grammar.empty() || asked.format->lazy)
    return bad_parameter(param, "can't be forced of this family of models: leave it out");
  return take_grammar(session, {GrammarKind::kGbnf, asked.format->grammar, asked.format->grammar_begin}, param, asked);
}

// Its calls of tools are of the family's form once they begin.
ApiStatus take_calls_form(const Session& session, Asked& asked) {
  if (!asked.format || asked.format->grammar.empty() || asked.format->triggers.empty() ||
      session.grammars() == nullptr || is_lossy(asked.spec.sampling.rule))
    return {};
  const AnswerFormat& format = *asked.format;
  return take_grammar(session, {GrammarKind::kGbnf, format.grammar, "", format.triggers}, "tools", asked);
}

ApiResult<Asked> read_conversation(const ConversationApi& api, const Session& session, const ServeDefaults& defaults,
                                   const json& body) {
  SLUICE_API_TRY(AnswerRequest request, read_input(api, session, body));
  SLUICE_API_TRY(Asked asked, read_generation(api.api, session, defaults, body, api.read_parameter));
  const bool is_forced = request.tool_choice == ToolChoice::kRequired;
  if (asked.form && !request.conversation.tools.empty() && request.tool_choice != ToolChoice::kNone)
    return bad_parameter(asked.form->param, "an answer of this form calls no tools: leave them out");
  if (asked.form) request.schema = schema_of(asked.form->source);
  SLUICE_API_TRY(Session::Question question, question_of(api, session, std::move(request)));
  SLUICE_API_TRY_STATUS(take_prompt(session, std::move(question.prompt), api.param, asked));
  asked.format = std::move(question.format);
  // A form of the client's own is none of the family's.
  if (asked.form && schema_of(asked.form->source).empty()) asked.format.reset();
  if (asked.format) asked.shown = tokens_of(asked.format->shown, session.tokenizer());
  if (is_forced) {
    SLUICE_API_TRY_STATUS(take_family_grammar(session, "tool_choice", asked));
  } else if (asked.form) {
    const bool reasons = asked.format && !asked.format->reasoning_begin.empty() && !asked.format->grammar.empty();
    SLUICE_API_TRY_STATUS(reasons ? take_family_grammar(session, asked.form->param, asked) : take_form(session, asked));
  } else if (asked.format && asked.format->lazy) {
    SLUICE_API_TRY_STATUS(take_calls_form(session, asked));
  }
  return asked;
}

// If the request wants to see it.
void tell_prompt(const Session& session, Asked& asked) {
  if (asked.verbose) asked.settings = {{"prompt", session.tokenizer().decode(asked.spec.prompt, /*special=*/true)}};
}

// llama-server's own API.
ApiResult<Asked> read_native(const Session& session, const ServeDefaults& defaults, const json& body,
                             ReadParameter read, std::vector<Token> prompt, const std::string& param) {
  const Tokenizer& tokenizer = session.tokenizer();
  SLUICE_API_TRY(Asked asked, read_generation(Api::kNative, session, defaults, body, read));
  SLUICE_API_TRY_STATUS(read_native_rest(body, tokenizer, asked));
  asked.settings = {{"generation_settings", native_settings(asked, tokenizer)},
                    {"prompt", tokenizer.decode(prompt, /*special=*/true)}};
  SLUICE_API_TRY_STATUS(take_prompt(session, std::move(prompt), param, asked));
  SLUICE_API_TRY_STATUS(take_form(session, asked));
  return asked;
}

ApiStatus read_infill_parameter(const std::string& name, const json& value, Asked& asked) {
  constexpr std::string_view kOfEditors[] = {"samplers", "t_max_predict_ms"};  // which they send with each request
  if (is_infill_input(name) || std::ranges::count(kOfEditors, name) > 0) return {};
  return read_native_parameter(name, value, asked);
}

}  // namespace

Effort effort_of(const json& body) {
  const json text = body.value("text", json());
  const bool in_form = is_given(body, "json_schema") || is_given(body, "grammar") || is_given(body, "regex") ||
                       (is_given(body, "response_format") && !is_of_type(body["response_format"], {"text"})) ||
                       (text.is_object() && is_given(text, "format") && !is_of_type(text["format"], {"text"})) ||
                       (is_given(body, "tool_choice") && !is_of_type(body["tool_choice"], {"auto", "none"}));
  if (in_form) return Effort::kForm;
  return is_given(body, "tools") ? Effort::kMuch : Effort::kLittle;
}

ApiResult<Asked> read_chat(const Session& session, const ServeDefaults& defaults, const json& body) {
  SLUICE_API_TRY(Asked asked, read_conversation(kChatApi, session, defaults, body));
  tell_prompt(session, asked);
  return asked;
}

ApiResult<Asked> read_responses(const Session& session, const ServeDefaults& defaults, const json& body) {
  SLUICE_API_TRY(Asked asked, read_conversation(kResponsesApi, session, defaults, body));
  asked.settings = responses_settings(body, asked.spec.sampling);
  return asked;
}

ApiResult<Asked> read_messages_request(const Session& session, const ServeDefaults& defaults, const json& body) {
  return read_conversation(kMessagesApi, session, defaults, body);
}

bool takes_option(const Session& session, const std::string& method, const std::string& name) {
  return check_is_read(session, session.method(method), name).has_value();
}

ApiResult<size_t> count_input_tokens(Api api, const Session& session, const ServeDefaults& defaults, const json& body) {
  const ConversationApi& words = api == Api::kChat ? kChatApi : kMessagesApi;
  SLUICE_API_TRY_STATUS(check_model(body, defaults));
  SLUICE_API_TRY(AnswerRequest request, read_input(words, session, body));
  Asked unused{.api = api};
  for (const auto& [name, value] : body.items()) SLUICE_API_TRY_STATUS(words.read_parameter(name, value, unused));
  SLUICE_API_TRY(const Session::Question question, question_of(words, session, std::move(request)));
  return question.prompt.size();
}

ApiResult<Asked> read_completion(const Session& session, const ServeDefaults& defaults, const json& body) {
  if (!body.contains("prompt")) return bad_parameter("prompt", "is missing");
  SLUICE_API_TRY_STATUS(check_longest(body));
  SLUICE_API_TRY(Asked asked, read_generation(Api::kCompletions, session, defaults, body, read_completion_parameter));
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
  SLUICE_API_TRY_STATUS(take_form(session, asked));
  tell_prompt(session, asked);
  return asked;
}

ApiResult<Asked> read_native_completion(const Session& session, const ServeDefaults& defaults, const json& body) {
  if (!is_given(body, "prompt")) return bad_parameter("prompt", "is missing");
  SLUICE_API_TRY(std::vector<Token> prompt, read_native_prompt(body["prompt"], session.tokenizer()));
  return read_native(session, defaults, body, read_native_parameter, std::move(prompt), "prompt");
}

ApiResult<Asked> read_infill(const Session& session, const ServeDefaults& defaults, const json& body) {
  SLUICE_API_TRY(std::vector<Token> prompt, read_infill_prompt(body, session.tokenizer(), session.options().context));
  return read_native(session, defaults, body, read_infill_parameter, std::move(prompt), "input_prefix");
}

}  // namespace sluice
