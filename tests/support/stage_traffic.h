// Stages that are made of recipes alone, and what an honest peer sends to each.
#pragma once

#include <vector>

#include "pipeline/recipe.h"
#include "wire/message.h"

namespace sluice::test {

// kHalves: one in the middle whose states come as f16. kFolds: one in the middle of a hybrid.
enum class StageSort : uint8_t {
  kFirst,
  kMiddle,
  kLast,
  kWhole,
  kLazy,
  kDraft,
  kSpd,
  kEagle3,
  kPEagle,
  kExit,
  kHalves,
  kFolds
};
inline constexpr StageSort kStageSorts[] = {StageSort::kFirst, StageSort::kMiddle, StageSort::kLast,
                                            StageSort::kWhole, StageSort::kLazy,   StageSort::kDraft,
                                            StageSort::kSpd,   StageSort::kEagle3, StageSort::kPEagle,
                                            StageSort::kExit,  StageSort::kHalves, StageSort::kFolds};

inline constexpr int32_t kStageCells = 48, kStageRows = 16;

StageRecipe stage_recipe(StageSort sort);

// Two sequences, one of them under rule `reject`: prompts, levels of nodes, draws in time and late, dead rows, commits,
// a cut and an end; to heads the states that they read.
std::vector<Message> honest_traffic(StageSort sort);

// Does what the message asks, if it passes the check. Broken invariants are errors, too.
Status receive(Stage& stage, const Message& message);

}  // namespace sluice::test
