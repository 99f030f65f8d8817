#include "session/speculators.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "model/fingerprint.h"

namespace sluice {

namespace fs = std::filesystem;

std::vector<ShippedHead> shipped_heads(const std::string& folder, const ModelFile& model) {
  std::error_code error;
  std::set<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".gguf") paths.insert(entry.path().string());
  if (paths.empty()) return {};
  const auto wanted = fingerprint(model);
  if (!wanted) return {};
  std::vector<ShippedHead> heads;
  for (const std::string& path : paths)
    if (const auto head = HeadFile::inspect(path); head && head->target().fingerprint == *wanted)
      heads.push_back({path, head->parameters()});
  return heads;
}

std::optional<std::string> find_head(const std::string& folder, const ModelFile& model,
                                     const std::function<bool(const HeadParameters&)>& fits) {
  for (const ShippedHead& head : shipped_heads(folder, model))
    if (fits(head.parameters)) return head.path;
  return std::nullopt;
}

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
