#include <algorithm>

#include "method/likeliest.h"
#include "method/makers.h"
#include "method/policy.h"

namespace sluice {

namespace {

// Surge (ours): the source guesses as often as it can, each time for the likeliest nodes it has not seen; whenever the
// first stage is free, the likeliest waiting nodes of any depth enter, up to the row budget. So several levels may
// enter in a step and several tokens come out, and a branch that was once too unlikely can still be rescued before the
// last stage reaches it.
//
// It differs from SpecPipe's several levels a step (section 3.4) in who enters: there whole levels, here whatever is
// likely enough, so that the tree deepens where the source is sure and widens where it isn't.
class Surge final : public Method {
 public:
  explicit Surge(const MethodOptions& options) : rows_(options.width), draft_rows_(options.draft_rows) {}

  Proposal propose(Speculation& speculation, const Idle& idle) override {
    TokenTree& tree = speculation.tree;
    Proposal proposal;
    const auto undrafted = [&](const TokenTree::Node& n) {
      return !n.drafted && n.position < speculation.last_position;
    };
    Floor floor(std::max(policy::kUnlikely, idle.floor.path), idle.floor.each);
    if (idle.first_stage) {
      const auto waits = [&](const TokenTree::Node& node) { return !speculation.target.entered(node.id); };
      proposal.enter =
          likeliest(tree, waits, std::min(static_cast<size_t>(rows_), idle.rows), floor, speculation.last_position);
      if (proposal.enter.empty() && idle.first_is_free) {
        floor = policy::kUnlikely;
        proposal.enter = likeliest(tree, waits, 1, floor, speculation.last_position);
      }
    }
    if (idle.answers_at_once()) {  // then only what is about to enter needs a guess, and not before all of it has one
      for (const NodeId id : proposal.enter) {
        const TokenTree::Node& node = tree.node(id);
        const bool may_pay = node.log_path > floor.at(tree, node.position + 1);  // what is sure to come after it
        if (may_pay && undrafted(node)) proposal.expand.push_back({id});
      }
      // What entered when nothing below it could pay, as beside a root whose verdict every row would hold up.
      if (idle.first_stage && proposal.enter.empty())
        for (const NodeId id : likeliest(tree, undrafted, 1, floor, speculation.last_position - 1))
          if (tree.node(id).log_path > floor.at(tree, tree.node(id).position + 1)) proposal.expand.push_back({id});
      if (!proposal.expand.empty()) proposal.enter.clear();
    } else if (idle.source()) {
      const int32_t most = draft_rows_ > 0 ? draft_rows_ : policy::kMostDraftRows;
      auto asks =
          likeliest(tree, undrafted, static_cast<size_t>(most), policy::kUnlikely, speculation.last_position - 1);
      proposal.as_pays = draft_rows_ == 0;
      for (const NodeId node : asks) proposal.expand.push_back({node});
    }
    return proposal;
  }

 private:
  int32_t rows_;        // that enter in a step at most
  int32_t draft_rows_;  // nodes the source guesses for at a time; 0: as many as pay
};

}  // namespace

std::unique_ptr<Method> make_surge(const MethodOptions& options) { return std::make_unique<Surge>(options); }

}  // namespace sluice
