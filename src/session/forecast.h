// What each method would make of a model on some hardware: all are run on a few texts, on the simulated clock.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "session/contender.h"
#include "session/session.h"

namespace sluice {

// What a contender made of the texts.
struct Forecast {
  Contender contender;
  double tokens_per_second = 0;  // of all texts: tokens after the first of each answer over their seconds
  double low = 0, high = 0;      // 95 %, if other texts of the sort had been taken; both the same as it if there is one
};

struct Forecasts {
  std::vector<Forecast> all;  // the fastest first
  size_t texts = 0;           // that count

  // Of those that promise about as much as the fastest, the surest: whose interval reaches down the least.
  const Forecast& best() const;
  const Forecast& plain() const;  // decoding
};

// Runs each contender on each text, text by text, as long as `goes_on` (asked again and again with the share that is
// done) says so; of a text that not all have answered nothing counts. Each answer is as `sluice run` would give it, by
// an engine that has learnt nothing before: so no contender is judged by what others have taught it, and answers are
// independent, as their interval takes them to be. REQUIRES: the session's clock is simulated.
Result<Forecasts> forecast(const Session& session, std::span<const std::vector<Token>> texts,
                           std::span<const Contender> contenders, const std::function<bool(double)>& goes_on);

// One answer: tokens after its first, and their seconds.
struct Pace {
  double tokens = 0, seconds = 0;
};
// Sum of tokens over sum of seconds, and half of its 95 % interval over answers (a ratio of means, by its linear part
// and Student's t; Cochran, Sampling Techniques, 6.3). Half is 0 for a single answer.
struct Rate {
  double value = 0, half = 0;
};
Rate rate_of(std::span<const Pace> answers);

}  // namespace sluice
