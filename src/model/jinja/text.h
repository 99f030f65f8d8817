// Strings as Python sees them: sequences of code points, kept as UTF-8. A byte that is no UTF-8 counts as one code
// point (U+DC80 to U+DCFF, as Python's surrogateescape has it) and comes out again as the same byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

std::u32string decode(std::string_view utf8);
void append_code_point(std::string& out, char32_t c);
std::string encode(std::u32string_view text);

bool is_ascii(std::string_view text);
size_t code_points(std::string_view text);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
// Simple case mappings of the Latin, Greek, Cyrillic and Armenian letters; other code points stay as they are.
char32_t to_upper(char32_t c);
char32_t to_lower(char32_t c);
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);

// Without code points of `chars` (white space when `chars` is null) at the chosen ends.
std::string strip(std::string_view text, const std::string_view* chars, bool left, bool right);

// The first occurrence at or after byte `from`, npos if none; linear in the length of the text for any needle.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from = 0);

// As Python's repr() prints them.
std::string float_repr(double value);
std::string string_repr(std::string_view text);

}  // namespace sluice::jinja
