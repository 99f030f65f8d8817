#include "method/option_table.h"

#include <algorithm>

#include "method/methods.h"
#include "tree/token_tree.h"
#include "wire/batch.h"

namespace sluice {

namespace {

constexpr Condition kRejects = {"--verify", "reject"};
constexpr int32_t kMostNodes = kMostRows - 1;  // of a tree: with the root they fit into a batch

std::vector<MethodOption> make_table() {
  const std::vector<std::string> all = speculating_methods();
  using O = MethodOptions;
  return {
      {"--width",
       WholeNumber{&O::width, 1, kMostRows},
       {{{"spd", "ppsd", "specpipe", "surge"}}},
       "Nodes a level of the token tree"},
      {"--levels",
       WholeNumber{&O::levels, 1, 16},
       {{{"specpipe"}}},
       "Levels of the tree that enter in a step, for specpipe"},
      {"--group",
       WholeNumber{&O::group, 1, 256},
       {{{"specpipe"}}},
       "Stages that share a level, which enters in so many parts, for specpipe in long pipelines"},
      {"--children", WholeNumber{&O::children, 1, TokenTree::kMaxCandidates}, {{all}}, "Candidates a node of the tree"},
      {"--depth",
       WholeNumber{&O::depth, 1, 64},
       {{{"sd", "eagle3", "p-eagle", "ssd"}}, {{"specinfer"}, {"--tree-nodes"}}, {{"surge"}, {"--head"}}},
       "Draft length, for methods that draft chains"},
      {"--tree",
       WholeNumbers{&O::branching, 1, 16},
       {{{"specinfer"}, {.option = "--tree-nodes", .given = false}}},
       "Children of a node of a static tree, by level"},
      {"--tree-nodes",
       WholeNumber{&O::tree_nodes, 1, kMostNodes},
       {{{"specinfer", "eagle3"}}},
       "Instead: the best tree of so many nodes, --depth levels deep"},
      {"--draft-rows",
       WholeNumber{&O::draft_rows, 0, kMostRows},
       {{{"surge"}}},
       "Nodes that a draft model expands at a time, for surge; 0: as many as pay"},
      {"--draft-p-min",
       RealNumber{&O::draft_p_min, 0.0, 1.0},
       {{{"sd", "p-eagle"}}, {{"eagle3"}, {.option = "--tree-nodes", .given = false}}},
       "sd, eagle3 and p-eagle draft no further once the tokens that they have drafted are, all together, less "
       "likely to be right than this, e.g. 0.5 with --depth 8; 0: always --depth tokens"},
      {"--budget", WholeNumber{&O::budget, 1, 128}, {{{"ssd"}}}, "Outcomes of a verification that ssd drafts for"},
      {"--fallback",
       FallbackName{&O::fallback},
       {{{"ssd"}}},
       "Who drafts for ssd when an outcome was not foreseen: draft, ngram, or auto: the draft model for up to "
       "4 requests at a time, n-grams for more"},
      {"--lookahead",
       WholeNumber{&O::lookahead, 0, 64, kWaitForDoubt},
       {{{"pipespec"}}},
       "Tokens that a verifier of pipespec waits for; auto: it waits while those that are there are as good as "
       "certain"},
      {"--replacement",
       Flag{&O::replacement},
       {{{"specinfer", "spd", "ppsd", "specpipe", "surge"}, kRejects}, {{"eagle3"}, kRejects, {"--tree-nodes"}}},
       "Rule reject: draw the children of a node with replacement"},
      {"--saguaro",
       RealNumber{&O::saguaro, 0.001, 1.0, 0.0},
       {{{"ssd"}, kRejects}},
       "C of SAGUARO sampling for ssd under rule reject: 1 is off; auto takes what promises most tokens a "
       "second of the verifications so far"},
      {"--saguaro-tokens",
       WholeNumber{&O::saguaro_tokens, 0, TokenTree::kMaxCandidates},
       {{{"ssd"}, {"--saguaro"}}},
       "F of it: the likeliest tokens that count C times; 0: as many as are drafted for"},
  };
}

Status check_tree(const std::vector<int32_t>& branching) {
  int64_t level = 1, nodes = 0;
  for (const int32_t children : branching) {
    nodes += level *= children;
    if (nodes > kMostNodes)
      return input_error("--tree: a tree of " + std::to_string(nodes) + " nodes or more; there may be " +
                         std::to_string(kMostNodes) + " at most, the root not counted");
  }
  return {};
}

// Empty if the value of an option is one that it may have; else what would be right. Values that are off are defaults.
template <class Kind>
std::string complaint(const Kind& kind, const MethodOptions& options) {
  if constexpr (requires { kind.low; }) {
    const auto& now = options.*kind.field;
    const auto allowed = [&](auto value) { return value >= kind.low && value <= kind.high; };
    bool good = now == MethodOptions().*kind.field;
    if constexpr (requires { kind.automatic; })
      good = good || allowed(now) || now == kind.automatic;
    else
      good = good || (!now.empty() && std::all_of(now.begin(), now.end(), allowed));
    if (!good) return "must be " + nlohmann::json(kind.low).dump() + " to " + nlohmann::json(kind.high).dump();
  }
  return {};
}

struct Setting {
  const char* flag;
  std::vector<Readers> readers;
};

// Options of methods, and what is no method's own but of effect on guesses only.
std::vector<Setting> make_settings() {
  std::vector<Setting> settings;
  for (const MethodOption& option : method_option_table()) settings.push_back({option.flag, option.readers});
  settings.push_back({"--draft-vocab", {{drafting_methods(), {"--draft"}}}});
  settings.push_back({"--lossy", {{speculating_methods()}}});
  settings.push_back({"--lossy-p", {{speculating_methods(), {"--lossy", "top-p"}}}});
  return settings;
}

bool holds(const Condition& condition, const Given& given) {
  if (condition.option == nullptr) return true;
  const auto other = given(condition.option);
  return condition.value != nullptr ? other == condition.value : other.has_value() == condition.given;
}

std::string text(const Condition& condition) {
  if (condition.option == nullptr) return "";
  return std::string(condition.given ? " with " : " without ") + condition.option +
         (condition.value != nullptr ? std::string(" ") + condition.value : "");
}

bool runs(const std::vector<std::string>& methods, const Readers& readers) {
  return std::any_of(methods.begin(), methods.end(), [&](const std::string& method) {
    return std::find(readers.methods.begin(), readers.methods.end(), method) != readers.methods.end();
  });
}

// "a, b and c"
std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::string named(const std::vector<Readers>& all) {
  std::string out;
  for (const Readers& readers : all)
    out += (out.empty() ? "" : ", and by ") + joined(readers.methods) + text(readers.condition) + text(readers.also);
  return out;
}

}  // namespace

std::span<const MethodOption> method_option_table() {
  static const std::vector<MethodOption> table = make_table();
  return table;
}

std::string MethodOption::key() const {
  std::string key = flag + 2;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

nlohmann::json MethodOption::in(const MethodOptions& options) const {
  return std::visit(
      [&](const auto& kind) -> nlohmann::json {
        const auto& now = options.*kind.field;
        if constexpr (requires { kind.automatic; }) {
          if (now == kind.automatic) return "auto";
        }
        if constexpr (std::is_same_v<std::decay_t<decltype(kind)>, FallbackName>)
          return name_of(kFallbacks, now);
        else
          return now;
      },
      value);
}

Status check(const MethodOptions& options) {
  for (const MethodOption& option : method_option_table()) {
    const std::string wrong = std::visit([&](const auto& kind) { return complaint(kind, options); }, option.value);
    if (!wrong.empty())
      return input_error(std::string(option.flag) + " " + wrong + ", not " + option.in(options).dump());
  }
  return check_tree(options.branching);
}

Status check_settings_are_read(const Given& given, const std::vector<std::string>& methods) {
  static const std::vector<Setting> settings = make_settings();
  for (const Setting& setting : settings) {
    if (!given(setting.flag)) continue;
    const auto reads = [&](const Readers& readers) {
      return runs(methods, readers) && holds(readers.condition, given) && holds(readers.also, given);
    };
    if (std::any_of(setting.readers.begin(), setting.readers.end(), reads)) continue;
    return input_error(std::string(setting.flag) + " is read by " + named(setting.readers) + "; here " +
                       joined(methods) + (methods.size() == 1 ? " runs" : " run") + ": leave it out");
  }
  return {};
}

}  // namespace sluice
