#include "train/cod.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "train/heads.h"

namespace sluice::test {
namespace {

std::vector<CodRow> rows_of(const std::vector<std::vector<int64_t>>& kept) {
  std::vector<CodRow> rows;
  for (size_t d = 0; d < kept.size(); ++d)
    for (const int64_t p : kept[d]) rows.push_back({p, static_cast<int64_t>(d)});
  return rows;
}

// Sections 2 and 3 in words: a masked row sees what a drafting pass would hold when its guess is made, which is the
// context before its chain began and the chain so far.
bool sees_in_words(const CodRow& row, const CodRow& other) {
  std::vector<CodRow> held;
  const int64_t context_end = row.position - row.depth;
  for (int64_t p = 0; p <= context_end; ++p) held.push_back({p, 0});
  for (int64_t j = 1; j <= row.depth; ++j) held.push_back({context_end + j, j});
  return std::find(held.begin(), held.end(), other) != held.end();
}

TEST(Cod, MasksEqualBruteForceHoweverTheyAreMade) {
  const AmortisedMask amortised(24, 5);
  for (uint64_t draw = 0; draw < 4; ++draw) {
    const auto rows = rows_of(sample_cod(2, 20, 5, 0.7, draw));
    const auto built = sees(rows, rows), selected = amortised.select(rows, rows);
    for (size_t i = 0; i < rows.size(); ++i)
      for (size_t j = 0; j < rows.size(); ++j) {
        const bool truth = sees_in_words(rows[i], rows[j]);
        const auto a = static_cast<int64_t>(i), b = static_cast<int64_t>(j);
        ASSERT_EQ(sees(rows[i], rows[j]), truth);
        ASSERT_EQ(built[a][b].item<bool>(), truth);
        ASSERT_EQ(selected[a][b].item<bool>(), truth);
      }
  }
}

TEST(Cod, FrugalAttentionIsAttentionWithTheWholeMaskAndSoAreItsGradients) {
  torch::manual_seed(5);
  for (const int64_t length : {40, 500}) {  // one block of queries, and several
    const auto rows = rows_of(sample_cod(2, length, 5, 0.7, 9));
    std::vector<int64_t> positions, depths;
    for (const CodRow& row : rows) positions.push_back(row.position), depths.push_back(row.depth);
    const auto n = static_cast<int64_t>(rows.size());
    const auto q = torch::randn({n, 6, 8}).requires_grad_(), k = torch::randn({n, 2, 8}).requires_grad_(),
               v = torch::randn({n, 2, 8}).requires_grad_(), direction = torch::randn({n, 48});
    const auto whole = attention(q, k, v, mask_of(sees(rows, rows)));
    const auto frugal = frugal_attention(q, k, v, torch::tensor(positions), torch::tensor(depths));
    EXPECT_LT(distance(whole, frugal), 1e-5);
    const auto a = torch::autograd::grad({whole}, {q, k, v}, {direction});
    const auto b = torch::autograd::grad({frugal}, {q, k, v}, {direction});
    for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(distance(a[i], b[i]), 1e-4) << "gradient " << i << ", " << n;
  }
}

TEST(Cod, EachDepthKeepsItsShareAndOnlyWhatItDependsOn) {
  const auto kept = sample_cod(10, 110, 6, 0.8, 3);
  ASSERT_EQ(kept.size(), 6u);
  const size_t wanted[] = {100, 80, 64, 51, 41, 33};
  for (size_t d = 0; d < 6; ++d) {
    EXPECT_NEAR(static_cast<double>(kept[d].size()), static_cast<double>(wanted[d]), 1.0) << d;
    if (d == 0) continue;
    const std::set<int64_t> before(kept[d - 1].begin(), kept[d - 1].end());
    for (const int64_t p : kept[d]) EXPECT_TRUE(before.contains(p - 1)) << p << " at depth " << d;
  }
  EXPECT_EQ(sample_cod(10, 110, 6, 0.8, 3), kept);
  EXPECT_NE(sample_cod(10, 110, 6, 0.8, 4), kept);
}

TEST(Cod, ASegmentHoldsWhatItsRowsSeeAndEachLossIsCountedOnce) {
  const auto kept = sample_cod(3, 43, 5, 0.8, 1);
  for (const int64_t n : {1, 2, 3, 7}) {
    std::map<std::pair<int64_t, int64_t>, int> counted;
    for (const Segment& segment : partition(kept, n)) {
      std::vector<CodRow> held = segment.context;
      held.insert(held.end(), segment.own.begin(), segment.own.end());
      const auto has = [&](const CodRow& row) { return std::find(held.begin(), held.end(), row) != held.end(); };
      for (const CodRow& row : segment.own) {
        ++counted[{row.position, row.depth}];
        for (int64_t p = 0; p <= row.position - row.depth; ++p) EXPECT_TRUE(has({p, 0}));
        for (int64_t j = 1; j <= row.depth; ++j) EXPECT_TRUE(has({row.position - row.depth + j, j}));
      }
    }
    EXPECT_EQ(counted.size(), rows_of(kept).size());
    for (const auto& [row, times] : counted) EXPECT_EQ(times, 1);
  }
}

TEST(Cod, ARowStaysWithItsDependencyAcrossABoundary) {
  // Section 3.2's example: position 8 at depth 2 belongs to the first of two segments, where position 7 at depth 1 is.
  std::vector<std::vector<int64_t>> kept(3);
  for (int64_t p = 0; p < 16; ++p) kept[0].push_back(p);
  kept[1] = {3, 7, 10};
  kept[2] = {8, 11};
  const auto segments = partition(kept, 2);
  const auto& first = segments[0].own;
  EXPECT_NE(std::find(first.begin(), first.end(), CodRow{8, 2}), first.end());
  EXPECT_EQ(segments[1].context.size(), 8u);
  EXPECT_TRUE(segments[0].context.empty());
}

}  // namespace
}  // namespace sluice::test
