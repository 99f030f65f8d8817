// Bodies of OpenAI's Responses API, of which nothing is stored here. Errors (400) name the member.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "chat/answer_parser.h"
#include "serve/api_error.h"
#include "serve/parameter_reader.h"

namespace sluice {

// instructions, input and tools. What the assistant has said, thought and called without anybody in between is one
// message.
ApiStatus read_responses_input(const nlohmann::ordered_json& body, AnswerRequest& request);

// A parameter beside those.
ApiStatus read_responses_parameter(const std::string& name, const nlohmann::ordered_json& value, Asked& asked);

// What a response tells again of its request, as far as it is not given by what is there always. REQUIRES: the body was
// read without an error.
nlohmann::ordered_json responses_settings(const nlohmann::ordered_json& body, const SamplingParams& sampling);

}  // namespace sluice
