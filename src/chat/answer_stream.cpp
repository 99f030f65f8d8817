#include "chat/answer_stream.h"

#include <algorithm>

namespace sluice {

namespace {

// Makes `said` what it is now, and returns what that adds. What would change it comes too late.
std::string prolong(std::string& said, const std::string& now) {
  if (!now.starts_with(said)) return {};
  std::string more = now.substr(said.size());
  said = now;
  return more;
}

// The largest number within [low, high] up to which `holds` does. REQUIRES: it holds for `low`.
template <class Holds>
size_t last_that(size_t low, size_t high, const Holds& holds) {
  while (low < high) {
    const size_t middle = high - (high - low) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace

AssistantDelta AnswerStream::push(std::string_view text) {
  text_ += text;
  if (unreadable_) return rest();
  const auto now = parser_.parse(format_, text_, /*partial=*/true);
  if (now) return *now ? take(**now, /*partial=*/true) : AssistantDelta();
  find_unread();
  return rest();
}

AssistantDelta AnswerStream::finish() {
  if (unreadable_) return rest();
  const auto now = parser_.parse(format_, text_, /*partial=*/false);
  if (now) return *now && goes_on_in(**now) ? take(**now, /*partial=*/false) : break_off();
  find_unread();
  return rest();
}

// Whether what was said is the beginning of this.
bool AnswerStream::goes_on_in(const AssistantMessage& now) const {
  const auto& calls = message_.tool_calls;
  const auto same_call = [](const ToolCall& said, const ToolCall& call) {
    return said.name == call.name && call.arguments.starts_with(said.arguments);
  };
  return now.content.starts_with(message_.content) && now.reasoning.starts_with(message_.reasoning) &&
         calls.size() <= now.tool_calls.size() &&
         std::equal(calls.begin(), calls.end(), now.tool_calls.begin(), same_call);
}

// What so many bytes of the text are read as; nothing also where that takes more than the bounds.
std::optional<AssistantMessage> AnswerStream::beginning(size_t size, bool partial) const {
  auto read = parser_.parse(format_, std::string_view(text_).substr(0, size), partial);
  return read ? std::move(*read) : std::nullopt;
}

AssistantDelta AnswerStream::take(const AssistantMessage& now, bool partial) {
  const AssistantMessage before = message_;
  AssistantDelta delta{.content = prolong(message_.content, now.content),
                       .reasoning = prolong(message_.reasoning, now.reasoning),
                       .tool_calls = {}};
  for (size_t i = 0; i < now.tool_calls.size(); ++i) {
    const ToolCall& call = now.tool_calls[i];
    const bool complete = !partial || i + 1 < now.tool_calls.size();
    if (!complete && call.arguments.empty()) break;  // its name may be longer
    const bool first = i == message_.tool_calls.size();
    if (first) message_.tool_calls.push_back({.id = "", .name = call.name, .arguments = ""});
    ToolCall& said = message_.tool_calls[i];
    ToolCall more{.id = first || complete ? prolong(said.id, call.id) : "",
                  .name = first ? call.name : "",
                  .arguments = prolong(said.arguments, call.arguments)};
    if (first || more != ToolCall()) delta.tool_calls.push_back({i, std::move(more)});
  }
  if (message_ != before) n_read_ = text_.size();
  return delta;
}

// The text has turned out to be none of the format. What was pushed since it was one has said nothing.
AssistantDelta AnswerStream::break_off() {
  const size_t good = last_that(n_read_, text_.size(), [&](size_t n) { return beginning(n, false).has_value(); });
  const std::string bad = text_.substr(good);
  text_.resize(good);
  AssistantDelta delta;
  if (const auto now = beginning(good, /*partial=*/true)) delta = take(*now, /*partial=*/false);
  find_unread();
  text_ += bad;
  delta.content += rest().content;
  return delta;
}

// Of the text with which something was last said, the end may have said nothing.
void AnswerStream::find_unread() {
  unreadable_ = true;
  const auto said = beginning(n_read_, /*partial=*/true);
  if (n_read_ == 0 || !said) return;
  n_read_ = 1 + last_that(0, n_read_ - 1, [&](size_t n) { return n == 0 || beginning(n, true) != said; });
}

AssistantDelta AnswerStream::rest() {
  AssistantDelta delta{.content = text_.substr(n_read_), .reasoning = {}, .tool_calls = {}};
  message_.content += delta.content;
  n_read_ = text_.size();
  return delta;
}

}  // namespace sluice
