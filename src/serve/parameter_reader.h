// What a text is to be, by the parameters of OpenAI's API and ours.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_parser.h"
#include "engine/request.h"
#include "grammar/grammar_reader.h"
#include "serve/api_error.h"

namespace sluice {

enum class Api : uint8_t { kChat, kCompletions, kResponses, kMessages, kNative };  // the last one: llama-server's

// In which form an answer is to be, and which parameter says so.
struct AskedForm {
  GrammarSource source;
  std::string param;
};

// A text to generate.
struct Asked {
  Api api = Api::kChat;
  RequestSpec spec;
  int32_t choices = 1;
  size_t index = 0;    // among the prompts of one body
  std::string method;  // `auto`: what the engine begins with may be switched
  std::vector<std::string> stops;
  std::optional<AskedForm> form;  // none: any text
  std::string form_param;         // by which the answer has a grammar; empty: it has none
  bool stream = false, include_usage = false;
  bool resumable = false;                    // the stream may be taken up again
  std::optional<AnswerFormat> format;        // how the answer is read, if it may hold more than a text
  std::vector<Token> shown;                  // control tokens that are read with it
  nlohmann::ordered_json settings;           // what the answer tells again of the request
  bool verbose = false;                      // its prompt is told too
  bool return_tokens = false;                // and its tokens
  std::vector<std::string> response_fields;  // it tells these members alone; empty: all
};

// A parameter that is null is not given. One that is unknown, or that would change the answer and is not supported, is
// an error (400) that names it. Those that choose model, method and prompt are read elsewhere.
// called: its name in this API; empty: the same.
ApiStatus read_parameter(const std::string& name, const nlohmann::ordered_json& value, Asked& asked,
                         const std::string& called = "");
// Whether every API in which conversations are asked has this parameter.
bool is_common_parameter(std::string_view name);
// What parameters say of each other.
ApiStatus check_parameters(const Asked& asked);

}  // namespace sluice
