// Answers in the forms of OpenAI's API: whole, and as events of a stream.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/answer_stream.h"
#include "serve/engine_thread.h"
#include "serve/request_reader.h"

namespace sluice {

// Thread safety: const methods may be called by several threads at once.
class AnswerForm {
 public:
  AnswerForm(Api api, std::string model, bool usage_in_stream);

  // One of the answers to a request.
  struct Choice {
    AssistantMessage message;         // of a text the content alone
    nlohmann::ordered_json logprobs;  // null: none
    std::string finish_reason;
  };
  nlohmann::ordered_json whole(const std::vector<Choice>& choices, const Usage& usage) const;

  // Events of a stream, ready to be sent: "data: …\n\n". Chats say first who speaks.
  std::string begin(int32_t choice) const;
  std::string piece(int32_t choice, const AssistantDelta& more, nlohmann::ordered_json logprobs) const;
  std::string end(int32_t choice, const std::string& finish_reason) const;
  std::string last(const Usage& usage) const;  // the usage if it was asked for, and that all is said
  static std::string error(const ApiError& error);

 private:
  nlohmann::ordered_json object(bool chunk) const;
  std::string event(int32_t index, nlohmann::ordered_json choice, nlohmann::ordered_json logprobs = nullptr) const;

  Api api_;
  std::string model_, id_;
  int64_t created_;
  bool usage_in_stream_;
};

// Text of JSON; what is no UTF-8 in it becomes U+FFFD.
std::string text_of(const nlohmann::ordered_json& json);

}  // namespace sluice
