#include "transport/replacements.h"

#include <algorithm>

namespace sluice {

void Replacements::lose(const std::vector<size_t>& stages, double now) {
  for (const size_t stage : stages) lost_.insert(seats_[stage].text());
  lost_at_ = now;
  there_.clear();
  not_before_.clear();
}

std::vector<HostAddress> Replacements::unheard() const {
  std::vector<HostAddress> hosts;
  const auto add = [&](const HostAddress& host) {
    const bool holds = std::ranges::find(seats_, host) != seats_.end() && !is_lost(host);
    if (!holds && !is_there(host) && std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  };
  for (const HostAddress& spare : spares_) add(spare);
  for (size_t stage = 0; stage < seats_.size(); ++stage)
    if (is_lost(seats_[stage])) add(seats_[stage]), add(homes_[stage]);
  return hosts;
}

std::optional<std::vector<HostAddress>> Replacements::next(double now) {
  std::vector<HostAddress> seats = seats_;
  for (size_t stage = 0; stage < seats.size(); ++stage) {
    if (!is_lost(seats_[stage])) continue;
    const auto found = find(stage, seats, now);
    if (!found) return std::nullopt;
    seats[stage] = *found;
  }
  trial_ = seats;
  return seats;
}

// The first in the list is preferred: a spare that has not answered yet is waited for, but not long.
std::optional<HostAddress> Replacements::find(size_t stage, const std::vector<HostAddress>& seats, double now) const {
  for (const HostAddress& spare : spares_) {
    if (std::ranges::find(seats, spare) != seats.end() || !may_ask(stage, spare, now)) continue;
    if (is_there(spare)) return spare;
    if (now - lost_at_ < kSparesFirst) return std::nullopt;
  }
  for (const HostAddress& host : {seats_[stage], homes_[stage]})
    if (is_there(host) && may_ask(stage, host, now)) return host;
  if (now - lost_at_ < kBeforeNeighbours) return std::nullopt;
  for (size_t distance = 1; distance < seats_.size(); ++distance)
    for (const bool before : {true, false}) {
      if (before ? stage < distance : stage + distance >= seats_.size()) continue;
      const HostAddress& host = seats_[before ? stage - distance : stage + distance];
      if ((!is_lost(host) || is_there(host)) && may_ask(stage, host, now)) return host;
    }
  return std::nullopt;
}

bool Replacements::may_ask(size_t stage, const HostAddress& host, double now) const {
  const auto at = not_before_.find({stage, host.text()});
  return at == not_before_.end() || at->second <= now;
}

// neighbour_again: when it is asked again, if it is one.
void Replacements::set_aside(size_t stage, double now, double neighbour_again) {
  const HostAddress& host = trial_[stage];
  double again = neighbour_again;
  if (!is_new(stage)) {
    lost_.insert(host.text());
    again = now;
  } else if (std::ranges::find(spares_, host) != spares_.end()) {
    again = now + kSpareAgain;
  } else if (host == seats_[stage] || host == homes_[stage]) {
    again = now + kHostAgain;
  }
  not_before_[{stage, host.text()}] = again;
  there_.erase(host.text());
}

void Replacements::settled() {
  seats_ = trial_;
  lost_.clear();
  not_before_.clear();
}

}  // namespace sluice
