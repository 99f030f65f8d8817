// Values that users and files call by name: an enum and its names in one table.
#pragma once

#include <cstddef>

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

}  // namespace sluice
