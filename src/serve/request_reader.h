// What a body asks for: the parameters of OpenAI's API, and ours.
//
// A parameter that is null is not given. One that is unknown, or that would change the answer and is not supported, is
// an error (400) that names it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "session/session.h"

namespace sluice {

enum class Api : uint8_t { kChat, kCompletions };

// A text to generate.
struct Asked {
  Api api = Api::kChat;
  RequestSpec spec;
  int32_t choices = 1;
  std::string method;  // `auto`: what the engine begins with may be switched
  std::vector<std::string> stops;
  bool stream = false, include_usage = false;
  std::optional<AnswerFormat> format;  // how the answer is read, if it may hold more than a text
  std::vector<Token> shown;            // control tokens that are read with it
};

// What requests get that do not say, and what there is.
struct ServeDefaults {
  std::string model;                  // its name: other names are refused
  int32_t slots = 1;                  // requests with a full context that may run at a time
  std::optional<int32_t> max_tokens;  // none: as many as the context leaves
  std::optional<uint64_t> seed;       // none: a new one for each
};

// Of POST /v1/chat/completions and POST /v1/completions.
ApiResult<Asked> read_chat(const Session& session, const ServeDefaults& defaults, const nlohmann::json& body);
ApiResult<Asked> read_completion(const Session& session, const ServeDefaults& defaults, const nlohmann::json& body);
// Of a list of messages, under the name of the parameter.
ApiResult<std::vector<ChatMessage>> read_messages(const nlohmann::json& messages, const std::string& param);
// Of a list of token ids, likewise.
ApiResult<std::vector<Token>> read_tokens(const nlohmann::json& ids, const std::string& param, int32_t n_vocab);

// The parameters of other requests, of which the body may have no others than those that are named. Errors (400).
class BodyReader {
 public:
  BodyReader(const nlohmann::json& body, std::vector<std::string> known);
  ApiStatus check() const;
  ApiResult<std::string> text(const std::string& param) const;
  ApiResult<bool> flag(const std::string& param, bool otherwise) const;

 private:
  const nlohmann::json& body_;
  std::vector<std::string> known_;
};

}  // namespace sluice
