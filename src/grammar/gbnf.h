// Grammars as llama.cpp and libllama-common write them.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The same rules as xgrammar reads them, which wants empty alternatives as "" and has no `.` for any character. What is
// no GBNF stays what it is.
std::string ebnf_of(std::string_view gbnf);

// Whether a rule has attributes (`name[max_tokens=3] ::= …`), which xgrammar knows and GBNF does not: what may come
// would depend on what has been asked, not on the answer alone.
bool has_attributes(std::string_view gbnf);

}  // namespace sluice
