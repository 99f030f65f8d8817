// Where the grammar of an answer begins that begins with a trigger.
#pragma once

#include <boost/regex.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/sampling.h"

namespace sluice {

// Thread safety: may be asked by several threads at once.
class TriggerFinder {
 public:
  // Throws std::exception if a pattern is none.
  explicit TriggerFinder(const std::vector<GrammarTrigger>& triggers);

  // Where the first trigger begins in a text; nothing: there is none yet. Before its last `fresh` bytes there was none.
  // Throws std::exception if a pattern takes too long.
  std::optional<size_t> find(std::string_view text, size_t fresh) const;

 private:
  struct Pattern {
    boost::regex expression;
    bool whole = false;
  };
  std::vector<std::string> words_;
  std::vector<Pattern> patterns_;
};

}  // namespace sluice
