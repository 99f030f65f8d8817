// Prompt files of `sluice train data`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// Prompts of one kind.
struct PromptGroup {
  std::string source;
  std::vector<std::string> prompts;
};

// Files with a JSON object a line that has a text "prompt" (or a list "turns", whose first is taken) and may have a
// text "source"; grouped by source, or by file where there is none. Errors (kInput) name file and line: no such file, a
// line without a prompt, a file without lines.
Result<std::vector<PromptGroup>> read_prompt_groups(const std::vector<std::string>& paths);

}  // namespace sluice
