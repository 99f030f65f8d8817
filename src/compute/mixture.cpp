#include "compute/mixture.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/math.h"
#include "compute/kernels/kernels.h"

namespace sluice {

namespace {

float sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

// Of their weights. REQUIRES: the first is the largest.
void take_softmax(std::span<ChosenExpert> experts) {
  const float largest = experts.front().weight;
  float sum = 0.0f;
  for (ChosenExpert& choice : experts) sum += choice.weight = exp_f32(choice.weight - largest);
  for (ChosenExpert& choice : experts) choice.weight /= sum;
}

constexpr float kTaken = -std::numeric_limits<float>::infinity();

// Leaves the experts of the best groups only: a group is as good as its two best experts together, among equals the
// first goes before (DeepSeek-V3, section 2.1.2, as libllama computes it).
void leave_groups(const MixtureParameters& rules, std::span<float> shares) {
  const auto n = static_cast<size_t>(rules.n_groups);
  const size_t size = shares.size() / n;
  std::vector<float> scores(n);
  for (size_t group = 0; group < n; ++group) {
    float best = kTaken, second = kTaken;
    for (const float share : shares.subspan(group * size, size)) {
      second = std::max(second, std::min(best, share));
      best = std::max(best, share);
    }
    scores[group] = best + second;
  }
  std::vector<bool> stays(n);
  for (int32_t i = 0; i < rules.n_groups_used; ++i) {
    const auto best = static_cast<size_t>(std::ranges::max_element(scores) - scores.begin());
    scores[best] = kTaken;
    stays[best] = true;
  }
  for (size_t group = 0; group < n; ++group)
    if (!stays[group]) std::ranges::fill(shares.subspan(group * size, size), kTaken);
}

}  // namespace

void choose(const Mixture& mixture, std::span<float> logits, std::span<float> room, std::span<ChosenExpert> choices) {
  constexpr float kLeastSum = 6.103515625e-5f;  // as libllama has it
  const MixtureParameters& rules = mixture.rules;
  const auto shares = logits.first(static_cast<size_t>(rules.n_experts));
  using Gating = MixtureParameters::Gating;
  if (rules.gating == Gating::kSoftmax) kernels::kernels().softmax(shares.data(), std::ssize(shares));
  if (rules.gating == Gating::kSigmoid) std::ranges::transform(shares, shares.begin(), sigmoid);
  std::ranges::copy(shares, room.begin());
  for (size_t i = 0; i < mixture.biases.size(); ++i) room[i] += mixture.biases[i];
  if (rules.n_groups > 1) leave_groups(rules, room);
  const auto experts = choices.first(static_cast<size_t>(rules.n_used));
  for (ChosenExpert& choice : experts) {
    const auto best = std::ranges::max_element(room) - room.begin();  // the first of equals
    room[static_cast<size_t>(best)] = kTaken;
    choice = {static_cast<int32_t>(best), shares[static_cast<size_t>(best)]};
  }
  if (rules.gating == Gating::kSoftmaxOfChosen) take_softmax(experts);
  float sum = 0.0f;
  for (const ChosenExpert& choice : experts) sum += choice.weight;
  const float divisor = rules.normalised ? std::max(sum, kLeastSum) : 1.0f;
  for (ChosenExpert& choice : experts) {
    choice.weight = choice.weight / divisor * rules.scale;
    if (!mixture.scales.empty()) choice.weight *= mixture.scales[static_cast<size_t>(choice.network)];
  }
  if (mixture.has_shared())
    choices.back() = {rules.n_experts, rules.is_shared_gated ? sigmoid(logits[shares.size()]) : 1.0f};
}

int64_t ExpertGroups::most_places(int64_t n_choices, int64_t n_networks) {
  return n_choices + (Linear::kRowGrain - 1) * std::min(n_choices, n_networks);
}

void ExpertGroups::sort(std::span<const ChosenExpert> choices, int32_t n_networks) {
  next_.assign(static_cast<size_t>(n_networks), 0);
  for (const ChosenExpert& choice : choices) ++next_[static_cast<size_t>(choice.network)];
  groups_.clear();
  int64_t begin = 0;
  for (int32_t network = 0; network < n_networks; ++network) {
    int64_t& next = next_[static_cast<size_t>(network)];
    const int64_t n = next;
    next = begin;
    if (n == 0) continue;
    groups_.push_back({network, {begin, begin + n}});
    begin += (n + Linear::kRowGrain - 1) / Linear::kRowGrain * Linear::kRowGrain;
  }
  places_.clear();
  for (const ChosenExpert& choice : choices) places_.push_back(next_[static_cast<size_t>(choice.network)]++);
}

}  // namespace sluice
