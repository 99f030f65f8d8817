// In which form an answer is to be: as OpenAI's API says it, as llama-server does, and ours.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "serve/parameter_reader.h"

namespace sluice {

// Each gives `asked` its format; a second one is an error. Whether grammars and schemas are right is not looked at.
ApiStatus read_response_format(const nlohmann::ordered_json& value, const std::string& param, Asked& asked);
// As the Responses API says it, where a schema stands beside its type.
ApiStatus read_text_format(const nlohmann::ordered_json& value, const std::string& param, Asked& asked);
ApiStatus read_json_schema(const nlohmann::ordered_json& value, const std::string& param, Asked& asked);
ApiStatus read_grammar(const nlohmann::ordered_json& value, const std::string& param, Asked& asked);
ApiStatus read_regex(const nlohmann::ordered_json& value, const std::string& param, Asked& asked);

}  // namespace sluice
