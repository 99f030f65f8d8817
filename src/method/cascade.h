// The mechanism of PipeSpec, which knows nothing of tokens: a hierarchy of stages, each better and slower than the one
// before, works asynchronously on one stream. Every stage builds upon what its predecessor has put out as if it were
// right; where the larger stage disagrees, it puts its own item there, and all smaller stages go back to that point.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace sluice {

// PipeSpec, Algorithm 1. Stage 0 only produces; stage i > 0 verifies what stage i - 1 has put out and produces the item
// after it. Output buffers hold the items after the last final one.
//
// Item: a value that can be compared. "Does the larger stage agree?" is asked of Items with ==: a stage that has looked
// at the items before a place knows which item it would have put there. No two items of one stream are equal: where
// contents may come again, an item also says its place.
template <class Item>
class Cascade {
 public:
  explicit Cascade(size_t n_stages = 0) : outputs_(n_stages) {}

  size_t stages() const { return outputs_.size(); }
  // O_i: what the stage holds to be right so far.
  std::span<const Item> output(size_t stage) const { return outputs_[stage]; }

  // What the stage would work upon now: its predecessor's items after its own output. Empty for stage 0, and for a
  // stage that has caught up; it then produces a single item of its own.
  std::span<const Item> drafts(size_t stage) const {
    if (stage == 0) return {};
    const auto& below = outputs_[stage - 1];
    const size_t own = outputs_[stage].size();
    return std::span(below).subspan(std::min(own, below.size()));
  }

  // The stage has looked at `n` drafts (as drafts() had them) and says which item it would have put at each of those
  // places and at the one after them: says.size() == n + 1. Takes over what it agrees with and the first item of its
  // own; smaller stages that hold something else there go back to it. Returns how many drafts it agreed with. REQUIRES:
  // the drafts that it looked at are still its predecessor's, i.e. no rollback came between.
  size_t worked(size_t stage, std::span<const Item> says) {
    std::vector<Item>& own = outputs_[stage];
    const std::span<const Item> seen = drafts(stage);
    size_t agreed = 0;
    while (agreed + 1 < says.size() && agreed < seen.size() && seen[agreed] == says[agreed]) ++agreed;
    own.insert(own.end(), says.begin(), says.begin() + static_cast<std::ptrdiff_t>(agreed) + 1);
    for (size_t below = stage; below-- > 0;) roll_back(below, own);
    return agreed;
  }

  // `item`, and all before it, is final: nobody needs it any more. A stage that did not hold it begins anew after it.
  void settle(const Item& item) {
    for (auto& output : outputs_) {
      const auto at = std::find(output.begin(), output.end(), item);
      output.erase(output.begin(), at == output.end() ? at : at + 1);
    }
  }

 private:
  // A smaller stage may be ahead of `truth`, but neither beside nor behind it.
  void roll_back(size_t stage, const std::vector<Item>& truth) {
    std::vector<Item>& output = outputs_[stage];
    const bool ahead = output.size() >= truth.size() && std::equal(truth.begin(), truth.end(), output.begin());
    if (!ahead) output = truth;
  }

  std::vector<std::vector<Item>> outputs_;
};

}  // namespace sluice
