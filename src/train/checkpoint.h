// What a killed run goes on from: parameters, optimizer and place in the data, in one GGUF file that is replaced whole.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/ids.h"
#include "train/adamw.h"

namespace sluice {

Status save_checkpoint(const std::string& path, const Parameters& parameters, AdamW& optimizer,
                       const nlohmann::json& state);

// How many of the corpus' examples a run began with: it goes on with these, and with the vocabulary that they gave,
// though the corpus may have grown. Errors (kInput): as below.
Result<size_t> examples_of_checkpoint(const std::string& path);

// Gives the state. Errors (kInput): no such file, or one of another head; they name file and tensor.
Result<nlohmann::json> load_checkpoint(const std::string& path, Parameters& parameters, AdamW& optimizer);

// Takes the weights of an exported head, which guesses the tokens `before`, into one that guesses `now`: of the output
// matrix the rows of tokens that both have. Either is ascending; empty: all. Errors (kInput): as above.
Status load_weights(const std::string& path, Parameters& parameters, const std::vector<Token>& before,
                    const std::vector<Token>& now);

}  // namespace sluice
