// What a device does to a row when other things about a pass are otherwise.
#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "compute/ggml_layers.h"

namespace sluice {

// A path of a few tokens, whose rows pass alone, one after another, and then all together.
class GgmlLayers::Probe {
 public:
  explicit Probe(GgmlLayers& layers)
      : layers_(layers),
        d_(static_cast<size_t>(layers.h_.d_model)),
        lock_(static_cast<size_t>(layers.options_.width_lock)),
        n_(std::min({static_cast<size_t>(layers.options_.n_cells), kTokens, lock_})) {}

  bool layers_hold(size_t part) {
    std::vector<float> alone = noise(n_, 1), among = noise(lock_, 2);
    std::vector<BlockRow> rows(lock_, row({layers_.options_.n_cells}));  // others, each the first of its text
    for (size_t i = 0; i < n_; ++i) {
      rows[place(i)] = row(cells_from_the_end(i));
      std::ranges::copy(of(alone, i), of(among, place(i)).begin());
    }
    for (size_t i = 0; i < n_; ++i) {
      const BlockRow one = row(cells_from_the_start(i));
      layers_.run(part, {&one, 1}, of(alone, i));
    }
    layers_.run(part, rows, among);
    return agree(alone, among, d_);
  }

  bool head_holds() {
    const auto width = static_cast<size_t>(layers_.n_logits_);
    std::vector<float> states = noise(lock_, 3), alone(n_ * width), among(lock_ * width);
    for (size_t i = 0; i < n_; ++i) layers_.logits(of(states, place(i)), std::span(alone).subspan(i * width, width));
    layers_.logits(states, among);
    return agree(alone, among, width);
  }

 private:
  static constexpr size_t kTokens = 3;
  // Apart from one another, as far as there are places.
  size_t place(size_t i) const {
    const size_t apart = std::min<size_t>(lock_ / n_, 3);
    return lock_ - (n_ - i) * apart;
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

  bool agree(const std::vector<float>& alone, const std::vector<float>& among, size_t width) const {
    for (size_t i = 0; i < n_; ++i)
      if (std::memcmp(&alone[i * width], &among[place(i) * width], width * sizeof(float)) != 0) return false;
    return true;
  }

  GgmlLayers& layers_;
  size_t d_, lock_, n_;  // n_: tokens of the path
};

bool GgmlLayers::holds_still() {
  Probe probe(*this);
  for (size_t part = 0; part < parts_.size(); ++part)
    if (!probe.layers_hold(part)) return false;
  return !options_.with_head || probe.head_holds();
}

}  // namespace sluice
