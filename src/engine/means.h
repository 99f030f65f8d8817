// What serves a request, and what there is to serve requests with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "method/methods.h"
#include "model/head_file.h"
#include "source/make_source.h"
#include "wire/sampling.h"

namespace sluice {

// A method, and where its guesses come from.
struct Means {
  ActiveMethod method;
  std::vector<SourceSlot> sources;  // empty if the method doesn't speculate
};

class MeansAtHand {
 public:
  // head: what kind the last of the models that draft is, if it is one; n_drafts: of the others.
  MeansAtHand(size_t n_drafts, std::optional<HeadKind> head, std::shared_ptr<const KnownText> corpus)
      : sources_{.n_drafts = n_drafts,
                 .head = head.has_value(),
                 .mtp = head == HeadKind::kMtp,
                 .corpus = std::move(corpus)},
        head_(head) {}

  // Errors (kInput): an unknown method or source, one that needs a model or head that is not there, a rule of
  // verification that is not defined for the method.
  Result<Means> find(const std::string& method, const MethodOptions& options, const std::vector<SourceKind>& sources,
                     Rule rule) const;

 private:
  Status check_head(const ActiveMethod& method) const;

  SourcesAtHand sources_;
  std::optional<HeadKind> head_;
};

}  // namespace sluice
