// A file of the operating system, opened once and mapped in parts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/mapped_ranges.h"

namespace sluice {

// Mapped bytes of a file, read-only.
class MappedBytes {
 public:
  MappedBytes() = default;
  MappedBytes(MappedBytes&& other) noexcept { swap(other); }
  MappedBytes& operator=(MappedBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedBytes();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Tells the kernel that a part of them is not needed for now: its pages leave memory, and so do neighbours within
  // 2 MiB, for the kernel maps as much at once where the file lies in large pages. What is needed after all comes
  // again.
  void forget(std::span<const std::byte> part) const;

 private:
  friend class OpenFile;
  void swap(MappedBytes& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(range_, other.range_);
  }
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  MappedRange range_;
};

// What changes when a file is written. Times are nanoseconds since 1970.
struct FileStamp {
  uint64_t size = 0;
  int64_t modified_ns = 0;  // its contents
  int64_t changed_ns = 0;   // those or its name, owner, rights: this one nobody can set
  bool operator==(const FileStamp&) const = default;
  bool same_contents(const FileStamp& other) const { return size == other.size && modified_ns == other.modified_ns; }

  // Of the file that is at this path now.
  static std::optional<FileStamp> of(const std::string& path);
};

// A regular file, open for reading. The mappings outlive it.
class OpenFile {
 public:
  // An error is of kind kInput and names the file.
  static Result<OpenFile> open(const std::string& path);
  OpenFile(OpenFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), stamp_(other.stamp_) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return stamp_.size; }      // when it was opened
  const FileStamp& stamp() const { return stamp_; }  // likewise

  // Whether its contents are those of when it was opened, by size and time. (A file that another one has replaced stays
  // what it is for who has it open.) An error (kRuntime) names the file and says what to do.
  Status check_unchanged() const;

  // Bytes [offset, offset + out.size()). An error (kRuntime) names the file.
  Status read(uint64_t offset, std::span<std::byte> out) const;

  // Maps [offset, offset + length). REQUIRES: offset a multiple of the page size, length > 0. An error names the file:
  // it has become shorter, or memory is out.
  Result<MappedBytes> map(uint64_t offset, size_t length) const;

 private:
  OpenFile(std::string path, int fd, const FileStamp& stamp) : path_(std::move(path)), fd_(fd), stamp_(stamp) {}
  std::string path_;
  int fd_ = -1;
  FileStamp stamp_;
};

// Whether the files that an engine computes with are still what they were.
//
// Weights are read as they are needed, so a file that is written meanwhile would change the answer.
class FileWatch {
 public:
  explicit FileWatch(std::vector<std::shared_ptr<const OpenFile>> files) : files_(std::move(files)) {}

  // An error (kRuntime) names a file that has changed since it was opened. Looks once a second at most.
  Status poll();
  Status look() const;  // in any case

 private:
  std::vector<std::shared_ptr<const OpenFile>> files_;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

size_t page_size();

}  // namespace sluice
