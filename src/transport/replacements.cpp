#include "transport/replacements.h"

#include <algorithm>
#include <limits>

namespace sluice {

void Replacements::lose(const std::vector<size_t>& stages, double now) {
  for (const size_t stage : stages) lost_.insert(seats_[stage].text());
  lost_at_ = now;
  not_before_.clear();
}

std::optional<std::vector<HostAddress>> Replacements::next(double now) {
  std::vector<HostAddress> seats = seats_;
  for (size_t stage = 0; stage < seats.size(); ++stage) {
    if (!lost_.contains(seats_[stage].text())) continue;
    const auto found = find(stage, seats, now);
    if (!found) return std::nullopt;
    seats[stage] = *found;
  }
  trial_ = seats;
  return seats;
}

std::optional<HostAddress> Replacements::find(size_t stage, const std::vector<HostAddress>& seats, double now) const {
  const auto is_seated = [&](const HostAddress& host) { return std::ranges::find(seats, host) != seats.end(); };
  for (const HostAddress& spare : spares_)
    if (!is_seated(spare) && may_ask(stage, spare, now)) return spare;
  for (const HostAddress& host : {seats_[stage], homes_[stage]})
    if (may_ask(stage, host, now)) return host;
  if (now - lost_at_ < kBeforeNeighbours) return std::nullopt;
  for (size_t distance = 1; distance < seats_.size(); ++distance)
    for (const bool before : {true, false}) {
      if (before ? stage < distance : stage + distance >= seats_.size()) continue;
      const HostAddress& host = seats_[before ? stage - distance : stage + distance];
      if (!lost_.contains(host.text()) && may_ask(stage, host, now)) return host;
    }
  return std::nullopt;
}

bool Replacements::may_ask(size_t stage, const HostAddress& host, double now) const {
  const auto at = not_before_.find({stage, host.text()});
  return at == not_before_.end() || at->second <= now;
}

void Replacements::refused(size_t stage, double now) {
  const HostAddress& host = trial_[stage];
  double again = std::numeric_limits<double>::infinity();  // a neighbour without room
  if (!is_new(stage)) {
    lost_.insert(host.text());
    again = now;
  } else if (std::ranges::find(spares_, host) != spares_.end()) {
    again = now + kSpareAgain;
  } else if (host == seats_[stage] || host == homes_[stage]) {
    again = now + kHostAgain;
  }
  not_before_[{stage, host.text()}] = again;
}

void Replacements::settled() {
  seats_ = trial_;
  lost_.clear();
  not_before_.clear();
}

}  // namespace sluice
