#include "theory/fan_out.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/result.h"

namespace sluice {

namespace {

bool is_probability(double p) { return p >= 0.0 && p <= 1.0; }
bool is_positive(double x) { return x > 0.0 && std::isfinite(x); }

}  // namespace

std::vector<double> accepted_length_distribution(double acceptance, int lookahead) {
  SLUICE_CHECK(is_probability(acceptance), "an acceptance rate lies in [0, 1]");
  SLUICE_CHECK(lookahead >= 0, "a chain has no negative length");
  std::vector<double> lengths;
  double reached = 1.0;  // P(at least k are accepted)
  for (int k = 0; k < lookahead; ++k, reached *= acceptance) lengths.push_back(reached * (1.0 - acceptance));
  lengths.push_back(reached);
  return lengths;
}

double PowerLaw::miss(double guesses) const {
  SLUICE_CHECK(is_positive(scale) && is_positive(exponent), "misses fall, from some scale");
  SLUICE_CHECK(guesses >= 0.0, "there are no negative guesses");
  return guesses == 0.0 ? 1.0 : std::min(1.0, scale * std::pow(guesses, -exponent));
}

std::optional<PowerLaw> fit_power_law(std::span<const std::pair<double, double>> misses) {
  double count = 0, mean_x = 0, mean_y = 0;
  for (const auto& [guesses, miss] : misses) {
    SLUICE_CHECK(guesses >= 1.0 && is_probability(miss), "a measured miss is a probability at one guess or more");
    if (miss == 0.0) continue;
    ++count;
    mean_x += (std::log(guesses) - mean_x) / count;
    mean_y += (std::log(miss) - mean_y) / count;
  }
  double xx = 0, xy = 0;
  for (const auto& [guesses, miss] : misses) {
    if (miss == 0.0) continue;
    const double x = std::log(guesses) - mean_x;
    xx += x * x;
    xy += x * (std::log(miss) - mean_y);
  }
  // One fan-out measured many times leaves a residue of rounding, not an exact zero.
  constexpr double kOneFanout = 1e-12;
  if (xx < kOneFanout || xy >= 0.0) return std::nullopt;
  const double slope = xy / xx;
  return PowerLaw{.scale = std::exp(mean_y - slope * mean_x), .exponent = -slope};
}

double cache_hit_rate(std::span<const double> lengths, std::span<const double> fanout, const PowerLaw& law) {
  SLUICE_CHECK(lengths.size() == fanout.size(), "one fan-out for each accepted length");
  double hit = 0.0;
  for (size_t k = 0; k < lengths.size(); ++k) hit += lengths[k] * (1.0 - law.miss(fanout[k]));
  return hit;
}

std::vector<double> geometric_fanout(std::span<const double> lengths, double exponent, double budget) {
  SLUICE_CHECK(is_positive(exponent) && budget >= 0.0 && std::isfinite(budget),
               "misses fall with guesses, of which there is a finite budget");
  std::vector<double> fanout;
  for (const double p : lengths) fanout.push_back(std::pow(p, 1.0 / (1.0 + exponent)));
  const double total = std::accumulate(fanout.begin(), fanout.end(), 0.0);
  SLUICE_CHECK(total > 0.0, "some accepted length has to happen");
  for (double& guesses : fanout) guesses *= budget / total;
  return fanout;
}

std::vector<int> best_fanout(std::span<const double> lengths, const PowerLaw& law, int budget) {
  SLUICE_CHECK(budget >= 0, "there are no negative guesses");
  const size_t limit = static_cast<size_t>(budget) + 1;
  std::vector<double> miss(limit);
  for (size_t f = 0; f < limit; ++f) miss[f] = law.miss(static_cast<double>(f));

  // least[b]: the least expected miss after the lengths so far with at most b guesses; taken[k][b]: of which at k.
  std::vector<double> least(limit, 0.0);
  std::vector<std::vector<int>> taken;
  for (const double p : lengths) {
    std::vector<double> next(limit, std::numeric_limits<double>::infinity());
    std::vector<int>& here = taken.emplace_back(limit, 0);
    for (size_t b = 0; b < limit; ++b)
      for (size_t f = 0; f <= b; ++f)
        if (const double total = least[b - f] + p * miss[f]; total < next[b]) {
          next[b] = total;
          here[b] = static_cast<int>(f);
        }
    least = std::move(next);
  }

  std::vector<int> fanout(lengths.size());
  for (size_t k = lengths.size(), left = limit - 1; k-- > 0; left -= static_cast<size_t>(fanout[k]))
    fanout[k] = taken[k][left];
  return fanout;
}

}  // namespace sluice
