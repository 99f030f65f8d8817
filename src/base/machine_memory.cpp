#include "base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice {

namespace {

namespace fs = std::filesystem;

// The first number in a file; `otherwise` if there is none, as where a group says "max".
int64_t number_in(const fs::path& file, int64_t otherwise) {
  int64_t number = 0;
  return std::ifstream(file) >> number ? number : otherwise;
}

// The group of this process, and those that it lies in, up to the root.
int64_t least_limit(const fs::path& root, fs::path group, const char* file, int64_t limit) {
  for (;; group = group.parent_path()) {
    limit = std::min(limit, number_in(root / group.relative_path() / file, limit));
    if (!group.has_relative_path()) return limit;
  }
}

}  // namespace

int64_t machine_memory() {
  int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  std::ifstream groups("/proc/self/cgroup");  // ID:CONTROLLERS:/GROUP, without controllers in version 2
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) memory = least_limit("/sys/fs/cgroup", group, "memory.max", memory);
    if (controllers == "memory") memory = least_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", memory);
  }
  return memory;
}

}  // namespace sluice
