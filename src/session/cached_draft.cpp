#include "session/cached_draft.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/hub.h"

namespace sluice {

Result<std::string> cached_draft(const ModelFile& target, const Tokenizer& vocabulary) {
  std::vector<std::pair<uint64_t, std::string>> smaller;
  for (const CachedModel& cached : cached_models()) {
    const auto model = ModelFile::open(cached.path);  // some are of families that are not known here
    if (model && model->file_bytes() <= target.file_bytes() / 2 && model->hparams().n_vocab == target.hparams().n_vocab)
      smaller.emplace_back(model->file_bytes(), cached.path);
  }
  std::sort(smaller.begin(), smaller.end());
  for (const auto& [bytes, path] : smaller) {
    const auto model = ModelFile::open(path);
    const auto tokenizer = model ? Tokenizer::load(*model) : tl::unexpected<Error>(model.error());
    if (tokenizer && check_vocabulary(path, *tokenizer, target.path(), vocabulary)) return path;
  }
  return input_error(
      "--draft auto: no model in the cache has the target's vocabulary and at most half its size; fetch one "
      "by --draft hf:OWNER/MODEL");
}

}  // namespace sluice
