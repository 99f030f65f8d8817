#include "session/contender.h"

namespace sluice {

std::string Contender::name() const {
  std::string text = method;
  for (const std::string& setting : settings) text += " " + setting;
  return text;
}

bool Contender::drafts() const { return method != "ar" && sources != std::vector{SourceKind::kNgram}; }

std::vector<Contender> contenders(bool with_draft) {
  if (!with_draft) return {{"ar", {}, {}, {}}, {"specpipe", {}, {}, {}}, {"surge", {}, {}, {}}, {"sd", {}, {}, {}}};
  const std::vector<SourceKind> text = {SourceKind::kNgram}, both = {SourceKind::kNgram, SourceKind::kDraft};
  return {{"ar", {}, {}, {}},
          {"specpipe", {}, {}, {}},
          {"surge", {}, {}, {}},
          {"pipespec", {}, {}, {}},
          {"sd", {"--depth", "3"}, {}, {.depth = 3}},
          {"sd", {"--depth", "8"}, {}, {.depth = 8}},
          {"sd",
           {"--source", "ngram,draft", "--depth", "8", "--draft-p-min", "0.5"},
           both,
           {.depth = 8, .draft_p_min = 0.5}},
          {"ssd", {"--depth", "3"}, {}, {.depth = 3}},
          {"ssd", {"--depth", "8"}, {}, {.depth = 8}},
          {"specinfer", {"--tree-nodes", "32"}, {}, {.tree_nodes = 32}},
          {"specpipe", {"--source", "ngram"}, text, {}},
          {"surge", {"--source", "ngram"}, text, {}},
          {"sd", {"--source", "ngram"}, text, {}}};
}

}  // namespace sluice
