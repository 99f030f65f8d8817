// Which prompt is answered next, and at which temperature: an order that depends on nothing but the settings, so that a
// killed run goes on where it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/corpus.h"

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

struct Job {
  uint64_t id = 0;
  const std::string* prompt = nullptr;  // nullptr: the target writes one itself,
  size_t opening = 0;                   // beginning with this one of the openings
  float temperature = 0;
};

// One prompt in kHeldOutOneIn is held out, chosen by its text, so that no prompt is in both splits.
inline constexpr uint64_t kHeldOutOneIn = 50;
Split split_of(std::string_view prompt);

// Groups take turns in proportion to the square root of their size, so that a large one does not drown the small: each
// prefix of the order has the same mix. A group's prompts come in an order drawn from the seed; when all have been
// answered they come again at the next temperature, but never twice greedily. Prompts that the target writes itself are
// a group of `n_self` for each opening.
class JobList {
 public:
  // REQUIRES: at least one temperature; `groups` outlives this.
  JobList(const std::vector<PromptGroup>& groups, int32_t n_self, std::vector<float> temperatures, uint64_t seed,
          size_t n_openings = 1);

  // Nothing when everything has been answered greedily and no other temperature is there.
  std::optional<Job> next();

 private:
  struct Group {
    const PromptGroup* prompts = nullptr;  // nullptr: self-written
    size_t opening = 0;
    std::vector<uint32_t> order;
    size_t size = 0, uses = 0;
    double weight = 0;
    bool exhausted = false;
  };
  Group* choose();
  std::optional<float> temperature(size_t prompt, size_t pass) const;

  std::vector<Group> groups_;
  std::vector<float> temperatures_;
  uint64_t next_id_ = 0;
};

}  // namespace sluice
