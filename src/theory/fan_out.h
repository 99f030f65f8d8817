// How many guesses to spend on each outcome of a verification: SSD's speculation cache.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace sluice {

// P(exactly k drafted tokens are accepted), k = 0 … lookahead: a^k (1 - a) for k < K, and a^K for k = K.
std::vector<double> accepted_length_distribution(double acceptance, int lookahead);

// Misses that fall with the number of guesses F as a power law: min(1, scale F^-exponent), and 1 without a guess.
struct PowerLaw {
  double scale = 1.0;     // > 0
  double exponent = 1.0;  // r > 0
  double miss(double guesses) const;
};

// The law through measured (guesses >= 1, miss) pairs by least squares of log miss over log guesses. Pairs with a miss
// of 0 carry no logarithm and are left out. Nothing if fewer than two fan-outs remain or the misses do not fall.
std::optional<PowerLaw> fit_power_law(std::span<const std::pair<double, double>> misses);

// The probability that the outcome is cached: sum_k P(k) (1 - miss(F_k)), with `lengths` the distribution of the
// accepted length and fanout[k] the tokens guessed after k accepted ones. Both have K + 1 entries.
double cache_hit_rate(std::span<const double> lengths, std::span<const double> fanout, const PowerLaw& law);

// Real-valued F_k that sum to `budget` and miss least under F^-exponent: F_k proportional to P(k)^(1/(1+r)). For the
// accepted lengths of acceptance a that is SAGUARO's F_k = F_0 a^(k/(1+r)), F_K = F_0 a^(K/(1+r)) (1-a)^(-1/(1+r)).
std::vector<double> geometric_fanout(std::span<const double> lengths, double exponent, double budget);

// Integers that sum to at most `budget` and miss least of all that do, by dynamic programming over k: exact for every
// law, also where the first guess gains less than the second and taking the greatest gain next would go wrong.
// Time O(K budget^2).
std::vector<int> best_fanout(std::span<const double> lengths, const PowerLaw& law, int budget);

}  // namespace sluice
