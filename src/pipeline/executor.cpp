#include "pipeline/executor.h"

#include <algorithm>

namespace sluice {

Exactness exactness_of(const Pipeline& target) {
  Exactness weakest = target.remote ? target.remote->exactness() : Exactness::kBitwise;
  for (const Worker& worker : target.workers) weakest = std::max(weakest, worker.exactness());
  return weakest;
}

}  // namespace sluice
