// Bodies of Anthropic's Messages API. Errors (400) name the member.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "chat/answer_parser.h"
#include "serve/api_error.h"
#include "serve/parameter_reader.h"

namespace sluice {

// system, messages, tools and whether the model is to think. Results of tools in a message become messages of their
// own.
ApiStatus read_messages_input(const nlohmann::ordered_json& body, AnswerRequest& request);

// A parameter beside those.
ApiStatus read_messages_parameter(const std::string& name, const nlohmann::ordered_json& value, Asked& asked);

}  // namespace sluice
