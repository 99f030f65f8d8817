// Method `auto` until a planner chooses: the speculative method and plain decoding take turns on the running request,
// and the faster one goes on (how long: session/policy.h). A method that was named goes on whatever comes out, but one
// turn of plain decoding shows what it is worth. Exactness makes a switch invisible in the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "session/policy.h"

namespace sluice {

class AutoTrial {
 public:
  // To choose the faster one; or to compare: plain decoding gets one turn, half of one where it is no faster.
  enum class Purpose : uint8_t { kChoose, kCompare };

  explicit AutoTrial(std::string method, Purpose purpose = Purpose::kChoose)
      : method_(std::move(method)), purpose_(purpose) {}

  // To be told after each step how many tokens there are, what time it is (seconds), and how many tokens a second plain
  // decoding makes at most, if that is known: where it can't win it gets no turn. The method to switch to, if any.
  std::optional<std::string> observe(int64_t tokens, double now, std::optional<double> plain_at_most = {});

  // Tokens a second of either, over its turns, of which earlier ones count for less; 0 while unknown.
  double plain_rate() const { return plain_.rate(); }
  double speculative_rate() const { return speculative_.rate(); }
  // What plain decoding makes at most, for which it got no turn; 0: it got one, or the answer is short.
  double plain_at_most() const { return plain_.tokens == 0 ? plain_at_most_ : 0.0; }
  // Whether plain decoding turned out no slower.
  bool prefers_plain() const { return plain_rate() >= speculative_rate(); }
  // When comparing: whether plain decoding, its turn over, turned out clearly faster.
  bool clearly_slower() const { return settled_ && plain_rate() > policy::kClearly * speculative_rate(); }
  Purpose purpose() const { return purpose_; }
  const std::string& method() const { return method_; }

 private:
  struct Side {
    double seconds = 0, tokens = 0;  // counted
    double rate() const { return seconds > 0 ? tokens / seconds : 0.0; }
    void fade() { seconds *= policy::kFades, tokens *= policy::kFades; }
  };
  void count(int64_t tokens, double now);
  bool turn_is_over(int64_t tokens) const;
  bool plain_is_told() const;
  int64_t period() const;
  void begin_turn(int64_t tokens, int64_t length);

  std::string method_;
  Purpose purpose_;
  Side plain_, speculative_;
  double plain_at_most_ = 0;
  bool settled_ = false;    // compared, and no more turns
  bool on_plain_ = false;   // whose turn it is; speculation begins
  int64_t turn_begin_ = 0;  // tokens when the turn began
  int64_t turn_length_ = policy::kTurn;
  int64_t counted_ = 0;     // tokens counted so far
  double counted_at_ = -1;  // their time; negative: nothing yet in this turn
};

}  // namespace sluice
