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

Price::Price(std::span<Request* const> requests, const Room& target) : room_(target) {
  fills_ =
      std::any_of(requests.begin(), requests.end(), [](const Request* r) { return r->method.traits.fills_pipeline; });
  seconds_per_token_ = time_between_tokens(requests, target, fills_);
}

// What a pass costs all who wait for it, in passes of a stage. A row holds up every verdict of its own batch in each
// stage, for as long as no other batch is there before it; where methods fill the pipeline, so as far as the batch
// brings one: surely if it holds a root, else if its likeliest guess comes true.
double Price::passes(double verdict) const {
  const double full =
      static_cast<double>(room_.stages) / static_cast<double>(std::min(room_.stages, room_.under_way + 1));
  return fills_ ? std::lerp(1.0, full, verdict) : full;
}

// How surely a batch brings one.
double Price::verdict(size_t anyway, std::span<const double> chances) {
  return anyway > 0 ? 1.0 : chances.empty() ? 0.0 : std::min(1.0, chances.front());
}

double Price::floor(size_t anyway, size_t most) const {
  const double price = room_.times->least_price(static_cast<int32_t>(anyway), static_cast<int32_t>(most));
  return std::log(policy::kMargin * price * passes(anyway > 0 ? 1.0 : 0.0) /
                  seconds_per_token_);  // -inf for a price of 0
}

size_t Price::worthwhile(size_t anyway, std::span<const double> chances) const {
  // What the rows cost that enter anyway must be known before it can be said what more of them cost.
  if (!room_.knows_times && anyway > 0 && fills_) return 0;
  const size_t pay = room_.times->best_addition(
      static_cast<int32_t>(anyway), chances, seconds_per_token_ / (policy::kMargin * passes(verdict(anyway, chances))));
  return room_.knows_times ? std::min(pay, std::max(anyway, static_cast<size_t>(room_.times->widest_try())) - anyway)
                           : pay;
}

double Price::saved(size_t anyway, std::span<const double> chances) const {
  const double gain = seconds_per_token_ * std::accumulate(chances.begin(), chances.end(), 0.0);
  if (anyway == 0) return gain;  // else nothing would enter
  const auto rows = static_cast<int32_t>(anyway), more = static_cast<int32_t>(chances.size());
  return std::max(
      0.0, gain - passes(verdict(anyway, chances)) * (room_.times->seconds(rows + more) - room_.times->seconds(rows)));
}

}  // namespace sluice
