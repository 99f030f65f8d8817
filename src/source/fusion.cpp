#include "source/fusion.h"

#include <algorithm>
#include <cmath>

namespace sluice {

namespace {

// Of what a source doesn't mention, or holds impossible.
constexpr double kLeast = 1e-4;

double log_odds(double p) {
  p = std::clamp(p, kLeast, 1.0 - kLeast);
  return std::log(p / (1.0 - p));
}

}  // namespace

std::vector<Candidate> Fusion::fuse(NodeId node, const std::vector<Candidate>& model,
                                    const std::vector<Candidate>& text) {
  const double silence = log_odds(0.0);
  Said& said = said_[node];
  const double sure = text.empty() ? 0.0 : text.front().probability;
  said.set = std::min(kSets - 1, static_cast<size_t>(sure * kSets));
  said.opinions.clear();
  for (const Candidate& c : model) said.opinions.push_back({c.token, log_odds(c.probability), silence, 0.0});
  for (const Candidate& c : text) {
    const auto same =
        std::find_if(said.opinions.begin(), said.opinions.end(), [&](const Opinion& o) { return o.token == c.token; });
    if (same == said.opinions.end())
      said.opinions.push_back({c.token, silence, log_odds(c.probability), 0.0});
    else
      same->text = log_odds(c.probability);
  }
  const Weights& w = weights_[said.set];
  double sum = 0.0;
  for (Opinion& o : said.opinions) {
    o.fused = 1.0 / (1.0 + std::exp(-(w.bias + w.model * o.model + w.text * o.text)));
    sum += o.fused;
  }
  std::vector<Candidate> fused;
  for (const Opinion& o : said.opinions) fused.push_back({o.token, static_cast<float>(o.fused / std::max(1.0, sum))});
  std::stable_sort(fused.begin(), fused.end(),
                   [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  return fused;
}

void Fusion::learn(NodeId node, Token token) {
  const auto said = said_.extract(node);
  if (said.empty()) return;
  Weights& w = weights_[said.mapped().set];
  for (const Opinion& o : said.mapped().opinions) {
    const double error = (o.token == token ? 1.0 : 0.0) - o.fused;
    w.bias += kRate * error;
    w.model += kRate * error * o.model;
    w.text += kRate * error * o.text;
  }
}

void Fusion::forget(std::span<const NodeId> nodes) {
  for (const NodeId node : nodes) said_.erase(node);
}

}  // namespace sluice
