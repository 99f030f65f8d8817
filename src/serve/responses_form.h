// Answers in the form of OpenAI's Responses API.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/answer_form.h"
#include "serve/answer_parts.h"

namespace sluice {

// Of one answer: there are no others in this API.
class ResponsesForm : public AnswerForm {
 public:
  // settings: what a response tells again of its request.
  ResponsesForm(std::string model, nlohmann::ordered_json settings);

  nlohmann::ordered_json whole(const std::vector<Choice>& choices, const Usage& usage) override;
  std::string begin(int32_t choice) override;
  std::string piece(int32_t choice, const Piece& piece) override;
  std::string end(int32_t choice, const Ending& ending) override;
  std::string last(const Usage& usage) override;
  std::string error(const ApiError& error) override;

 private:
  nlohmann::ordered_json response(const char* status) const;
  nlohmann::ordered_json ended(const Usage& usage) const;
  nlohmann::ordered_json item(size_t part, const char* status) const;
  nlohmann::ordered_json fresh_item(size_t part) const;
  nlohmann::ordered_json content(size_t part, const std::string& text) const;
  nlohmann::ordered_json place(size_t part) const;
  std::string item_id(size_t part) const;

  std::string event(const std::string& type, nlohmann::ordered_json members);
  std::string lifecycle(const std::string& type, nlohmann::ordered_json response);
  std::string begin_part(size_t part);
  std::string end_part(size_t part, const char* status);
  std::string events(const std::vector<AnswerParts::Step>& steps, const char* last_status);
  const char* status() const;

  std::string model_, id_;
  nlohmann::ordered_json settings_;
  int64_t created_;
  AnswerParts parts_;
  Ending ending_;
  int64_t n_events_ = 0;
};

}  // namespace sluice
