// The inside of a head's file, for those who map it: HeadFile, and ModelFile where the head is a draft model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/family.h"
#include "model/head_file.h"
#include "model/tensor_places.h"
#include "model/tensor_table.h"

namespace sluice {

// Layers of heads: those of family llama without its options.
inline constexpr ModelFamily kHeadFamily = {
    .architecture = "sluice-head", .rope_pairing = RopeParameters::Pairing::kAdjacent, .values_as_keys = true};

// Names of kind mtp, which are our own: the tensors of a model's further layer stand under them.
inline constexpr const char *kMtpProjection = "fc.weight", *kMtpHiddenNorm = "hidden_norm.weight",
                            *kMtpEmbeddingNorm = "embedding_norm.weight", *kMtpFeatureNorm = "feature_norm.weight";

struct HeadContents {
  Shards shards;
  TensorPlaces places;
  HeadParameters parameters;
  HeadTarget target;  // as the file says
};

// Whether files of this architecture are heads: ours and llama.cpp's.
bool is_head_architecture(std::string_view architecture);

// Opens and checks all that a file can be held to without its target. Errors (kInput) name the file.
Result<HeadContents> read_head(const std::string& path);

// From the file's metadata and `d2t` to target and parameters; errors have no file name in them.
Status read_head_parameters(HeadContents& head);

// Whether `target` is the model that the head belongs to; if so, the parameters get what is the target's. Errors
// (kInput) name the file.
Status claim_target(HeadContents& head, const ModelFile& target);

// A tensor of a head and where it is to be entered.
struct HeadTensor {
  std::string name;
  Tensor* place;
  Need need;
  TensorShape shape;
};
inline constexpr const char* kDraftToTarget = "d2t";

// All that a head with these parameters must and may have, `d2t` aside. Makes room in `weights`.
std::vector<HeadTensor> head_tensors(const HeadContents& head, HeadWeights& weights);

// All that is required is there, all that is there is known, and has its type and shape.
Status check_head_tensors(const HeadContents& head);

}  // namespace sluice
