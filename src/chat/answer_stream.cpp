#include "chat/answer_stream.h"

namespace sluice {

namespace {

// Makes `said` what it is now, and returns what that adds. What would change it comes too late.
std::string prolong(std::string& said, const std::string& now) {
  if (!now.starts_with(said)) return {};
  std::string more = now.substr(said.size());
  said = now;
  return more;
}

}  // namespace

AssistantDelta AnswerStream::push(std::string_view text) {
  text_ += text;
  return read(/*partial=*/true);
}

AssistantDelta AnswerStream::read(bool partial) {
  if (unreadable_) return rest();
  const auto now = parser_.parse(format_, text_, partial);
  unreadable_ = !now;
  if (now && *now) return take(**now, partial);
  return now && partial ? AssistantDelta() : rest();
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

AssistantDelta AnswerStream::rest() {
  AssistantDelta delta{.content = text_.substr(n_read_), .reasoning = {}, .tool_calls = {}};
  message_.content += delta.content;
  n_read_ = text_.size();
  return delta;
}

}  // namespace sluice
