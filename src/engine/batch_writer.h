// Rows that were planned, as they go out.
#pragma once

#include <span>

#include "engine/lane.h"
#include "engine/request.h"
#include "wire/batch.h"

namespace sluice {

// A batch of a model whose row i is plan[i]: each row takes a cell, and with it goes what was drawn for its children,
// what a head takes for it, and what the workers have to be told of the sequences.
// REQUIRES: a cell for each row; parents before their children.
Batch write_batch(Lane& lane, BatchId id, std::span<const Planned> plan);

// Under a lossy rule the last worker chooses among the children of a row that have entered. Of a batch whose rows,
// `plan`, have their cells: what it says of its own rows' children is added to it; what is to be said of rows that are
// under way already is returned.
Amendment tell_children(std::span<const Planned> plan, const Lane& target, Batch& batch);

}  // namespace sluice
