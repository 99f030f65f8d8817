#include "serve/answer_form.h"

#include <spdlog/fmt/fmt.h>

#include <ctime>
#include <random>
#include <utility>

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

std::string new_id(Api api) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}{:08x}", api == Api::kChat ? "chatcmpl" : "cmpl", random(), random(), random());
}

std::string event_of(const Json& json) { return "data: " + text_of(json) + "\n\n"; }

const char* finish_reason(const AnswerEnd& end) { return end.finish == Finish::kLength ? "length" : "stop"; }

Json usage_of(const AnswerEnd& end) {
  const Usage& usage = end.usage;
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.reused_tokens}}},
          {"sluice",
           {{"method", usage.method},
            {"source", usage.source},
            {"seed", usage.seed},
            {"drafted", usage.drafted},
            {"accepted", usage.accepted},
            {"flushes", usage.flushes},
            {"equivalent_acceptance_length", usage.equivalent_acceptance_length},
            {"tokens_per_second", usage.tokens_per_second},
            {"seconds", {{"prefill", usage.prefill_seconds}, {"decode", usage.decode_seconds}}}}}};
}

}  // namespace

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

AnswerForm::AnswerForm(Api api, std::string model, bool usage_in_stream)
    : api_(api),
      model_(std::move(model)),
      id_(new_id(api)),
      created_(std::time(nullptr)),
      usage_in_stream_(usage_in_stream) {}

Json AnswerForm::object(bool chunk) const {
  const std::string chat = chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_},
          {"object", api_ == Api::kChat ? chat : "text_completion"},
          {"created", created_},
          {"model", model_},
          {"choices", Json::array()}};
}

Json AnswerForm::whole(const std::string& text, const AnswerEnd& end) const {
  Json answer = object(/*chunk=*/false);
  Json choice = {{"index", 0}};
  if (api_ == Api::kChat)
    choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  else
    choice["text"] = text;
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish_reason(end);
  answer["choices"].push_back(std::move(choice));
  answer["usage"] = usage_of(end);
  return answer;
}

std::string AnswerForm::event(Json choice) const {
  Json chunk = object(/*chunk=*/true);
  choice["logprobs"] = nullptr;
  if (!choice.contains("finish_reason")) choice["finish_reason"] = nullptr;
  chunk["choices"].push_back(std::move(choice));
  if (usage_in_stream_) chunk["usage"] = nullptr;
  return event_of(chunk);
}

std::string AnswerForm::begin() const {
  if (api_ != Api::kChat) return {};
  return event({{"index", 0}, {"delta", {{"role", "assistant"}, {"content", ""}}}});
}

std::string AnswerForm::piece(const std::string& text) const {
  if (api_ == Api::kChat) return event({{"index", 0}, {"delta", {{"content", text}}}});
  return event({{"index", 0}, {"text", text}});
}

std::string AnswerForm::end(const AnswerEnd& end) const {
  Json last = {{"index", 0}, {"finish_reason", finish_reason(end)}};
  if (api_ == Api::kChat)
    last["delta"] = Json::object();
  else
    last["text"] = "";
  std::string events = event(std::move(last));
  if (usage_in_stream_) {
    Json chunk = object(/*chunk=*/true);
    chunk["usage"] = usage_of(end);
    events += event_of(chunk);
  }
  return events + "data: [DONE]\n\n";
}

std::string AnswerForm::error(const ApiError& error) { return event_of(error.to_json()); }

}  // namespace sluice
