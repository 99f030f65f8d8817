// Values that users and files call by name: an enum and its names in one table.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

template <class T>
struct Choice {
  const char* name;
  T value;
};

// The name of a value; one that is not in the table counts as its first.
template <class T, size_t N>
const char* name_of(const Choice<T> (&choices)[N], T value) {
  for (const Choice<T>& choice : choices)
    if (choice.value == value) return choice.name;
  return choices[0].name;
}

// The value of a name; none if the table has no such name.
template <class T, size_t N>
std::optional<T> value_of(const Choice<T> (&choices)[N], std::string_view name) {
  for (const Choice<T>& choice : choices)
    if (name == choice.name) return choice.value;
  return std::nullopt;
}

template <class T, size_t N>
std::vector<std::string> names_of(const Choice<T> (&choices)[N]) {
  std::vector<std::string> names;
  for (const Choice<T>& choice : choices) names.emplace_back(choice.name);
  return names;
}

}  // namespace sluice
