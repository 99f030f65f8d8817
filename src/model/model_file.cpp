#include "model/model_file.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "model/hyperparameters.h"
#include "model/shards.h"
#include "model/tensor_table.h"
#include "model/vocabulary.h"

namespace sluice {

namespace {

constexpr size_t kDisplayedBytes = 80;

// A tensor and the shard that it is in.
struct Place {
  const gguf::TensorInfo* info = nullptr;
  size_t shard = 0;
};

// Matrices are of types that products can be computed with; ggml has others, for intermediate results.
bool is_weight_type(ggml_type type) {
  if (type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16) return true;
  return ggml_is_quantized(type) && type != GGML_TYPE_Q8_1 && type != GGML_TYPE_Q8_K;
}

std::string shape(const int64_t* ne, int n_dims) {
  std::string text;
  for (int d = 0; d < n_dims; ++d) text += (d > 0 ? " x " : "") + std::to_string(ne[d]);
  return text;
}

template <class Rule>
Status check_tensor(const gguf::TensorInfo& tensor, const Rule& rule) {
  const bool is_vector = rule.n_out == 0;
  const int64_t expected[] = {rule.n_in, is_vector ? 1 : rule.n_out, 1, 1};
  if (!std::equal(expected, expected + 4, tensor.ne))
    return input_error("tensor '" + tensor.name + "' is " + shape(tensor.ne, tensor.n_dims) +
                       "; by the hyperparameters it should be " + shape(expected, is_vector ? 1 : 2));
  if (is_vector ? tensor.type != GGML_TYPE_F32 : !is_weight_type(tensor.type))
    return input_error("tensor '" + tensor.name + "' has type " + ggml_type_name(tensor.type) +
                       (is_vector ? "; f32 is needed" : ", which is no type for weights"));
  return {};
}

std::string file_stem(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = slash == path.npos ? path : path.substr(slash + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

// At most kDisplayedBytes of printable text on one line.
std::string displayed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (out.size() >= kDisplayedBytes && (byte & 0xC0) != 0x80) return out + "…";
    if (c == '\n')
      out += "\\n";
    else
      out += (byte < 32 || byte == 127) ? ' ' : c;
  }
  return out;
}

std::string scalar_text(const gguf::Header& header, const gguf::Value& value, uint64_t i) {
  switch (value.type) {
    case gguf::Type::kUint8:
      return std::to_string(header.scalar<uint8_t>(value, i));
    case gguf::Type::kInt8:
      return std::to_string(header.scalar<int8_t>(value, i));
    case gguf::Type::kUint16:
      return std::to_string(header.scalar<uint16_t>(value, i));
    case gguf::Type::kInt16:
      return std::to_string(header.scalar<int16_t>(value, i));
    case gguf::Type::kUint32:
      return std::to_string(header.scalar<uint32_t>(value, i));
    case gguf::Type::kInt32:
      return std::to_string(header.scalar<int32_t>(value, i));
    case gguf::Type::kUint64:
      return std::to_string(header.scalar<uint64_t>(value, i));
    case gguf::Type::kInt64:
      return std::to_string(header.scalar<int64_t>(value, i));
    case gguf::Type::kFloat32: {
      char text[32];
      std::snprintf(text, sizeof(text), "%g", static_cast<double>(header.scalar<float>(value, i)));
      return text;
    }
    case gguf::Type::kFloat64: {
      char text[32];
      std::snprintf(text, sizeof(text), "%g", header.scalar<double>(value, i));
      return text;
    }
    case gguf::Type::kBool:
      return header.scalar<uint8_t>(value, i) != 0 ? "true" : "false";
    default:
      return "";
  }
}

std::string value_text(const gguf::Header& header, const gguf::Value& value) {
  if (value.type == gguf::Type::kString && !value.is_array) return displayed(header.string(value));
  if (value.type == gguf::Type::kString) return std::to_string(value.count) + " texts";
  if (!value.is_array) return scalar_text(header, value, 0);
  std::string text;
  for (uint64_t i = 0; i < value.count && text.size() < kDisplayedBytes; ++i)
    text += (i > 0 ? ", " : "") + scalar_text(header, value, i);
  return displayed(text);
}

}  // namespace

struct ModelFile::Contents {
  std::vector<Shard> shards;
  HyperParameters hparams;
  const ModelFamily* family = nullptr;
  std::unordered_map<std::string, Place> places;
  VocabularyFacts vocabulary;
  std::string chat_template;
  bool tied = false;

  Place place(const std::string& name) const {
    const auto found = places.find(name);
    return found == places.end() ? Place{} : found->second;
  }
  uint64_t bytes_of(const std::string& name) const {
    const Place at = place(name);
    return at.info == nullptr ? 0 : at.info->bytes;
  }

  Status load();
  Status check_tensors() const;
};

Status ModelFile::Contents::load() {
  const gguf::Header& header = shards.front().header;
  SLUICE_TRY(hparams, read_hyperparameters(header));
  if (hparams.name.empty()) hparams.name = file_stem(shards.front().file.path());
  family = find_family(hparams.architecture);
  for (size_t s = 0; s < shards.size(); ++s)
    for (const gguf::TensorInfo& tensor : shards[s].header.tensors()) places[tensor.name] = {&tensor, s};
  tied = !places.contains(kOutput);
  SLUICE_TRY_STATUS(check_tensors());
  SLUICE_TRY(vocabulary, read_vocabulary(header));
  SLUICE_TRY(const auto source, header.optional_string("tokenizer.chat_template"));
  if (source) chat_template = *source;
  return {};
}

// All that is required is there, all that is there is known, and has its type and shape.
Status ModelFile::Contents::check_tensors() const {
  std::unordered_set<std::string> known;
  const auto check = [&](const std::string& name, const auto& rule) -> Status {
    const Place at = place(name);
    if (at.info == nullptr && rule.need == Need::kRequired) return input_error("tensor '" + name + "' is missing");
    if (at.info == nullptr) return {};
    known.insert(name);
    return check_tensor(*at.info, rule);
  };
  for (const ModelTensor& rule : model_tensors(hparams, *family)) SLUICE_TRY_STATUS(check(rule.name, rule));
  const auto rules = layer_tensors(hparams, *family);
  for (int32_t layer = 0; layer < hparams.n_layers; ++layer)
    for (const LayerTensor& rule : rules) SLUICE_TRY_STATUS(check(layer_tensor_name(layer, rule.name), rule));
  for (const auto& [name, at] : places)
    if (!known.contains(name))
      return input_error("tensor '" + name + "' is none that a model of architecture " + hparams.architecture + " has");
  return {};
}

Result<ModelFile> ModelFile::open(const std::string& path) {
  SLUICE_TRY(auto shards, open_shards(path));
  auto contents = std::make_unique<Contents>();
  contents->shards = std::move(shards);
  if (auto status = contents->load(); !status)
    return input_error(contents->shards.front().file.path() + ": " + status.error().message);
  return ModelFile(std::move(contents));
}

ModelFile::ModelFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

const std::string& ModelFile::path() const { return contents_->shards.front().file.path(); }
const HyperParameters& ModelFile::hparams() const { return contents_->hparams; }
bool ModelFile::tied_head() const { return contents_->tied; }
bool ModelFile::splits_text_recursively() const { return contents_->vocabulary.splits_recursively; }
const std::string& ModelFile::chat_template() const { return contents_->chat_template; }

std::string ModelFile::general_type() const {
  std::map<ggml_type, int64_t> parameters;  // in matrices
  for (const auto& [name, at] : contents_->places)
    if (at.info->n_dims > 1) parameters[at.info->type] += at.info->ne[0] * at.info->ne[1];
  const auto most = std::max_element(parameters.begin(), parameters.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string name = ggml_type_name(most->first);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return parameters.size() == 1 ? name : name + " mostly";
}

int64_t ModelFile::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, at] : contents_->places) count += at.info->ne[0] * at.info->ne[1];
  return count;
}

uint64_t ModelFile::file_bytes() const {
  uint64_t bytes = 0;
  for (const Shard& shard : contents_->shards) bytes += shard.file.size();
  return bytes;
}

uint64_t ModelFile::layer_bytes(int32_t layer) const {
  uint64_t bytes = 0;
  for (const LayerTensor& rule : layer_tensors(hparams(), *contents_->family))
    bytes += contents_->bytes_of(layer_tensor_name(layer, rule.name));
  return bytes;
}

uint64_t ModelFile::head_bytes() const { return contents_->bytes_of(tied_head() ? kTokenEmbedding : kOutput); }
uint64_t ModelFile::embedding_bytes() const { return contents_->bytes_of(kTokenEmbedding); }

std::vector<MetadataEntry> ModelFile::metadata() const {
  const gguf::Header& header = contents_->shards.front().header;
  std::vector<MetadataEntry> out;
  for (const auto& [key, value] : header.entries()) {
    std::string type = gguf::type_name(value.type);
    if (value.is_array) type += "[" + std::to_string(value.count) + "]";
    out.push_back({displayed(key), std::move(type), value_text(header, value)});
  }
  return out;
}

std::vector<ModelFile::TensorSummary> ModelFile::tensors() const {
  std::vector<TensorSummary> out;
  for (const Shard& shard : contents_->shards)
    for (const gguf::TensorInfo& t : shard.header.tensors())
      out.push_back({t.name, ggml_type_name(t.type), {t.ne[0], t.ne[1], t.ne[2], t.ne[3]}, t.bytes});
  return out;
}

// One run of mapped pages of one shard.
struct StageWeights::Mapping {
  size_t shard = 0;
  uint64_t begin = 0, end = 0;  // in the file
  MappedBytes pages;
};

StageWeights::StageWeights() = default;
StageWeights::StageWeights(StageWeights&&) noexcept = default;
StageWeights& StageWeights::operator=(StageWeights&&) noexcept = default;
StageWeights::~StageWeights() = default;

void StageWeights::release(const Tensor& tensor) const {
  if (tensor) forget_pages({tensor.data, tensor.row_bytes * static_cast<size_t>(tensor.ne[1])});
}

namespace {

// A tensor to be mapped and where it is to be entered.
struct Wanted {
  Tensor* target;
  Place place;
};

// The runs of pages that hold these tensors, in order, none touching another.
std::vector<StageWeights::Mapping> page_runs(std::vector<Wanted> wanted, const std::vector<Shard>& shards) {
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return std::pair(a.place.shard, a.place.info->offset) < std::pair(b.place.shard, b.place.info->offset);
  });
  const uint64_t page = page_size();
  std::vector<StageWeights::Mapping> runs;
  for (const Wanted& w : wanted) {
    const uint64_t begin = w.place.info->offset / page * page;
    const uint64_t end = std::min((w.place.info->offset + w.place.info->bytes + page - 1) / page * page,
                                  shards[w.place.shard].file.size());
    if (runs.empty() || runs.back().shard != w.place.shard || runs.back().end < begin)
      runs.push_back({w.place.shard, begin, end, {}});
    runs.back().end = std::max(runs.back().end, end);
  }
  return runs;
}

}  // namespace

Result<StageWeights> ModelFile::map(LayerRange range, bool with_embedding, bool with_head) const {
  SLUICE_CHECK(0 <= range.first && range.first <= range.last && range.last <= hparams().n_layers,
               "layers of the model");
  StageWeights weights;
  weights.range = range;
  weights.layers.resize(static_cast<size_t>(range.count()));

  std::vector<Wanted> wanted;
  const auto want = [&](const std::string& name, Tensor& target) {
    if (const Place at = contents_->place(name); at.info != nullptr) wanted.push_back({&target, at});
  };
  const auto rules = layer_tensors(hparams(), *contents_->family);
  for (int32_t i = 0; i < range.count(); ++i)
    for (const LayerTensor& rule : rules)
      want(layer_tensor_name(range.first + i, rule.name), weights.layers[static_cast<size_t>(i)].*rule.member);
  for (const ModelTensor& rule : model_tensors(hparams(), *contents_->family))
    if (rule.user == TensorUser::kLayers ? range.count() > 0
        : rule.user == TensorUser::kHead ? with_head
                                         : with_embedding)
      want(rule.name, weights.*rule.member);
  if (with_head && tied_head()) want(kTokenEmbedding, weights.output);

  for (StageWeights::Mapping& run : page_runs(wanted, contents_->shards)) {
    SLUICE_TRY(run.pages, contents_->shards[run.shard].file.map(run.begin, run.end - run.begin));
    weights.mappings_.push_back(std::make_unique<StageWeights::Mapping>(std::move(run)));
  }
  for (const Wanted& w : wanted) {
    const gguf::TensorInfo& info = *w.place.info;
    const auto run = std::find_if(weights.mappings_.begin(), weights.mappings_.end(), [&](const auto& mapping) {
      return mapping->shard == w.place.shard && mapping->begin <= info.offset && info.offset < mapping->end;
    });
    *w.target = {info.name,
                 info.type,
                 {info.ne[0], info.ne[1]},
                 (*run)->pages.bytes().data() + (info.offset - (*run)->begin),
                 info.row_bytes};
  }
  return weights;
}

}  // namespace sluice
