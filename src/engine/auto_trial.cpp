#include "engine/auto_trial.h"

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

std::optional<std::string> AutoTrial::observe(int64_t tokens, double now) {
  if (tokens == counted_ || tokens - turn_begin_ < kWarmUp) return std::nullopt;
  count(tokens, now);
  if (tokens - turn_begin_ < turn_length_) return std::nullopt;

  const bool first_round = plain_.tokens == 0 || speculative_.tokens == 0;
  const bool to_plain = first_round ? !on_plain_ : (turn_length_ == kWindow ? prefers_plain() : !on_plain_);
  // After a trial the winner goes on for a period; then the loser is tried again.
  turn_length_ = first_round || turn_length_ > kWindow ? kWindow : kPeriod;
  turn_begin_ = tokens;
  if (to_plain == on_plain_) return std::nullopt;
  on_plain_ = to_plain;
  counted_at_ = -1;
  return on_plain_ ? "ar" : method_;
}

}  // namespace sluice
