#include "verify/reject.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice {

namespace {

// What is left of p while draws are rejected. Only tokens that the source could draw lose anything by a rejection, so
// that the others are but a common mass.
class Residual {
 public:
  Residual(std::span<const double> p, const std::vector<Candidate>& q) : target_(p) {
    double sum = 0.0;
    for (const Candidate& c : q) sum += c.probability;
    for (const Candidate& c : q) {
      tokens_.push_back(c.token);
      p_.push_back(p[static_cast<size_t>(c.token)]);
      q_.push_back(c.probability / sum);
    }
  }

  size_t place_of(Token token) const {
    const auto at = std::find(tokens_.begin(), tokens_.end(), token);
    SLUICE_CHECK(at != tokens_.end(), "a token was drawn that its source could not draw");
    return static_cast<size_t>(at - tokens_.begin());
  }
  double acceptance(size_t place) const {
    SLUICE_CHECK(q_[place] > 0.0, "a token was drawn that its source could not draw");
    return std::min(1.0, p_[place] / q_[place]);
  }

  // p becomes norm(max(p - q, 0)); unless nothing is left, when p = q but for rounding and the rejection is rounding
  // too.
  void reject() {
    find_others();
    std::vector<double> left;
    for (size_t i = 0; i < p_.size(); ++i) left.push_back(std::max(0.0, p_[i] - q_[i]));
    const double sum = std::accumulate(left.begin(), left.end(), mass_of_others_);
    if (!(sum > 0.0)) return;
    p_ = std::move(left);
    for (double& p : p_) p /= sum;
    mass_of_others_ /= sum;
  }

  // q loses a token; false if nothing is left of it.
  bool without(size_t place) {
    q_[place] = 0.0;
    const double sum = std::accumulate(q_.begin(), q_.end(), 0.0);
    if (!(sum > 0.0)) return false;
    for (double& q : q_) q /= sum;
    return true;
  }

  Token draw(const DrawSite& site, const Choose& choose) {
    find_others();
    std::vector<double> weights = p_;
    weights.push_back(mass_of_others_);
    const size_t chosen = choose(site, 0, weights);
    return chosen < tokens_.size() ? tokens_[chosen] : static_cast<Token>(choose(site, 1, others_));
  }

 private:
  // Those that the source could not draw: what the target gives to each, and together.
  void find_others() {
    if (!others_.empty()) return;
    others_.assign(target_.begin(), target_.end());
    for (const Token token : tokens_) others_[static_cast<size_t>(token)] = 0.0;
    mass_of_others_ = std::accumulate(others_.begin(), others_.end(), 0.0);
  }

  std::span<const double> target_;  // p before anything was rejected, by token
  std::vector<Token> tokens_;       // that the source could draw
  std::vector<double> p_, q_;       // of those
  std::vector<double> others_;      // by token
  double mass_of_others_ = 0.0;
};

}  // namespace

Token draw_by_rejection(std::span<const double> target, const Draws& draws, const SamplingParams& sampling,
                        int32_t position, const Choose& choose) {
  DrawSite site{.seed = sampling.seed,
                .choice = sampling.choice,
                .position = static_cast<uint32_t>(position),
                .purpose = Purpose::kAccept};
  Residual left(target, draws.q);
  for (size_t i = 0; i < draws.tokens.size(); ++i) {
    const size_t place = left.place_of(draws.tokens[i]);
    const double taken = left.acceptance(place);
    if (choose(site, static_cast<uint32_t>(i), std::array{taken, 1.0 - taken}) == 0) return draws.tokens[i];
    left.reject();
    if (!draws.replacement && !left.without(place)) break;
  }
  site.purpose = Purpose::kResidual;
  return left.draw(site, choose);
}

std::vector<BendOdds> bend_odds(std::span<const double> target, const Draws& draws) {
  const auto cached = [&](size_t i) { return i < static_cast<size_t>(draws.bend.f); };
  std::vector<double> base;  // q before it was bent, up to a factor
  for (size_t i = 0; i < draws.q.size(); ++i) base.push_back(draws.q[i].probability / (cached(i) ? draws.bend.c : 1.0));
  std::vector<double> p;  // of the same tokens; what else the target may draw is never drafted
  for (const Candidate& c : draws.q) p.push_back(target[static_cast<size_t>(c.token)]);

  std::vector<BendOdds> odds;
  for (const double c : kBends) {
    double sum = 0.0;
    for (size_t i = 0; i < base.size(); ++i) sum += base[i] * (cached(i) ? c : 1.0);
    double accepted = 0.0, of_cached = 0.0, next = 0.0, drawn_of_cached = 0.0;
    for (size_t i = 0; i < base.size(); ++i) {
      const double q = base[i] * (cached(i) ? c : 1.0) / sum;
      accepted += std::min(p[i], q);
      const double residual = std::max(0.0, p[i] - q);
      if (cached(i)) {
        of_cached += residual;
        drawn_of_cached += std::max(0.0, q - p[i]);
      } else if (i == static_cast<size_t>(draws.bend.f)) {
        next = residual;
      }
    }
    // The mass that is rejected is the mass of the residual. A rejected token leaves its place to the next likeliest.
    const double rejected = 1.0 - accepted;
    constexpr double kRounding = 1e-6;
    const double hit = rejected > kRounding ? (of_cached + drawn_of_cached / rejected * next) / rejected : 1.0;
    odds.push_back({.accepted = std::min(1.0, accepted), .hit = std::min(1.0, hit)});
  }
  return odds;
}

}  // namespace sluice
