#include "pipeline/executor.h"

#include <algorithm>

namespace sluice {

Exactness exactness_of(const Pipeline& target) {
  Exactness weakest = Exactness::kBitwise;
  for (const Worker& worker : target.workers) weakest = std::max(weakest, worker.exactness());
  return weakest;
}

}  // namespace sluice
