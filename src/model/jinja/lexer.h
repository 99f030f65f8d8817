// Template source to tokens, with Jinja's rules for white space: trim_blocks and lstrip_blocks are on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

struct Token {
  enum class Kind {
    kData,  // text between tags, as it is to come out
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // its escapes are resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// Throws TemplateError. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace sluice::jinja
