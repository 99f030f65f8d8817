#include "base/machine_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace sluice {
namespace {

TEST(MachineMemory, IsAtMostWhatTheMachineHas) {
  EXPECT_GT(machine_memory(), int64_t{1} << 26);
  EXPECT_LE(machine_memory(), int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE));
}

}  // namespace
}  // namespace sluice
