#include "model/model_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "model/head_contents.h"
#include "model/hyperparameters.h"
#include "model/metadata_text.h"
#include "model/tensor_check.h"
#include "model/tensor_table.h"
#include "model/vocabulary.h"

namespace sluice {

struct ModelFile::Contents {
  Shards shards;  // of a draft head: its own, then its target's
  size_t n_own = 0;
  TensorPlaces places;
  HyperParameters hparams;
  const ModelFamily* family = nullptr;
  VocabularyPlace vocabulary;
  std::string chat_template;
  bool tied = false;
  std::vector<Token> head_tokens;
  std::optional<Sha256> identity;  // once somebody has asked
  bool is_part = false;            // there are holes

  Status load();
  Status check_rope_factors() const;
  std::vector<WantedTensor> wanted(LayerRange range, bool with_embedding, bool with_head, StageWeights& weights) const;
};

Status ModelFile::Contents::load() {
  const Shard& first = *shards.front();
  const gguf::Header& header = first.header;
  SLUICE_TRY(hparams, read_hyperparameters(header));
  hparams.name = name_of(first);
  family = find_family(hparams.architecture);
  places = TensorPlaces(shards);
  tied = !places.find(kOutput);
  if (const auto faults = tensor_faults(hparams, *family, places); !faults.empty()) return input_error(faults.front());
  SLUICE_TRY_STATUS(check_rope_factors());
  SLUICE_TRY(const VocabularyFacts facts, read_vocabulary(header));
  vocabulary = {first.file.path(), hparams.n_vocab, facts.splits_recursively};
  SLUICE_TRY(const auto source, header.optional_string("tokenizer.chat_template"));
  if (source) chat_template = *source;
  return {};
}

// Frequencies are divided by them: they must leave angles that can be computed.
Status ModelFile::Contents::check_rope_factors() const {
  const Place at = places.find(kRopeFactors);
  if (!at) return {};
  // What is divided by much more hardly turns, which some families make use of.
  const float most =
      family->rope_factors == ModelFamily::RopeFactors::kRequired ? std::numeric_limits<float>::max() : kMostRopeFactor;
  Tensor factors;
  SLUICE_TRY(const auto mapping, map_tensors({{&factors, at}}));
  for (int64_t i = 0; i < factors.ne[0]; ++i) {
    float factor = 0;
    std::memcpy(&factor, factors.data + static_cast<size_t>(i) * sizeof factor, sizeof factor);
    if (!(factor >= kLeastRopeFactor && factor <= most))
      return input_error(std::string("tensor '") + kRopeFactors + "' holds " + std::to_string(factor) + " as number " +
                         std::to_string(i) + "; factors should be from 0.001 " +
                         (most == kMostRopeFactor ? "to 1000000" : "on, and finite"));
  }
  return {};
}

Result<ModelFile> ModelFile::open(const std::string& path) {
  SLUICE_TRY(auto shards, open_shards(path));
  auto contents = std::make_unique<Contents>();
  contents->shards = shared(std::move(shards));
  contents->n_own = contents->shards.size();
  if (auto status = contents->load(); !status)
    return input_error(contents->shards.front()->file.path() + ": " + status.error().message);
  return ModelFile(std::move(contents));
}

Result<ModelFile> ModelFile::open_part(const std::string& path, const Sha256& identity) {
  auto model = open(path);
  if (!model) return model;
  model->contents_->identity = identity;
  model->contents_->is_part = true;
  return model;
}

bool ModelFile::is_part() const { return contents_->is_part; }

Result<ModelFile> ModelFile::open_draft(const std::string& path, const ModelFile& target) {
  SLUICE_TRY(HeadContents head, read_head(path));
  if (head.parameters.kind != HeadKind::kDraft)
    return input_error(path + ": is a head of kind " + name(head.parameters.kind) +
                       ", not a draft model; give it as --head");
  SLUICE_TRY_STATUS(claim_target(head, target));
  const Contents& lender = *target.contents_;
  auto contents = std::make_unique<Contents>();
  contents->shards = std::move(head.shards);
  contents->n_own = contents->shards.size();
  contents->shards.insert(contents->shards.end(), lender.shards.begin(), lender.shards.end());
  contents->places = std::move(head.places);
  for (const char* borrowed : {kTokenEmbedding, kOutputNorm, kOutput})
    if (const Place at = lender.places.find(borrowed); at && !contents->places.find(borrowed))
      contents->places.add(borrowed, at);
  contents->hparams = head.parameters.hparams;
  contents->family = &kHeadFamily;
  contents->vocabulary = lender.vocabulary;
  contents->chat_template = lender.chat_template;
  contents->tied = !contents->places.find(kOutput);
  contents->head_tokens = std::move(head.parameters.vocabulary);
  return ModelFile(std::move(contents));
}

Result<HeadContents> ModelFile::further_layer() const {
  const HyperParameters& h = contents_->hparams;
  if (h.n_further_layers != 1)
    return input_error(path() + ": has " + (h.n_further_layers == 0 ? "no layer" : "several layers") +
                       " to predict further tokens; --source mtp needs a file with one (nextn_predict_layers 1)");
  HeadContents head{.shards = contents_->shards, .places = {}, .parameters = {}, .target = {}};
  HeadParameters& p = head.parameters;
  p.kind = HeadKind::kMtp;
  p.hparams = h;
  p.hparams.n_layers = 1;
  p.hparams.n_further_layers = p.hparams.mixture.n_dense_layers = 0;
  p.hparams.sees_window.clear();
  p.hparams.delta = {};
  p.taps = {{h.n_layers}};
  p.feature_norm = true;
  head.target = {.name = h.name, .fingerprint = "", .n_layers = h.n_layers, .d_model = h.d_model, .n_vocab = h.n_vocab};
  std::vector<std::pair<std::string, std::string>> taken;  // by their names in the file, and in a head
  const auto take = [&](const std::string& name, const std::string& as) {
    if (const Place at = contents_->places.find(name)) head.places.add(as, at);
    taken.emplace_back(name, as);
  };
  for (const LayerTensor& rule : layer_tensors(p.hparams, *contents_->family, 0))
    take(layer_tensor_name(h.n_layers, rule.name), layer_tensor_name(0, rule.name));
  const std::pair<const char*, const char*> names[] = {
      {"nextn.eh_proj.weight", kMtpProjection},       {"nextn.enorm.weight", kMtpEmbeddingNorm},
      {"nextn.hnorm.weight", kMtpHiddenNorm},         {"nextn.embed_tokens.weight", kTokenEmbedding},
      {"nextn.shared_head_norm.weight", kOutputNorm}, {"nextn.shared_head_head.weight", kOutput}};
  for (const auto& [name, as] : names) take(layer_tensor_name(h.n_layers, name), as);
  take(kOutputNorm, kMtpFeatureNorm);
  const auto status = check_head_tensors(head);
  if (status) return head;
  std::string what = status.error().message;
  for (const auto& [name, as] : taken)
    if (const size_t at = what.find("'" + as + "'"); at != std::string::npos) {
      what.replace(at + 1, as.size(), name);
      break;
    }
  return input_error(path() + ": the layer that predicts further tokens: " + what);
}

ModelFile::ModelFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

const std::string& ModelFile::path() const { return contents_->shards.front()->file.path(); }
const VocabularyPlace& ModelFile::vocabulary() const { return contents_->vocabulary; }
const HyperParameters& ModelFile::hparams() const { return contents_->hparams; }
bool ModelFile::tied_head() const { return contents_->tied; }
const std::string& ModelFile::chat_template() const { return contents_->chat_template; }
const std::vector<Token>& ModelFile::head_tokens() const { return contents_->head_tokens; }
int32_t ModelFile::n_logits() const {
  return head_tokens().empty() ? hparams().n_vocab : static_cast<int32_t>(head_tokens().size());
}
std::string ModelFile::general_type() const { return contents_->places.general_type(); }
int64_t ModelFile::parameter_count() const { return contents_->places.parameter_count(); }

uint64_t ModelFile::file_bytes() const { return bytes_of({contents_->shards.data(), contents_->n_own}); }

std::vector<std::shared_ptr<const OpenFile>> ModelFile::files() const { return files_of(contents_->shards); }

Result<Sha256> ModelFile::identity() const {
  std::vector<Sha256> identities;
  if (!contents_->identity) {
    for (const auto& file : files()) {
      SLUICE_TRY(const Sha256 identity, file_identity(*file));
      identities.push_back(identity);
    }
    contents_->identity = identity_of_all(identities);
  }
  return *contents_->identity;
}

uint64_t ModelFile::layer_bytes(int32_t layer) const {
  uint64_t bytes = 0;
  for (const LayerTensor& rule : layer_tensors(hparams(), *contents_->family, layer))
    bytes += contents_->places.bytes_of(layer_tensor_name(layer, rule.name));
  // Of what all layers' embeddings are projected by, its part.
  if (hparams().d_per_layer > 0)
    bytes += contents_->places.bytes_of(kPerLayerProjection) / static_cast<uint64_t>(hparams().n_layers);
  return bytes;
}

uint64_t ModelFile::head_bytes() const { return contents_->places.bytes_of(tied_head() ? kTokenEmbedding : kOutput); }

std::vector<MetadataEntry> ModelFile::metadata() const { return metadata_entries(contents_->shards.front()->header); }

std::vector<ModelFile::TensorSummary> ModelFile::tensors() const {
  return contents_->places.summaries(contents_->shards);
}

Tensor Tensor::matrix(int64_t i) const {
  SLUICE_CHECK(0 <= i && i < n_matrices, "one of the tensor's matrices");
  return {name, type, {ne[0], ne[1]}, data + static_cast<size_t>(i * ne[1]) * row_bytes, row_bytes};
}

Tensor Tensor::row(int64_t i) const {
  if (!*this) return {};
  SLUICE_CHECK(0 <= i && i < ne[1], "one of the matrix's rows");
  return {name, type, {ne[0], 1}, data + static_cast<size_t>(i) * row_bytes, row_bytes};
}

Tensor Tensor::rows(int64_t first, int64_t n) const {
  SLUICE_CHECK(0 <= first && 0 <= n && first + n <= ne[1], "rows of the matrix");
  return {name, type, {ne[0], n}, data + static_cast<size_t>(first) * row_bytes, row_bytes};
}

StageWeights::StageWeights() = default;
StageWeights::StageWeights(StageWeights&&) noexcept = default;
StageWeights& StageWeights::operator=(StageWeights&&) noexcept = default;
StageWeights::~StageWeights() = default;

void StageWeights::release(const Tensor& tensor) const {
  if (!tensor) return;
  const std::span<const std::byte> data{tensor.data, tensor.bytes()};
  for (const auto& mapping : mappings_) {
    const auto bytes = mapping->pages.bytes();
    if (bytes.data() <= data.data() && data.data() < bytes.data() + bytes.size()) mapping->pages.forget(data);
  }
}

// The tensors that a stage of these layers has, and their places in `weights`.
std::vector<WantedTensor> ModelFile::Contents::wanted(LayerRange range, bool with_embedding, bool with_head,
                                                      StageWeights& weights) const {
  SLUICE_CHECK(0 <= range.first && range.first <= range.last && range.last <= hparams.n_layers, "layers of the model");
  weights.range = range;
  weights.layers.resize(static_cast<size_t>(range.count()));

  std::vector<WantedTensor> wanted;
  const auto want = [&](const std::string& name, Tensor& target) {
    if (const Place at = places.find(name)) wanted.push_back({&target, at});
  };
  for (int32_t i = 0; i < range.count(); ++i)
    for (const LayerTensor& rule : layer_tensors(hparams, *family, range.first + i))
      want(layer_tensor_name(range.first + i, rule.name), weights.layers[static_cast<size_t>(i)].*rule.member);
  // What layers take of a token depends on its embedding, too.
  const bool embeds = with_embedding || (range.count() > 0 && hparams.d_per_layer > 0);
  for (const ModelTensor& rule : model_tensors(hparams, *family))
    if (rule.user == TensorUser::kLayers ? range.count() > 0 : rule.user == TensorUser::kHead ? with_head : embeds)
      want(rule.name, weights.*rule.member);
  if (with_head && tied) want(kTokenEmbedding, weights.output);
  return wanted;
}

std::vector<ModelFile::FileRange> ModelFile::ranges(LayerRange range, bool with_embedding, bool with_head) const {
  std::vector<FileRange> ranges;
  const auto add = [&](const Place& at) {
    const auto shard = std::ranges::find(contents_->shards, at.shard, [](const auto& one) { return one.get(); });
    ranges.push_back(
        {static_cast<size_t>(shard - contents_->shards.begin()), at.info->offset, at.info->offset + at.info->bytes});
  };
  for (size_t i = 0; i < contents_->shards.size(); ++i)
    ranges.push_back({i, 0, std::min(contents_->shards[i]->header.data_offset(), contents_->shards[i]->file.size())});
  StageWeights weights;
  for (const WantedTensor& tensor : contents_->wanted(range, with_embedding, with_head, weights)) add(tensor.place);
  if (const Place at = contents_->places.find(kRopeFactors)) add(at);
  return ranges;
}

Result<StageWeights> ModelFile::map(LayerRange range, bool with_embedding, bool with_head) const {
  StageWeights weights;
  SLUICE_TRY(weights.mappings_, map_tensors(contents_->wanted(range, with_embedding, with_head, weights)));
  return weights;
}

}  // namespace sluice
