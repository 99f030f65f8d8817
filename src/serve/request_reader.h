// What a body asks for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "serve/parameter_reader.h"
#include "session/session.h"

namespace sluice {

// What requests get that do not say, and what there is.
struct ServeDefaults {
  std::string model;                  // its name
  std::vector<std::string> aliases;   // by which it may be asked for too; other names are refused
  int32_t slots = 1;                  // requests with a full context that may run at a time
  std::optional<int32_t> max_tokens;  // none: as many as the context leaves
  std::optional<uint64_t> seed;       // none: a new one for each
  std::vector<std::string> methods;   // that the engine has models for; `auto` is among them
};

// What it takes to read what a body asks for, beside its length.
enum class Effort : uint8_t {
  kLittle,
  kMuch,  // schemas of tools, which the family's grammar is made of
  kForm,  // a form is compiled
};
Effort effort_of(const nlohmann::ordered_json& body);

// Of POST /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages.
ApiResult<Asked> read_chat(const Session& session, const ServeDefaults& defaults, const nlohmann::ordered_json& body);
ApiResult<Asked> read_completion(const Session& session, const ServeDefaults& defaults,
                                 const nlohmann::ordered_json& body);
ApiResult<Asked> read_responses(const Session& session, const ServeDefaults& defaults,
                                const nlohmann::ordered_json& body);
ApiResult<Asked> read_messages_request(const Session& session, const ServeDefaults& defaults,
                                       const nlohmann::ordered_json& body);
// Of POST /completion and /infill.
ApiResult<Asked> read_native_completion(const Session& session, const ServeDefaults& defaults,
                                        const nlohmann::ordered_json& body);
ApiResult<Asked> read_infill(const Session& session, const ServeDefaults& defaults, const nlohmann::ordered_json& body);
// Whether a request for this method may choose its width or its depth.
bool takes_option(const Session& session, const std::string& method, const std::string& name);
// Those of the prompt. REQUIRES: api is kChat or kMessages.
ApiResult<size_t> count_input_tokens(Api api, const Session& session, const ServeDefaults& defaults,
                                     const nlohmann::ordered_json& body);

}  // namespace sluice
