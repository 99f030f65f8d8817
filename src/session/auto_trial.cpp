#include "session/auto_trial.h"

#include "session/policy.h"

namespace sluice {

void AutoTrial::count(int64_t tokens, double now) {
  Side& side = on_plain_ ? plain_ : speculative_;
  if (counted_at_ >= 0) {
    side.tokens += tokens - counted_;
    side.seconds += now - counted_at_;
  }
  counted_ = tokens;
  counted_at_ = now;
}

// Plain decoding takes the same time for every token, so a few of them tell where it is no match.
bool AutoTrial::plain_is_told() const {
  return on_plain_ && turn_length_ == policy::kTurn && plain_.tokens >= policy::kTells &&
         policy::kNoMatch * plain_.rate() < speculative_.rate();
}

bool AutoTrial::turn_is_over(int64_t tokens) const {
  const int64_t length = tokens - turn_begin_;
  if (settled_) return false;
  const bool tells = purpose_ == Purpose::kCompare && on_plain_ && length >= policy::kTurn / 2;
  return length >= turn_length_ || (tells && !prefers_plain()) || plain_is_told();
}

std::optional<std::string> AutoTrial::observe(int64_t tokens, double now, std::optional<double> plain_at_most) {
  if (tokens == counted_ || tokens - turn_begin_ < policy::kWarmUp) return std::nullopt;
  count(tokens, now);
  if (!turn_is_over(tokens)) return std::nullopt;

  if (!on_plain_ && purpose_ == Purpose::kChoose && plain_at_most &&
      policy::kNoMatch * *plain_at_most < speculative_.rate()) {
    plain_at_most_ = *plain_at_most;
    turn_begin_ = tokens;
    turn_length_ = policy::kPeriod;
    return std::nullopt;
  }
  const bool first_round = plain_.tokens == 0 || speculative_.tokens == 0;
  settled_ = purpose_ == Purpose::kCompare && !first_round;
  const bool choose = turn_length_ == policy::kTurn && !settled_;
  const bool to_plain = first_round || !choose ? !on_plain_ : prefers_plain();
  // After a trial the winner goes on for a period; then the loser is tried again.
  turn_length_ = first_round || turn_length_ > policy::kTurn ? policy::kTurn : policy::kPeriod;
  turn_begin_ = tokens;
  if (to_plain == on_plain_) return std::nullopt;
  on_plain_ = to_plain;
  counted_at_ = -1;
  return on_plain_ ? "ar" : method_;
}

}  // namespace sluice
