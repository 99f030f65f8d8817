// What the verification under a lossy rule must know.
#pragma once

#include <span>

#include "engine/lane.h"
#include "engine/planned.h"
#include "wire/batch.h"

namespace sluice {

// Under a lossy rule the last worker chooses among the children of a row that have entered. Of a batch whose rows,
// `plan`, have their cells: what it says of its own rows' children is added to it; what is to be said of rows that are
// under way already is returned.
Amendment tell_children(std::span<const Planned> plan, const Lane& target, Batch& batch);

}  // namespace sluice
