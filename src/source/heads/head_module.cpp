#include "source/heads/head_module.h"

#include <algorithm>

#include "source/heads/head_modules.h"

namespace sluice {

void TappedStates::receive(const Taps& taps) {
  for (size_t r = 0; r < taps.rows.size(); ++r) {
    const Row& row = taps.rows[r];
    Entry& entry = cells_[row.cell];
    if (taps.batch < entry.batch) continue;
    if (entry.batch < taps.batch)
      entry = {.batch = taps.batch, .sequence = row.sequence, .token = row.token, .states = {}};
    for (size_t i = 0; i < taps.layers.size(); ++i) {
      const int32_t layer = taps.layers[i];
      if (row.kind == Row::Kind::kPrompt && std::find(certain_.begin(), certain_.end(), layer) == certain_.end())
        continue;
      const auto begin = taps.states.begin() + static_cast<ptrdiff_t>((i * taps.rows.size() + r) * d_);
      entry.states[layer].assign(begin, begin + static_cast<ptrdiff_t>(d_));
    }
  }
}

const float* TappedStates::state(Cell cell, int32_t layer) const {
  const auto entry = cells_.find(cell);
  if (entry == cells_.end()) return nothing_.data();
  const auto state = entry->second.states.find(layer);
  return state == entry->second.states.end() ? nothing_.data() : state->second.data();
}

Token TappedStates::token(Cell cell) const {
  const auto entry = cells_.find(cell);
  return entry == cells_.end() ? 0 : entry->second.token;
}

Result<std::unique_ptr<HeadModule>> HeadModule::create(const HeadFile& file, const Options& options) {
  const HeadKind kind = file.parameters().kind;
  const int32_t more = kind == HeadKind::kPEagle ? eagle_cells(options.guesses) : 0;
  SLUICE_TRY(auto layers, HeadLayers::create(file, options.n_cells + more, options.threads));
  switch (kind) {
    case HeadKind::kSpd:
      return make_spd_module(std::move(layers), options.n_cells);
    case HeadKind::kEagle3:
      return make_eagle_head(std::move(layers), options.n_cells, 1);
    case HeadKind::kPEagle:
      return make_eagle_head(std::move(layers), options.n_cells, options.guesses);
    case HeadKind::kExit:
      return make_early_exit(std::move(layers), options.n_cells);
    case HeadKind::kMtp:
      return make_mtp_head(std::move(layers), options.n_cells);
    case HeadKind::kDraft:
      break;
  }
  return input_error(file.path() + ": a draft model: give it with --draft instead of --head");
}

void HeadModule::enter(std::span<const PathUpdate> updates, std::span<const Row> rows) {
  for (const PathUpdate& update : updates) {
    paths_.apply(update);
    if (const auto* close = std::get_if<Close>(&update)) states_.forget(close->sequence);
  }
  for (const Row& row : rows) paths_.enter(row);
}

BlockRow HeadModule::head_row(SequenceId sequence, int32_t position, Cell own) const {
  BlockRow row{.cell = own, .position = position - first_position_, .path = {}};
  paths_.find({.sequence = sequence, .position = position, .cell = own}, row.path);
  for (int32_t left_out = 0; left_out < first_position_; ++left_out) {
    if (row.path.committed.empty())
      row.path.branch.erase(row.path.branch.begin());
    else
      row.path.committed = row.path.committed.subspan(1);
  }
  return row;
}

void HeadModule::state(Cell target, int32_t layer, float* out) const {
  if (layer == 0) return layers_->embed(states_.token(target), out);
  std::copy_n(states_.state(target, layer), layers_->d_model(), out);
}

std::vector<float> HeadModule::concatenated(Cell target, std::span<const int32_t> layers) const {
  const size_t d = layers_->d_model();
  std::vector<float> states(layers.size() * d);
  for (size_t i = 0; i < layers.size(); ++i) state(target, layers[i], &states[i * d]);
  return states;
}

const Feature* feature_of(const Batch& batch, const Row& row) {
  const auto at = std::find_if(batch.features.begin(), batch.features.end(),
                               [&](const Feature& feature) { return feature.row == row.index; });
  return at == batch.features.end() ? nullptr : &*at;
}

}  // namespace sluice
