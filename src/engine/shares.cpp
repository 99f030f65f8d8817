#include "engine/shares.h"

#include <algorithm>

namespace sluice {

std::vector<size_t> shares(std::span<const size_t> wants, size_t budget, size_t quantum) {
  std::vector<size_t> given(wants.size());
  for (bool dealt = true; dealt && budget > 0;) {
    dealt = false;
    for (size_t i = 0; i < wants.size(); ++i) {
      const size_t turn = std::min({quantum, wants[i] - given[i], budget});
      given[i] += turn;
      budget -= turn;
      dealt = dealt || turn > 0;
    }
  }
  return given;
}

}  // namespace sluice
