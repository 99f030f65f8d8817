// Answers in the form of llama-server's own API.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/answer_form.h"
#include "serve/parameter_reader.h"

namespace sluice {

// Of one answer: there are no others in this API. Streams end with an event of all but the text.
class NativeForm : public AnswerForm {
 public:
  NativeForm(std::string model, const Asked& asked);

  nlohmann::ordered_json whole(const std::vector<Choice>& choices, const Usage& usage) override;
  std::string begin(int32_t choice) override;
  std::string piece(int32_t choice, const Piece& piece) override;
  std::string end(int32_t choice, const Ending& ending) override;
  std::string last(const Usage& usage) override;
  std::string error(const ApiError& error) override;

 private:
  std::string event(const std::string& content, const std::vector<Token>& tokens, nlohmann::ordered_json probabilities);
  nlohmann::ordered_json all(const std::string& content, const std::vector<Token>& tokens, const Usage& usage) const;
  bool cut_short(const Usage& usage) const;
  nlohmann::ordered_json chosen(nlohmann::ordered_json all) const;

  std::string model_;
  size_t index_;
  nlohmann::ordered_json settings_;  // generation_settings and prompt
  int64_t prompt_tokens_, most_tokens_;
  bool return_tokens_;
  std::vector<std::string> fields_;
  Ending ending_;
  bool has_new_line_ = false;
  int64_t n_tokens_ = 0;  // told
};

}  // namespace sluice
