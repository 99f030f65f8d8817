// Conversations and tools in the form of OpenAI's API. Errors (400) name the member.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_parser.h"
#include "serve/api_error.h"

namespace sluice {

// Of a list of messages, under the name of the parameter.
ApiResult<std::vector<ChatMessage>> read_messages(const nlohmann::ordered_json& messages, const std::string& param);

// Which parts of a content are texts: those of these types, with a member `text`. Others that they may have say
// nothing.
struct TextParts {
  std::vector<std::string_view> types, ignored = {};
};
// A text, or a list of parts that are texts.
ApiResult<std::string> read_text(const nlohmann::ordered_json& content, const std::string& param,
                                 const TextParts& parts);
ApiResult<std::string> read_text_part(const nlohmann::ordered_json& part, const std::string& param,
                                      const TextParts& parts);

// The member `tools` of a body; `read` makes one of them a tool as this API has it.
using ReadTool = ApiResult<nlohmann::ordered_json> (*)(const nlohmann::ordered_json& tool, const std::string& param);
ApiStatus read_tool_list(const nlohmann::ordered_json& body, ReadTool read, AnswerRequest& request);
// Of a tool that has name, description and, under this name, the schema of its arguments beside each other; null if one
// of them is not what it should be. A schema or a description that is null is not given.
nlohmann::ordered_json tool_of(const nlohmann::ordered_json& flat, const char* schema);
// A call is forced, of the tool with this name, or of any (empty). REQUIRES: the tools were read.
ApiStatus force_call(const std::string& tool, AnswerRequest& request);
// tool_choice and parallel_tool_calls of a body. REQUIRES: the tools were read.
ApiStatus read_tool_choice(const nlohmann::ordered_json& body, AnswerRequest& request);
// All three, as chats have them.
ApiStatus read_tools(const nlohmann::ordered_json& body, AnswerRequest& request);

}  // namespace sluice
