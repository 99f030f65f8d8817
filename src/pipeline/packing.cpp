#include "pipeline/packing.h"

#include "compute/rounding.h"

namespace sluice {

void pack_states(Batch& batch) {
  batch.halves.resize(batch.hidden.size());
  to_halves(batch.hidden, batch.halves);
  batch.hidden.clear();
}

void unpack_states(Batch& batch) {
  batch.hidden.resize(batch.halves.size());
  from_halves(batch.halves, batch.hidden);
  batch.halves.clear();
}

}  // namespace sluice
