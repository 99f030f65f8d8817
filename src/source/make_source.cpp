#include "source/make_source.h"

#include "source/ngram.h"

namespace sluice {

Result<std::unique_ptr<Source>> make_source(const std::vector<std::string>& names) {
  if (names.size() > 1) return input_error("--source takes one source; several cannot be fused yet");
  if (names.empty() || names.front() == "ngram") return std::make_unique<NgramSource>();
  return input_error("--source " + names.front() + " is not available; there is: ngram");
}

}  // namespace sluice
