#include "model/head_file.h"

#include "model/head_contents.h"
#include "model/metadata_text.h"

namespace sluice {

struct HeadFile::Contents {
  HeadContents head;
  const ModelFile* target = nullptr;
};

HeadFile::HeadFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
HeadFile::HeadFile(HeadFile&&) noexcept = default;
HeadFile& HeadFile::operator=(HeadFile&&) noexcept = default;
HeadFile::~HeadFile() = default;

Result<HeadFile> HeadFile::inspect(const std::string& path) {
  auto contents = std::make_unique<Contents>();
  SLUICE_TRY(contents->head, read_head(path));
  return HeadFile(std::move(contents));
}

Result<HeadFile> HeadFile::open(const std::string& path, const ModelFile& target) {
  if (path == target.path()) {
    auto contents = std::make_unique<Contents>();
    SLUICE_TRY(contents->head, target.further_layer());
    contents->target = &target;
    return HeadFile(std::move(contents));
  }
  SLUICE_TRY(HeadFile file, inspect(path));
  SLUICE_TRY_STATUS(claim_target(file.contents_->head, target));
  file.contents_->target = &target;
  return file;
}

const std::string& HeadFile::path() const { return contents_->head.shards.front()->file.path(); }
const std::string& HeadFile::target_path() const {
  SLUICE_CHECK(contents_->target != nullptr, "a head that was opened with its target");
  return contents_->target->path();
}
const HeadParameters& HeadFile::parameters() const { return contents_->head.parameters; }
const HeadTarget& HeadFile::target() const { return contents_->head.target; }

std::string HeadFile::general_type() const { return contents_->head.places.general_type(); }
int64_t HeadFile::parameter_count() const { return contents_->head.places.parameter_count(); }
uint64_t HeadFile::file_bytes() const {
  if (parameters().kind != HeadKind::kMtp) return bytes_of(contents_->head.shards);
  uint64_t bytes = 0;  // of its model's file
  for (const auto& [name, at] : contents_->head.places.all()) bytes += at.info->bytes;
  return bytes;
}
std::vector<std::shared_ptr<const OpenFile>> HeadFile::files() const { return files_of(contents_->head.shards); }
std::vector<MetadataEntry> HeadFile::metadata() const {
  return metadata_entries(contents_->head.shards.front()->header);
}
std::vector<ModelFile::TensorSummary> HeadFile::tensors() const {
  return contents_->head.places.summaries(contents_->head.shards);
}

bool HeadFile::borrows_embedding() const {
  return parameters().kind != HeadKind::kExit && !contents_->head.places.find(kTokenEmbedding);
}
bool HeadFile::borrows_output() const {
  return !contents_->head.places.find(kOutputNorm) || !contents_->head.places.find(kOutput);
}

Result<HeadWeights> HeadFile::map() const {
  SLUICE_CHECK(contents_->target != nullptr, "a head is mapped with its target");
  const HeadParameters& p = parameters();
  HeadWeights weights;
  std::vector<WantedTensor> wanted;
  for (const HeadTensor& tensor : head_tensors(contents_->head, weights))
    if (const Place at = contents_->head.places.find(tensor.name)) wanted.push_back({tensor.place, at});
  StageWeights own;
  SLUICE_TRY(own.mappings_, map_tensors(wanted));
  weights.mappings.push_back(std::move(own));
  if (p.shared_fc) std::fill(weights.fc.begin() + 2, weights.fc.end(), weights.fc[1]);

  if (!borrows_embedding() && !borrows_output()) return weights;
  SLUICE_TRY(StageWeights lent, contents_->target->map({0, 0}, borrows_embedding(), borrows_output()));
  if (borrows_embedding()) weights.token_embedding = lent.token_embedding;
  if (!weights.output_norm) weights.output_norm = lent.output_norm;
  if (!weights.output) weights.output = lent.output;
  weights.mappings.push_back(std::move(lent));
  return weights;
}

Result<Sha256> HeadFile::identity() const {
  SLUICE_CHECK(contents_->target != nullptr, "a head that was opened with its target");
  std::vector<Sha256> identities;
  for (const auto& file : files()) {
    SLUICE_TRY(const Sha256 identity, file_identity(*file));
    identities.push_back(identity);
  }
  SLUICE_TRY(const Sha256 of_target, contents_->target->identity());
  identities.push_back(of_target);
  return identity_of_all(identities);
}

}  // namespace sluice
