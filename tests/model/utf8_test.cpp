#include "model/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace sluice {
namespace {

std::string utf8_of(uint32_t c) {
  const auto byte = [](uint32_t b) { return static_cast<char>(b); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | (c >> 6)), byte(0x80 | (c & 63))};
  if (c < 0x10000) return {byte(0xE0 | (c >> 12)), byte(0x80 | ((c >> 6) & 63)), byte(0x80 | (c & 63))};
  return {byte(0xF0 | (c >> 18)), byte(0x80 | ((c >> 12) & 63)), byte(0x80 | ((c >> 6) & 63)), byte(0x80 | (c & 63))};
}

TEST(Utf8, EveryCharacterIsOneAndItsBeginningsAreUnfinished) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    const std::string text = utf8_of(c);
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    const Utf8Head head = utf8_head(text);
    ASSERT_EQ(head.kind, surrogate ? Utf8Head::Kind::kInvalid : Utf8Head::Kind::kCharacter) << c;
    if (surrogate) continue;
    ASSERT_EQ(head.length, text.size());
    for (size_t n = 1; n < text.size(); ++n)
      ASSERT_EQ(utf8_head(std::string_view(text).substr(0, n)).kind, Utf8Head::Kind::kUnfinished) << c;
  }
}

TEST(Utf8, OverlongFormsAndWhatLiesBeyondUnicodeAreInvalid) {
  for (const std::string bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3(", "\xE2\x82(", "\xED\xA0\x80"})
    EXPECT_EQ(utf8_head(bad).kind, Utf8Head::Kind::kInvalid);
}

TEST(Utf8, NamesTheFirstByteThatBelongsToNoCharacter) {
  EXPECT_EQ(first_invalid_utf8("blå himmel"), std::string("blå himmel").size());
  EXPECT_EQ(first_invalid_utf8("bl\xC3 himmel"), 2u);
  EXPECT_EQ(first_invalid_utf8("bl\xC3"), 2u);
  EXPECT_EQ(first_invalid_utf8(""), 0u);
}

}  // namespace
}  // namespace sluice
