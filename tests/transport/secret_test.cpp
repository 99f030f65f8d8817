#include "transport/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "support/tiny_model.h"

namespace sluice {
namespace {

using test::temp_path;

std::string error_of(const Result<Secret>& secret) { return secret ? "none" : secret.error().message; }

std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) {
  const std::string path = temp_path(name);
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
  return path;
}

TEST(Secret, IsMadeForItsOwnerAloneAndReadAgain) {
  const std::string path = temp_path("made"), other = temp_path("other");
  ASSERT_TRUE(make_secret(path));
  struct stat about {};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(about.st_size, 65);
  ASSERT_TRUE(make_secret(other));
  EXPECT_EQ(Secret::load(path).value().bytes, Secret::load(path).value().bytes);
  EXPECT_NE(Secret::load(path).value().bytes, Secret::load(other).value().bytes);
}

TEST(Secret, ThatIsThereAlreadyStays) {
  const std::string path = temp_path("kept");
  ASSERT_TRUE(make_secret(path));
  const auto before = Secret::load(path).value().bytes;
  const Status again = make_secret(path);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find(path), std::string::npos);
  EXPECT_EQ(Secret::load(path).value().bytes, before);
  EXPECT_FALSE(make_secret("/nowhere/secret"));
}

TEST(Secret, OfFewerThan32BytesIsRefused) {
  const std::string digits(64, 'a');
  EXPECT_TRUE(Secret::load(write("whole", digits + "\n")));
  for (const std::string& text :
       {std::string(), std::string("a"), digits.substr(1), digits + "a", digits.substr(1) + "g"})
    EXPECT_NE(error_of(Secret::load(write("short", text))).find("32 bytes"), std::string::npos) << text;
  EXPECT_NE(error_of(Secret::load("/nowhere/secret")).find("sluice secret"), std::string::npos);
  EXPECT_NE(error_of(Secret::load("/dev/null")).find("no file"), std::string::npos);
}

TEST(Secret, ThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0644, 0640, 0604, 0620})
    EXPECT_NE(error_of(Secret::load(write("open", std::string(64, '0'), mode))).find("chmod 600"), std::string::npos);
}

TEST(Secret, ThatSystemdGivesAServiceMayHaveTheBitsOfAnAccessList) {
  const std::string path = write("credential", std::string(64, '0'), 0440);
  const std::string folder = path.substr(0, path.rfind('/'));
  ::setenv("CREDENTIALS_DIRECTORY", folder.c_str(), 1);
  EXPECT_TRUE(Secret::load(path)) << error_of(Secret::load(path));
  ::chmod(path.c_str(), 0444);
  EXPECT_FALSE(Secret::load(path));
  ::setenv("CREDENTIALS_DIRECTORY", (folder + "/elsewhere").c_str(), 1);
  ::chmod(path.c_str(), 0440);
  EXPECT_FALSE(Secret::load(path));
  ::unsetenv("CREDENTIALS_DIRECTORY");
}

}  // namespace
}  // namespace sluice
