// Method `auto` until a planner chooses: the speculative method and plain decoding take turns on the running request,
// and the faster one goes on. Exactness makes a switch invisible in the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

class AutoTrial {
 public:
  // A turn is `kWindow` tokens, the first `kWarmUp` of which (the pipeline fills) don't count; the loser gets another
  // turn every `kPeriod` tokens, since a text may become easier to guess.
  static constexpr int64_t kWindow = 16, kWarmUp = 4, kPeriod = 128;

  explicit AutoTrial(std::string method) : method_(std::move(method)) {}

  // To be told after each step how many tokens there are and what time it is (seconds). The method to switch to, if
  // any.
  std::optional<std::string> observe(int64_t tokens, double now);

  // Tokens a second of either, over all its turns; 0 while unknown.
  double plain_rate() const { return plain_.rate(); }
  double speculative_rate() const { return speculative_.rate(); }
  // Whether plain decoding turned out no slower.
  bool prefers_plain() const { return plain_rate() >= speculative_rate(); }
  const std::string& method() const { return method_; }

 private:
  struct Side {
    double seconds = 0;
    int64_t tokens = 0;
    double rate() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0; }
  };
  void count(int64_t tokens, double now);

  std::string method_;
  Side plain_, speculative_;
  bool on_plain_ = false;   // whose turn it is; speculation begins
  int64_t turn_begin_ = 0;  // tokens when the turn began
  int64_t turn_length_ = kWindow;
  int64_t counted_ = 0;     // tokens counted so far
  double counted_at_ = -1;  // their time; negative: nothing yet in this turn
};

}  // namespace sluice
