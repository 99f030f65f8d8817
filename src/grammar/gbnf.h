// Grammars as llama.cpp and libllama-common write them.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The same rules as xgrammar reads them, which wants empty alternatives as "" and has no `.` for any character. What is
// no GBNF stays what it is.
std::string ebnf_of(std::string_view gbnf);

}  // namespace sluice
