#include "model/file_watch.h"

namespace sluice {

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

}  // namespace sluice
