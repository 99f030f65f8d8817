#include "model/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice {

namespace {

FileStamp stamp_of(const struct stat& status) {
  const auto nanoseconds = [](const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
  return {static_cast<uint64_t>(status.st_size), nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

}  // namespace

std::optional<FileStamp> FileStamp::of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return stamp_of(status);
}

MappedBytes::~MappedBytes() {
  range_ = {};  // before others may lie there
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedBytes::forget(std::span<const std::byte> part) const {
  constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
  const auto address = [](const std::byte* at) { return reinterpret_cast<uintptr_t>(at); };
  const uintptr_t begin = std::max(address(part.data()) / kLargePage * kLargePage, address(data_));
  const uintptr_t end =
      std::min((address(part.data() + part.size()) + kLargePage - 1) / kLargePage * kLargePage, address(data_ + size_));
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<OpenFile> OpenFile::open(const std::string& path) {
  // Not blocking: somebody may name a pipe.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return input_error(path + ": " + std::strerror(errno));
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return input_error(path + ": not a file");
  }
  return OpenFile(path, fd, stamp_of(status));
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status OpenFile::check_unchanged() const {
  struct stat status {};
  if (::fstat(fd_, &status) == 0 && stamp_of(status).same_contents(stamp_)) return {};
  return runtime_error(path_ + ": has changed since it was opened; start again once nobody writes to it");
}

Status OpenFile::read(uint64_t offset, std::span<std::byte> out) const {
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return runtime_error(path_ + ": cannot be read: " + std::strerror(errno));
    if (n == 0) return runtime_error(path_ + ": has become shorter since it was opened");
    done += static_cast<size_t>(n);
  }
  return {};
}

Result<MappedBytes> OpenFile::map(uint64_t offset, size_t length) const {
  // Pages beyond the end of a file would end the program when they are read.
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || static_cast<uint64_t>(status.st_size) < offset + length)
    return input_error(path_ + ": has become shorter since it was opened");
  void* data = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, fd_, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return runtime_error(path_ + ": cannot be mapped: " + std::strerror(errno));
  MappedBytes mapped;
  mapped.data_ = static_cast<std::byte*>(data);
  mapped.size_ = length;
  mapped.range_ = MappedRange(mapped.bytes(), path_);
  return mapped;
}

Status FileWatch::poll() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < std::chrono::seconds(1)) return {};
  looked_ = now;
  return look();
}

Status FileWatch::look() const {
  for (const auto& file : files_) SLUICE_TRY_STATUS(file->check_unchanged());
  return {};
}

size_t page_size() {
  static const size_t size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace sluice
