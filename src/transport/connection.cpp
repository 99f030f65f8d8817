#include "transport/connection.h"

#include "transport/address.h"

namespace sluice {

Error said_by(const std::string& peer, const Error& error) {
  if (error.message.starts_with(kHost) || error.message.starts_with(kRank)) return error;
  return {error.kind, peer + ": " + error.message};
}

void Inflow::add(size_t n) {
  const std::lock_guard lock(mutex_);
  held_ += n;
}

void Inflow::remove(size_t n) {
  std::function<void()> resume;
  {
    const std::lock_guard lock(mutex_);
    held_ -= n;
    if (held_ < most_) resume.swap(resume_);
  }
  if (resume) resume();
}

bool Inflow::is_full(const std::function<std::function<void()>()>& resume) {
  const std::lock_guard lock(mutex_);
  if (held_ < most_) return false;
  resume_ = resume();
  return true;
}

}  // namespace sluice
