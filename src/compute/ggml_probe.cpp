// What a device does to a row when other things about a pass are otherwise.
#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "compute/ggml_layers.h"

namespace sluice {

// A path of a few tokens, whose rows pass alone, one after another, as wide as the lock says; and then again otherwise.
class GgmlLayers::Probe {
 public:
  explicit Probe(GgmlLayers& layers)
      : layers_(layers),
        d_(static_cast<size_t>(layers.h_.d_model)),
        lock_(static_cast<size_t>(layers.options_.width_lock)),
        n_(std::min({static_cast<size_t>(layers.options_.n_cells), kTokens, lock_})),
        states_(noise(n_, 1)),
        alone_(layers.parts_.size()) {
    for (size_t part = 0; part < alone_.size(); ++part) {
      alone_[part] = states_;
      for (size_t i = 0; i < n_; ++i) {
        const BlockRow one = row(cells_from_the_start(i));
        layers_.run(part, {&one, 1}, of(alone_[part], i));
      }
    }
    if (layers_.options_.with_head) logits_alone_ = logits_of(states_, 1);
  }

  // Whether they come to the same in passes of `width` rows, together as far as there are places, among others, and in
  // other cells. REQUIRES: passes of so many rows are that wide.
  bool same_at(size_t width) {
    for (size_t part = 0; part < alone_.size(); ++part)
      if (!same(alone_[part], among(part, width))) return false;
    return !layers_.options_.with_head || same(logits_alone_, logits_of(states_, width));
  }

 private:
  static constexpr size_t kTokens = 3;

  // Of tokens of a pass, by its width: apart from one another, as far as there are places.
  static size_t place(size_t i, size_t n, size_t width) { return width - (n - i) * std::min<size_t>(width / n, 3); }

  std::vector<float> among(size_t part, size_t width) {
    std::vector<float> out;
    for (size_t first = 0; first < n_; first += std::min(width, n_)) {
      const size_t n = std::min(width, n_ - first);
      std::vector<float> states = noise(width, 2);
      std::vector<BlockRow> rows(width, row({layers_.options_.n_cells}));  // others, each the first of its text
      for (size_t i = 0; i < n; ++i) {
        rows[place(i, n, width)] = row(cells_from_the_end(first + i));
        std::ranges::copy(of(states_, first + i), of(states, place(i, n, width)).begin());
      }
      layers_.run(part, rows, states);
      for (size_t i = 0; i < n; ++i) {
        const auto state = of(states, place(i, n, width));
        out.insert(out.end(), state.begin(), state.end());
      }
    }
    return out;
  }

  // Of width 1: each alone, however wide passes are then.
  std::vector<float> logits_of(const std::vector<float>& states, size_t width) {
    const auto n_logits = static_cast<size_t>(layers_.n_logits_);
    std::vector<float> out, made(width * n_logits);
    for (size_t first = 0; first < n_; first += std::min(width, n_)) {
      const size_t n = std::min(width, n_ - first);
      std::vector<float> passed = noise(width, 3);
      for (size_t i = 0; i < n; ++i)
        std::copy_n(states.begin() + static_cast<ptrdiff_t>((first + i) * d_), d_,
                    of(passed, place(i, n, width)).begin());
      layers_.logits(passed, made);
      for (size_t i = 0; i < n; ++i) {
        const auto logits = std::span(made).subspan(place(i, n, width) * n_logits, n_logits);
        out.insert(out.end(), logits.begin(), logits.end());
      }
    }
    return out;
  }

  std::vector<float> noise(size_t n_rows, uint32_t choice) const {
    std::vector<float> out(n_rows * d_);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(gumbel({.choice = choice, .purpose = Purpose::kTest}, static_cast<uint32_t>(i)));
    return out;
  }
  std::span<float> of(std::vector<float>& states, size_t row) const { return std::span(states).subspan(row * d_, d_); }

  static BlockRow row(const std::vector<int32_t>& cells) {
    BlockRow row{.cell = Cell(cells.back()), .position = static_cast<int32_t>(cells.size()) - 1, .path = {}};
    for (const int32_t cell : cells) row.path.branch.emplace_back(cell);
    return row;
  }
  static std::vector<int32_t> cells_from_the_start(size_t last) {
    std::vector<int32_t> cells;
    for (size_t i = 0; i <= last; ++i) cells.push_back(static_cast<int32_t>(i));
    return cells;
  }
  std::vector<int32_t> cells_from_the_end(size_t last) const {
    std::vector<int32_t> cells = cells_from_the_start(last);
    for (int32_t& cell : cells) cell = layers_.options_.n_cells - 1 - cell;
    return cells;
  }

  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  GgmlLayers& layers_;
  size_t d_, lock_, n_;  // n_: tokens of the path
  std::vector<float> states_;
  std::vector<std::vector<float>> alone_;  // by part, what comes of states_
  std::vector<float> logits_alone_;        // of states_
};

bool GgmlLayers::holds_still() {
  const int32_t lock = options_.width_lock;
  Probe probe(*this);
  if (!probe.same_at(static_cast<size_t>(lock))) return false;
  std::vector<int32_t> widths;
  for (int32_t width = 1; width < lock; width *= 2) {
    widths_ = {width, lock};
    if (probe.same_at(static_cast<size_t>(width))) widths.push_back(width);
  }
  widths.push_back(lock);
  widths_ = std::move(widths);
  return true;
}

}  // namespace sluice
