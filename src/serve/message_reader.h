// Conversations and tools in the form of OpenAI's API. Errors (400) name the member.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/answer_parser.h"
#include "serve/api_error.h"

namespace sluice {

// Of a list of messages, under the name of the parameter.
ApiResult<std::vector<ChatMessage>> read_messages(const nlohmann::json& messages, const std::string& param);
// tools, tool_choice and parallel_tool_calls of a body.
ApiStatus read_tools(const nlohmann::json& body, AnswerRequest& request);

}  // namespace sluice
