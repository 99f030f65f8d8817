// Where the characters of UTF-8 text begin and end.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the beginning of some bytes.
struct Utf8Head {
  enum class Kind {
    kCharacter,   // a whole character of `length` bytes
    kUnfinished,  // all `length` bytes that there are begin a character whose rest is missing
    kInvalid,     // `length` bytes that no continuation can make a character
  };
  Kind kind;
  size_t length;
};

// REQUIRES: text is not empty. Overlong forms, surrogates and what lies beyond U+10FFFF are invalid. An invalid head is
// the longest one that began like a character, as the Unicode standard recommends for replacement ("maximal subpart").
Utf8Head utf8_head(std::string_view text);

// The offset of the first byte that belongs to no character; text.size() if there is none.
size_t first_invalid_utf8(std::string_view text);

inline bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace sluice
