// Questions that must not be trained on: those of the benchmarks.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace sluice {

// Texts are compared as words: letters and digits in lower case, everything else is space. A text holds a question when
// they share a run of kRun words in a row, or all the words of a shorter question; questions below kShortest words must
// be the whole text.
class Exclusion {
 public:
  static constexpr size_t kRun = 13, kShortest = 5;

  // Files, or folders of files *.jsonl, with one conversation a line as `sluice bench` takes it ("turns"). Lines
  // without turns are left out, so that prompt files may lie beside. Errors (kInput): nothing there, a file without
  // questions.
  static Result<Exclusion> load(const std::vector<std::string>& paths);

  void add(std::string name, std::string_view question);
  size_t size() const { return names_.size(); }
  // The name of a question that `text` holds, or nullptr.
  const std::string* find(std::string_view text) const;

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> whole_;                             // of short questions
  std::set<size_t> lengths_;                                                  // of the runs
  std::unordered_map<size_t, std::unordered_map<std::string, size_t>> runs_;  // by length: words to question
};

}  // namespace sluice
