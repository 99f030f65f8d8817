#include "method/ssd.h"

#include <algorithm>
#include <utility>

#include "method/chain.h"
#include "method/makers.h"
#include "method/policy.h"
#include "theory/theory.h"

namespace sluice {

namespace {

constexpr size_t kModel = 0, kNgrams = 1;  // sources

}  // namespace

Proposal Ssd::propose(Speculation& speculation, const Idle& idle) {
  if (speculation.target.entered(speculation.tree.root().id)) return draft_outcomes(speculation);
  if (!chain_.empty() && speculation.tree.root().position > begin_) note_outcome(speculation.tree);
  return begin_round(speculation, idle);
}

// What the source has drafted below the root enters; what it has not, it drafts now.
Proposal Ssd::begin_round(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  const Chain chain = grow_chain(tree, tree.root().id, length_, speculation.last_position);
  if (chain.undrafted) return {.enter = {}, .expand = {{chain.nodes.back(), drafter(speculation, idle)}}};
  if (!idle.first_stage) return {};
  chain_ = chain.nodes;
  begin_ = tree.root().position;
  foreseen_.clear();
  fan_ = fan_out();
  chain_by_ngrams_ = by_ngrams_.contains(chain.nodes.front());
  if (bend_.odds) bend_.c = best_c(speculation, idle);
  return {.enter = chain.nodes, .expand = {}};
}

// Who drafts after a miss.
bool Ssd::falls_back_on_ngrams(const Speculation& speculation, const Idle& idle) const {
  if (speculation.n_sources < 2) return false;
  return fallback_ == Fallback::kNgram || (fallback_ == Fallback::kAuto && idle.n_requests > policy::kFewRequests);
}

// The source of a chain that is not there yet. A foreseen one is only late.
size_t Ssd::drafter(const Speculation& speculation, const Idle& idle) const {
  return falls_back_on_ngrams(speculation, idle) && !foreseen(speculation.tree.root().id) ? kNgrams : kModel;
}

void Ssd::drafted(Speculation& speculation, size_t source, NodeId node, std::vector<Candidate> candidates,
                  std::shared_ptr<const Draws> draws) {
  if (source == kNgrams)
    by_ngrams_.insert(node);
  else
    by_ngrams_.erase(node);
  Method::drafted(speculation, source, node, std::move(candidates), std::move(draws));
}

Proposal Ssd::draft_outcomes(Speculation& speculation) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  for (size_t k = 0; k < chain_.size(); ++k) {
    const auto& node = tree.node(chain_[k]);
    if (node.position >= speculation.last_position) break;
    if (!node.drafted || by_ngrams_.contains(node.id)) {
      proposal.expand.push_back({node.id});  // the chain's end, or what n-grams have drafted
      continue;
    }
    auto candidates = node.candidates;
    if (k + 1 < chain_.size())  // a rejected token is no outcome
      std::erase_if(candidates, [&](const Candidate& c) { return c.token == tree.node(chain_[k + 1]).token; });
    candidates.resize(std::min(candidates.size(), static_cast<size_t>(fan_[std::min(k, fan_.size() - 1)])));
    for (const auto& [token, probability] : candidates) {
      const auto known = tree.child(chain_[k], token);
      const NodeId outcome = known ? *known : tree.append(chain_[k], token, probability);
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
  if (std::find(chain_.begin(), chain_.end(), root.id) != chain_.end()) {  // only its beginning could enter
    chain_.clear();
    return;
  }
  const bool hit = foreseen(root.id);
  const size_t k = std::min(static_cast<size_t>(std::max(0, root.position - begin_ - 1)), chain_.size() - 1);
  if (outcomes_.size() <= k) outcomes_.resize(k + 1);
  ++outcomes_[k].rounds;
  outcomes_[k].hits += hit;
  auto& [tries, missed] = misses_[fan_[std::min(k, fan_.size() - 1)]];
  ++tries;
  missed += !hit;
  ngram_rounds_ += chain_by_ngrams_;
  if (chain_by_ngrams_) ngram_tokens_ += static_cast<int64_t>(k) + 1;
  chain_.clear();
  by_ngrams_.clear();
}

Bend Ssd::bend(const TokenTree& tree, NodeId node) const {
  Bend by = bend_;
  if (by.f > 0 || fan_.empty()) return by;
  size_t k = 0;  // tokens of its round's chain, the node included
  for (NodeId at = node; at != tree.root().id && !foreseen(at); at = tree.node(at).parent) ++k;
  by.f = fan_[std::min(k, fan_.size() - 1)];
  return by;
}

void Ssd::learn(std::span<const BendOdds> odds) {
  for (size_t i = 0; i < odds.size(); ++i) {
    odds_[i].accepted += odds[i].accepted;
    odds_[i].hit += odds[i].hit * (1.0 - odds[i].accepted);
  }
  ++n_odds_;
}

// C: a smaller one is accepted less often, but misses less often. Of kBends what would have made most tokens a
// second of the rounds so far, a hit taking a verification or drafting for all outcomes, whichever is longer, and a
// miss drafting after the verification.
double Ssd::best_c(const Speculation& speculation, const Idle& idle) const {
  if (n_odds_ == 0 || idle.stage_times == nullptr || idle.draft_times == nullptr) return 1.0;
  const double verification = static_cast<double>(idle.n_stages) * idle.stage_times->seconds(length_ + 1);
  if (verification <= 0.0) return 1.0;
  theory::SsdRound round{.prespeculation_time = length_ * idle.draft_times->seconds(budget_) / verification,
                         .fallback_time = length_ * idle.draft_times->seconds(1) / verification};
  // N-grams answer at once, with chains that are worth what they have been so far: at first, nothing.
  const bool by_ngrams = falls_back_on_ngrams(speculation, idle);
  if (by_ngrams) {
    round.fallback_time = 0.0;
    round.fallback_tokens = static_cast<double>(ngram_tokens_ + 1) / static_cast<double>(ngram_rounds_ + 1);
  }
  const Outcomes whole = outcomes_.size() > static_cast<size_t>(length_) ? outcomes_.back() : Outcomes{};
  const double hits_of_whole = (static_cast<double>(whole.hits) + 1.0) / (static_cast<double>(whole.rounds) + 2.0);

  double best = 1.0, most = 0.0;
  for (size_t i = 0; i < odds_.size(); ++i) {
    const double accepted = odds_[i].accepted / static_cast<double>(n_odds_);
    const double rejected = static_cast<double>(n_odds_) - odds_[i].accepted;
    const double hits_of_cut = rejected > 0.0 ? odds_[i].hit / rejected : 1.0;
    const double acceptance = std::clamp(accepted, 0.0, 1.0);
    const double kept = accepted_length_distribution(acceptance, length_).back();  // whole, of all rounds
    round.tokens = theory::expected_round_tokens(acceptance, length_);
    if (!by_ngrams) round.fallback_tokens = round.tokens;
    round.hit_rate = std::min(1.0, (1.0 - kept) * hits_of_cut + kept * hits_of_whole);
    const double rate = theory::ssd_speedup(round);
    if (rate > most) {
      most = rate;
      best = kBends[i];
    }
  }
  return best;
}

std::map<std::string, std::vector<double>> Ssd::figures() const {
  std::map<std::string, std::vector<double>> figures;
  for (const auto& [rounds, hits] : outcomes_) {
    figures["rounds_by_k"].push_back(static_cast<double>(rounds));
    figures["hit_rate_by_k"].push_back(rounds > 0 ? static_cast<double>(hits) / static_cast<double>(rounds) : 0.0);
  }
  if (bend_.odds) figures["saguaro_c"] = {bend_.c};
  return figures;
}

// F for the round that begins: of all that B allows, what misses least if the next rounds are like those so far.
std::vector<int> Ssd::fan_out() const {
  int64_t accepted = policy::kAcceptedBefore, ended = policy::kTokensBefore - policy::kAcceptedBefore;
  for (size_t k = 0; k < outcomes_.size(); ++k) {
    accepted += static_cast<int64_t>(k) * outcomes_[k].rounds;
    if (static_cast<int32_t>(k) < length_) ended += outcomes_[k].rounds;
  }
  std::vector<std::pair<double, double>> measured;
  for (const auto& [fan, counts] : misses_)
    if (fan > 0 && counts.first >= policy::kTellingTries)
      measured.emplace_back(fan, static_cast<double>(counts.second) / static_cast<double>(counts.first));
  const double acceptance = static_cast<double>(accepted) / static_cast<double>(accepted + ended);
  const PowerLaw law = fit_power_law(measured).value_or(policy::kMissesBefore);
  return best_fanout(accepted_length_distribution(acceptance, length_), law, budget_);
}

std::unique_ptr<Method> make_ssd(const MethodOptions& options) { return std::make_unique<Ssd>(options); }

}  // namespace sluice
