#include "engine/price.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/policy.h"

namespace sluice {

namespace {

// Requests that have not said enough yet count as the others do. As long as nobody has, they are taken to decode
// plainly, in passes that cost no less than any that was seen; but a tree or chain that waits for its verdict is tried
// as it is.
double time_between_tokens(std::span<Request* const> requests, const Room& room, bool fills) {
  double rate = 0.0;
  size_t known = 0, answering = 0;
  for (const Request* request : requests) {
    answering += request->prompt_rows_left(kTarget) == 0;
    if (const auto seconds = request->seconds_per_token(); seconds && *seconds > 0.0) rate += 1.0 / *seconds, ++known;
  }
  if (known > 0) return static_cast<double>(known) / (rate * static_cast<double>(std::max(known, answering)));
  if (answering <= 1 && !fills) return policy::kUnknownPace;
  const auto at_once = static_cast<int32_t>(std::max<size_t>(1, answering));
  const double pass = room.times->seconds(std::max(at_once, room.times->narrowest()));
  return pass * static_cast<double>(room.stages) / at_once;
}

}  // namespace

Price::Price(std::span<Request* const> requests, const Room& target) : n_requests_(requests.size()), room_(target) {
  fills_ =
      std::any_of(requests.begin(), requests.end(), [](const Request* r) { return r->method.traits.fills_pipeline; });
  seconds_per_token_ = time_between_tokens(requests, target, fills_);
}

// What a guess saves that is right for sure. Where methods fill the pipeline, one that is left out may enter the next
// batch: then it would have saved the time between batches. Or others go first until its parent's verdict is there:
// then the time between tokens. How often either is so nobody knows, so the geometric mean counts.
double Price::gain(size_t anyway) const {
  const double between_batches = room_.times->seconds(static_cast<int32_t>(std::max<size_t>(anyway, 1)));
  if (!fills_ || between_batches <= 0.0) return seconds_per_token_;
  return std::min(seconds_per_token_, std::sqrt(seconds_per_token_ * between_batches));
}

// What a pass costs all who wait for it, in passes of a stage. A row holds up every verdict of its own batch in each
// stage, for as long as no other batch is there before it. Where methods fill the pipeline, batches follow one another
// closely behind the slowest of them: K batches of x_1 … x_K seconds are through n stages after sum(x) + (n - 1)
// max(x). So a row that makes its batch the widest holds up what comes of it in each stage, any other in one; and so as
// far as the batch brings a verdict: surely if it holds a root, else if its likeliest guess comes true.
double Price::passes(double verdict, bool widest) const {
  const auto stages = static_cast<double>(room_.stages);
  if (!fills_) return stages / static_cast<double>(std::min(room_.stages, room_.under_way + 1));
  return widest ? std::lerp(1.0, stages, verdict) : 1.0;
}

// How many of so many more rows don't make the batch the widest.
size_t Price::covered(size_t anyway, size_t more) const {
  const auto seconds = [&](size_t rows) { return room_.times->seconds(static_cast<int32_t>(rows)); };
  const bool costs = seconds(anyway + more) > seconds(std::max<size_t>(anyway, 1));
  if (!fills_ || room_.stages == 1 || !costs) return 0;  // the same either way
  return std::min(more, std::max(anyway, room_.widest_alive) - anyway);
}

// How many of them, these included, make it no wider than a pass that was seen: what a wider one takes is only
// believed, and such are to be tried.
size_t Price::known(size_t anyway, size_t n_covered, size_t more) const {
  const auto widest = static_cast<size_t>(room_.times->widest());
  return std::clamp(std::max(widest, anyway) - anyway, n_covered, more);
}

// How surely a batch brings one.
double Price::verdict(size_t anyway, std::span<const double> chances) {
  return anyway > 0 ? 1.0 : chances.empty() ? 0.0 : std::min(1.0, chances.front());
}

double Price::floor(size_t anyway, size_t most) const {
  const double price = room_.times->least_price(static_cast<int32_t>(anyway), static_cast<int32_t>(most));
  return std::log(policy::kMargin * price * passes(1.0, /*widest=*/false) /
                  seconds_per_token_);  // -inf for a price of 0
}

// How many of them one request should enter at a time, where its batches follow one another closely through n stages.
// Row by row it may pay to join a batch, since others are as wide, but then all take longer. Of guesses that come true
// R at a time on average, k a batch, R take R / k + n batches of t(k) seconds each: the k is best with the least t(k)
// (1 / k + n / R), and R makes a path of n guesses exp(-n / R) likely. So a k-th row should enter if its chance says
// so.
size_t Price::abreast(size_t anyway, std::span<const double> chances) const {
  if (!fills_ || room_.stages == 1 || n_requests_ > 1 || anyway > 1) return chances.size();
  size_t rows = 1;
  const auto seconds_a_guess = [&](size_t k, double flushes) {
    return room_.times->seconds(static_cast<int32_t>(k)) * (1.0 / static_cast<double>(k) + flushes);
  };
  for (; rows < anyway + chances.size(); ++rows) {
    const double flushes = -std::log(chances[rows - anyway]);
    if (seconds_a_guess(rows + 1, flushes) > seconds_a_guess(rows, flushes)) break;
  }
  return std::min(rows - anyway, chances.size());
}

size_t Price::worthwhile(size_t anyway, std::span<const double> chances) const {
  // What the rows cost that enter anyway must be known before it can be said what more of them cost.
  if (!room_.knows_times && anyway > 0 && fills_) return 0;
  chances = chances.first(abreast(anyway, chances));
  const double sure = verdict(anyway, chances);
  const auto pay_of = [&](size_t base, std::span<const double> of, bool widest) {
    const double seconds_per_gain = gain(anyway) / (policy::kMargin * passes(sure, widest));
    return room_.times->best_addition(static_cast<int32_t>(base), of, seconds_per_gain);
  };
  const size_t n_covered = covered(anyway, chances.size()), n_known = known(anyway, n_covered, chances.size());
  size_t pay = pay_of(anyway, chances.first(n_covered), /*widest=*/false);
  if (pay == n_covered)
    pay += pay_of(anyway + n_covered, chances.subspan(n_covered, n_known - n_covered), /*widest=*/true);
  if (pay == n_known) pay += pay_of(anyway + n_known, chances.subspan(n_known), /*widest=*/false);
  return room_.knows_times ? std::min(pay, std::max(anyway, static_cast<size_t>(room_.times->widest_try())) - anyway)
                           : pay;
}

double Price::saved(size_t anyway, std::span<const double> chances) const {
  const double gained = gain(anyway) * std::accumulate(chances.begin(), chances.end(), 0.0);
  if (anyway == 0) return gained;  // else nothing would enter
  const auto seconds = [&](size_t more) { return room_.times->seconds(static_cast<int32_t>(anyway + more)); };
  const size_t n_covered = covered(anyway, chances.size()), n_known = known(anyway, n_covered, chances.size());
  const double widens = seconds(n_known) - seconds(n_covered), others = seconds(chances.size()) - seconds(0) - widens;
  const double cost =
      passes(1.0, /*widest=*/false) * others + passes(verdict(anyway, chances), /*widest=*/true) * widens;
  return std::max(0.0, gained - cost);
}

}  // namespace sluice
