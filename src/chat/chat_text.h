// The tokens of a conversation in which no message can pass off its own text as one of the template's markers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/special_finder.h"
#include "model/tokenizer.h"

namespace sluice {

// A template renders markers such as <|im_start|> and what the messages say into one text, in which nobody can tell any
// more who wrote what. So before it is rendered, each special text in a message gets a stand-in for its first
// character: a control character, noncharacter or private-use character that occurs nowhere else, which keeps lengths,
// is no white space and has no case. What is rendered is split at the special texts that are left, the template's own.
// Then the stand-ins turn back, and what lies between is tokenised as plain text.
//
// Special texts are those of the vocabulary, in upper and lower case, since a template may change it:
// - of control and unknown tokens, in every role, a system message, tool calls and tools included;
// - of user-defined tokens if the template writes them itself, as turn markers (DeepSeek's are such) or <think>, in
//   every role but the assistant's: its text comes from the model, and templates look into it for </think>. Other
//   user-defined tokens, as for runs of spaces, are words of the vocabulary and stay such in every text.
// A conversation without such texts is tokenised as libllama does it. A template doesn't see the concealed texts, so a
// test like `'[INST]' in content` fails; one that deletes something from the middle of a content can still put a
// special text together.
class ChatText {
 public:
  // REQUIRES: tokenizer outlives it.
  ChatText(const Tokenizer& tokenizer, std::string_view template_source);

  using Render = std::function<Result<std::string>(const ChatTemplateInput&)>;
  // An error if rendering fails, or if the messages use up all stand-ins.
  Result<std::vector<Token>> encode(ChatTemplateInput input, const Render& render) const;

 private:
  const Tokenizer* tokenizer_;
  std::string template_source_;
  SpecialFinder all_, anybodys_, assistants_;  // to split at; to conceal in messages, and in the assistant's
};

}  // namespace sluice
