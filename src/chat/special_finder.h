// Finds the special texts of a vocabulary in a text.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"

namespace sluice {

class SpecialFinder {
 public:
  using Filter = std::function<bool(const SpecialText&)>;
  // Knows those that the filter lets through. REQUIRES: `specials` outlive it.
  SpecialFinder(const std::vector<SpecialText>& specials, const Filter& filter);

  // Calls `visit` for each that begins at this byte, whatever the case of ASCII letters.
  void visit_at(std::string_view text, size_t at, const std::function<void(const SpecialText&)>& visit) const;

  // Where libllama finds special tokens when it parses them, in order: longer ones win over shorter ones that overlap
  // with them. From `begin` to `end` is the special text and the white space that it swallows.
  struct Match {
    size_t begin = 0, end = 0;
    const SpecialText* special = nullptr;
  };
  std::vector<Match> split(std::string_view text) const;

 private:
  struct Entry {
    std::string folded;
    const SpecialText* special;
  };
  std::vector<Entry> entries_;      // sorted
  std::array<bool, 256> begins_{};  // by the first byte, folded: whether there is one
};

}  // namespace sluice
