// A request for a text of one token a character.
#pragma once

#include <string>

#include "engine/request.h"

namespace sluice::test {

inline RequestSpec ask(const std::string& text, int32_t max_tokens = 20, const std::string& method = "specpipe") {
  RequestSpec spec;
  for (const char c : text) spec.prompt.push_back(3 + c);
  spec.max_tokens = max_tokens;
  spec.method = method;
  spec.method_options.width = 4;
  spec.ignore_end = true;
  return spec;
}

}  // namespace sluice::test
