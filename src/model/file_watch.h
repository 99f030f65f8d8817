// Whether the files that an engine computes with are still what they were.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "model/file_map.h"

namespace sluice {

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

}  // namespace sluice
