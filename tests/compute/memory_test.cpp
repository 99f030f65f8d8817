#include "compute/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace sluice::test {
namespace {

TEST(Arena, GivesZeroedAlignedBlocksThatDoNotOverlap) {
  Arena arena;
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (const size_t bytes : {1ul, 64ul, 100ul, 3ul << 20, 100ul << 20, 7ul, 80ul << 20}) {
    std::byte* block = arena.take(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) EXPECT_EQ(block[at], std::byte{0}) << bytes;
    std::memset(block, 1 + static_cast<int>(blocks.size()), std::min(bytes, size_t{1} << 20));
    blocks.emplace_back(block, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].first[0], std::byte(i + 1));
    for (size_t j = 0; j < i; ++j) {
      const auto [a, a_bytes] = blocks[i];
      const auto [b, b_bytes] = blocks[j];
      EXPECT_TRUE(a + a_bytes <= b || b + b_bytes <= a) << i << " and " << j;
    }
  }
}

}  // namespace
}  // namespace sluice::test
