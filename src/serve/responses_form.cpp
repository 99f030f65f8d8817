#include "serve/responses_form.h"

#include <ctime>
#include <string_view>
#include <utility>

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

// How the API speaks of a kind of part.
struct Words {
  const char *id, *type, *content, *event;  // content: what its text is called as a part of the item; null: no part
};
const Words& words_of(const AnswerPart& part) {
  static constexpr Words kReasoning = {"rs_", "reasoning", "reasoning_text", "response.reasoning_text"};
  static constexpr Words kMessage = {"msg_", "message", "output_text", "response.output_text"};
  static constexpr Words kCall = {"fc_", "function_call", nullptr, "response.function_call_arguments"};
  if (part.kind == AnswerPart::Kind::kCall) return kCall;
  return part.kind == AnswerPart::Kind::kReasoning ? kReasoning : kMessage;
}

// Tokens of reasoning are not told from others.
Json json_of(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.reused_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"sluice", figures_of(usage)}};
}

}  // namespace

ResponsesForm::ResponsesForm(std::string model, Json settings)
    : model_(std::move(model)), id_(new_id("")), settings_(std::move(settings)), created_(std::time(nullptr)) {}

// As far as it has come.
Json ResponsesForm::response(const char* status) const {
  Json response = {{"id", "resp_" + id_},
                   {"object", "response"},
                   {"created_at", created_},
                   {"status", status},
                   {"background", false},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", model_},
                   {"output", Json::array()},
                   {"previous_response_id", nullptr},
                   {"store", false},
                   {"usage", nullptr}};
  response.update(settings_);
  const bool completed = std::string_view(status) == "completed";
  for (size_t i = 0, n = parts_.all().size(); i < n; ++i)
    response["output"].push_back(item(i, completed || i + 1 < n ? "completed" : "incomplete"));
  return response;
}

const char* ResponsesForm::status() const { return ending_.finish == Finish::kLength ? "incomplete" : "completed"; }

Json ResponsesForm::ended(const Usage& usage) const {
  Json all = response(status());
  if (ending_.finish == Finish::kLength) all["incomplete_details"] = {{"reason", "max_output_tokens"}};
  all["usage"] = json_of(usage);
  return all;
}

std::string ResponsesForm::item_id(size_t part) const {
  return words_of(parts_.all()[part]).id + id_ + "_" + std::to_string(part);
}

// The part of an item that its text is.
Json ResponsesForm::content(size_t part, const std::string& text) const {
  Json content = {{"type", words_of(parts_.all()[part]).content}, {"text", text}};
  if (parts_.all()[part].kind == AnswerPart::Kind::kContent)
    content.update({{"annotations", Json::array()}, {"logprobs", Json::array()}});
  return content;
}

// Without its text.
Json ResponsesForm::fresh_item(size_t part) const {
  const AnswerPart& said = parts_.all()[part];
  Json item = {{"id", item_id(part)}, {"type", words_of(said).type}, {"status", "in_progress"}};
  if (said.kind == AnswerPart::Kind::kCall) {
    item.update({{"call_id", said.id}, {"name", said.name}, {"arguments", ""}});
  } else {
    if (said.kind == AnswerPart::Kind::kReasoning)
      item["summary"] = Json::array();
    else
      item["role"] = "assistant";
    item["content"] = Json::array();
  }
  return item;
}

Json ResponsesForm::item(size_t part, const char* status) const {
  const AnswerPart& said = parts_.all()[part];
  Json item = fresh_item(part);
  item["status"] = status;
  if (said.kind == AnswerPart::Kind::kCall)
    item["arguments"] = said.text;
  else
    item["content"].push_back(content(part, said.text));
  return item;
}

// Where an event happens.
Json ResponsesForm::place(size_t part) const {
  Json place = {{"item_id", item_id(part)}, {"output_index", part}};
  if (parts_.all()[part].kind != AnswerPart::Kind::kCall) place["content_index"] = 0;
  return place;
}

Json ResponsesForm::whole(const std::vector<Choice>& choices, const Usage& usage) {
  parts_.take(delta_of(choices.front().message));
  ending_ = choices.front().ending;
  return ended(usage);
}

std::string ResponsesForm::event(const std::string& type, Json members) {
  Json event = {{"type", type}, {"sequence_number", n_events_++}};
  event.update(members);
  return event_of(event, type);
}

std::string ResponsesForm::lifecycle(const std::string& type, Json response) {
  Json members = Json::object();
  members["response"] = std::move(response);
  return event(type, std::move(members));
}

std::string ResponsesForm::begin(int32_t) {
  const std::string created = lifecycle("response.created", response("in_progress"));
  return created + lifecycle("response.in_progress", response("in_progress"));
}

std::string ResponsesForm::begin_part(size_t part) {
  Json members = {{"output_index", part}};
  members["item"] = fresh_item(part);
  std::string events = event("response.output_item.added", std::move(members));
  if (words_of(parts_.all()[part]).content == nullptr) return events;
  Json added = place(part);
  added["part"] = content(part, "");
  return events + event("response.content_part.added", std::move(added));
}

std::string ResponsesForm::end_part(size_t part, const char* status) {
  const AnswerPart& said = parts_.all()[part];
  Json done = place(part);
  done[said.kind == AnswerPart::Kind::kCall ? "arguments" : "text"] = said.text;
  if (said.kind == AnswerPart::Kind::kCall) done["name"] = said.name;
  if (said.kind == AnswerPart::Kind::kContent) done["logprobs"] = Json::array();
  std::string events = event(std::string(words_of(said).event) + ".done", std::move(done));
  if (words_of(said).content != nullptr) {
    Json whole = place(part);
    whole["part"] = content(part, said.text);
    events += event("response.content_part.done", std::move(whole));
  }
  Json members = {{"output_index", part}};
  members["item"] = item(part, status);
  return events + event("response.output_item.done", std::move(members));
}

// last_status: that of a part which ends.
std::string ResponsesForm::events(const std::vector<AnswerParts::Step>& steps, const char* last_status) {
  using Kind = AnswerParts::Step::Kind;
  std::string events;
  for (const auto& [kind, part, more] : steps) {
    if (kind == Kind::kBegin) {
      events += begin_part(part);
    } else if (kind == Kind::kEnd) {
      events += end_part(part, last_status);
    } else {
      Json delta = place(part);
      delta["delta"] = more;
      if (parts_.all()[part].kind == AnswerPart::Kind::kContent) delta["logprobs"] = Json::array();
      events += event(std::string(words_of(parts_.all()[part]).event) + ".delta", std::move(delta));
    }
  }
  return events;
}

std::string ResponsesForm::piece(int32_t, const Piece& piece) { return events(parts_.take(piece.more), "completed"); }

std::string ResponsesForm::end(int32_t, const Ending& ending) {
  ending_ = ending;
  return events(parts_.finish(), status());
}

std::string ResponsesForm::last(const Usage& usage) {
  return lifecycle(std::string("response.") + status(), ended(usage));
}

std::string ResponsesForm::error(const ApiError& error) {
  Json failed = response("failed");
  const char* const code = error.status == 429   ? "rate_limit_exceeded"
                           : error.status == 400 ? "invalid_prompt"
                                                 : "server_error";
  failed["error"] = {{"code", code}, {"message", error.message}};
  return lifecycle("response.failed", std::move(failed));
}

}  // namespace sluice
