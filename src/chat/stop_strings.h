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
  bool stopped() const { return stopped_; }
  // What was held back, where the text ends before it has become one of them.
  std::string finish();

 private:
  std::optional<size_t> first_stop() const;
  size_t n_held() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace sluice
