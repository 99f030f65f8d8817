#include "session/cached_draft.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice {

std::vector<CachedModel> cached_drafts(const ModelFile& target, const Tokenizer& vocabulary) {
  std::vector<std::pair<uint64_t, CachedModel>> smaller;
  for (CachedModel& cached : cached_models()) {
    const auto model = ModelFile::open(cached.path);  // some are of families that are not known here
    if (!model || model->file_bytes() > target.file_bytes() / 2 || model->hparams().n_vocab != target.hparams().n_vocab)
      continue;
    const auto tokenizer = Tokenizer::load(*model);
    if (tokenizer && check_vocabulary(cached.path, *tokenizer, target.path(), vocabulary))
      smaller.emplace_back(model->file_bytes(), std::move(cached));
  }
  std::sort(smaller.begin(), smaller.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CachedModel> drafts;
  for (auto& [bytes, cached] : smaller) drafts.push_back(std::move(cached));
  return drafts;
}

Result<std::string> cached_draft(const ModelFile& target, const Tokenizer& vocabulary) {
  const auto drafts = cached_drafts(target, vocabulary);
  if (!drafts.empty()) return drafts.front().path;
  return input_error(
      "--draft auto: no model in the cache has the target's vocabulary and at most half its size; fetch one "
      "by --draft hf:OWNER/MODEL");
}

}  // namespace sluice
