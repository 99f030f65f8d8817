// What was probably meant by an option that there is not.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice {

// What to type for `option`, as written ("--metod", "-ngl", "--predict=8"): another of llama.cpp's spelling, or the
// command's option whose name is nearest. Empty where nothing is near.
std::string meant_by(const CLI::App& command, const std::string& option);

// An option of llama.cpp that would be read as one letter and its value: -ngl as -n gl.
bool looks_like_a_letter_and_its_value(const std::string& argument);

}  // namespace sluice
