// The kinds of heads, each in a file of its own.
#pragma once

#include <memory>

#include "source/heads/head_module.h"

namespace sluice {

std::unique_ptr<HeadModule> make_spd_module(std::unique_ptr<HeadLayers> layers, int32_t n_cells);
// PPSD's early exit.
std::unique_ptr<HeadModule> make_early_exit(std::unique_ptr<HeadLayers> layers, int32_t n_cells);
// EAGLE-3 and P-EAGLE. `guesses`: in a row; EAGLE-3: 1. The layers have eagle_cells() beside n_cells.
std::unique_ptr<HeadModule> make_eagle_head(std::unique_ptr<HeadLayers> layers, int32_t n_cells, int32_t guesses);
// The layer of a model that predicts further tokens.
std::unique_ptr<HeadModule> make_mtp_head(std::unique_ptr<HeadLayers> layers, int32_t n_cells);
// Cells for the rows of further guesses.
inline int32_t eagle_cells(int32_t guesses) { return (guesses - 1) * kMostRows; }

}  // namespace sluice
