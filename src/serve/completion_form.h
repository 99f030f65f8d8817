// Answers in the forms of OpenAI's chat completions and text completions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/answer_form.h"
#include "serve/parameter_reader.h"

namespace sluice {

// In streams chats say first who speaks, and "data: [DONE]" ends them.
class CompletionForm : public AnswerForm {
 public:
  // api: one of the two. verbose: what a whole answer tells beside itself; null: nothing.
  CompletionForm(Api api, std::string model, bool usage_in_stream, nlohmann::ordered_json verbose = nullptr);

  nlohmann::ordered_json whole(const std::vector<Choice>& choices, const Usage& usage) override;
  std::string begin(int32_t choice) override;
  std::string piece(int32_t choice, const Piece& piece) override;
  std::string end(int32_t choice, const Ending& ending) override;
  std::string last(const Usage& usage) override;
  std::string error(const ApiError& error) override;

 private:
  nlohmann::ordered_json object(bool chunk) const;
  std::string event(int32_t index, nlohmann::ordered_json choice, nlohmann::ordered_json logprobs = nullptr,
                    Arrival arrived = {}) const;

  Api api_;
  std::string model_, id_;
  int64_t created_;
  bool usage_in_stream_;
  nlohmann::ordered_json verbose_;
};

}  // namespace sluice
