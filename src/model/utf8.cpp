#include "model/utf8.h"

#include <cstdint>

namespace sluice {

Utf8Head utf8_head(std::string_view text) {
  using Kind = Utf8Head::Kind;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Kind::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte of some leads has a narrower range: no overlong forms, no surrogates, nothing beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Kind::kUnfinished, i};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {Kind::kInvalid, i};
  }
  return {Kind::kCharacter, length};
}

size_t first_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Head head = utf8_head(text.substr(at));
    if (head.kind != Utf8Head::Kind::kCharacter) return at;
    at += head.length;
  }
  return at;
}

}  // namespace sluice
