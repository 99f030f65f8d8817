#include "model/tensor_places.h"

#include <algorithm>
#include <map>

namespace sluice {

namespace {

int64_t numbers_in(const gguf::TensorInfo& tensor) { return tensor.ne[0] * tensor.ne[1] * tensor.ne[2]; }

std::string shape(const int64_t* ne, int n_dims) {
  std::string text;
  for (int d = 0; d < n_dims; ++d) text += (d > 0 ? " x " : "") + std::to_string(ne[d]);
  return text;
}

}  // namespace

Shards shared(std::vector<Shard> shards) {
  Shards out;
  for (Shard& shard : shards) out.push_back(std::make_shared<const Shard>(std::move(shard)));
  return out;
}

uint64_t bytes_of(std::span<const std::shared_ptr<const Shard>> shards) {
  uint64_t bytes = 0;
  for (const auto& shard : shards) bytes += shard->file.size();
  return bytes;
}

std::vector<std::shared_ptr<const OpenFile>> files_of(const Shards& shards) {
  std::vector<std::shared_ptr<const OpenFile>> files;
  for (const auto& shard : shards) files.emplace_back(shard, &shard->file);
  return files;
}

TensorPlaces::TensorPlaces(const Shards& shards) {
  for (const auto& shard : shards)
    for (const gguf::TensorInfo& tensor : shard->header.tensors()) places_[tensor.name] = {&tensor, shard.get()};
}

Place TensorPlaces::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? Place{} : found->second;
}

uint64_t TensorPlaces::bytes_of(const std::string& name) const {
  const Place at = find(name);
  return at ? at.info->bytes : 0;
}

int64_t TensorPlaces::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, at] : places_) count += numbers_in(*at.info);
  return count;
}

std::string TensorPlaces::general_type() const {
  std::map<ggml_type, int64_t> parameters;  // in matrices
  for (const auto& [name, at] : places_)
    if (at.info->n_dims > 1) parameters[at.info->type] += numbers_in(*at.info);
  const auto most = std::max_element(parameters.begin(), parameters.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == parameters.end()) return "no matrices";
  std::string name = ggml_type_name(most->first);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return parameters.size() == 1 ? name : name + " mostly";
}

std::vector<ModelFile::TensorSummary> TensorPlaces::summaries(const Shards& shards) const {
  std::vector<ModelFile::TensorSummary> out;
  for (const auto& shard : shards)
    for (const gguf::TensorInfo& t : shard->header.tensors())
      if (find(t.name).info == &t)
        out.push_back({t.name, ggml_type_name(t.type), {t.ne[0], t.ne[1], t.ne[2], t.ne[3]}, t.bytes});
  return out;
}

// ggml has others, for intermediate results.
bool is_weight_type(ggml_type type) {
  if (type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16) return true;
  return ggml_is_quantized(type) && type != GGML_TYPE_Q8_1 && type != GGML_TYPE_Q8_K;
}

std::string wrong_type(const gguf::TensorInfo& tensor) {
  return "tensor '" + tensor.name + "' has type " + ggml_type_name(tensor.type) + ", which is no type for weights";
}

Status check_tensor(const gguf::TensorInfo& tensor, TensorShape wanted) {
  const bool is_vector = wanted.n_out == 0;
  const int64_t expected[] = {wanted.n_in, is_vector ? 1 : wanted.n_out, wanted.n, 1};
  if (!std::equal(expected, expected + 4, tensor.ne))
    return input_error("tensor '" + tensor.name + "' is " + shape(tensor.ne, tensor.n_dims) +
                       "; by the hyperparameters it should be " +
                       shape(expected, is_vector      ? 1
                                       : wanted.n > 1 ? 3
                                                      : 2));
  const bool is_f32 = is_vector || wanted.of_vectors;
  if (is_f32 && tensor.type != GGML_TYPE_F32)
    return input_error("tensor '" + tensor.name + "' has type " + ggml_type_name(tensor.type) + "; f32 is needed");
  if (!is_f32 && !is_weight_type(tensor.type)) return input_error(wrong_type(tensor));
  return {};
}

namespace {

// The runs of pages that hold these tensors, in order, none touching another.
std::vector<StageWeights::Mapping> page_runs(std::vector<WantedTensor> wanted) {
  std::sort(wanted.begin(), wanted.end(), [](const WantedTensor& a, const WantedTensor& b) {
    return std::pair(a.place.shard, a.place.info->offset) < std::pair(b.place.shard, b.place.info->offset);
  });
  const uint64_t page = page_size();
  std::vector<StageWeights::Mapping> runs;
  for (const auto& [target, place] : wanted) {
    const uint64_t begin = place.info->offset / page * page;
    const uint64_t end =
        std::min((place.info->offset + place.info->bytes + page - 1) / page * page, place.shard->file.size());
    if (runs.empty() || runs.back().shard != place.shard || runs.back().end < begin)
      runs.push_back({place.shard, begin, end, {}});
    runs.back().end = std::max(runs.back().end, end);
  }
  return runs;
}

}  // namespace

Result<std::vector<std::unique_ptr<StageWeights::Mapping>>> map_tensors(const std::vector<WantedTensor>& wanted) {
  std::vector<std::unique_ptr<StageWeights::Mapping>> mappings;
  for (StageWeights::Mapping& run : page_runs(wanted)) {
    SLUICE_TRY(run.pages, run.shard->file.map(run.begin, run.end - run.begin));
    mappings.push_back(std::make_unique<StageWeights::Mapping>(std::move(run)));
  }
  for (const WantedTensor& tensor : wanted) {
    const auto& place = tensor.place;
    const auto run = std::find_if(mappings.begin(), mappings.end(), [&](const auto& mapping) {
      return mapping->shard == place.shard && mapping->begin <= place.info->offset && place.info->offset < mapping->end;
    });
    *tensor.target = place.tensor((*run)->pages.bytes().data() + (place.info->offset - (*run)->begin));
  }
  return mappings;
}

}  // namespace sluice
