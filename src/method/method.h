// A method is a policy: which guesses are asked for, which become nodes of the tree, and which nodes enter the pipeline
// next.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "base/pass_times.h"
#include "base/result.h"
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

// Who can take work right now, and what is known of the time that work takes.
struct Idle {
  bool first_stage = false;
  uint32_t sources = 0;                    // bit i: source i
  uint32_t instant = 0;                    // bit i: source i answers at once, so that it is best asked late
  const PassTimes* stage_times = nullptr;  // of the target
  const PassTimes* draft_times = nullptr;  // of the first source that is a model
  size_t n_requests = 1;                   // that are running, this one included
  // What the method may save itself: no more of its rows would enter, and none whose path is less likely (a log).
  size_t rows = std::numeric_limits<size_t>::max();
  double floor = -std::numeric_limits<double>::infinity();
  size_t n_stages = 1;  // of the target
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

// Who drafts when ssd did not foresee an outcome: the draft model, n-grams, or the one for few requests and the other
// for many.
enum class Fallback : uint8_t { kDraft, kNgram, kAuto };
inline constexpr Choice<Fallback> kFallbacks[] = {
    {"draft", Fallback::kDraft}, {"ngram", Fallback::kNgram}, {"auto", Fallback::kAuto}};

// A lookahead: a verifier waits while it would most likely agree with all that is there.
inline constexpr int32_t kWaitForDoubt = -1;

struct MethodOptions {
  int32_t width = 16;      // w: nodes a level, or rows a step
  int32_t levels = 1;      // of the tree that enter in a step
  int32_t group = 1;       // stages that share a level, which enters in so many parts
  int32_t children = 16;   // c: candidates a node
  int32_t depth = 6;       // K: tokens of a chain, levels of a tree
  int32_t draft_rows = 0;  // nodes that a source guesses for at a time; 0: as many as pay
  double draft_p_min = 0;  // a chain ends behind a path less likely than this
  int32_t budget = 24;     // B: outcomes of a verification that are drafted for
  Fallback fallback = Fallback::kAuto;
  int32_t lookahead = 0;  // tokens that a verifier of pipespec waits for, or kWaitForDoubt
  // Of a static tree: children of a node, by level. With tree_nodes > 0 the best tree of so many nodes instead.
  std::vector<int32_t> branching = {1, 1, 3, 1, 1, 1, 1, 1};
  int32_t tree_nodes = 0;
  // Rule `reject`: whether several children of a node are drawn with replacement; C and F of SAGUARO sampling (C = 1:
  // off, 0: what promises most; F = 0: as many as are drafted for).
  bool replacement = false;
  double saguaro = 1.0;
  int32_t saguaro_tokens = 0;
};

// Draws of a node where the rows of a step or level are shared out: no node can have more children there.
inline int32_t draws_of_width(const MethodOptions& options) { return std::min(options.width, options.children); }

class Method {
 public:
  virtual ~Method() = default;
  virtual std::string_view name() const = 0;
  // Whether it needs a token source.
  virtual bool speculates() const = 0;
  // Whether its sources are a hierarchy, each better than the one before, instead of one to be fused.
  virtual bool has_hierarchy() const { return false; }
  // The kind of head that it cannot do without.
  virtual std::optional<HeadKind> head() const { return std::nullopt; }
  // Whether a source that guesses several tokens in a row may append them all to the tree.
  virtual bool takes_chains() const { return false; }
  // Whether behind a draft model it wants n-grams, as a second source, for when waiting for the model does not pay.
  virtual bool has_fallback() const { return false; }
  // Whether nodes may come from what the text says before the draft model that it is fused with has answered.
  virtual bool foretells() const { return false; }
  // Whether it fuses its source with n-grams unless told otherwise.
  virtual bool wants_text() const { return false; }
  // Rule `reject`: how many children of a node are drawn from the source's distribution, the same number for every
  // node, whatever is drawn; 0: the rule is not defined for this method's trees. The verification tries all of them,
  // whether they have become nodes or not.
  virtual int32_t draws() const { return 0; }
  // Rule `reject`: how a source's distribution is bent before the children of a node are drawn from it, and what the
  // verification says of other ways, if that was asked for.
  virtual Saguaro saguaro(const TokenTree&, NodeId) const { return {}; }
  virtual void learn(std::span<const SaguaroOdds>) {}
  // Whether rows enter at every step, so that the pipeline stays full; else a verification is a pass of its own.
  virtual bool fills_pipeline() const { return true; }
  // What only this method has to tell of the request, by name; for `run --json`.
  virtual std::map<std::string, std::vector<double>> figures() const { return {}; }
  // May turn candidates that sources gave into nodes; says what should happen next. Called whenever somebody in `idle`
  // is idle.
  virtual Proposal propose(Speculation& speculation, const Idle& idle) = 0;
  // A source has spoken of a node of the tree.
  virtual void drafted(Speculation& speculation, size_t source, NodeId node, std::vector<Candidate> candidates,
                       std::shared_ptr<const Draws> draws = {});
};

// By its name on the command line. Errors name --method and list what there is.
Result<std::unique_ptr<Method>> make_method(const std::string& name, const MethodOptions& options);
std::vector<std::string> method_names();
// The method that a kind of head was made for. REQUIRES: not a draft head, which serves all that take draft models.
std::string method_of(HeadKind kind);

}  // namespace sluice
