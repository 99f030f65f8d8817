#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

TEST(SecretCommand, MakesAFileOnce) {
  const std::string path = temp_path("cli.secret");
  const Ran made = run_program({"secret", path});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_NE(made.out.find(path), std::string::npos);
  EXPECT_TRUE(fails(run_program({"secret", path}), 1, {path, "already"}));
  EXPECT_TRUE(fails(run_program({"secret", "/nowhere/secret"}), 1, {"/nowhere/secret"}));
  EXPECT_TRUE(fails(run_program({"secret"}), 2, {"file"}));
}

}  // namespace
}  // namespace sluice::test
