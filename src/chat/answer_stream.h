// An answer as it grows, read in pieces of which none is ever taken back.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/answer_parser.h"

namespace sluice {

// What has come to a message.
struct AssistantDelta {
  struct Call {
    size_t index;
    ToolCall more;  // the first one of a call has its name, whole
  };
  std::string content, reasoning;
  std::vector<Call> tool_calls;
};

// All deltas together are the message that parse() reads of the whole text. Where that is none of the format, they are
// what it reads of its longest beginning that is, and what is left of the text is content as it stands; so it is behind
// what was read when reading more takes more than the bounds.
class AnswerStream {
 public:
  // REQUIRES: the parser outlives it.
  AnswerStream(const AnswerParser& parser, AnswerFormat format) : parser_(parser), format_(std::move(format)) {}

  // After more text: whole characters of UTF-8. The whole text is read anew, so it pays to push it in larger pieces.
  AssistantDelta push(std::string_view text);
  // At the end of the text.
  AssistantDelta finish();

  const AssistantMessage& message() const { return message_; }  // as said so far

 private:
  std::optional<AssistantMessage> beginning(size_t size, bool partial) const;
  bool goes_on_in(const AssistantMessage& now) const;
  AssistantDelta take(const AssistantMessage& now, bool partial);
  AssistantDelta break_off();
  void find_unread();
  AssistantDelta rest();

  const AnswerParser& parser_;
  AnswerFormat format_;
  std::string text_;
  size_t n_read_ = 0;        // bytes of the text with which something was last said
  bool unreadable_ = false;  // the text from n_read_ on is content
  AssistantMessage message_;
};

}  // namespace sluice
