// Answers in the form of Anthropic's Messages API.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/answer_form.h"
#include "serve/answer_parts.h"

namespace sluice {

// Of one answer: there are no others in this API.
class MessagesForm : public AnswerForm {
 public:
  // stops: of its stop strings those that the request has named.
  MessagesForm(std::string model, size_t prompt_tokens, std::vector<std::string> stops);

  nlohmann::ordered_json whole(const std::vector<Choice>& choices, const Usage& usage) override;
  std::string begin(int32_t choice) override;
  std::string piece(int32_t choice, const Piece& piece) override;
  std::string end(int32_t choice, const Ending& ending) override;
  std::string last(const Usage& usage) override;
  std::string error(const ApiError& error) override;

 private:
  nlohmann::ordered_json message(const Usage& usage) const;
  // stop_reason and stop_sequence.
  nlohmann::ordered_json reason() const;
  std::string events(const std::vector<AnswerParts::Step>& steps) const;

  std::string model_, id_;
  size_t prompt_tokens_;
  std::vector<std::string> stops_;
  AnswerParts parts_;
  Ending ending_;
};

}  // namespace sluice
