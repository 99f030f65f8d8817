#include "model/survey.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "model/hyperparameters.h"
#include "model/metadata_text.h"
#include "model/tensor_check.h"
#include "model/vocabulary.h"

namespace sluice {

namespace {

// Lines that name the tensors of single layers, with one for all layers of which the same is said.
std::vector<std::string> by_kind(const std::vector<std::string>& lines) {
  const std::string layer = "'blk.";
  std::vector<std::string> kinds;
  std::map<std::string, int> counts;
  for (std::string line : lines) {
    if (const size_t at = line.find(layer); at != line.npos) {
      size_t end = at + layer.size();
      while (end < line.size() && std::isdigit(static_cast<unsigned char>(line[end]))) ++end;
      line.replace(at + layer.size(), end - at - layer.size(), "*");
    }
    if (++counts[line] == 1) kinds.push_back(line);
  }
  for (std::string& line : kinds)
    if (const int n = counts[line]; n > 1) line += " (" + std::to_string(n) + " layers)";
  return kinds;
}

}  // namespace

Result<Survey> Survey::open(const std::string& path) {
  SLUICE_TRY(auto shards, open_shards(path));
  return Survey(shared(std::move(shards)));
}

std::vector<MetadataEntry> Survey::metadata() const { return metadata_entries(header()); }

HyperParameters Survey::hparams() const {
  HyperParameters h;
  const auto architecture = header().optional_string("general.architecture");
  if (architecture) h.architecture = displayed(architecture->value_or(""));
  h.name = name_of(*shards_.front());
  const auto number = [&](const char* name) {
    const auto value = header().optional_u32(h.architecture + "." + name);
    return value ? static_cast<int32_t>(std::min<uint32_t>(value->value_or(0), INT32_MAX)) : 0;
  };
  h.n_layers = number("block_count");
  h.d_model = number("embedding_length");
  h.n_heads = number("attention.head_count");
  h.n_kv_heads = number("attention.head_count_kv");
  h.head_dim = number("attention.key_length");
  h.d_ff = number("feed_forward_length");
  h.context_length = number("context_length");
  h.mixture.n_experts = number("expert_count");
  h.mixture.n_used = number("expert_used_count");
  h.mixture.d_ff = number("expert_feed_forward_length");
  const gguf::Value* tokens = header().find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->is_array && tokens->count <= INT32_MAX)
    h.n_vocab = static_cast<int32_t>(tokens->count);
  return h;
}

std::vector<std::string> Survey::unsupported() const {
  std::vector<std::string> reasons;
  const auto hparams = read_hyperparameters(header(), &reasons);
  if (!hparams) reasons.push_back(hparams.error().message);
  const std::vector<std::string> tensors =
      hparams ? tensor_faults(*hparams, *find_family(hparams->architecture), places_) : matrices_of_wrong_type();
  for (std::string& line : by_kind(tensors)) reasons.push_back(std::move(line));
  if (const auto vocabulary = read_vocabulary(header()); !vocabulary) reasons.push_back(vocabulary.error().message);
  for (std::string& line : reasons)  // a tensor's name may hold anything
    std::ranges::replace_if(
        line, [](char c) { return static_cast<unsigned char>(c) < 32; }, ' ');
  return reasons;
}

// Of a model of which is not known what tensors it should have.
std::vector<std::string> Survey::matrices_of_wrong_type() const {
  std::vector<std::string> lines;
  for (const auto& shard : shards_)
    for (const gguf::TensorInfo& tensor : shard->header.tensors())
      if (tensor.n_dims > 1 && !is_weight_type(tensor.type)) lines.push_back(wrong_type(tensor));
  return lines;
}

}  // namespace sluice
