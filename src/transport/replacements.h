// Who takes the layers of hosts that are lost.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/address.h"

namespace sluice {

// A state machine that reads no clock: times are seconds of its caller's. For each stage whose host is lost it names,
// in this order: a spare; the host itself, which may have been started again, or the one that had the stage at first;
// and, if none of these is there for a while, the neighbours in the pipeline, which hold stages already. Whether a
// spare or a host that was lost is there its caller finds out: what has not answered is not named, so that a silent one
// holds nobody up.
class Replacements {
 public:
  // Seconds: that a spare has to answer before the next one in the list is named; before a neighbour takes what another
  // one had, since it will be slower; before a spare that has refused, or a neighbour that was silent, is asked again;
  // before the host itself is.
  static constexpr double kSparesFirst = 0.3, kBeforeNeighbours = 1.0, kSpareAgain = 1.0, kHostAgain = 0.15;

  // hosts: one a stage.
  Replacements(std::vector<HostAddress> hosts, std::vector<HostAddress> spares)
      : homes_(hosts), spares_(std::move(spares)), seats_(std::move(hosts)) {}

  const std::vector<HostAddress>& seats() const { return seats_; }  // who holds the stages, or held them last

  // The hosts of these stages are lost. Nobody has answered yet.
  void lose(const std::vector<size_t>& stages, double now);
  // Who may be named once it has answered, and has not.
  std::vector<HostAddress> unheard() const;
  void answered(const HostAddress& host) { there_.insert(host.text()); }
  // Who is to be asked to hold the stages now; none: somebody is missing, ask again later.
  std::optional<std::vector<HostAddress>> next(double now);
  // The one that next() named for a stage will not take it, or does not answer: it may have been busy.
  void refused(size_t stage, double now) { set_aside(stage, now, std::numeric_limits<double>::infinity()); }
  void silent(size_t stage, double now) { set_aside(stage, now, now + kSpareAgain); }
  // Whether next() named another than before for a stage, or one that was lost.
  bool is_new(size_t stage) const { return trial_[stage] != seats_[stage] || lost_.contains(trial_[stage].text()); }
  // Those that next() named hold the stages.
  void settled();

 private:
  std::optional<HostAddress> find(size_t stage, const std::vector<HostAddress>& seats, double now) const;
  bool may_ask(size_t stage, const HostAddress& host, double now) const;
  void set_aside(size_t stage, double now, double neighbour_again);
  bool is_lost(const HostAddress& host) const { return lost_.contains(host.text()); }
  bool is_there(const HostAddress& host) const { return there_.contains(host.text()); }

  std::vector<HostAddress> homes_, spares_, seats_, trial_;
  std::set<std::string> lost_, there_;  // hosts that are; of spares and hosts that were lost, those that have answered
  double lost_at_ = 0.0;
  std::map<std::pair<size_t, std::string>, double> not_before_;
};

}  // namespace sluice
