#include "session/shipped_heads.h"

#include <filesystem>
#include <set>

#include "model/fingerprint.h"

namespace sluice {

namespace fs = std::filesystem;

std::optional<std::string> find_head(const std::string& folder, const ModelFile& model,
                                     const std::function<bool(const HeadParameters&)>& fits) {
  std::error_code error;
  std::set<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".gguf") paths.insert(entry.path().string());
  if (paths.empty()) return std::nullopt;
  const auto wanted = fingerprint(model);
  if (!wanted) return std::nullopt;
  for (const std::string& path : paths) {
    const auto head = HeadFile::inspect(path);
    if (head && head->target().fingerprint == *wanted && fits(head->parameters())) return path;
  }
  return std::nullopt;
}

}  // namespace sluice
