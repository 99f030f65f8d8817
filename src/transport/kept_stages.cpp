#include "transport/kept_stages.h"

#include <algorithm>

namespace sluice {

namespace {

// What is left tells what they are.
void forget_places(WeightFiles& files) {
  files.path.clear();
  files.target.clear();
}

}  // namespace

void KeptStages::keep(MadeStage made) {
  made.stage.worker.forget();
  made.stage.frames = made.stage.frames.anew();
  forget_places(made.recipe.files);
  const std::lock_guard lock(mutex_);
  kept_.push_back({std::move(made), std::chrono::steady_clock::now()});
}

std::optional<MadeStage> KeptStages::take(const StageRecipe& recipe) {
  StageRecipe wanted = recipe;
  forget_places(wanted.files);
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(kept_, [&](const Kept& kept) { return kept.made.recipe == wanted; });
  if (found == kept_.end()) return std::nullopt;
  MadeStage made = std::move(found->made);
  kept_.erase(found);
  return made;
}

bool KeptStages::drop() {
  std::list<Kept> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (!kept_.empty()) dropped.splice(dropped.begin(), kept_, kept_.begin());
  }
  if (dropped.empty()) return false;
  const int64_t bytes = dropped.front().made.bytes;
  dropped.clear();
  free_(bytes);
  return true;
}

bool KeptStages::empty() {
  const std::lock_guard lock(mutex_);
  return kept_.empty();
}

void KeptStages::drop_older_than(double seconds) {
  const auto before = std::chrono::steady_clock::now() - std::chrono::duration<double>(seconds);
  const auto is_old = [&] {
    const std::lock_guard lock(mutex_);
    return !kept_.empty() && kept_.front().since < before;
  };
  while (is_old()) drop();
}

}  // namespace sluice
