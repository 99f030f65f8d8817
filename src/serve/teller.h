// Brings the answers to a request to its client, in the form in which it asked for them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer_form.h"
#include "serve/engine_thread.h"
#include "serve/http_server.h"
#include "serve/logprob_form.h"

namespace sluice {

HttpReply reply_of(const ApiError& error);

// Thread safety: none; whoever takes news takes all of them.
class Teller {
 public:
  struct Way {
    Api api = Api::kChat;
    int32_t choices = 1;
    bool stream = false, logprobs = false;
  };
  // REQUIRES: the tokenizer outlives it.
  Teller(AnswerForm form, Way way, const Tokenizer& tokenizer, std::shared_ptr<Exchange> exchange);

  void take(const AnswerNews& news);

 private:
  struct Choice {
    explicit Choice(LogprobForm form) : form(std::move(form)) {}
    AssistantMessage message;
    std::vector<Token> tokens;
    std::vector<Logprobs> logprobs;
    LogprobForm form;
    std::optional<AnswerEnd> end;
  };
  void fail(const ApiError& error);
  void send(Choice& choice, const AnswerNews& news);
  void collect(Choice& choice, const AnswerNews& news);
  bool all_have_ended() const;
  Usage usage() const;

  AnswerForm form_;
  Way way_;
  std::vector<Choice> choices_;
  bool begun_ = false;  // it has gone out that all is well
  bool over_ = false;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace sluice
