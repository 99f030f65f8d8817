#include "session/shipped_heads.h"

#include <filesystem>
#include <set>

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

}  // namespace sluice
