#include "transport/weights.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

namespace sluice {

namespace fs = std::filesystem;

namespace {

// The model of that path, if it is there and the one that is meant.
std::optional<ModelFile> open_if(const fs::path& path, const Sha256& identity) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  auto model = ModelFile::open(path.string());
  if (!model) return std::nullopt;
  const auto found = model->identity();
  if (!found || *found != identity) return std::nullopt;
  return std::move(*model);
}

// Those of a model's file name first: an identity takes reading all of a file.
std::vector<fs::path> files_in(const std::string& folder, const fs::path& name) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".gguf") files.push_back(at->path());
  std::ranges::sort(files);
  std::stable_partition(files.begin(), files.end(), [&](const fs::path& file) { return file.filename() == name; });
  return files;
}

}  // namespace

Result<ModelFile> find_model(const WeightFiles& files, const std::string& models) {
  if (auto model = open_if(files.path, files.identity)) return std::move(*model);
  const fs::path name = fs::path(files.path).filename();
  if (!models.empty())
    for (const fs::path& file : files_in(models, name))
      if (auto model = open_if(file, files.identity)) return std::move(*model);
  return input_error("it has no " + name.string() + " of SHA-256 " + files.identity.hex() +
                     ": copy the coordinator's " + files.path + " to " +
                     (models.empty() ? "the same path there" : fs::absolute(models).string()) +
                     (models.empty() ? ", or to the folder of its --models" : " there"));
}

}  // namespace sluice
