// A method is a policy: which guesses are asked for, which become nodes of the tree, and which nodes enter the pipeline
// next.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tree/residency.h"
#include "tree/token_tree.h"

namespace sluice {

// A request as its method sees it.
struct Speculation {
  TokenTree tree;
  Residency target;           // what the target model has done with the tree's nodes
  int32_t last_position = 0;  // no node beyond it is of use: the answer's or the context's limit
};

// Who can take work right now.
struct Idle {
  bool first_stage = false;
  bool source = false;
};

struct Proposal {
  std::vector<NodeId> enter;   // waiting nodes for the first stage, best first, parents before children
  std::vector<NodeId> expand;  // nodes whose children the source should guess
};

struct MethodOptions {
  int32_t width = 16;     // w: nodes a level
  int32_t children = 16;  // c: candidates a node
};

class Method {
 public:
  virtual ~Method() = default;
  virtual std::string_view name() const = 0;
  // Whether it needs a token source.
  virtual bool speculates() const = 0;
  // May turn candidates that sources gave into nodes; says what should happen next. Called whenever somebody in `idle`
  // is idle.
  virtual Proposal propose(Speculation& speculation, const Idle& idle) = 0;
};

// By its name on the command line. Errors name --method and list what there is.
Result<std::unique_ptr<Method>> make_method(const std::string& name, const MethodOptions& options);
std::vector<std::string> method_names();

}  // namespace sluice
