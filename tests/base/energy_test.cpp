#include "base/energy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A folder like Linux's, with counters that the test sets.
class Energy : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  void set(const std::string& zone, const std::string& name, const std::string& value) const {
    fs::create_directories(folder_ / zone);
    std::ofstream(folder_ / zone / name) << value << "\n";
  }
  void add(const std::string& zone, double microjoules, double range) const {
    set(zone, "max_energy_range_uj", std::to_string(static_cast<int64_t>(range)));
    set(zone, "energy_uj", std::to_string(static_cast<int64_t>(microjoules)));
  }
  const fs::path folder_ = fs::temp_directory_path() / ("sluice-energy-" + std::to_string(::getpid()));
};

TEST_F(Energy, AddsUpPackagesAndNotTheirParts) {
  add("intel-rapl:0", 1e6, 1e9);
  add("intel-rapl:1", 5e6, 1e9);
  add("intel-rapl:0:0", 7e6, 1e9);
  auto counter = EnergyCounter::open(folder_);
  ASSERT_TRUE(counter.has_value());
  EXPECT_EQ(counter->take(), 0.0);
  add("intel-rapl:0", 3.5e6, 1e9);
  add("intel-rapl:1", 6e6, 1e9);
  add("intel-rapl:0:0", 9e6, 1e9);
  EXPECT_DOUBLE_EQ(counter->take().value(), 3.5);
  EXPECT_EQ(counter->take(), 0.0);
}

TEST_F(Energy, ACounterMayBeginAnew) {
  add("intel-rapl:0", 9e6, 1e7);
  auto counter = EnergyCounter::open(folder_);
  ASSERT_TRUE(counter.has_value());
  add("intel-rapl:0", 2e6, 1e7);
  EXPECT_DOUBLE_EQ(counter->take().value(), 3.0);
}

TEST_F(Energy, WhatCannotBeReadIsNoCounter) {
  EXPECT_FALSE(EnergyCounter::open((folder_ / "none").string()).has_value());
  set("intel-rapl:0", "energy_uj", "no number");
  set("dtpm", "energy_uj", "5");
  EXPECT_FALSE(EnergyCounter::open(folder_).has_value());
  add("intel-rapl:0", 1e6, 1e9);
  auto counter = EnergyCounter::open(folder_);
  ASSERT_TRUE(counter.has_value());
  fs::remove_all(folder_ / "intel-rapl:0");
  EXPECT_FALSE(counter->take().has_value());
}

}  // namespace
}  // namespace sluice
