// What a device does to a row when other things about a pass are otherwise.
#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "compute/ggml_layers.h"

namespace sluice {

namespace {

// Of values of n rows.
template <class Values>
auto row_of(Values& values, size_t row, size_t n) {
  return std::span(values).subspan(row * (values.size() / n), values.size() / n);
}

void append(std::span<const float> values, std::vector<float>& to) {
  to.insert(to.end(), values.begin(), values.end());
}

}  // namespace

// A path of a few tokens, whose rows pass alone, one after another, as wide as the lock says; and then again otherwise.
class GgmlLayers::Probe {
 public:
  explicit Probe(GgmlLayers& layers)
      : layers_(layers),
        d_(static_cast<size_t>(layers.h_.d_model)),
        lock_(static_cast<size_t>(layers.options_.width_lock)),
        n_(std::min({static_cast<size_t>(layers.options_.n_cells), kTokens, lock_})),
        states_(noise(n_, d_, 1)),
        attended_(noise(n_, attended_width(), 4)),
        alone_(layers.parts_.size()) {
    for (size_t part = 0; part < alone_.size(); ++part) {
      for (size_t i = 0; i < n_; ++i) {
        std::vector<BlockRow> one = {row(cells_from_the_start(i))};
        std::vector<float> state, attended;
        append(row_of(states_, i, n_), state);
        append(row_of(attended_, i, n_), attended);
        append(run(part, one, state, attended), alone_[part]);
      }
    }
    if (layers_.options_.with_head) logits_alone_ = logits_of(states_, 1);
  }

  // Whether they come to the same in passes of `width` rows, together as far as there are places, among others, in
  // other cells, and followed by others that go on from them. REQUIRES: passes of so many rows are that wide.
  bool same_at(size_t width) {
    const bool any_paths = width <= static_cast<size_t>(layers_.most_rows(ggml_attended_cells(1)));
    for (size_t part = 0; part < alone_.size(); ++part) {
      if (any_paths && !same(alone_[part], among(part, width))) return false;
      for (const size_t before : {size_t{0}, size_t{1}})
        if (before < n_ && !same(alone_[part], in_chain(part, width, before))) return false;
    }
    return !layers_.options_.with_head || width > lock_ || same(logits_alone_, logits_of(states_, width));
  }

 private:
  static constexpr size_t kTokens = 3;

  // Of tokens of a pass, by its width: apart from one another, as far as there are places.
  static size_t place(size_t i, size_t n, size_t width) { return width - (n - i) * std::min<size_t>(width / n, 3); }

  std::vector<float> among(size_t part, size_t width) {
    std::vector<float> out;
    for (size_t first = 0; first < n_; first += std::min(width, n_)) {
      const size_t n = std::min(width, n_ - first);
      std::vector<float> states = noise(width, d_, 2), attended = noise(width, attended_width(), 5);
      std::vector<BlockRow> rows(width, row({layers_.options_.n_cells}));  // others, each the first of its text
      for (size_t i = 0; i < n; ++i) {
        rows[place(i, n, width)] = row(cells_from_the_end(first + i));
        std::ranges::copy(row_of(states_, first + i, n_), row_of(states, place(i, n, width), width).begin());
        std::ranges::copy(row_of(attended_, first + i, n_), row_of(attended, place(i, n, width), width).begin());
      }
      const std::vector<float> made = run(part, rows, states, attended);
      for (size_t i = 0; i < n; ++i) append(row_of(made, place(i, n, width), width), out);
    }
    return out;
  }

  // The first `before` of them in a pass of their own, with the others one that all who go on from them fill up.
  std::vector<float> in_chain(size_t part, size_t width, size_t before) {
    std::vector<float> out;
    for (size_t first = 0; first < n_;) {
      const size_t n = std::min(width, before > 0 && first == 0 ? before : n_ - first);
      const bool is_last = first + n == n_;
      const size_t all = is_last ? std::min(width, static_cast<size_t>(layers_.options_.n_cells) - first) : n;
      std::vector<float> states = noise(all, d_, 6), attended = noise(all, attended_width(), 7);
      std::vector<BlockRow> rows;
      for (size_t i = 0; i < all; ++i) rows.push_back(row(cells_from_the_end(first + i)));
      for (size_t i = 0; i < n; ++i) {
        std::ranges::copy(row_of(states_, first + i, n_), row_of(states, i, all).begin());
        std::ranges::copy(row_of(attended_, first + i, n_), row_of(attended, i, all).begin());
      }
      const std::vector<float> made = run(part, rows, states, attended);
      for (size_t i = 0; i < n; ++i) append(row_of(made, i, all), out);
      first += n;
    }
    return out;
  }

  // Of width 1: each alone, however wide passes are then.
  std::vector<float> logits_of(const std::vector<float>& states, size_t width) {
    const auto n_logits = static_cast<size_t>(layers_.n_logits_);
    std::vector<float> out, made(width * n_logits);
    for (size_t first = 0; first < n_; first += std::min(width, n_)) {
      const size_t n = std::min(width, n_ - first);
      std::vector<float> passed = noise(width, d_, 3);
      for (size_t i = 0; i < n; ++i)
        std::ranges::copy(row_of(states, first + i, n_), row_of(passed, place(i, n, width), width).begin());
      layers_.logits(passed, made);
      for (size_t i = 0; i < n; ++i) append(row_of(made, place(i, n, width), width), out);
    }
    return out;
  }

  // What a part makes of rows: [rows, d_model], or of one that ends projected [rows, d_model + projected_width].
  std::vector<float> run(size_t part, std::span<const BlockRow> rows, std::vector<float>& states,
                         const std::vector<float>& attended) {
    const GgmlPart& which = layers_.parts_[part];
    const size_t width = which.ends_projected ? static_cast<size_t>(layers_.h_.delta.projected_width()) : 0;
    std::vector<float> projected(rows.size() * width), out;
    layers_.run(part, rows, states, {which.begins_folded ? std::span(attended) : std::span<const float>(), projected});
    for (size_t i = 0; i < rows.size(); ++i) {
      append(row_of(states, i, rows.size()), out);
      append(row_of(projected, i, rows.size()), out);
    }
    return out;
  }

  size_t attended_width() const { return static_cast<size_t>(layers_.h_.delta.value_width()); }

  static std::vector<float> noise(size_t n_rows, size_t width, uint32_t choice) {
    std::vector<float> out(n_rows * width);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(gumbel({.choice = choice, .purpose = Purpose::kTest}, static_cast<uint32_t>(i)));
    return out;
  }
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
  std::vector<float> states_, attended_;
  std::vector<std::vector<float>> alone_;  // by part, what comes of them
  std::vector<float> logits_alone_;        // of states_
};

bool GgmlLayers::holds_still() {
  const int32_t lock = options_.width_lock;
  // A processor's threads take queries one by one, so that few cells tell as much, and take less time.
  constexpr int32_t kMostOfProcessor = 1024;
  const int32_t most = device_.is_processor() ? std::min(kMostOfProcessor, largest_.cells) : largest_.cells;
  for (int32_t cells = ggml_attended_cells(1); cells <= most; cells = ggml_attended_cells(cells + 1))
    if (const int32_t found = find_together(cells); found != lock) together_[cells] = found;
  if (!together_.empty())
    for (auto& of_part : passes_) of_part.clear();  // they have been built for others
  Probe probe(*this);
  if (!probe.same_at(static_cast<size_t>(lock))) return false;
  std::vector<int32_t> narrow, wide;
  for (int32_t width = 1; width < lock; width *= 2) {
    widths_ = {width, lock};
    if (probe.same_at(static_cast<size_t>(width))) narrow.push_back(width);
  }
  for (int32_t width = lock; width < largest_.rows;) {
    width = std::min(4 * width, largest_.rows);
    widths_ = {lock, width};
    if (!probe.same_at(static_cast<size_t>(width))) break;
    wide.push_back(width);
  }
  widths_ = std::move(narrow);
  widths_.push_back(lock);
  widths_.insert(widths_.end(), wide.begin(), wide.end());
  return true;
}

}  // namespace sluice
