#include "session/memory_need.h"

#include <gtest/gtest.h>

#include "base/machine_memory.h"

namespace sluice::test {
namespace {

// Of a context that fills all memory, three quarters of it layers with windows.
MemoryNeed need() {
  MemoryNeed need{.context = 100000, .cells = 100256};
  need.bytes = machine_memory() / 100000;
  return need;
}

TEST(MemoryNeed, ARequestAloneLeavesWhatItsWindowsHavePassed) {
  MemoryNeed all = need(), passing = need();
  passing.windowed = passing.bytes / 4 * 3;
  passing.in_windows = machine_memory() / 10;
  ASSERT_FALSE(all.check(1));
  EXPECT_NE(all.check(1).error().message.find("--context 100000 needs a KV cache of 100256 cells"), std::string::npos);
  EXPECT_TRUE(passing.check(1));
  ASSERT_FALSE(passing.check(2)) << "many short texts may fill all cells";
  EXPECT_NE(passing.check(2).error().message.find("--concurrency 2"), std::string::npos);
}

TEST(MemoryNeed, NamesAContextThatFits) {
  MemoryNeed passing = need();
  passing.windowed = passing.bytes / 2;
  passing.in_windows = machine_memory() / 2;
  const Status refused = passing.check(1);
  ASSERT_FALSE(refused);
  const std::string& text = refused.error().message;
  const size_t at = text.find("give --context ");
  ASSERT_NE(at, std::string::npos) << text;
  const int64_t context = std::stoll(text.substr(at + 15));
  passing.cells = context + passing.cells - passing.context;
  EXPECT_TRUE(passing.check(1)) << text;
}

}  // namespace
}  // namespace sluice::test
