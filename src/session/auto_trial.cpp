#include "session/auto_trial.h"

#include <algorithm>

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

// How long the faster one goes on before the other's next turn. That turn costs kTurn tokens at the slower pace.
int64_t AutoTrial::period() const {
  const double slower = std::min(plain_.rate(), speculative_.rate()),
               faster = std::max(plain_.rate(), speculative_.rate());
  const double tokens_lost = slower > 0 ? policy::kTurn * (faster / slower - 1.0) : policy::kLongestPeriod;
  const auto period = static_cast<int64_t>(std::min<double>(policy::kLongestPeriod, tokens_lost / policy::kTrialsCost));
  return std::max(policy::kShortestPeriod, period);
}

void AutoTrial::begin_turn(int64_t tokens, int64_t length) {
  turn_begin_ = tokens;
  turn_length_ = length;
}

std::optional<std::string> AutoTrial::observe(int64_t tokens, double now, std::optional<double> plain_at_most) {
  if (tokens == counted_ || tokens - turn_begin_ < policy::kWarmUp) return std::nullopt;
  count(tokens, now);
  if (!turn_is_over(tokens)) return std::nullopt;

  if (!on_plain_ && purpose_ == Purpose::kChoose && plain_at_most && *plain_at_most < speculative_.rate()) {
    plain_at_most_ = *plain_at_most;
    begin_turn(tokens, policy::kTurn);  // to look again costs nothing
    speculative_.fade();
    return std::nullopt;
  }
  const bool first_round = plain_.tokens == 0 || speculative_.tokens == 0;
  settled_ = purpose_ == Purpose::kCompare && !first_round;
  const bool choose = turn_length_ == policy::kTurn && !settled_;
  const bool to_plain = first_round || !choose ? !on_plain_ : prefers_plain();
  // After a trial the winner goes on for a period; then the loser is tried again.
  begin_turn(tokens, first_round || turn_length_ > policy::kTurn ? policy::kTurn : period());
  if (to_plain == on_plain_) return std::nullopt;
  on_plain_ = to_plain;
  counted_at_ = -1;
  (on_plain_ ? plain_ : speculative_).fade();
  return on_plain_ ? "ar" : method_;
}

}  // namespace sluice
