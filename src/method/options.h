// What users may choose of methods.
#pragma once

#include <cstdint>
#include <vector>

#include "base/choice.h"

namespace sluice {

// Who drafts when ssd did not foresee an outcome: the draft model, n-grams, or the one for few requests and the other
// for many.
enum class Fallback : uint8_t { kDraft, kNgram, kAuto };
inline constexpr Choice<Fallback> kFallbacks[] = {
    {"draft", Fallback::kDraft}, {"ngram", Fallback::kNgram}, {"auto", Fallback::kAuto}};

// A lookahead: a verifier waits while it would most likely agree with all that is there.
inline constexpr int32_t kWaitForDoubt = -1;

struct MethodOptions {
  int32_t width = 16;      // w: nodes a level, or rows a step
  int32_t levels = 1;      // of the tree that enter in a step
  int32_t group = 1;       // stages that share a level, which enters in so many parts
  int32_t children = 16;   // c: candidates a node
  int32_t depth = 6;       // K: tokens of a chain, levels of a tree
  int32_t draft_rows = 0;  // nodes that a source guesses for at a time; 0: as many as pay
  double draft_p_min = 0;  // a chain ends behind a path less likely than this
  int32_t budget = 24;     // B: outcomes of a verification that are drafted for
  Fallback fallback = Fallback::kAuto;
  int32_t lookahead = 0;  // tokens that a verifier of pipespec waits for, or kWaitForDoubt
  // Of a static tree: children of a node, by level. With tree_nodes > 0 the best tree of so many nodes instead.
  std::vector<int32_t> branching = {1, 1, 3, 1, 1, 1, 1, 1};
  int32_t tree_nodes = 0;
  // Rule `reject`: whether several children of a node are drawn with replacement; C and F of SAGUARO sampling (C = 1:
  // off, 0: what promises most; F = 0: as many as are drafted for).
  bool replacement = false;
  double saguaro = 1.0;
  int32_t saguaro_tokens = 0;

  bool operator==(const MethodOptions&) const = default;
};

}  // namespace sluice
