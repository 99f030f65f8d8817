#include "source/fusion.h"

#include <algorithm>
#include <cmath>

#include "source/policy.h"

namespace sluice {

namespace {

double log_odds(double p) {
  constexpr double kEdge = 1e-9;
  p = std::clamp(p, kEdge, 1.0 - kEdge);
  return std::log(p / (1.0 - p));
}

double sum(const std::vector<Candidate>& candidates) {
  double sum = 0.0;
  for (const Candidate& c : candidates) sum += c.probability;
  return sum;
}

}  // namespace

// The surer a source is, the more it may count before it has been put to the test, but never much.
Fusion::Trust Fusion::initial_trust() {
  Trust trust{};
  for (size_t set = 0; set < kSets; ++set) {
    const double weight = policy::kUntested * static_cast<double>(set) / static_cast<double>(kSets - 1);
    trust[kMain][set] = {0.0, 1.0};
    trust[kDiffers][set] = trust[kAgrees][set] = {0.0, weight};
  }
  return trust;
}

// Every token that somebody mentions, with what each voice has to say of it.
Fusion::Said Fusion::merge(std::span<const std::vector<Candidate>> said) {
  Said merged;
  double unmentioned = 0.0;  // the main source's log odds
  for (size_t source = 0; source < said.size(); ++source) {
    const auto& candidates = said[source];
    const bool main = merged.voices.empty();
    if (candidates.empty() || (!main && candidates.front().probability <= policy::kLeastMentioned)) continue;
    const auto above = std::upper_bound(policy::kSureness.begin(), policy::kSureness.end(),
                                        static_cast<double>(candidates.front().probability));
    const bool agrees = !main && candidates.front().token == merged.opinions.front().token;
    const Role role = main ? kMain : agrees ? kAgrees : kDiffers;
    merged.voices.push_back({source, role, static_cast<size_t>(above - policy::kSureness.begin())});
    if (main) unmentioned = log_odds(policy::kUnmentioned * (1.0 - sum(candidates)));
    for (Opinion& o : merged.opinions) o.features.push_back(0.0);
    for (const Candidate& c : candidates) {
      if (!main && c.probability <= policy::kLeastMentioned) break;  // they are ranked
      auto o = std::find_if(merged.opinions.begin(), merged.opinions.end(),
                            [&](const Opinion& known) { return known.token == c.token; });
      if (o == merged.opinions.end()) {
        merged.opinions.push_back({c.token, std::vector<double>(merged.voices.size(), 0.0), 0.0});
        o = merged.opinions.end() - 1;
        o->features.front() = unmentioned;
      }
      o->features.back() = log_odds(c.probability) - (main ? 0.0 : log_odds(policy::kLeastMentioned));
    }
  }
  return merged;
}

std::vector<Candidate> Fusion::fuse(NodeId node, std::span<const std::vector<Candidate>> said) {
  if (trust_.size() < said.size()) trust_.resize(said.size(), initial_trust());
  Said& merged = said_[node] = merge(said);
  double sum = 0.0;
  for (Opinion& o : merged.opinions) {
    double x = 0.0;
    for (size_t i = 0; i < merged.voices.size(); ++i) {
      const Weights& w = weights(merged.voices[i]);
      x += w.bias + w.weight * o.features[i];
    }
    o.fused = 1.0 / (1.0 + std::exp(-x));
    sum += o.fused;
  }
  std::vector<Candidate> fused;
  for (const Opinion& o : merged.opinions) fused.push_back({o.token, static_cast<float>(o.fused / std::max(1.0, sum))});
  std::stable_sort(fused.begin(), fused.end(),
                   [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  return fused;
}

void Fusion::learn(NodeId node, Token token) {
  const auto said = said_.extract(node);
  if (said.empty()) return;
  const Said& merged = said.mapped();
  for (const Opinion& o : merged.opinions) {
    const double error = (o.token == token ? 1.0 : 0.0) - o.fused;
    for (size_t i = 0; i < merged.voices.size(); ++i) {
      Weights& w = weights(merged.voices[i]);
      w.bias += policy::kRate * error;
      w.weight += (merged.voices[i].role == kMain ? policy::kMainRate : policy::kRate) * error * o.features[i];
    }
  }
}

void Fusion::forget(std::span<const NodeId> nodes) {
  for (const NodeId node : nodes) said_.erase(node);
}

}  // namespace sluice
