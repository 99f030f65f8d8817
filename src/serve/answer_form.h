// Answers in the form of an API: whole, and as events of a stream.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/answer_stream.h"
#include "serve/answer_engine.h"
#include "serve/api_error.h"

namespace sluice {

// Of the answers to one request, whole or as a stream. Thread safety: none.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // How an answer came to its end.
  struct Ending {
    Finish finish = Finish::kNone;   // kStop or kLength
    bool calls = false;              // of tools
    std::string stop = {};           // the stop string that ended it; empty: none did
    Arrival arrived = {};            // of which no piece has told
    std::vector<Token> tokens = {};  // likewise, one that ends it too
  };
  struct Choice {
    AssistantMessage message;         // of a text the content alone
    nlohmann::ordered_json logprobs;  // null: none
    Ending ending;
  };
  // What has come to an answer.
  struct Piece {
    AssistantDelta more;
    nlohmann::ordered_json logprobs;  // null: none
    std::vector<Token> tokens;
    Arrival arrived = {};
  };
  virtual nlohmann::ordered_json whole(const std::vector<Choice>& choices, const Usage& usage) = 0;

  // Events, ready to be sent: begin() of each choice before all others, its end() after its pieces, last() or error()
  // when nothing follows.
  virtual std::string begin(int32_t choice) = 0;
  virtual std::string piece(int32_t choice, const Piece& piece) = 0;
  virtual std::string end(int32_t choice, const Ending& ending) = 0;
  virtual std::string last(const Usage& usage) = 0;
  virtual std::string error(const ApiError& error) = 0;
};

// Text of JSON; what is no UTF-8 in it becomes U+FFFD.
std::string text_of(const nlohmann::ordered_json& json);
// An event of a stream, ready to be sent; without a name it is its data alone.
std::string event_of(const nlohmann::ordered_json& data, const std::string& name = "");
// A random one.
std::string new_id(const std::string& prefix);
// What usage has beyond the counts of any API.
nlohmann::ordered_json figures_of(const Usage& usage);
// How fast it was, as llama-server tells it: rates are of what was computed, the first token counts to the prompt.
nlohmann::ordered_json timings_of(const Usage& usage);

}  // namespace sluice
