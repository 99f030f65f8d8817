// Prompts of llama-server's own API. Errors (400) name the parameter.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/ids.h"
#include "model/tokenizer.h"
#include "serve/api_error.h"

namespace sluice {

// A text, {"prompt_string": text}, or a list of texts and token ids; a list of one of these is the same. Markers in
// texts are special tokens, and those that the model wants around a text stand there if the prompt begins with one.
ApiResult<std::vector<Token>> read_native_prompt(const nlohmann::ordered_json& prompt, const Tokenizer& tokenizer);

// Takes a body's prompts where there are several, up to policy::kMostPrompts; of others nothing.
std::vector<nlohmann::ordered_json> take_prompts(nlohmann::ordered_json& body);

// What stands between input_prefix and input_suffix, in the way of the model's vocabulary; it begins with `prompt`.
// Other files, input_extra, stand before it. Where the context has too little room for all, what is farthest from the
// gap is left out. An error too if the vocabulary has no tokens for it.
ApiResult<std::vector<Token>> read_infill_prompt(const nlohmann::ordered_json& body, const Tokenizer& tokenizer,
                                                 int32_t context);
// Whether a parameter is one of the prompt's.
bool is_infill_input(std::string_view name);

}  // namespace sluice
