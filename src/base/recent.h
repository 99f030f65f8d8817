// What was found out lately.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace sluice {

// Values by their keys, up to so many; the oldest goes first.
//
// Thread safety: any thread.
template <class Value>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) {}

  std::optional<Value> find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto at = values_.find(key);
    return at == values_.end() ? std::nullopt : std::optional(at->second);
  }

  // What is there already stays.
  void keep(const std::string& key, Value value) {
    const std::lock_guard lock(mutex_);
    if (!values_.try_emplace(key, std::move(value)).second) return;
    order_.push_back(key);
    if (order_.size() <= most_) return;
    values_.erase(order_.front());
    order_.pop_front();
  }

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Value> values_;
  std::deque<std::string> order_;  // the oldest first
};

}  // namespace sluice
