// What the machine's own counters say of the energy that its processors used.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sluice {

// The running average power limit counters of Linux (powercap), one a processor package. Virtual machines have none,
// and most systems show them to root alone.
class EnergyCounter {
 public:
  // None if no counter can be read in `folder`.
  static std::optional<EnergyCounter> open(const std::string& folder = "/sys/class/powercap");
  // Joules that all packages have used since the last call (since `open`, the first time). The counters begin anew
  // after some ten minutes under full load at the earliest: called more often, none is lost. Nothing if one cannot be
  // read any more.
  std::optional<double> take();

 private:
  struct Package {
    std::string folder;
    double range = 0, last = 0;  // microjoules
  };
  std::vector<Package> packages_;
};

}  // namespace sluice
