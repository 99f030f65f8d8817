// An answer ends before a stop string, in however many pieces it comes, and nothing of it is lost.
#include "chat/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::test {
namespace {

struct Said {
  std::string text;
  std::string stop = {};  // that ended it
  bool operator==(const Said&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Said& said) {
  return out << '"' << said.text << "\", stopped by \"" << said.stop << '"';
}

Said in_pieces(const std::vector<std::string>& stops, const std::string& text, const std::vector<size_t>& sizes) {
  StopStrings stream(stops);
  Said said;
  size_t at = 0;
  for (const size_t size : sizes) {
    said.text += stream.push(std::string_view(text).substr(at, size));
    at += size;
  }
  said.stop = stream.stop();
  EXPECT_EQ(stream.stopped(), !said.stop.empty());
  said.text += stream.finish();
  return said;
}

// By definition: character for character, until what was said ends with a stop string.
Said expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t n = 1; n <= text.size(); ++n) {
    const std::string_view said = std::string_view(text).substr(0, n);
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (said.ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return {text.substr(0, n - longest), text.substr(n - longest, longest)};
  }
  return {text};
}

TEST(StopStrings, AStopStringMayBeCutAtEveryPosition) {
  const std::string text = "It rains.\n\nUser: why?";
  for (const std::string stop : {"\n\nUser:", "?", "It", "rains", "\n\nUser: why?"})
    for (size_t first = 0; first <= text.size(); ++first)
      for (size_t second = first; second <= text.size(); ++second)
        EXPECT_EQ(in_pieces({stop}, text, {first, second - first, text.size() - second}), expected({stop}, text));
}

TEST(StopStrings, WhatOnlyBeganLikeOneIsSaidAtTheEnd) {
  const std::string stop = "<|end|>";
  for (size_t n = 0; n < stop.size(); ++n) {
    const std::string text = "It rains. " + stop.substr(0, n);
    EXPECT_EQ(in_pieces({stop}, text, std::vector<size_t>(text.size(), 1)), (Said{text}));
    const std::string on = text + " on";
    EXPECT_EQ(in_pieces({stop}, on, std::vector<size_t>(on.size(), 1)), (Said{on}));
  }
}

TEST(StopStrings, OnlyWhatMayBecomeOneWaits) {
  StopStrings stream({"aab"});
  EXPECT_EQ(stream.push("xa"), "x");
  EXPECT_EQ(stream.push("a"), "");
  EXPECT_EQ(stream.push("a"), "a");
  EXPECT_EQ(stream.push("c"), "aac");
  EXPECT_EQ(stream.push("aab and more"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StopStrings, CharactersStayWhole) {
  StopStrings stream({"ü"});
  EXPECT_EQ(stream.push("ö"), "ö") << "its first byte is that of ü";
}

TEST(StopStrings, SeveralInPiecesOfAnySizeAreAsByDefinition) {
  std::mt19937 random(1);
  const auto letters = [&](size_t most) {
    std::string text(1 + random() % most, ' ');
    for (char& c : text) c = "ab"[random() % 2];
    return text;
  };
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) stop = letters(5);
    const std::string text = letters(12);
    std::vector<size_t> sizes;
    for (size_t left = text.size(); left > 0; left -= sizes.back()) sizes.push_back(std::min(left, 1 + random() % 4));
    EXPECT_EQ(in_pieces(stops, text, sizes), expected(stops, text)) << text << ' ' << testing::PrintToString(stops);
  }
}

}  // namespace
}  // namespace sluice::test
