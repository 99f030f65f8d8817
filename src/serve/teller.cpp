#include "serve/teller.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <iterator>
#include <span>
#include <utility>

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

void append(AssistantDelta& all, AssistantDelta more) {
  all.content += more.content;
  all.reasoning += more.reasoning;
  for (auto& call : more.tool_calls) all.tool_calls.push_back(std::move(call));
}

void add(Arrival& all, const Arrival& more) {
  all.tokens += more.tokens;
  all.batches += more.batches;
  all.request = more.request;
}

bool says_something(const AssistantDelta& more) {
  return !more.content.empty() || !more.reasoning.empty() || !more.tool_calls.empty();
}

}  // namespace

HttpReply reply_of(const ApiError& error, ErrorForm form) {
  return {.status = error.status, .body = text_of(error.to_json(form))};
}

Teller::Teller(std::unique_ptr<AnswerForm> form, Way way, const Tokenizer& tokenizer,
               std::shared_ptr<Exchange> exchange, const AnswerParser* parser,
               const std::optional<AnswerFormat>& format)
    : form_(std::move(form)), way_(way), exchange_(std::move(exchange)) {
  for (int32_t i = 0; i < way.choices; ++i) {
    choices_.emplace_back(LogprobForm(way.api, tokenizer));
    if (parser != nullptr && format) choices_.back().reader.emplace(*parser, *format);
  }
}

// What an answer's text adds to the message.
AssistantDelta Teller::Choice::read(const AnswerNews& news) {
  AssistantDelta more;
  if (!reader) {
    more.content = news.text;
    return more;
  }
  if (!news.text.empty()) more = reader->push(news.text);
  if (news.end) append(more, reader->finish());
  name_calls(more);
  return more;
}

// The id of a call goes out with its name, and once.
void Teller::Choice::name_calls(AssistantDelta& more) {
  for (auto& [index, call] : more.tool_calls) {
    if (index < call_ids.size()) {
      call.id.clear();
    } else {
      if (call.id.empty()) call.id = new_id("call_");
      call_ids.push_back(call.id);
    }
  }
}

AnswerForm::Ending Teller::Choice::ending() const {
  return {.finish = end->finish, .calls = !call_ids.empty(), .stop = end->stop, .arrived = arrived, .tokens = said};
}

void Teller::take(const AnswerNews& news) {
  if (over_) return;
  if (news.end && news.end->finish == Finish::kFailed) return fail(news.end->error);
  Choice& choice = choices_[static_cast<size_t>(news.choice)];
  choice.end = news.end;
  way_.stream ? send(choice, news) : collect(choice, news);
}

void Teller::fail(const ApiError& error) {
  over_ = true;
  if (!begun_) return exchange_->reply(reply_of(error, way_.errors));
  exchange_->stream(form_->error(error));
  exchange_->end_stream();
}

void Teller::send(Choice& choice, const AnswerNews& news) {
  std::string events;
  for (int32_t i = 0; !begun_ && i < way_.choices; ++i) events += form_->begin(i);
  begun_ = true;
  AssistantDelta more = choice.read(news);
  add(choice.arrived, news.arrived);
  choice.said.insert(choice.said.end(), news.said.begin(), news.said.end());
  if (says_something(more) || !news.logprobs.empty())
    events +=
        form_->piece(news.choice, {.more = std::move(more),
                                   .logprobs = way_.logprobs ? choice.form.next(news.tokens, news.logprobs) : Json(),
                                   .tokens = std::exchange(choice.said, {}),
                                   .arrived = std::exchange(choice.arrived, {})});
  if (choice.end) events += form_->end(news.choice, choice.ending());
  over_ = all_have_ended();
  if (over_) events += form_->last(usage());
  if (!events.empty()) exchange_->stream(std::move(events));
  if (over_) exchange_->end_stream();
}

void Teller::collect(Choice& choice, const AnswerNews& news) {
  choice.message.content += news.text;
  choice.tokens.insert(choice.tokens.end(), news.tokens.begin(), news.tokens.end());
  choice.logprobs.insert(choice.logprobs.end(), news.logprobs.begin(), news.logprobs.end());
  choice.said.insert(choice.said.end(), news.said.begin(), news.said.end());
  over_ = all_have_ended();
  if (!over_) return;
  std::vector<AnswerForm::Choice> whole;
  for (Choice& one : choices_) {
    AnswerNews text{.text = std::move(one.message.content), .end = one.end};
    one.message.content.clear();
    const AssistantDelta read = one.read(text);
    one.message = one.reader ? one.reader->message() : AssistantMessage{.content = read.content};
    for (size_t i = 0; i < one.message.tool_calls.size(); ++i) one.message.tool_calls[i].id = one.call_ids[i];
    whole.push_back({.message = std::move(one.message),
                     .logprobs = way_.logprobs ? one.form.next(one.tokens, one.logprobs) : Json(),
                     .ending = one.ending()});
  }
  exchange_->reply({.status = 200, .body = text_of(form_->whole(whole, usage()))});
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

void LateTeller::take(AnswerNews news) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(news));
    if (std::exchange(at_work_, true)) return;
  }
  work_later();
}

void LateTeller::work_later() {
  boost::asio::post(threads_, [self = shared_from_this()] { self->work(); });
}

// What comes meanwhile has its turn behind other answers.
void LateTeller::work() {
  const auto all = waiting();
  if (all.empty()) return;
  try {
    for (const AnswerNews& news : all) teller_.take(news);
  } catch (const std::exception& error) {
    const ApiError why{.status = 500, .message = error.what(), .param = "", .code = ""};
    teller_.take({.end = AnswerEnd{.finish = Finish::kFailed, .usage = {}, .error = why}});
  }
  work_later();
}

// What has come since it was last asked, of each answer in one; nothing: the work is done.
std::vector<AnswerNews> LateTeller::waiting() {
  std::vector<AnswerNews> all, merged;
  {
    const std::lock_guard lock(mutex_);
    all = std::exchange(waiting_, {});
    at_work_ = !all.empty();
  }
  for (AnswerNews& news : all) {
    const auto before = std::ranges::find_if(
        merged, [&](const AnswerNews& one) { return one.choice == news.choice && !one.end.has_value(); });
    if (before == merged.end()) {
      merged.push_back(std::move(news));
      continue;
    }
    before->text += news.text;
    before->tokens.insert(before->tokens.end(), news.tokens.begin(), news.tokens.end());
    std::ranges::move(news.logprobs, std::back_inserter(before->logprobs));
    add(before->arrived, news.arrived);
    before->said.insert(before->said.end(), news.said.begin(), news.said.end());
    before->end = std::move(news.end);
  }
  return merged;
}

}  // namespace sluice
