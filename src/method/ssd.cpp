#include "method/ssd.h"

#include <algorithm>

#include "method/chain.h"

namespace sluice {

Proposal Ssd::propose(Speculation& speculation, const Idle& idle) {
  if (speculation.target.entered(speculation.tree.root().id)) return draft_outcomes(speculation);
  if (!chain_.empty() && speculation.tree.root().position > begin_) note_outcome(speculation.tree);
  return begin_round(speculation, idle);
}

// What the source has drafted below the root enters; what it has not, it drafts now.
Proposal Ssd::begin_round(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  const Chain chain = grow_chain(tree, tree.root().id, length_, speculation.last_position);
  if (chain.undrafted) return {.enter = {}, .expand = {{chain.nodes.back()}}};
  if (!idle.first_stage) return {};
  chain_ = chain.nodes;
  begin_ = tree.root().position;
  foreseen_.clear();
  fan_ = fan_out();
  return {.enter = chain.nodes, .expand = {}};
}

Proposal Ssd::draft_outcomes(Speculation& speculation) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  for (size_t k = 0; k < chain_.size(); ++k) {
    const auto& node = tree.node(chain_[k]);
    if (node.position >= speculation.last_position) break;
    if (!node.drafted) {
      proposal.expand.push_back({node.id});  // the chain's end
      continue;
    }
    const auto candidates = node.candidates;
    const size_t first = k + 1 < chain_.size() ? 1 : 0;  // a rejected token is no outcome
    const size_t last = std::min(candidates.size(), first + static_cast<size_t>(fan_[std::min(k, fan_.size() - 1)]));
    for (size_t i = first; i < last; ++i) {
      const auto known = tree.child(chain_[k], candidates[i].token);
      const NodeId outcome = known ? *known : tree.append(chain_[k], candidates[i].token, candidates[i].probability);
      if (!known) foreseen_.push_back(outcome);
      const Chain next = grow_chain(tree, outcome, length_, speculation.last_position);
      if (next.undrafted) proposal.expand.push_back({next.nodes.back()});
    }
  }
  return proposal;
}

// The verification is over, and the root is the target's own token after k accepted ones.
void Ssd::note_outcome(const TokenTree& tree) {
  const auto& root = tree.root();
  const bool hit = std::find(foreseen_.begin(), foreseen_.end(), root.id) != foreseen_.end();
  const size_t k = std::min(static_cast<size_t>(std::max(0, root.position - begin_ - 1)), chain_.size() - 1);
  if (outcomes_.size() <= k) outcomes_.resize(k + 1);
  ++outcomes_[k].rounds;
  outcomes_[k].hits += hit;
  auto& [tries, missed] = misses_[fan_[std::min(k, fan_.size() - 1)]];
  ++tries;
  missed += !hit;
  chain_.clear();
}

std::map<std::string, std::vector<double>> Ssd::figures() const {
  std::map<std::string, std::vector<double>> figures;
  for (const auto& [rounds, hits] : outcomes_) {
    figures["rounds_by_k"].push_back(static_cast<double>(rounds));
    figures["hit_rate_by_k"].push_back(rounds > 0 ? static_cast<double>(hits) / static_cast<double>(rounds) : 0.0);
  }
  return figures;
}

// F for the round that begins: of all that B allows, what misses least if the next rounds are like those so far.
std::vector<int> Ssd::fan_out() const {
  int64_t accepted = 8, ended = 2;  // as if ten tokens had been seen, until more have
  for (size_t k = 0; k < outcomes_.size(); ++k) {
    accepted += static_cast<int64_t>(k) * outcomes_[k].rounds;
    if (static_cast<int32_t>(k) < length_) ended += outcomes_[k].rounds;
  }
  std::vector<std::pair<double, double>> measured;
  for (const auto& [fan, counts] : misses_)
    if (fan > 0 && counts.first >= 10)
      measured.emplace_back(fan, static_cast<double>(counts.second) / static_cast<double>(counts.first));
  const double acceptance = static_cast<double>(accepted) / static_cast<double>(accepted + ended);
  const PowerLaw law = fit_power_law(measured).value_or(PowerLaw{.scale = 0.5, .exponent = 1.0});
  return best_fanout(accepted_length_distribution(acceptance, length_), law, budget_);
}

}  // namespace sluice
