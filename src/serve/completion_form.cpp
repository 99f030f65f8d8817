#include "serve/completion_form.h"

#include <ctime>
#include <utility>

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFingerprint = "b" SLUICE_VERSION "-sluice";  // as llama-server's begins

const char* finish_reason(const AnswerForm::Ending& ending) {
  if (ending.finish == Finish::kLength) return "length";
  return ending.calls ? "tool_calls" : "stop";
}

Json json_of(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.reused_tokens}}},
          {"sluice", figures_of(usage)}};
}

// Of a call, whole or what has come to it.
Json json_of(const ToolCall& call) {
  Json function = Json::object();
  if (!call.name.empty()) function["name"] = call.name;
  function["arguments"] = call.arguments;
  Json json = Json::object();
  if (!call.id.empty()) json["id"] = call.id;
  if (!call.name.empty()) json["type"] = "function";
  json["function"] = std::move(function);
  return json;
}

Json json_of(const AssistantMessage& message) {
  const bool silent = message.content.empty() && !message.tool_calls.empty();
  Json json = {{"role", "assistant"}, {"content", silent ? Json() : Json(message.content)}, {"refusal", nullptr}};
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  for (const ToolCall& call : message.tool_calls) json["tool_calls"].push_back(json_of(call));
  return json;
}

Json json_of(const AssistantDelta& more) {
  Json json = Json::object();
  if (!more.reasoning.empty()) json["reasoning_content"] = more.reasoning;
  for (const auto& [index, call] : more.tool_calls) {
    Json one = {{"index", index}};
    one.update(json_of(call));
    json["tool_calls"].push_back(std::move(one));
  }
  if (!more.content.empty() || json.empty()) json["content"] = more.content;
  return json;
}

}  // namespace

CompletionForm::CompletionForm(Api api, std::string model, bool usage_in_stream, Json verbose)
    : api_(api),
      model_(std::move(model)),
      id_(new_id(api == Api::kChat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)),
      usage_in_stream_(usage_in_stream),
      verbose_(std::move(verbose)) {}

Json CompletionForm::object(bool chunk) const {
  const std::string chat = chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_},
          {"object", api_ == Api::kChat ? chat : "text_completion"},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", kFingerprint},
          {"choices", Json::array()}};
}

Json CompletionForm::whole(const std::vector<Choice>& choices, const Usage& usage) {
  Json answer = object(/*chunk=*/false);
  for (const Choice& choice : choices) {
    Json json = {{"index", answer["choices"].size()}};
    if (api_ == Api::kChat)
      json["message"] = json_of(choice.message);
    else
      json["text"] = choice.message.content;
    json["logprobs"] = choice.logprobs;
    json["finish_reason"] = finish_reason(choice.ending);
    answer["choices"].push_back(std::move(json));
  }
  answer["usage"] = json_of(usage);
  answer["timings"] = timings_of(usage);
  if (!verbose_.is_null()) answer["__verbose"] = verbose_;
  return answer;
}

std::string CompletionForm::event(int32_t index, Json choice, Json logprobs, Arrival arrived) const {
  Json chunk = object(/*chunk=*/true);
  Json all = {{"index", index}};
  all.update(choice);
  all["logprobs"] = std::move(logprobs);
  if (!all.contains("finish_reason")) all["finish_reason"] = nullptr;
  chunk["choices"].push_back(std::move(all));
  if (usage_in_stream_) chunk["usage"] = nullptr;
  if (arrived.tokens > 0)
    chunk["sluice"] = {{"request", arrived.request}, {"tokens", arrived.tokens}, {"batches", arrived.batches}};
  return event_of(chunk);
}

std::string CompletionForm::begin(int32_t choice) {
  if (api_ != Api::kChat) return {};
  return event(choice, {{"delta", {{"role", "assistant"}, {"content", nullptr}}}});
}

std::string CompletionForm::piece(int32_t choice, const Piece& piece) {
  if (api_ == Api::kChat) return event(choice, {{"delta", json_of(piece.more)}}, piece.logprobs, piece.arrived);
  return event(choice, {{"text", piece.more.content}}, piece.logprobs, piece.arrived);
}

std::string CompletionForm::end(int32_t choice, const Ending& ending) {
  Json last = {{"finish_reason", finish_reason(ending)}};
  if (api_ == Api::kChat)
    last["delta"] = Json::object();
  else
    last["text"] = "";
  return event(choice, std::move(last), nullptr, ending.arrived);
}

std::string CompletionForm::last(const Usage& usage) {
  std::string events;
  if (usage_in_stream_) {
    Json chunk = object(/*chunk=*/true);
    chunk["usage"] = json_of(usage);
    chunk["timings"] = timings_of(usage);
    events += event_of(chunk);
  }
  return events + "data: [DONE]\n\n";
}

std::string CompletionForm::error(const ApiError& error) { return event_of(error.to_json()); }

}  // namespace sluice
