#include "base/recent.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Recent, KeepsSoManyAndForgetsTheOldestFirst) {
  Recent<int> recent(2);
  EXPECT_EQ(recent.find("a"), std::nullopt);
  recent.keep("a", 1);
  recent.keep("b", 2);
  recent.keep("a", 3);
  EXPECT_EQ(recent.find("a"), 1) << "what is there stays";
  recent.keep("c", 3);
  EXPECT_EQ(recent.find("a"), std::nullopt);
  EXPECT_EQ(recent.find("b"), 2);
  EXPECT_EQ(recent.find("c"), 3);
}

}  // namespace
}  // namespace sluice
