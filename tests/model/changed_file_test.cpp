// Reading what a file no longer has.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "model/file_map.h"
#include "support/tiny_model.h"

namespace sluice {
namespace {

using namespace test;

std::string file_of(const std::string& name, size_t bytes) {
  const std::string path = temp_path(name);
  std::ofstream(path, std::ios::binary) << std::string(bytes, 'x');
  return path;
}

std::byte touch(const std::byte* at) { return *static_cast<const volatile std::byte*>(at); }

TEST(ChangedFileDeathTest, ATruncatedOneIsNamed) {
  const size_t page = page_size();
  const std::string path = file_of("cut.bin", 4 * page), other = file_of("whole.bin", page);
  const auto cut_and_touch = [&](size_t left, size_t at) {
    report_truncated_files();
    const OpenFile whole = OpenFile::open(other).value(), file = OpenFile::open(path).value();
    const MappedBytes elsewhere = whole.map(0, page).value();
    MappedBytes mapped = file.map(0, 4 * page).value();
    const MappedBytes moved = std::move(mapped);
    std::filesystem::resize_file(path, left);
    touch(moved.bytes().data() + at);
    touch(elsewhere.bytes().data());
    ::_exit(7);
  };
  EXPECT_EXIT(cut_and_touch(page, 3 * page), testing::ExitedWithCode(1), "^sluice: " + path + ": has become shorter");
  file_of("cut.bin", 4 * page);
  EXPECT_EXIT(cut_and_touch(page, page - 1), testing::ExitedWithCode(7), "") << "what is left can be read";
}

TEST(ChangedFileDeathTest, OtherBusErrorsGoWhereTheyWentBefore) {
  const size_t page = page_size();
  const std::string path = file_of("not-ours.bin", 2 * page);
  const auto touch_beyond = [&](bool was_ours) {
    ::signal(SIGBUS, SIG_DFL);  // a sanitizer's own would be the one before
    report_truncated_files();
    const OpenFile file = OpenFile::open(path).value();
    if (was_ours) static_cast<void>(file.map(0, 2 * page).value());  // forgotten at once
    const int fd = ::open(path.c_str(), O_RDONLY);
    void* const bytes = ::mmap(nullptr, 2 * page, PROT_READ, MAP_PRIVATE, fd, 0);
    std::filesystem::resize_file(path, 1);
    touch(static_cast<const std::byte*>(bytes) + page);
  };
  EXPECT_EXIT(touch_beyond(false), testing::KilledBySignal(SIGBUS), "");
  file_of("not-ours.bin", 2 * page);
  EXPECT_EXIT(touch_beyond(true), testing::KilledBySignal(SIGBUS), "");
  const auto be_told = [](auto handler) {
    ::signal(SIGBUS, handler != nullptr ? handler : SIG_DFL);
    report_truncated_files();
    ::raise(SIGBUS);
    ::_exit(7);
  };
  EXPECT_EXIT(be_told(static_cast<void (*)(int)>(nullptr)), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(be_told(+[](int) { ::_exit(9); }), testing::ExitedWithCode(9), "");
}

}  // namespace
}  // namespace sluice
