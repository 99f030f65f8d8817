#include "transport/weights.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

namespace sluice {

namespace fs = std::filesystem;

namespace {

// What open(path) gives of that path, if it is there and the one that is meant.
template <class File, class Open>
std::optional<File> open_if(const fs::path& path, const Sha256& identity, const Open& open) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  Result<File> file = open(path.string());
  if (!file) return std::nullopt;
  const auto found = file->identity();
  if (!found || *found != identity) return std::nullopt;
  return std::move(*file);
}

// Those of that file name first: an identity takes reading all of a file.
std::vector<fs::path> files_in(const std::string& folder, const fs::path& name) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".gguf") files.push_back(at->path());
  std::ranges::sort(files);
  std::stable_partition(files.begin(), files.end(), [&](const fs::path& file) { return file.filename() == name; });
  return files;
}

template <class File, class Open>
Result<File> find(const WeightFiles& files, const std::string& which, const std::string& models, const Open& open) {
  if (auto file = open_if<File>(files.path, files.identity, open)) return std::move(*file);
  const fs::path name = fs::path(files.path).filename();
  if (!models.empty())
    for (const fs::path& path : files_in(models, name))
      if (auto file = open_if<File>(path, files.identity, open)) return std::move(*file);
  return input_error("it has no " + name.string() + which + ": copy the coordinator's " + files.path + " to " +
                     (models.empty() ? "the same path there" : fs::absolute(models).string()) +
                     (models.empty() ? ", or to the folder of its --models" : " there"));
}

}  // namespace

WeightFiles model_files(const StageRecipe& recipe) {
  const WeightFiles& files = recipe.files;
  if (recipe.kind != StageRecipe::Kind::kHead) return files;
  return {.path = files.target, .target = {}, .identity = files.target_identity};
}

Result<ModelFile> find_model(const WeightFiles& files, const std::string& models) {
  const std::string which = " of SHA-256 " + files.identity.hex();
  return find<ModelFile>(files, which, models, [](const std::string& path) { return ModelFile::open(path); });
}

Result<HeadFile> find_head(const WeightFiles& files, const ModelFile& target, const std::string& models) {
  return find<HeadFile>(files, " that is the coordinator's", models,
                        [&target](const std::string& path) { return HeadFile::open(path, target); });
}

}  // namespace sluice
