#include "serve/teller.h"

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

std::string finish_reason(const AnswerEnd& end) { return end.finish == Finish::kLength ? "length" : "stop"; }

}  // namespace

HttpReply reply_of(const ApiError& error) { return {.status = error.status, .body = text_of(error.to_json())}; }

Teller::Teller(AnswerForm form, Way way, const Tokenizer& tokenizer, std::shared_ptr<Exchange> exchange)
    : form_(std::move(form)),
      way_(way),
      choices_(static_cast<size_t>(way.choices), Choice(LogprobForm(way.api, tokenizer))),
      exchange_(std::move(exchange)) {}

void Teller::take(const AnswerNews& news) {
  if (over_) return;
  if (news.end && news.end->finish == Finish::kFailed) return fail(news.end->error);
  Choice& choice = choices_[static_cast<size_t>(news.choice)];
  choice.end = news.end;
  way_.stream ? send(choice, news) : collect(choice, news);
}

void Teller::fail(const ApiError& error) {
  over_ = true;
  if (!begun_) return exchange_->reply(reply_of(error));
  exchange_->stream(AnswerForm::error(error));
  exchange_->end_stream();
}

void Teller::send(Choice& choice, const AnswerNews& news) {
  std::string events;
  for (int32_t i = 0; !begun_ && i < way_.choices; ++i) events += form_.begin(i);
  begun_ = true;
  if (!news.text.empty() || !news.logprobs.empty()) {
    const AssistantDelta more{.content = news.text, .reasoning = {}, .tool_calls = {}};
    events += form_.piece(news.choice, more, way_.logprobs ? choice.form.next(news.tokens, news.logprobs) : Json());
  }
  if (choice.end) events += form_.end(news.choice, finish_reason(*choice.end));
  over_ = all_have_ended();
  if (over_) events += form_.last(usage());
  exchange_->stream(std::move(events));
  if (over_) exchange_->end_stream();
}

void Teller::collect(Choice& choice, const AnswerNews& news) {
  choice.message.content += news.text;
  choice.tokens.insert(choice.tokens.end(), news.tokens.begin(), news.tokens.end());
  choice.logprobs.insert(choice.logprobs.end(), news.logprobs.begin(), news.logprobs.end());
  over_ = all_have_ended();
  if (!over_) return;
  std::vector<AnswerForm::Choice> whole;
  for (Choice& one : choices_)
    whole.push_back({.message = std::move(one.message),
                     .logprobs = way_.logprobs ? one.form.next(one.tokens, one.logprobs) : Json(),
                     .finish_reason = finish_reason(*one.end)});
  exchange_->reply({.status = 200, .body = text_of(form_.whole(whole, usage()))});
}

bool Teller::all_have_ended() const {
  return std::ranges::all_of(choices_, [](const Choice& choice) { return choice.end.has_value(); });
}

// Of several choices the sums; the prompt is one, and time passes for all at once.
Usage Teller::usage() const {
  Usage all = choices_.front().end->usage;
  for (const Choice& choice : std::span(choices_).subspan(1)) {
    const Usage& one = choice.end->usage;
    all.completion_tokens += one.completion_tokens;
    all.drafted += one.drafted;
    all.accepted += one.accepted;
    all.flushes += one.flushes;
    all.equivalent_acceptance_length += one.equivalent_acceptance_length;
    all.tokens_per_second += one.tokens_per_second;
    all.prefill_seconds = std::max(all.prefill_seconds, one.prefill_seconds);
    all.decode_seconds = std::max(all.decode_seconds, one.decode_seconds);
  }
  all.equivalent_acceptance_length /= static_cast<double>(choices_.size());
  return all;
}

}  // namespace sluice
