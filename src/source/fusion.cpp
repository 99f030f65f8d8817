#include "source/fusion.h"

#include <algorithm>

namespace sluice {

std::vector<Candidate> fuse(const std::vector<Candidate>& model, const std::vector<Candidate>& text,
                            float text_weight) {
  std::vector<Candidate> fused = model;
  for (Candidate& c : fused) c.probability *= 1.0f - text_weight;
  for (const Candidate& c : text) {
    const auto same = std::find_if(fused.begin(), fused.end(), [&](const Candidate& f) { return f.token == c.token; });
    if (same == fused.end()) {
      fused.push_back({c.token, text_weight * c.probability});
    } else {
      same->probability += text_weight * c.probability;
    }
  }
  std::stable_sort(fused.begin(), fused.end(),
                   [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  return fused;
}

}  // namespace sluice
