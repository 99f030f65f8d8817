// Texts that end an answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// The answer ends before the first of them that is complete; of two that are complete with the same character, before
// the longer one. What may become one is held back until it is known.
class StopStrings {
 public:
  // REQUIRES: none is empty.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What can be said after more text, in whole characters if it comes in such. Nothing once the answer has ended.
  std::string push(std::string_view text);
  bool stopped() const { return !stop_.empty(); }
  const std::string& stop() const { return stop_; }  // which one it was; empty: none so far
  // What was held back, where the text ends before it has become one of them.
  std::string finish();

 private:
  struct Found {
    size_t at;
    const std::string* stop;
  };
  std::optional<Found> first_stop() const;
  size_t n_held() const;

  std::vector<std::string> stops_;
  std::string held_, stop_;
};

}  // namespace sluice
