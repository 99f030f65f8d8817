// The prompt files of `sluice bench`: DIR/TASK.jsonl, one conversation's user messages a line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

struct BenchPrompt {
  std::string task, id;               // no two of a task have the same id
  std::vector<std::string> turns;     // of the user, at least one, none empty
  std::optional<int32_t> max_tokens;  // of an answer; none: as for all
};

// The first `limit` prompts of a task. Errors (kInput) name file and line.
Result<std::vector<BenchPrompt>> read_prompts(const std::string& directory, const std::string& task, int32_t limit);

}  // namespace sluice
