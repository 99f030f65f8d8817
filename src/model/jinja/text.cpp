#include "model/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace sluice::jinja {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `s`, 0 if there is none; its value goes to `c`.
size_t decode_one(std::string_view s, char32_t& c) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return c = first, 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || s.size() < size) return 0;
  c = first & (0xFF >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    c = c << 6 | (byte(i) & 0x3F);
  }
  static constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xD800 && c < 0xE000;
  return c < kSmallest[size] || c > 0x10FFFF || surrogate ? 0 : size;
}

bool between(char32_t c, char32_t low, char32_t high) { return c >= low && c <= high; }

// Blocks in which capital and small letters alternate; the capital's code point has the given parity.
bool paired_even(char32_t c) {
  return between(c, 0x100, 0x137) || between(c, 0x14A, 0x177) || between(c, 0x3D8, 0x3EF) || between(c, 0x460, 0x481) ||
         between(c, 0x48A, 0x4BF) || between(c, 0x4D0, 0x52F) || between(c, 0x1E00, 0x1E95) ||
         between(c, 0x1EA0, 0x1EFF);
}
bool paired_odd(char32_t c) { return between(c, 0x139, 0x148) || between(c, 0x179, 0x17E) || between(c, 0x4C1, 0x4CE); }

bool printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c <= 0xA0 || c == 0xAD || is_space(c)) return false;
  return !(between(c, 0x200B, 0x200F) || between(c, 0x202A, 0x202E) || between(c, 0x2060, 0x206F) || c == 0xFEFF ||
           between(c, 0xD800, 0xF8FF) || between(c, 0xFFF0, 0xFFFB) || c >= 0xE0000);
}

}  // namespace

std::u32string decode(std::string_view utf8) {
  std::u32string out;
  out.reserve(utf8.size());
  while (!utf8.empty()) {
    char32_t c = 0;
    const size_t size = decode_one(utf8, c);
    out.push_back(size ? c : 0xDC00 + static_cast<uint8_t>(utf8[0]));
    utf8.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

void append_code_point(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80 || between(c, 0xDC80, 0xDCFF)) return put(c & 0xFF);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_code_point(out, c);
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

size_t code_points(std::string_view text) { return is_ascii(text) ? text.size() : decode(text).size(); }

bool is_space(char32_t c) {
  return between(c, 9, 13) || between(c, 0x1C, 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         between(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return between(c | 0x20, 'a', 'z');
  if (is_upper(c) || is_lower(c)) return true;
  return between(c, 0x5D0, 0x5EA) || between(c, 0x620, 0x64A) || between(c, 0x904, 0x939) ||
         between(c, 0x3041, 0x3096) || between(c, 0x30A1, 0x30FA) || between(c, 0x3400, 0x4DBF) ||
         between(c, 0x4E00, 0x9FFF) || between(c, 0xAC00, 0xD7A3);
}

bool is_upper(char32_t c) { return to_lower(c) != c; }
bool is_lower(char32_t c) { return c == 0xDF || c == 0x138 || c == 0x149 || c == 0x3C2 || to_upper(c) != c; }

char32_t to_upper(char32_t c) {
  if (c < 0x80) return between(c, 'a', 'z') ? c - 32 : c;
  if (c == 0xB5) return 0x39C;
  if (c == 0xFF) return 0x178;
  if (c == 0x131) return 'I';
  if (c == 0x17F) return 'S';
  if (between(c, 0xE0, 0xFE) && c != 0xF7) return c - 32;
  if (paired_even(c) && c != 0x130 && c != 0x138) return c & ~char32_t{1};
  if (paired_odd(c)) return (c - 1) | 1;
  if (c == 0x3AC) return 0x386;
  if (between(c, 0x3AD, 0x3AF)) return c - 37;
  if (c == 0x3C2) return 0x3A3;
  if (between(c, 0x3B1, 0x3CB)) return c - 32;
  if (c == 0x3CC) return 0x38C;
  if (c == 0x3CD || c == 0x3CE) return c - 63;
  if (between(c, 0x430, 0x44F)) return c - 32;
  if (between(c, 0x450, 0x45F)) return c - 80;
  if (c == 0x4CF) return 0x4C0;
  return between(c, 0x561, 0x586) ? c - 48 : c;
}

char32_t to_lower(char32_t c) {
  if (c < 0x80) return between(c, 'A', 'Z') ? c + 32 : c;
  if (c == 0x178) return 0xFF;
  if (between(c, 0xC0, 0xDE) && c != 0xD7) return c + 32;
  if (paired_even(c) && c != 0x131 && c != 0x138) return c | 1;
  if (paired_odd(c)) return c + (c & 1);
  if (c == 0x386) return 0x3AC;
  if (between(c, 0x388, 0x38A)) return c + 37;
  if (c == 0x38C) return 0x3CC;
  if (c == 0x38E || c == 0x38F) return c + 63;
  if (between(c, 0x391, 0x3AB) && c != 0x3A2) return c + 32;
  if (between(c, 0x410, 0x42F)) return c + 32;
  if (between(c, 0x400, 0x40F)) return c + 80;
  if (c == 0x4C0) return 0x4CF;
  if (c == 0x1E9E) return 0xDF;
  return between(c, 0x531, 0x556) ? c + 48 : c;
}

std::string upper(std::string_view text) {
  std::string out;
  for (const char32_t c : decode(text)) {
    if (c == 0xDF) {
      out += "SS";
    } else {
      append_code_point(out, to_upper(c));
    }
  }
  return out;
}

std::string lower(std::string_view text) {
  std::u32string points = decode(text);
  std::transform(points.begin(), points.end(), points.begin(), to_lower);
  return encode(points);
}

std::string capitalize(std::string_view text) {
  std::u32string points = decode(text);
  for (size_t i = 0; i < points.size(); ++i) points[i] = i == 0 ? to_upper(points[i]) : to_lower(points[i]);
  return encode(points);
}

std::string strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const std::u32string points = decode(text);
  const std::u32string set = chars ? decode(*chars) : std::u32string();
  const auto drops = [&](char32_t c) { return chars ? set.find(c) != std::u32string::npos : is_space(c); };
  size_t begin = 0, end = points.size();
  while (left && begin < end && drops(points[begin])) ++begin;
  while (right && end > begin && drops(points[end - 1])) --end;
  return encode(std::u32string_view(points).substr(begin, end - begin));
}

size_t find_bytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string shortest(buffer, scientific.ptr);
  const int exponent = std::stoi(shortest.substr(shortest.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return shortest;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos,
             has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : decode(text)) {
    char escaped[16];
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (printable(c)) {
      append_code_point(out, c);
    } else {
      std::snprintf(escaped, sizeof escaped, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", unsigned(c));
      out += escaped;
    }
  }
  return out += quote;
}

}  // namespace sluice::jinja
