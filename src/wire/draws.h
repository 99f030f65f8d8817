// Guesses at the token after a node, and how they were drawn.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace sluice {

// A guess at the token after a node.
struct Candidate {
  Token token = kNoToken;
  float probability = 0.0f;  // the source's own estimate that the target says this token, given that the node is right
};

// A distribution that was bent before it was drawn from: its `f` likeliest tokens count only `c` times, 0 < c <= 1, so
// that what the target draws after a rejection is more often among them (SSD's SAGUARO sampling).
struct Bend {
  double c = 1.0;
  int32_t f = 0;
  bool odds = false;  // the verification is to say what every c of kBends would come to
};
inline constexpr std::array<double, 8> kBends = {1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05};

// What one drawn token would come to with another c.
struct BendOdds {
  double accepted = 0.0;  // the probability that it is accepted
  double hit = 0.0;       // and, if not, that the target's own is one of the f likeliest others
};

// Under rule `reject`: the children of a row as they were drawn. Under a lossy rule: those that have entered, with what
// their source says of them in q.
struct Draws {
  uint16_t row = 0;           // Row::index of the parent
  std::vector<Candidate> q;   // what they were drawn from
  std::vector<Token> tokens;  // in the order of drawing; with replacement a token may come again
  bool replacement = false;
  Bend bend;  // of q
};

}  // namespace sluice
