#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/broken.h"

namespace sluice {
namespace {

Result<int> parse(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
    return input_error("'" + text + "' is not a number");
  return std::stoi(text);
}

Result<int> sum(const std::string& a, const std::string& b) {
  SLUICE_TRY(const int x, parse(a));
  SLUICE_TRY(const int y, parse(b));
  return x + y;
}

Status positive(const std::string& text) {
  SLUICE_TRY(const int x, parse(text));
  if (x == 0) return runtime_error("zero");
  return {};
}

Result<std::string> both(const std::string& text, int& evaluations) {
  SLUICE_TRY_STATUS((++evaluations, positive(text)));
  return "yes";
}

TEST(Result, TryNamesTheValueOfASuccess) { EXPECT_EQ(sum("2", "40").value(), 42); }

TEST(Result, TryPassesTheFirstErrorOn) {
  const auto result = sum("2", "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "'x' is not a number");
  EXPECT_EQ(result.error().kind, ErrorKind::kInput);
  EXPECT_EQ(sum("y", "x").error().message, "'y' is not a number");
}

TEST(Result, TryConvertsBetweenResultTypes) {
  EXPECT_TRUE(positive("3"));
  EXPECT_EQ(positive("a").error().message, "'a' is not a number");
}

TEST(Result, TryStatusEvaluatesOnceAndPassesErrorsOn) {
  int evaluations = 0;
  EXPECT_EQ(both("3", evaluations).value(), "yes");
  EXPECT_EQ(evaluations, 1);
  EXPECT_EQ(both("0", evaluations).error().kind, ErrorKind::kRuntime);
  EXPECT_EQ(evaluations, 2);
}

TEST(Result, TryMovesWhatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  const auto take = [&]() -> Result<int> {
    SLUICE_TRY(auto owned, make());
    return *owned;
  };
  EXPECT_EQ(take().value(), 5);
}

TEST(Result, ExitStatusesAreTheKinds) {
  EXPECT_EQ(static_cast<int>(ErrorKind::kRuntime), 1);
  EXPECT_EQ(static_cast<int>(ErrorKind::kInput), 2);
  EXPECT_EQ(static_cast<int>(ErrorKind::kInterrupted), 130);
}

TEST(Check, NamesTheBrokenInvariant) {
  SLUICE_CHECK(1 + 1 == 2, "arithmetic");
  EXPECT_BROKEN(SLUICE_CHECK(1 + 1 == 3, "arithmetic holds"), "arithmetic holds (1 + 1 == 3)");
}

}  // namespace
}  // namespace sluice
