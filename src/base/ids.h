// Numbers that must not be mistaken for one another.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace sluice {

template <class Tag, class Number = int32_t>
struct Id {
  Number value = -1;  // -1: none

  constexpr Id() = default;
  constexpr explicit Id(Number v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr auto operator<=>(const Id&) const = default;
};

using NodeId = Id<struct NodeTag>;  // a node of a TokenTree; never given out twice in one tree
using Cell = Id<struct CellTag>;    // a place for one token's keys and values, the same at every stage of a model
using SequenceId = Id<struct SequenceTag>;  // one text: its committed tokens and the tree that hangs from them
// Batches are numbered in the order in which they enter a model's first stage; an engine that runs for months comes
// past 2^31 of them.
using BatchId = Id<struct BatchTag, int64_t>;
using StageId = Id<struct StageTag>;
using ModelId = Id<struct ModelTag>;  // the target is 0, then the draft models, smallest first
inline constexpr ModelId kTarget(0);

using Token = int32_t;
inline constexpr Token kNoToken = -1;

}  // namespace sluice

template <class Tag, class Number>
struct std::hash<sluice::Id<Tag, Number>> {
  size_t operator()(sluice::Id<Tag, Number> id) const noexcept { return std::hash<Number>()(id.value); }
};
