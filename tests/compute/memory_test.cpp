#include "compute/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

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

// Pages of the block that are in memory.
size_t resident(const Memory& memory) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there((memory.size() + page - 1) / page);
  EXPECT_EQ(mincore(memory.data(), memory.size(), there.data()), 0);
  return static_cast<size_t>(std::ranges::count_if(there, [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(Memory, WhatIsForgottenIsZeroAndItsWholePagesAreGivenBack) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Memory memory(64 * page);
  std::memset(memory.data(), 7, memory.size());
  ASSERT_EQ(resident(memory), 64u);
  memory.forget(page / 2, 10 * page);
  EXPECT_EQ(resident(memory), 64u - 9);
  memory.forget(40 * page + 8, 16);  // less than a page
  EXPECT_EQ(resident(memory), 64u - 9);
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool forgotten = (page / 2 <= i && i < page / 2 + 10 * page) || (40 * page + 8 <= i && i < 40 * page + 24);
    ASSERT_EQ(memory.data()[i], std::byte(forgotten ? 0 : 7)) << i;
  }
}

}  // namespace
}  // namespace sluice::test
