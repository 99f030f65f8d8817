#include "grammar/gbnf.h"

#include <algorithm>
#include <cctype>

namespace sluice {

namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.'; }

// Where what begins with a quote or a bracket ends, behind its last character.
size_t end_of_quoted(std::string_view text, size_t at) {
  const char close = text[at] == '[' ? ']' : text[at];
  for (++at; at < text.size() && text[at] != close; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// Likewise of the word, symbol or comment that begins there.
size_t end_of_word(std::string_view text, size_t at) {
  if (text[at] == '"' || text[at] == '[') return end_of_quoted(text, at);
  if (text[at] == '#') return std::min(text.find('\n', at), text.size());
  if (text.substr(at, 3) == "::=") return at + 3;
  const size_t start = at;
  while (at < text.size() && is_name(text[at])) ++at;
  return std::max(at, start + 1);
}

// Neither white space nor a comment.
bool counts(std::string_view word) {
  return word.front() != '#' && std::isspace(static_cast<unsigned char>(word.front())) == 0;
}

}  // namespace

std::string ebnf_of(std::string_view gbnf) {
  std::string out;
  bool alternative_begins = false;
  for (size_t at = 0, end = 0; at < gbnf.size(); at = end) {
    end = end_of_word(gbnf, at);
    const std::string_view word = gbnf.substr(at, end - at);
    if (alternative_begins && (word == "|" || word == ")")) out += "\"\" ";
    out += word == "." ? "[^\\x00]" : word;
    if (counts(word)) alternative_begins = word == "|" || word == "(" || word == "::=";
  }
  if (alternative_begins) out += " \"\"";
  return out;
}

bool has_attributes(std::string_view gbnf) {
  bool brackets = false;
  for (size_t at = 0, end = 0; at < gbnf.size(); at = end) {
    end = end_of_word(gbnf, at);
    const std::string_view word = gbnf.substr(at, end - at);
    if (word == "::=" && brackets) return true;
    if (counts(word)) brackets = word.front() == '[';
  }
  return false;
}

}  // namespace sluice
