#include "cli/values.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace sluice {

namespace {

// All of the text as a number; nothing if it is none or too large for T.
template <class T>
std::optional<T> parsed(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace

CLI::Validator whole_number(int64_t low, int64_t high) {
  const bool open = high == std::numeric_limits<int32_t>::max();
  const std::string range = open ? fmt::format("{} or more", low) : fmt::format("{} to {}", low, high);
  return CLI::Validator(
      [=](const std::string& text) {
        const auto value = parsed<int64_t>(text);
        if (value && *value >= low && *value <= high) return std::string();
        if (value && open && *value > high) return fmt::format("must be at most {}, not '{}'", high, text);
        return fmt::format("must be a whole number, {}, not '{}'", range, text);
      },
      range);
}

CLI::Validator whole_number_or_auto(int64_t low, int64_t high, int64_t instead) {
  return CLI::Validator(
      [=](std::string& text) {
        if (text == "auto") {
          text = std::to_string(instead);
          return std::string();
        }
        const auto value = parsed<int64_t>(text);
        if (value && *value >= low && *value <= high) return std::string();
        return fmt::format("must be auto or a whole number, {} to {}, not '{}'", low, high, text);
      },
      fmt::format("{{auto,{} to {}}}", low, high));
}

CLI::Validator seed_number() {
  return CLI::Validator(
      [](const std::string& text) {
        return parsed<uint64_t>(text)
                   ? std::string()
                   : fmt::format("must be a whole number from 0 to 18446744073709551615, not '{}'", text);
      },
      "");
}

CLI::Validator number(double low, double high, bool above) {
  const std::string range = fmt::format("{}{} to {}", above ? "above " : "", low, high);
  return CLI::Validator(
      [=](const std::string& text) {
        const auto value = parsed<double>(text);
        if (value && std::isfinite(*value) && (above ? *value > low : *value >= low) && *value <= high)
          return std::string();
        return fmt::format("must be a number, {}, not '{}'", range, text);
      },
      range);
}

CLI::Validator number_or_auto(double low, double high, double instead) {
  return CLI::Validator(
      [=](std::string& text) {
        if (text == "auto") {
          text = fmt::format("{}", instead);
          return std::string();
        }
        const auto value = parsed<double>(text);
        if (value && *value >= low && *value <= high) return std::string();
        return fmt::format("must be auto or a number, {} to {}, not '{}'", low, high, text);
      },
      fmt::format("{{auto,{} to {}}}", low, high));
}

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string listed = "{" + CLI::detail::join(names, ",") + "}";
  return CLI::Validator(
      [names = std::move(names)](const std::string& text) {
        if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
        return fmt::format("must be {}, not '{}'", alternatives(names), text);
      },
      listed);
}

CLI::Validator in_lower_case() {
  return {[](std::string& text) {
            text = CLI::detail::to_lower(text);
            return std::string(text.empty() ? "it is empty: give a name" : "");
          },
          ""};
}

CLI::Validator not_empty(const std::string& what) {
  return CLI::Validator(
      [=](const std::string& text) { return text.empty() ? "is empty: name " + what : std::string(); }, "");
}

std::string alternatives(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

}  // namespace sluice
