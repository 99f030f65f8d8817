// A method is a policy: which guesses are asked for, which become nodes of the tree, and which nodes enter the pipeline
// next.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/pass_times.h"
#include "method/options.h"
#include "model/head_file.h"
#include "tree/residency.h"
#include "tree/token_tree.h"

namespace sluice {

// A request as its method sees it.
struct Speculation {
  TokenTree tree;
  Residency target;               // what the target model has done with the sequence
  std::vector<Residency> drafts;  // what the draft models have
  size_t n_sources = 0;           // of the method
  int32_t last_position = 0;      // no node beyond it is of use: the answer's or the context's limit
};

// What a path must be likelier than, to be of use. Each guess on it must be right, so a long path needs more.
struct Floor {
  double path = -std::numeric_limits<double>::infinity();  // a log, like the next
  double each = 0.0;                                       // for each guess
  Floor() = default;
  Floor(double of_path, double of_each = 0.0) : path(of_path), each(of_each) {}
  double at(const TokenTree& tree, int32_t position) const { return path + each * (position - tree.root().position); }
};

// Who can take work right now, and what is known of the time that work takes.
struct Idle {
  bool first_stage = false;
  uint32_t sources = 0;                    // bit i: source i
  uint32_t instant = 0;                    // bit i: source i answers at once, so that it is best asked late
  const PassTimes* stage_times = nullptr;  // of the target
  const PassTimes* draft_times = nullptr;  // of the first source that is a model
  size_t n_requests = 1;                   // that are running, this one included
  // What the method may save itself: no more of its rows would enter, and none whose path is less likely.
  size_t rows = std::numeric_limits<size_t>::max();
  Floor floor;
  bool first_is_free = false;  // but the likeliest of all may enter: the batch would be empty without it
  size_t n_stages = 1;         // of the target
  bool source(size_t i = 0) const { return (sources >> i & 1) != 0; }
  bool answers_at_once(size_t i = 0) const { return (instant >> i & 1) != 0; }
};

// A node whose children a source should guess. Most methods have one source, several that the user named being fused.
struct Ask {
  NodeId node;
  size_t source = 0;
  bool operator==(const Ask&) const = default;
};

struct Proposal {
  std::vector<NodeId> enter;  // waiting nodes for the first stage, best first, parents before children
  std::vector<Ask> expand;    // best first; to be asked again as long as it isn't answered
  bool as_pays = false;       // of `expand` only as many as their rows are worth
};

// What must be known of a method before it is asked anything.
struct MethodTraits {
  bool speculates = true;        // it needs a token source
  std::optional<HeadKind> head;  // the kind of head that it cannot do without
  bool has_hierarchy = false;    // its sources are a hierarchy, each better than the one before, not one to be fused
  bool has_fallback = false;     // behind a draft model it wants n-grams, as a second source, for when waiting for the
                                 // model does not pay
  bool wants_text = false;       // it fuses its source with n-grams unless told otherwise
  bool takes_chains = false;     // a source that guesses several tokens in a row may append them all to the tree
  bool foretells = false;        // nodes may come from what the text says before the draft model that it is fused
                                 // with has answered
  bool fills_pipeline = true;    // rows enter at every step; else a verification is a pass of its own
  // Rule `reject`: how many children of a node are drawn from the source's distribution, the same number for every
  // node, whatever is drawn; 0: the rule is not defined for this method's trees. The verification tries all of them,
  // whether they have become nodes or not.
  int32_t draws = 0;
};

class Method {
 public:
  virtual ~Method() = default;
  // May turn candidates that sources gave into nodes; says what should happen next. Called whenever somebody in `idle`
  // is idle.
  virtual Proposal propose(Speculation& speculation, const Idle& idle) = 0;
  // A source has spoken of a node of the tree.
  virtual void drafted(Speculation& speculation, size_t /*source*/, NodeId node, std::vector<Candidate> candidates,
                       std::shared_ptr<const Draws> draws = {}) {
    speculation.tree.set_candidates(node, std::move(candidates), std::move(draws));
  }
  // Rule `reject`: how a source's distribution is bent before the children of a node are drawn from it, and what the
  // verification says of other ways, if that was asked for.
  virtual Bend bend(const TokenTree&, NodeId) const { return {}; }
  virtual void learn(std::span<const BendOdds>) {}
  // What only this method has to tell of the request, by name; for `run --json`.
  virtual std::map<std::string, std::vector<double>> figures() const { return {}; }
};

}  // namespace sluice
