// A running mean and how far values lie from it on average, with the weights of RFC 6298.
#pragma once

#include <cmath>

namespace sluice {

struct Smooth {
  double mean = 0, deviation = 0;
  bool known = false;

  void saw(double value) {
    constexpr double kOfMean = 1.0 / 8, kOfDeviation = 1.0 / 4;
    deviation = known ? deviation + kOfDeviation * (std::abs(value - mean) - deviation) : 0.0;
    mean = known ? mean + kOfMean * (value - mean) : value;
    known = true;
  }
};

}  // namespace sluice
