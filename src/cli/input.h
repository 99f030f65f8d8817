// What comes in by stdin, which may never end.
#pragma once

#include <istream>
#include <optional>
#include <string>

#include "base/result.h"

namespace sluice {

// More than any context can hold. Longer input is an input error.
inline constexpr size_t kLongestInput = size_t{16} << 20;

// Everything up to the end.
Result<std::string> read_all(std::istream& in);
// A line without its end; nothing when there is none any more.
Result<std::optional<std::string>> read_line(std::istream& in);

}  // namespace sluice
