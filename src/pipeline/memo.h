// What lazy workers have computed, by path: a schedule can then be studied again, or another beside it, without
// computing anything twice. It holds because logits depend on the path alone.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "source/guess.h"
#include "verify/sampler.h"
#include "wire/sampling.h"

namespace sluice {

// 128 bits that stand for a model and the tokens of a path.
struct PathKey {
  uint64_t high = 0, low = 0;
  bool operator==(const PathKey&) const = default;

  // The key of the path with one more token, or of the same path under other conditions.
  PathKey with(uint64_t more) const;
  PathKey with(const SamplingParams& sampling) const;
};

// Thread safety: any thread, but for moves.
class Memo {
 public:
  Memo() = default;
  Memo(Memo&& other) noexcept;

  // What they give stays until the same key is kept anew, which who computes it alone does.
  const Draw* find_draw(PathKey key) const;
  const TopLogits* find_top(PathKey key) const;
  void keep(PathKey key, const Draw& draw);
  void keep(PathKey key, TopLogits top);

  // Adds what a file holds, if there is one. Errors (kInput): it is no such file, or damaged; then
  // nothing has been added.
  Status load(const std::string& path);
  // Writes everything beside the file's place and renames, unless nothing was kept since it was loaded or saved. Errors
  // (kRuntime) name the file.
  Status save(const std::string& path);

 private:
  struct Hash {
    size_t operator()(const PathKey& key) const { return key.low; }
  };
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<PathKey, Draw, Hash> draws_;
  std::unordered_map<PathKey, TopLogits, Hash> tops_;
  bool changed_ = false;  // since it was loaded or saved
};

}  // namespace sluice
