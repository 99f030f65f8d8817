#pragma once

#include <cstdint>

namespace sluice {

// Layers [first, last) of a model, with what the first and the last stage need besides.
struct LayerRange {
  int32_t first = 0, last = 0;
  int32_t count() const { return last - first; }
  bool operator==(const LayerRange&) const = default;
};

}  // namespace sluice
