#include "serve/native_form.h"

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kAnySlot = -1;

const char* stop_type(const AnswerForm::Ending& ending) {
  if (ending.finish == Finish::kLength) return "limit";
  return ending.stop.empty() ? "eos" : "word";
}

// The member at a path as generation_settings/seed; null: there is none.
const Json* member_at(const Json& all, const std::string& path) {
  const Json* at = &all;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (!at->is_object() || !at->contains(name)) return nullptr;
    at = &(*at)[name];
    begin = end + 1;
  }
  return at;
}

}  // namespace

NativeForm::NativeForm(std::string model, const Asked& asked)
    : model_(std::move(model)),
      index_(asked.index),
      settings_(asked.settings),
      prompt_tokens_(std::ssize(asked.spec.prompt)),
      most_tokens_(asked.spec.max_tokens),
      return_tokens_(asked.return_tokens),
      fields_(asked.response_fields) {}

// It was to be longer, and there was no more room.
bool NativeForm::cut_short(const Usage& usage) const {
  return ending_.finish == Finish::kLength && usage.completion_tokens < most_tokens_;
}

Json NativeForm::all(const std::string& content, const std::vector<Token>& tokens, const Usage& usage) const {
  Json all = {{"index", index_},
              {"content", content},
              {"tokens", tokens},
              {"id_slot", kAnySlot},
              {"stop", true},
              {"model", model_},
              {"tokens_predicted", usage.completion_tokens},
              {"tokens_evaluated", usage.prompt_tokens}};
  all.update(settings_);
  all["has_new_line"] = has_new_line_;
  all["truncated"] = cut_short(usage);
  all["stop_type"] = stop_type(ending_);
  all["stopping_word"] = ending_.stop;
  all["tokens_cached"] = usage.reused_tokens;
  all["timings"] = timings_of(usage);
  all["sluice"] = figures_of(usage);
  return all;
}

// What the request wants of it.
Json NativeForm::chosen(Json all) const {
  if (fields_.empty()) return all;
  Json some = Json::object();
  for (const std::string& field : fields_)
    if (const Json* const at = member_at(all, field)) some[field] = *at;
  return some;
}

Json NativeForm::whole(const std::vector<Choice>& choices, const Usage& usage) {
  const Choice& only = choices.front();
  ending_ = only.ending;
  has_new_line_ = only.message.content.find('\n') != std::string::npos;
  Json answer = all(only.message.content, return_tokens_ ? only.ending.tokens : std::vector<Token>(), usage);
  if (!only.logprobs.is_null()) answer["completion_probabilities"] = only.logprobs;
  return chosen(std::move(answer));
}

std::string NativeForm::begin(int32_t) { return {}; }

std::string NativeForm::event(const std::string& content, const std::vector<Token>& tokens, Json probabilities) {
  n_tokens_ += std::ssize(tokens);
  Json event = {{"index", index_},
                {"content", content},
                {"tokens", tokens},
                {"stop", false},
                {"id_slot", kAnySlot},
                {"tokens_predicted", n_tokens_},
                {"tokens_evaluated", prompt_tokens_}};
  if (!probabilities.is_null()) event["completion_probabilities"] = std::move(probabilities);
  return event_of(event);
}

// With probabilities each token has an event of its own, the last of those that came at once their text.
std::string NativeForm::piece(int32_t, const Piece& piece) {
  const std::string& content = piece.more.content;
  has_new_line_ = has_new_line_ || content.find('\n') != std::string::npos;
  if (piece.logprobs.empty()) return event(content, piece.tokens, nullptr);
  std::string events;
  for (const Json& one : piece.logprobs)
    events += event(&one == &piece.logprobs.back() ? content : "", {one["id"].get<Token>()}, Json::array({one}));
  return events;
}

std::string NativeForm::end(int32_t, const Ending& ending) {
  ending_ = ending;
  return {};
}

std::string NativeForm::last(const Usage& usage) { return event_of(chosen(all("", ending_.tokens, usage))); }

std::string NativeForm::error(const ApiError& error) { return event_of(error.to_json()); }

}  // namespace sluice
