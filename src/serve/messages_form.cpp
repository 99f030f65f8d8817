#include "serve/messages_form.h"

#include <algorithm>
#include <utility>

#include "serve/json_body.h"

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

// Tokens that the prompt shares with others are told apart from the rest of it.
Json json_of(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.reused_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.reused_tokens},
          {"output_tokens", usage.completion_tokens}};
}

// The arguments of a call; an empty object if they are none, as where the answer was cut off.
Json input_of(const std::string& arguments) {
  auto input = parse_body(arguments);
  return input ? std::move(*input) : Json::object();
}

// What a part begins as.
Json fresh_block(const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case AnswerPart::Kind::kCall:
      return {{"type", "tool_use"}, {"id", part.id}, {"name", part.name}, {"input", Json::object()}};
    case AnswerPart::Kind::kContent:
      break;
  }
  return {{"type", "text"}, {"text", ""}};
}

Json block_of(const AnswerPart& part) {
  Json block = fresh_block(part);
  if (part.kind == AnswerPart::Kind::kCall)
    block["input"] = input_of(part.text);
  else
    block[part.kind == AnswerPart::Kind::kReasoning ? "thinking" : "text"] = part.text;
  return block;
}

Json delta_of_block(const AnswerPart& part, const std::string& more) {
  switch (part.kind) {
    case AnswerPart::Kind::kReasoning:
      return {{"type", "thinking_delta"}, {"thinking", more}};
    case AnswerPart::Kind::kCall:
      return {{"type", "input_json_delta"}, {"partial_json", more}};
    case AnswerPart::Kind::kContent:
      break;
  }
  return {{"type", "text_delta"}, {"text", more}};
}

std::string event(const std::string& type, const Json& members = Json::object()) {
  Json event = {{"type", type}};
  event.update(members);
  return event_of(event, type);
}

}  // namespace

MessagesForm::MessagesForm(std::string model, size_t prompt_tokens, std::vector<std::string> stops)
    : model_(std::move(model)), id_(new_id("msg_")), prompt_tokens_(prompt_tokens), stops_(std::move(stops)) {}

Json MessagesForm::reason() const {
  const bool stopped = std::ranges::count(stops_, ending_.stop) > 0;
  const char* reason = "end_turn";
  if (ending_.finish == Finish::kLength)
    reason = "max_tokens";
  else if (stopped)
    reason = "stop_sequence";
  else if (ending_.calls)
    reason = "tool_use";
  return {{"stop_reason", reason}, {"stop_sequence", stopped ? Json(ending_.stop) : Json()}};
}

// Without what it says.
Json MessagesForm::message(const Usage& usage) const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", Json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", json_of(usage)}};
}

Json MessagesForm::whole(const std::vector<Choice>& choices, const Usage& usage) {
  parts_.take(delta_of(choices.front().message));
  ending_ = choices.front().ending;
  Json all = message(usage);
  for (const AnswerPart& part : parts_.all()) all["content"].push_back(block_of(part));
  all.update(reason());
  all["usage"]["sluice"] = figures_of(usage);
  return all;
}

// What of the prompt is there already is told at the end.
std::string MessagesForm::begin(int32_t) {
  Usage usage;
  usage.prompt_tokens = static_cast<int64_t>(prompt_tokens_);
  Json members = Json::object();
  members["message"] = message(usage);
  return event("message_start", members) + event("ping");
}

std::string MessagesForm::events(const std::vector<AnswerParts::Step>& steps) const {
  using Kind = AnswerParts::Step::Kind;
  constexpr const char* kTypes[] = {"content_block_start", "content_block_delta", "content_block_stop"};  // by Kind
  std::string events;
  for (const auto& [kind, part, more] : steps) {
    Json members = {{"index", part}};
    if (kind == Kind::kBegin)
      members["content_block"] = fresh_block(parts_.all()[part]);
    else if (kind == Kind::kMore)
      members["delta"] = delta_of_block(parts_.all()[part], more);
    events += event(kTypes[static_cast<size_t>(kind)], members);
  }
  return events;
}

std::string MessagesForm::piece(int32_t, const Piece& piece) { return events(parts_.take(piece.more)); }

std::string MessagesForm::end(int32_t, const Ending& ending) {
  ending_ = ending;
  return events(parts_.finish());
}

std::string MessagesForm::last(const Usage& usage) {
  Json members = Json::object();
  members["delta"] = reason();
  members["usage"] = json_of(usage);
  members["usage"]["sluice"] = figures_of(usage);
  return event("message_delta", members) + event("message_stop");
}

std::string MessagesForm::error(const ApiError& error) {
  return event_of(error.to_json(ErrorForm::kAnthropic), "error");
}

}  // namespace sluice
