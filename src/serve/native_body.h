// Bodies of llama-server's own API, as POST /completion takes them. Errors (400) name the parameter.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/tokenizer.h"
#include "serve/api_error.h"
#include "serve/parameter_reader.h"

namespace sluice {

// A parameter beside the prompt. Those that take more than its value are passed over.
ApiStatus read_native_parameter(const std::string& name, const nlohmann::ordered_json& value, Asked& asked);

// Those: logit_bias, whose tokens may be texts, and repeat_last_n. REQUIRES: all others were read.
ApiStatus read_native_rest(const nlohmann::ordered_json& body, const Tokenizer& tokenizer, Asked& asked);

// All of them again, as they hold for the answer, and what this server has not at the value that asks for nothing.
nlohmann::ordered_json native_settings(const Asked& asked, const Tokenizer& tokenizer);

}  // namespace sluice
