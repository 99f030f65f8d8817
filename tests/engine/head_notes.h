// What a head is asked and says, request by request.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "support/spy.h"

namespace sluice::test {

// Its candidates, by the tokens of the path that they follow; and how many of the target's states its worker holds.
struct Notes {
  std::map<std::vector<Token>, std::vector<std::pair<Token, float>>> said;
  std::set<Cell> held;  // the target's cells whose states have come and may still be asked for
  size_t most_held = 0;

  std::map<BatchId, std::vector<Cell>> tapped;
  std::map<Cell, std::vector<Token>> paths;
  std::map<std::pair<BatchId, uint16_t>, std::vector<Token>> asked;

  void submitted(ModelId model, const Batch& batch) {
    if (model == kTarget) {
      for (const Row& row : batch.rows)
        if (row.tapped) tapped[batch.id].push_back(row.cell);
      return;
    }
    for (const Refresh& refresh : batch.refreshes)
      if (refresh.last) held.erase(refresh.cell);
    for (const Feature& feature : batch.features)
      if (feature.last) held.erase(feature.cell);
    for (const Row& row : batch.rows) {
      std::vector<Token> path = row.parent.valid() ? paths.at(row.parent) : std::vector<Token>();
      path.push_back(row.token);
      asked[{batch.id, row.index}] = paths[row.cell] = std::move(path);
    }
  }
  void heard(const Event& event) {
    if (const auto* outcome = std::get_if<Outcome>(&event); outcome != nullptr && outcome->model != kTarget)
      for (const Drafted& drafted : outcome->drafted) {
        if (drafted.depth > 0) continue;
        auto& candidates = said[asked.at({outcome->batch, drafted.row})];
        candidates.clear();
        for (const Candidate& c : drafted.candidates) candidates.emplace_back(c.token, c.probability);
      }
    if (const auto* taps = std::get_if<TapsArrived>(&event)) {
      for (const Cell cell : tapped[taps->batch]) held.insert(cell);
      most_held = std::max(most_held, held.size());
    }
  }
};

// An executor whose events the notes hear.
inline std::unique_ptr<Executor> listened_to(Notes& notes, std::unique_ptr<Executor> executor) {
  auto spy = std::make_unique<Spy>(std::move(executor));
  spy->on_submit = [&notes](ModelId model, const Batch& batch) { notes.submitted(model, batch); };
  spy->on_event = [&notes](const Event& event) { notes.heard(event); };
  return spy;
}

}  // namespace sluice::test
