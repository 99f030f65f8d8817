#include "compute/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compute/decoding.h"

namespace sluice::test {
namespace {

// Keys and values by position along one path, put into the cells of `path`.
struct Scene {
  Scene(AttentionShape shape, int32_t length, uint64_t seed) : shape(shape), length(length) {
    const auto width = static_cast<size_t>(shape.kv_width());
    keys = Dice(seed).normals(static_cast<size_t>(length) * width);
    values = Dice(seed + 1).normals(static_cast<size_t>(length) * width);
    query = Dice(seed + 2).normals(static_cast<size_t>(shape.n_heads * shape.head_dim));
  }
  AttentionShape shape;
  int32_t length;
  std::vector<float> keys, values, query;
  int32_t window = 0;
  std::vector<float> sinks;

  // The first `n_committed` positions as committed cells, the rest as a branch; cells shuffled by `seed`.
  std::vector<float> run(KvType type, int32_t n_committed, uint64_t seed, int n_parts = 1) const {
    const int32_t n_cells = 3 * length;
    std::vector<Cell> all;
    for (int32_t i = 0; i < n_cells; ++i) all.push_back(Cell(i));
    Dice dice(seed);
    for (int32_t i = n_cells - 1; i > 0; --i)
      std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(dice.below(i + 1))]);
    KvLayer kv(shape, n_cells, type);
    const auto width = static_cast<size_t>(shape.kv_width());
    const std::vector<float> junk(width, 1e4f);
    for (const Cell cell : all) kv.write(cell, junk.data(), junk.data());
    for (size_t t = 0; t < static_cast<size_t>(length); ++t) kv.write(all[t], &keys[t * width], &values[t * width]);
    const Path path{std::span(all).first(static_cast<size_t>(n_committed)),
                    std::vector<Cell>(all.begin() + n_committed, all.begin() + length)};
    std::vector<float> out(query.size());
    AttentionScratch scratch(shape, n_cells);
    // Beside it a row with another path, before or after.
    const Path other{std::span(all).first(static_cast<size_t>(n_committed)), {all.back()}};
    std::vector<float> other_out(query.size());
    const AttentionRow row{&path, query.data(), out.data()}, neighbour{&other, query.data(), other_out.data()};
    // And one of another sequence that begins with the same cells.
    const std::vector<Cell> same(all.begin(), all.begin() + n_committed);
    const Path fork{same, {all[static_cast<size_t>(n_cells) - 2]}};
    const AttentionRow forked{&fork, query.data(), other_out.data()};
    const std::vector<AttentionRow> batches[] = {
        {row}, {neighbour, row}, {row, neighbour, row}, {forked, row}, {row, forked, neighbour, row}};
    const std::vector<AttentionRow>& rows = batches[seed % std::size(batches)];
    int64_t shared = n_committed;
    for (const AttentionRow& one : rows) shared = std::min(shared, in_common(*rows[0].path, *one.path));
    EXPECT_EQ(shared, n_committed);
    const int32_t group = shape.n_heads / shape.n_kv_heads;
    for (int32_t kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      for (int part = 0; part < n_parts; ++part) {
        Part heads = part_of(group, 1, part, n_parts);
        heads = {heads.begin + kv_head * group, heads.end + kv_head * group};
        if (!heads.empty()) TreeAttention(shape).run(kv, rows, {shared, window, sinks}, heads, scratch);
      }
    }
    return out;
  }

  std::vector<double> reference() const {
    std::vector<double> out(query.size(), 0.0);
    const int32_t group = shape.n_heads / shape.n_kv_heads;
    for (int32_t head = 0; head < shape.n_heads; ++head) {
      std::vector<double> p(static_cast<size_t>(length));
      const auto at = [&](int32_t t, int32_t d) {
        return static_cast<size_t>((t * shape.n_kv_heads + head / group) * shape.head_dim + d);
      };
      for (int32_t t = 0; t < length; ++t) {
        double dot = 0.0;
        for (int32_t d = 0; d < shape.head_dim; ++d) {
          dot += static_cast<double>(query[static_cast<size_t>(head * shape.head_dim + d)]) * keys[at(t, d)];
        }
        const bool seen = window == 0 || t >= length - window;
        p[static_cast<size_t>(t)] = seen ? std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim))) : 0.0;
      }
      const double sink = sinks.empty() ? 0.0 : std::exp(static_cast<double>(sinks[static_cast<size_t>(head)]));
      const double sum = std::accumulate(p.begin(), p.end(), sink);
      for (int32_t t = 0; t < length; ++t) {
        for (int32_t d = 0; d < shape.head_dim; ++d) {
          out[static_cast<size_t>(head * shape.head_dim + d)] += p[static_cast<size_t>(t)] / sum * values[at(t, d)];
        }
      }
    }
    return out;
  }
};

const AttentionShape kShapes[] = {{9, 3, 64}, {4, 2, 16}, {2, 1, 128}, {4, 4, 20}, {6, 2, 80}};

TEST(TreeAttention, AgreesWithDoublePrecision) {
  for (const AttentionShape& shape : kShapes) {
    for (const int32_t length : {1, 2, 7, 8, 9, 100}) {
      const Scene scene(shape, length, 5);
      const std::vector<double> expected = scene.reference();
      for (const auto& [type, error] : {std::pair{KvType::kF32, 5e-6}, {KvType::kF16, 5e-3}, {KvType::kQ8_0, 5e-2}}) {
        const std::vector<float> out = scene.run(type, length / 2, 1);
        for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], error);
      }
    }
  }
}

TEST(TreeAttention, WithWindowsAndSinksAgreesWithDoublePrecisionAndKeepsItsBits) {
  for (const AttentionShape& shape : kShapes) {
    for (const int32_t length : {1, 7, 8, 9, 40}) {
      for (const int32_t window : {0, 1, 5, 8, 13, 100}) {
        Scene scene(shape, length, 6);
        scene.window = window;
        if (window != 13) scene.sinks = Dice(7).normals(static_cast<size_t>(shape.n_heads));
        const std::vector<double> expected = scene.reference();
        const std::vector<float> plain = scene.run(KvType::kF32, length, 1);
        for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(plain[i], expected[i], 5e-6);
        for (const uint64_t seed : {2, 3, 4, 5, 6})
          EXPECT_EQ(scene.run(KvType::kF32, length * static_cast<int32_t>(seed - 2) / 4, seed, 2), plain)
              << length << " positions, window " << window;
      }
    }
  }
}

TEST(TreeAttention, GivesTheSameBitsWhereverTheCellsLieAndHoweverHeadsAreDivided) {
  for (const AttentionShape& shape : kShapes) {
    const Scene scene(shape, 37, 8);
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
      const std::vector<float> plain = scene.run(type, 37, 1);
      EXPECT_EQ(scene.run(type, 0, 2), plain);
      EXPECT_EQ(scene.run(type, 11, 3), plain);
      EXPECT_EQ(scene.run(type, 36, 4, /*n_parts=*/2), plain);
      EXPECT_EQ(scene.run(type, 20, 5, /*n_parts=*/3), plain);
      EXPECT_EQ(scene.run(type, 33, 6), plain);
    }
  }
}

}  // namespace
}  // namespace sluice::test
