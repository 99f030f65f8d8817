// Methods with the options that are worth comparing: what a plan chooses among.
#pragma once

#include <string>
#include <vector>

#include "method/options.h"
#include "source/make_source.h"

namespace sluice {

struct Contender {
  std::string method;
  std::vector<std::string> settings;  // what it takes on the command line beside --method: flags and values
  std::vector<SourceKind> sources;    // as in RequestSpec
  MethodOptions options;

  // "sd --depth 3".
  std::string name() const;
  // Whether it asks a draft model, if there is one.
  bool drafts() const;
};

// Plain decoding first. Without a draft model all guess by the text itself. (No method of a head is among them: the
// simulated clock computes the committed path only, and no states.)
std::vector<Contender> contenders(bool with_draft);

}  // namespace sluice
