// How likely tokens were, in the forms of OpenAI's API.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "engine/engine.h"
#include "model/tokenizer.h"
#include "serve/request_reader.h"

namespace sluice {

class LogprobForm {
 public:
  // REQUIRES: the tokenizer outlives it.
  LogprobForm(Api api, const Tokenizer& tokenizer) : api_(api), tokenizer_(&tokenizer) {}

  // Of tokens that follow those of the calls before. Chats: an object with a list; texts: one with a list for each
  // member; llama-server's own API: a list. REQUIRES: logprobs[i] is of tokens[i].
  nlohmann::ordered_json next(std::span<const Token> tokens, std::span<const Logprobs> logprobs);

 private:
  nlohmann::ordered_json of_chat(Token token, float logprob) const;
  nlohmann::ordered_json of_native(Token token, float logprob) const;
  std::string name_of(Token token) const;

  Api api_;
  const Tokenizer* tokenizer_;
  int64_t offset_ = 0;  // characters before the next token
};

}  // namespace sluice
