// What the values of options must look like, as validators for CLI11 that say what would be right.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace sluice {

// A whole decimal number within [low, high].
CLI::Validator whole_number(int64_t low, int64_t high = std::numeric_limits<int32_t>::max());
// The same, up to 2^64 - 1.
CLI::Validator seed_number();
// The same as whole_number(), or "auto", which becomes `instead`; for transform().
CLI::Validator whole_number_or_auto(int64_t low, int64_t high, int64_t instead);
// A finite number within [low, high]; `above` excludes low itself.
CLI::Validator number(double low, double high, bool above = false);
// The same, or "auto", which becomes `instead`; for transform().
CLI::Validator number_or_auto(double low, double high, double instead);
CLI::Validator one_of(std::vector<std::string> names);
// Anything but an empty text, which is what an unset variable of a shell leaves.
CLI::Validator not_empty(const std::string& what);

// Takes anything but an empty text, in lower case; for transform().
CLI::Validator in_lower_case();

// "a, b or c"
std::string alternatives(const std::vector<std::string>& names);

}  // namespace sluice
