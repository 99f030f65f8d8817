#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace sluice {
namespace {

namespace fs = std::filesystem;

class WholeFiles : public testing::Test {
 protected:
  WholeFiles()
      : folder_(fs::path(testing::TempDir()) /
                (std::string("whole_files_") + testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~WholeFiles() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(WholeFiles, WhatIsThereStaysUntilTheNewOneIsWhole) {
  ASSERT_FALSE(write_whole(path("a"), "old"));
  WholeFile file(path("a"));
  ASSERT_NE(file.stream(), nullptr);
  std::fputs("new", file.stream());
  EXPECT_EQ(contents(path("a")), "old");
  ASSERT_FALSE(file.commit());
  EXPECT_EQ(contents(path("a")), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WholeFiles, WhatIsNotCommittedLeavesNothingBehind) {
  {
    WholeFile file(path("a"));
    std::fputs("half", file.stream());
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(WholeFiles, WhatAKilledProcessLeftGoes) {
  const pid_t child = ::fork();
  if (child == 0) {
    WholeFile file(path("a"));
    ::_exit(file.stream() == nullptr);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(files(), 1u);
  ASSERT_FALSE(write_whole(path("a"), "whole"));
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(contents(path("a")), "whole");
}

TEST_F(WholeFiles, ALinkStaysOneAndAFileKeepsItsPermissions) {
  ASSERT_FALSE(write_whole(path("real"), "old"));
  ::chmod(path("real").c_str(), 0640);
  fs::create_symlink("real", path("link"));
  ASSERT_FALSE(write_whole(path("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(contents(path("real")), "new");
  EXPECT_EQ(fs::status(path("real")).permissions(), fs::perms(0640));
}

TEST_F(WholeFiles, ADeviceIsWrittenToAsItIs) {
  EXPECT_FALSE(write_whole("/dev/null", "bytes"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(write_whole("/dev/full", "bytes"), std::errc::no_space_on_device);
  EXPECT_EQ(write_whole("/dev/full", std::string(100000, 'x')), std::errc::no_space_on_device);
}

TEST_F(WholeFiles, SayWhyTheyCannotBeWritten) {
  EXPECT_EQ(write_whole(path("none/a"), "bytes"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(write_whole(folder_.string(), "bytes"), std::errc::is_a_directory);
  WholeFile file(path("none/a"));
  EXPECT_EQ(file.stream(), nullptr);
  EXPECT_EQ(file.commit(), std::errc::no_such_file_or_directory);
}

}  // namespace
}  // namespace sluice
