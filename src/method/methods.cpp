#include "method/methods.h"

#include <algorithm>
#include <functional>

#include "method/makers.h"

namespace sluice {

namespace {

// Draws of a node where the rows of a step or level are shared out: no node can have more children there.
int32_t draws_of_width(const MethodOptions& options) { return std::min(options.width, options.children); }

// Draws of a node of a static tree, or of the best one of so many nodes.
int32_t draws_of_tree(const MethodOptions& options) {
  return options.tree_nodes > 0 ? std::min(options.children, options.tree_nodes)
                                : *std::max_element(options.branching.begin(), options.branching.end());
}

bool drafts_tree(const MethodOptions& eagle3) { return eagle3.tree_nodes > 0; }

constexpr MethodEntry kMethods[] = {
    {"ar", [](const MethodOptions&) -> MethodTraits { return {.speculates = false}; }, make_autoregressive},
    {"sd",
     [](const MethodOptions&) -> MethodTraits {
       return {.takes_chains = true, .foretells = true, .fills_pipeline = false, .draws = 1};
     },
     make_sd},
    {"specinfer",
     [](const MethodOptions& options) -> MethodTraits {
       return {.fills_pipeline = false, .draws = draws_of_tree(options)};
     },
     make_specinfer},
    // EAGLE-3 (Li et al., 2025): a head on the target's own features drafts token by token, a chain of K tokens or,
    // with a budget of nodes, the dynamic tree of EAGLE-2: the likeliest nodes down to the depth.
    {"eagle3",
     [](const MethodOptions& options) -> MethodTraits {
       return {.head = HeadKind::kEagle3,
               .takes_chains = !drafts_tree(options),
               .fills_pipeline = false,
               .draws = drafts_tree(options) ? draws_of_tree(options) : 1};
     },
     [](const MethodOptions& options) { return drafts_tree(options) ? make_specinfer(options) : make_sd(options); }},
    // P-EAGLE (Hui et al., 2026): the head drafts a chain of K tokens in one pass.
    {"p-eagle",
     [](const MethodOptions&) -> MethodTraits {
       return {.head = HeadKind::kPEagle, .takes_chains = true, .fills_pipeline = false, .draws = 1};
     },
     make_sd},
    // PPSD (Li et al., 2025): SPD's schedule with an early exit as the source. The exit reads what the first stage has
    // just computed, so its guess comes after the step instead of beside it, and the first stage waits for it.
    {"ppsd",
     [](const MethodOptions& options) -> MethodTraits {
       return {.head = HeadKind::kExit, .draws = draws_of_width(options)};
     },
     make_spd},
    {"spd",
     [](const MethodOptions& options) -> MethodTraits {
       return {.head = HeadKind::kSpd, .draws = draws_of_width(options)};
     },
     make_spd},
    {"specpipe", [](const MethodOptions& options) -> MethodTraits { return {.draws = draws_of_width(options)}; },
     make_specpipe},
    {"surge",
     [](const MethodOptions& options) -> MethodTraits {
       return {.wants_text = true, .takes_chains = true, .foretells = true, .draws = draws_of_width(options)};
     },
     make_surge},
    {"pipespec", [](const MethodOptions&) -> MethodTraits { return {.has_hierarchy = true, .fills_pipeline = false}; },
     make_pipespec},
    {"ssd",
     [](const MethodOptions& options) -> MethodTraits {
       return {.has_fallback = options.fallback != Fallback::kDraft, .fills_pipeline = false, .draws = 1};
     },
     make_ssd},
};

std::vector<std::string> names_of(const std::function<bool(const MethodTraits&)>& are_wanted) {
  std::vector<std::string> names;
  for (const MethodEntry& method : kMethods)
    if (are_wanted(method.traits({}))) names.emplace_back(method.name);
  return names;
}

}  // namespace

const MethodEntry* find_method(std::string_view name) {
  for (const MethodEntry& method : kMethods)
    if (name == method.name) return &method;
  return nullptr;
}

Result<ActiveMethod> make_method(const std::string& name, const MethodOptions& options) {
  if (const MethodEntry* method = find_method(name))
    return ActiveMethod{method->name, method->traits(options), method->make(options)};
  std::string names;
  for (const auto& known : method_names()) names += (names.empty() ? "" : ", ") + known;
  return input_error("--method " + name + " is not available; there are: auto, " + names);
}

std::vector<std::string> method_names() {
  return names_of([](const MethodTraits&) { return true; });
}

std::vector<std::string> speculating_methods() {
  return names_of([](const MethodTraits& traits) { return traits.speculates; });
}

std::vector<std::string> drafting_methods() {
  return names_of([](const MethodTraits& traits) { return traits.speculates && !traits.head; });
}

std::string method_of(HeadKind kind) {
  if (kind == HeadKind::kMtp) return "surge";  // it drafts token by token, as a draft model does
  const auto names = names_of([&](const MethodTraits& traits) { return traits.head == kind; });
  SLUICE_CHECK(!names.empty(), "a method for every kind of head");
  return names.front();
}

}  // namespace sluice
