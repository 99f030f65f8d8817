// Which file lies at which addresses, for the one who must know when a page of it has gone.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sluice {

// While this lives, the bytes are known to be those of the file. Thread safety: any thread may make one.
class MappedRange {
 public:
  struct Place;

  MappedRange() = default;
  MappedRange(std::span<const std::byte> bytes, const std::string& path);
  MappedRange(MappedRange&& other) noexcept { swap(other); }
  MappedRange& operator=(MappedRange&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedRange();

 private:
  void swap(MappedRange& other) noexcept { std::swap(place_, other.place_); }
  Place* place_ = nullptr;
};

// From now on, reading a mapped page that its file has no longer (somebody has cut the file short) ends the program
// with one line that names the file, and status 1. Bus errors elsewhere go where they went before. For the program,
// once.
void report_truncated_files();

}  // namespace sluice
