// Brings the answers to a request to its client, in the form in which it asked for them.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer_engine.h"
#include "serve/answer_form.h"
#include "serve/http_server.h"
#include "serve/logprob_form.h"
#include "serve/parameter_reader.h"

namespace sluice {

HttpReply reply_of(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi);

// Thread safety: none; whoever takes news takes all of them.
class Teller {
 public:
  struct Way {
    Api api = Api::kChat;
    int32_t choices = 1;
    bool stream = false, logprobs = false;
    ErrorForm errors = ErrorForm::kOpenAi;
  };
  // format: by which the parser reads the answers; none: they are texts. REQUIRES: tokenizer and parser outlive it.
  Teller(std::unique_ptr<AnswerForm> form, Way way, const Tokenizer& tokenizer, std::shared_ptr<Exchange> exchange,
         const AnswerParser* parser = nullptr, const std::optional<AnswerFormat>& format = {});

  void take(const AnswerNews& news);

 private:
  struct Choice {
    explicit Choice(LogprobForm form) : form(std::move(form)) {}
    AssistantMessage message;
    std::vector<Token> tokens;
    std::vector<Logprobs> logprobs;
    LogprobForm form;
    std::optional<AnswerStream> reader;
    std::vector<std::string> call_ids;  // ours, where the family gives none
    std::optional<AnswerEnd> end;
    Arrival arrived;          // of which no piece has told
    std::vector<Token> said;  // likewise

    AssistantDelta read(const AnswerNews& news);
    void name_calls(AssistantDelta& more);
    AnswerForm::Ending ending() const;
  };
  void fail(const ApiError& error);
  void send(Choice& choice, const AnswerNews& news);
  void collect(Choice& choice, const AnswerNews& news);
  bool all_have_ended() const;
  Usage usage() const;

  std::unique_ptr<AnswerForm> form_;
  Way way_;
  std::vector<Choice> choices_;
  bool begun_ = false;  // it has gone out that all is well
  bool over_ = false;
  std::shared_ptr<Exchange> exchange_;
};

// Has a teller take its news on a thread of its own, those that have come meanwhile at once: reading an answer takes
// longer than the engine may wait. Thread safety: any thread.
class LateTeller : public std::enable_shared_from_this<LateTeller> {
 public:
  // REQUIRES: the threads outlive it.
  LateTeller(Teller teller, boost::asio::thread_pool& threads) : teller_(std::move(teller)), threads_(threads) {}

  void take(AnswerNews news);

 private:
  void work_later();
  void work();
  std::vector<AnswerNews> waiting();

  Teller teller_;
  boost::asio::thread_pool& threads_;
  std::mutex mutex_;
  std::vector<AnswerNews> waiting_;
  bool at_work_ = false;
};

}  // namespace sluice
