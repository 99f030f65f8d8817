// From a file's metadata to hyperparameters within their bounds.
#pragma once

#include "model/family.h"
#include "model/gguf.h"
#include "model/metadata_keys.h"

namespace sluice {

// No dimension of a model comes near this; products of two stay far inside 64 bits.
inline constexpr uint32_t kMaxDimension = 1u << 24;
inline constexpr uint32_t kMaxLayers = 512;  // libllama's
// By which positions or frequencies are divided. No position comes to an angle that is hard to compute.
inline constexpr float kLeastRopeFactor = 1e-3f, kMostRopeFactor = 1e6f;

// An error names the key; it has no file name in it. What the engine doesn't compute (experts, unknown families,
// unknown RoPE scalings, …) is an error; with `refused` what is merely set otherwise than the engine computes it is
// added there instead, key by key.
Result<HyperParameters> read_hyperparameters(const gguf::Header& header, std::vector<std::string>* refused = nullptr);

// Of these the shape of the layers: heads, feed-forward network, norms and positions. REQUIRES: n_layers, d_model and
// context_length are known.
Status read_layer_shape(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h);

}  // namespace sluice
