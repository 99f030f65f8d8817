// Grammars that nobody may wait for.
#pragma once

#include <string>

namespace sluice::test {

// Compiling it takes more than is allowed, whatever the letter and the vocabulary.
inline std::string dear_grammar(const std::string& letter) {
  std::string rules;
  for (int i = 100; i < 400; ++i)
    rules += (rules.empty() ? "" : " | ") + ("[a-z]{1," + std::to_string(i) + "} \"" + letter + "\"");
  return "root ::= (" + rules + ")*";
}

}  // namespace sluice::test
