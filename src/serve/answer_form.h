// Answers in the forms of OpenAI's API: whole, and as events of a stream.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "serve/engine_thread.h"

namespace sluice {

enum class Api : uint8_t { kChat, kCompletions };

// Thread safety: const methods may be called by several threads at once.
class AnswerForm {
 public:
  AnswerForm(Api api, std::string model, bool usage_in_stream);

  nlohmann::ordered_json whole(const std::string& text, const AnswerEnd& end) const;

  // Events of a stream, ready to be sent: "data: …\n\n".
  std::string begin() const;  // chats say who speaks
  std::string piece(const std::string& text) const;
  std::string end(const AnswerEnd& end) const;  // why it ends, the usage if it was asked for, and that all is said
  static std::string error(const ApiError& error);

 private:
  nlohmann::ordered_json object(bool chunk) const;
  std::string event(nlohmann::ordered_json choice) const;

  Api api_;
  std::string model_, id_;
  int64_t created_;
  bool usage_in_stream_;
};

// Text of JSON; what is no UTF-8 in it becomes U+FFFD.
std::string text_of(const nlohmann::ordered_json& json);

}  // namespace sluice
