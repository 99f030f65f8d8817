// A file that lies in memory and has a path all the same.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace sluice::test {

class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("sluice-test", MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error("no memory file");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }

  // The file's contents are these bytes from now on.
  void set(std::span<const std::byte> bytes) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes.size())) != 0 ||
        ::pwrite(fd_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("a memory file cannot be written");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace sluice::test
