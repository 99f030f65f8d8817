#include "model/hyperparameters.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "model/head_contents.h"

namespace sluice {

namespace {

constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxExperts = 512;  // libllama's

Status refuse_unsupported(const MetadataKeys& keys) {
  SLUICE_TRY_STATUS(keys.must_be("attention.causal", 1, "attention to later tokens"));
  SLUICE_TRY_STATUS(keys.must_be("attention.scale", 0, "an attention scale of its own"));
  SLUICE_TRY_STATUS(keys.must_be("logit_scale", 1, "scaled logits"));
  SLUICE_TRY_STATUS(keys.must_be("embedding_scale", 1, "scaled embeddings"));
  SLUICE_TRY_STATUS(keys.must_be("residual_scale", 1, "scaled residuals"));
  return {};
}

Status read_shared_expert(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  MixtureParameters& m = h.mixture;
  if (family.experts.shared == ExpertRules::Shared::kGated) {
    m.is_shared_gated = true;
    SLUICE_TRY(m.d_shared, keys.count("expert_shared_feed_forward_length", kMaxDimension, h.d_ff));
    return {};
  }
  if (family.experts.shared == ExpertRules::Shared::kPlain) {
    SLUICE_TRY(const int32_t n, keys.count("expert_shared_count", kMaxExperts));
    if (int64_t{n} * m.d_ff > kMaxDimension) return keys.wrong("expert_shared_count", "is too large");
    m.d_shared = n * m.d_ff;
    return {};
  }
  SLUICE_TRY_STATUS(keys.must_be("expert_shared_feed_forward_length", 0, "a shared expert"));
  return keys.must_be("expert_shared_count", 0, "a shared expert");
}

// Of a family that doesn't fix it. Where the file doesn't say either it is a softmax, but for GLM-4.7-Flash, which is
// known by its shape, as libllama knows it.
Status read_said_gating(const MetadataKeys& keys, HyperParameters& h) {
  constexpr int32_t kSoftmax = 1, kSigmoid = 2;
  MixtureParameters& m = h.mixture;
  const bool is_flash = (h.n_layers == 47 || h.n_layers == 48) && h.n_vocab == 154880;
  int32_t gating = is_flash ? kSigmoid : kSoftmax;
  if (keys.is_counted("expert_gating_func")) {
    SLUICE_TRY(gating, keys.number_in("expert_gating_func", kSoftmax, kSigmoid));
  }
  m.gating = gating == kSigmoid ? MixtureParameters::Gating::kSigmoid : MixtureParameters::Gating::kSoftmax;
  if (!keys.is_counted("expert_group_count")) return {};
  SLUICE_TRY(m.n_groups, keys.count("expert_group_count", kMaxExperts));
  if (m.n_groups == 1) return {};
  if (m.n_experts % m.n_groups != 0 || m.n_experts < 2 * m.n_groups)
    return keys.wrong("expert_group_count", "should divide expert_count into groups of two or more");
  SLUICE_TRY(m.n_groups_used, keys.count("expert_group_used_count", static_cast<uint32_t>(m.n_groups)));
  if (m.n_used > m.n_groups_used * (m.n_experts / m.n_groups))
    return keys.wrong("expert_used_count", "is more than the groups that a token uses have");
  return {};
}

Status read_gating(const MetadataKeys& keys, const ExpertRules& rules, HyperParameters& h) {
  MixtureParameters& m = h.mixture;
  m.gating = rules.gating;
  if (rules.as_said) {
    SLUICE_TRY_STATUS(read_said_gating(keys, h));
  } else {
    if (keys.is_counted("expert_gating_func")) {
      const int as_numbered = static_cast<int>(rules.gating) + 1;  // by libllama
      SLUICE_TRY_STATUS(
          keys.must_be("expert_gating_func", static_cast<float>(as_numbered), "another choice of experts"));
    }
    SLUICE_TRY_STATUS(keys.must_be("expert_group_count", 0, "groups of experts"));
  }
  m.biased = rules.biased;
  // libllama reads this of some families; of the others it goes by the family.
  const bool says_norm = rules.biased || rules.as_said;
  SLUICE_TRY(m.normalised,
             says_norm ? keys.flag("expert_weights_norm", rules.normalised) : Result<bool>(rules.normalised));
  if (rules.beside_dense && keys.is_counted("expert_weights_scale"))
    SLUICE_TRY_STATUS(keys.must_be("expert_weights_scale", 1, "scaled experts"));
  SLUICE_TRY(const float scale, keys.number("expert_weights_scale", 0.0f));
  m.scale = scale == 0.0f ? 1.0f : scale;
  return {};
}

// As libllama reads them: an expert is as wide as feed_forward_length says where nothing else is said, of the families
// that always have experts by as much narrower as a token uses many.
Status read_mixture(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  using Have = ExpertRules::Have;
  const bool counted = family.experts.have == Have::kIfCounted;
  if (family.experts.have == Have::kNever || (counted && !keys.is_counted("expert_count"))) {
    SLUICE_TRY_STATUS(keys.must_be("expert_count", 0, "a mixture of experts"));
    return keys.must_be("expert_used_count", 0, "a mixture of experts");
  }
  MixtureParameters& m = h.mixture;
  SLUICE_TRY(m.n_experts, keys.count("expert_count", kMaxExperts));
  SLUICE_TRY(m.n_used, keys.layer_count("expert_used_count", kMaxExperts, h.n_layers));
  if (m.n_used > m.n_experts) return keys.wrong("expert_used_count", "is more than expert_count");
  m.beside_dense = family.experts.beside_dense;
  const int32_t narrower = m.beside_dense ? 0 : h.d_ff / m.n_used;
  SLUICE_TRY(m.d_ff, counted && !m.beside_dense
                         ? h.d_ff
                         : keys.layer_count("expert_feed_forward_length", kMaxDimension, h.n_layers, narrower));
  if (m.d_ff == 0) return keys.wrong("expert_feed_forward_length", "is missing");
  if (keys.is_counted("leading_dense_block_count")) {
    if (family.experts.shared != ExpertRules::Shared::kPlain)
      return keys.wrong("leading_dense_block_count", "asks for layers without experts, which is not supported");
    SLUICE_TRY(m.n_dense_layers, keys.number_in("leading_dense_block_count", 0, static_cast<uint32_t>(h.n_layers)));
  }
  SLUICE_TRY_STATUS(read_shared_expert(keys, family, h));
  return read_gating(keys, family.experts, h);
}

// Of latent attention: what a cell keeps, and what a head makes of it.
Status read_latent(const MetadataKeys& keys, HyperParameters& h) {
  LatentParameters& l = h.latent;
  SLUICE_TRY(h.n_kv_heads, keys.layer_count("attention.head_count_kv", 1, h.n_layers, 1));
  SLUICE_TRY(l.rank, keys.number_in("attention.kv_lora_rank", 1, kMaxHeadDim));
  if (keys.is_counted("attention.q_lora_rank")) {
    SLUICE_TRY(l.q_rank, keys.number_in("attention.q_lora_rank", 1, kMaxDimension));
  }
  if (!keys.has("attention.key_length_mla"))
    return keys.wrong("attention.key_length_mla", "is missing: the file is of an older llama.cpp; convert it anew");
  SLUICE_TRY(const int32_t turned, keys.number_in("rope.dimension_count", 2, kMaxHeadDim));
  SLUICE_TRY(const int32_t key, keys.number_in("attention.key_length_mla", 1, kMaxHeadDim));
  if (key <= turned) return keys.wrong("attention.key_length_mla", "should be more than rope.dimension_count");
  l.key = key - turned;
  SLUICE_TRY(l.value, keys.number_in("attention.value_length_mla", 1, kMaxHeadDim));
  h.head_dim = l.rank + turned;
  if (h.head_dim > static_cast<int32_t>(kMaxHeadDim) || h.head_dim % 2 != 0)
    return keys.wrong("attention.kv_lora_rank", "and rope.dimension_count should add up to an even number up to 1024");
  return keys.must_be("attention.temperature_scale", 0, "scores scaled by positions");
}

// The size of a head, if the file doesn't say it these. Suffix: of the keys that say it of layers with a window.
Result<int32_t> read_head_dim(const MetadataKeys& keys, std::optional<int32_t> key_dim,
                              std::optional<int32_t> value_dim, const std::string& suffix = "") {
  const std::string key = "attention.key_length" + suffix, value = "attention.value_length" + suffix;
  SLUICE_TRY(const int32_t of_keys, keys.count(key, kMaxHeadDim, key_dim));
  SLUICE_TRY(const int32_t of_values, keys.count(value, kMaxHeadDim, value_dim ? value_dim : of_keys));
  if (of_values != of_keys) return keys.wrong(value, "differs from " + key + ", which is not supported");
  if (of_keys < 2 || of_keys > static_cast<int32_t>(kMaxHeadDim) || of_keys % 2 != 0)
    return keys.wrong(key,
                      "gives heads of " + std::to_string(of_keys) + " dimensions; an even number up to 1024 is needed");
  return of_keys;
}

// Layers with a window have heads of their own for keys and values, all of them alike, as have the others.
Status read_heads_of_windows(const MetadataKeys& keys, HyperParameters& h) {
  constexpr const char* kCounts = "attention.head_count_kv";
  SLUICE_TRY(const auto counts, keys.layer_counts(kCounts, kMaxDimension, h.n_layers, h.n_heads));
  h.n_kv_heads = 0;
  for (int32_t layer = 0; layer < h.n_layers; ++layer) {
    const int32_t n = counts[static_cast<size_t>(layer)];
    int32_t& of_kind = h.window_of(layer) > 0 ? h.window_kv_heads : h.n_kv_heads;
    if (of_kind != 0 && of_kind != n)
      return keys.wrong(kCounts, "differs among layers that all have a window, or all have none");
    of_kind = n;
    if (h.n_heads % n != 0) return keys.wrong(kCounts, "should divide attention.head_count");
  }
  if (h.n_kv_heads == 0) h.n_kv_heads = h.window_kv_heads;
  SLUICE_TRY(h.window_head_dim, read_head_dim(keys, {}, {}, "_swa"));
  return {};
}

// The heads: their number, their sharing of keys and values, and the size of one. REQUIRES: windows are known.
Status read_heads(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  SLUICE_TRY(h.n_heads, keys.layer_count("attention.head_count", kMaxDimension, h.n_layers));
  if (family.latent) return read_latent(keys, h);
  if (family.windows.own_heads) {
    SLUICE_TRY_STATUS(read_heads_of_windows(keys, h));
  } else {
    SLUICE_TRY(h.n_kv_heads, keys.layer_count("attention.head_count_kv", kMaxDimension, h.n_layers, h.n_heads));
  }
  if (h.n_heads % h.n_kv_heads != 0) return keys.wrong("attention.head_count_kv", "should divide attention.head_count");
  const int32_t usual = h.d_model / h.n_heads;
  SLUICE_TRY(h.head_dim,
             read_head_dim(keys, usual, family.values_as_keys ? std::nullopt : std::optional<int32_t>(usual)));
  if (family.head_dim_divides_model && int64_t{h.n_heads} * h.head_dim != h.d_model)
    return keys.wrong("attention.head_count", "times the size of a head should be embedding_length");
  return {};
}

// Of gated delta nets, whose keys are those of state-space models.
Status read_delta_nets(const MetadataKeys& keys, const DeltaNetRules& rules, HyperParameters& h) {
  if (!rules.have) return {};
  h.gated_attention = true;
  DeltaNetParameters& delta = h.delta;
  delta.neighbours_share = rules.grouped;
  SLUICE_TRY(delta.n_key_heads, keys.number_in("ssm.group_count", 1, kMaxDimension));
  SLUICE_TRY(delta.n_value_heads, keys.number_in("ssm.time_step_rank", 1, kMaxDimension));
  if (delta.n_value_heads % delta.n_key_heads != 0)
    return keys.wrong("ssm.group_count", "should divide ssm.time_step_rank");
  SLUICE_TRY(delta.head_dim, keys.number_in("ssm.state_size", 1, kMaxHeadDim));
  if (delta.head_dim % 8 != 0) return keys.wrong("ssm.state_size", "should be a multiple of 8");
  SLUICE_TRY(const int32_t inner, keys.number_in("ssm.inner_size", 1, kMaxDimension));
  if (inner != delta.value_width())
    return keys.wrong("ssm.inner_size", "should be ssm.time_step_rank times ssm.state_size");
  SLUICE_TRY(delta.n_taps, keys.number_in("ssm.conv_kernel", 2, kMostTaps));
  SLUICE_TRY(const int32_t period, keys.count("full_attention_interval", kMaxLayers, 4));
  SLUICE_TRY(delta.layers, keys.layer_flags("attention.recurrent_layers", h.n_layers, period));
  return {};
}

// Which of a head's pairs turn by which coordinate of a place in an image: of text all coordinates are the position,
// but the fourth, which is 0.
Status check_rope_sections(const MetadataKeys& keys) {
  constexpr const char* kSections = "rope.dimension_sections";
  SLUICE_TRY(const auto sections, keys.numbers(kSections, 4, 0, kMaxHeadDim));
  const int32_t n = sections[0] + sections[1] + sections[2] + sections[3];
  for (int32_t pair = 0; pair < n; ++pair)  // they take turns
    if (pair >= 3 * sections[static_cast<size_t>(pair % 3)])
      return keys.wrong(kSections, "leaves pairs to a fourth coordinate, which is not supported");
  if (n == 0) return keys.wrong(kSections, "are all 0");
  return {};
}

// As llama.cpp derives its parameters for these families: YaRN with ext_factor 1, its own beta_fast and beta_slow, and
// an attention factor that compensates for context extensions below 1 only. Other values for these are refused, since
// files that carry them give other tokens there.
Status read_rope_scaling(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  RopeParameters& rope = h.rope;
  SLUICE_TRY(const std::string type, keys.text("rope.scaling.type", "linear"));
  if (type != "none" && type != "linear" && type != "yarn")
    return keys.wrong("rope.scaling.type", "is '" + type.substr(0, 32) + "'; none, linear and yarn are supported");
  SLUICE_TRY(const float old_factor, keys.number("rope.scale_linear", 0.0f));
  SLUICE_TRY(float factor, keys.number("rope.scaling.factor", old_factor));
  if (factor == 0.0f || type == "none") factor = 1.0f;
  if (factor < kLeastRopeFactor || factor > kMostRopeFactor)
    return keys.wrong("rope.scaling.factor", "should be from 0.001 to 1000000");
  SLUICE_TRY(rope.original_context, keys.count("rope.scaling.original_context_length", INT32_MAX, h.context_length));
  SLUICE_TRY(rope.attention_factor, keys.number("rope.scaling.attn_factor", 1.0f));
  SLUICE_TRY_STATUS(keys.must_be("rope.scaling.yarn_ext_factor", 1, "another YaRN mix"));
  SLUICE_TRY_STATUS(keys.must_be("rope.scaling.yarn_attn_factor", 1, "another YaRN attention factor"));
  SLUICE_TRY_STATUS(keys.must_be("rope.scaling.yarn_beta_fast", 32, "other YaRN frequencies"));
  SLUICE_TRY_STATUS(keys.must_be("rope.scaling.yarn_beta_slow", 1, "other YaRN frequencies"));
  SLUICE_TRY(const float log_multiplier, keys.number("rope.scaling.yarn_log_multiplier", 0.0f));
  if (!family.latent)
    SLUICE_TRY_STATUS(keys.must_be("rope.scaling.yarn_log_multiplier", 0, "another YaRN attention factor"));

  rope.factor = factor;
  rope.scaling = type == "yarn"   ? RopeParameters::Scaling::kYarn
                 : factor != 1.0f ? RopeParameters::Scaling::kLinear
                                  : RopeParameters::Scaling::kNone;
  if (rope.scaling == RopeParameters::Scaling::kYarn && family.windows.rope_base != 0.0f)
    return keys.wrong("rope.scaling.type", "is yarn, which is not supported beside windows that extend no context");
  const auto log_factor = static_cast<float>(log_f64(factor));
  const float magnitude = 1.0f + 0.1f * log_factor;  // what the rotation multiplies by with YaRN
  if (rope.scaling == RopeParameters::Scaling::kYarn) {
    rope.extrapolation_mix = 1.0f;
    rope.attention_factor *= (factor <= 1.0f || log_multiplier != 0.0f ? 1.0f : magnitude) * (1.0f / magnitude);
    if (!std::isfinite(rope.attention_factor)) return keys.wrong("rope.scaling.factor", "is too small for YaRN");
  }
  if (!family.latent) return {};
  const float growth = rope.attention_factor * magnitude * (1.0f + log_multiplier * log_factor);
  h.attention_scale = growth * growth / std::sqrt(static_cast<float>(h.latent.key + rope.n_dims));
  if (!std::isfinite(h.attention_scale) || h.attention_scale <= 0.0f)
    return keys.wrong("rope.scaling.yarn_log_multiplier", "gives scores that are no numbers");
  return {};
}

Status read_rope(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  h.rope.pairing = family.rope_pairing;
  SLUICE_TRY(h.rope.n_dims, keys.count("rope.dimension_count", kMaxHeadDim, h.head_dim));
  const bool in_part = family.rope_in_part && h.rope.n_dims < h.head_dim && h.rope.n_dims % 2 == 0;
  if (h.rope.n_dims != h.head_dim && !in_part)
    return keys.wrong("rope.dimension_count", "should be the size of a head, " + std::to_string(h.head_dim));
  if (family.rope_sections) SLUICE_TRY_STATUS(check_rope_sections(keys));
  if (family.rope_in_part && !family.rope_sections && keys.has("rope.dimension_sections"))
    return keys.wrong("rope.dimension_sections", "asks for positions in images, which are not supported");
  SLUICE_TRY(h.rope.base, keys.number("rope.freq_base", 10000.0f));
  if (h.rope.base <= 1.0f) return keys.wrong("rope.freq_base", "should be above 1");
  h.window_rope = h.rope;
  if (family.windows.own_heads) {
    constexpr const char* kTurned = "rope.dimension_count_swa";
    SLUICE_TRY(h.window_rope.n_dims, keys.count(kTurned, kMaxHeadDim, h.rope.n_dims));
    if (h.window_rope.n_dims > h.window_head_dim || h.window_rope.n_dims % 2 != 0)
      return keys.wrong(kTurned, "should be an even number up to the size of a head with a window, " +
                                     std::to_string(h.window_head_dim));
  }
  SLUICE_TRY_STATUS(read_rope_scaling(keys, family, h));
  const float base = family.windows.rope_base;
  if (base == 0.0f) h.window_rope = h.rope;
  if (h.window == 0) return {};
  SLUICE_TRY(h.window_rope.base, keys.number("rope.freq_base_swa", base == 0.0f ? h.rope.base : base));
  if (h.window_rope.base <= 1.0f) return keys.wrong("rope.freq_base_swa", "should be above 1");
  return {};
}

// Which layers see a window: a flag of each, or all but every so-many-th (of 0: all).
Status read_windows(const MetadataKeys& keys, const WindowRules& rules, HyperParameters& h) {
  constexpr const char* kSize = "attention.sliding_window";
  using Have = WindowRules::Have;
  if (rules.have == Have::kNever || (rules.have == Have::kIfSaid && !keys.is_counted(kSize))) return {};
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  SLUICE_TRY(h.window, keys.count(kSize, INT32_MAX, rules.size > 0 ? std::optional(rules.size) : std::nullopt));
  if (rules.period < 0 && !keys.has(kPattern)) return keys.wrong(kPattern, "is missing");
  SLUICE_TRY(h.sees_window, keys.layer_flags(kPattern, h.n_layers, rules.period));
  return {};
}

// Which layers have no keys and values of their own. Those that share need one of their kind to share with, in the
// place where llama.cpp looks for it.
Status read_sharing(const MetadataKeys& keys, HyperParameters& h) {
  constexpr const char* kSharing = "attention.shared_kv_layers";
  if (!keys.is_counted(kSharing)) return {};
  SLUICE_TRY(const int32_t n, keys.number_in(kSharing, 1, static_cast<uint32_t>(h.n_layers)));
  if (n > h.n_layers - 2) return keys.wrong(kSharing, "should leave two layers with keys and values of their own");
  h.n_sharing_layers = n;
  for (int32_t layer = h.n_layers - n; layer < h.n_layers; ++layer)
    if (const int32_t from = h.kv_layer_of(layer); h.window_of(from) != h.window_of(layer))
      return keys.wrong(kSharing, "has layer " + std::to_string(layer) + " read keys and values of layer " +
                                      std::to_string(from) + ", of which only one sees a window");
  return {};
}

Status read_caps(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  constexpr const char *kScores = "attn_logit_softcapping", *kLogits = "final_logit_softcapping";
  if (!family.has_caps) return {};  // llama.cpp writes these keys for all families, and reads them for these
  SLUICE_TRY(h.logit_cap, keys.number(kLogits, family.logit_cap));
  if (h.logit_cap < 0.0f) return keys.wrong(kLogits, "should not be below 0");
  if (family.attention_cap == 0.0f) return {};
  SLUICE_TRY(h.attention_cap, keys.number(kScores, family.attention_cap));
  if (h.attention_cap < 0.0f) return keys.wrong(kScores, "should not be below 0");
  return {};
}

// Of the layers those that predict further tokens are the last.
Status leave_further_layers(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  if (!family.predicts_further) return keys.must_be("nextn_predict_layers", 0, "layers that predict further tokens");
  if (!keys.is_counted("nextn_predict_layers")) return {};
  SLUICE_TRY(h.n_further_layers, keys.count("nextn_predict_layers", kMaxLayers));
  if (h.n_further_layers >= h.n_layers) return keys.wrong("nextn_predict_layers", "should be less than block_count");
  h.n_layers -= h.n_further_layers;
  return {};
}

}  // namespace

Status read_layer_shape(const MetadataKeys& keys, const ModelFamily& family, HyperParameters& h) {
  SLUICE_TRY_STATUS(refuse_unsupported(keys));
  if (family.varied_widths) {
    SLUICE_TRY(h.d_ff_of_layers, keys.layer_counts("feed_forward_length", kMaxDimension, h.n_layers));
    h.d_ff = *std::ranges::max_element(h.d_ff_of_layers);
  } else {
    SLUICE_TRY(h.d_ff, keys.layer_count("feed_forward_length", kMaxDimension, h.n_layers));
  }
  SLUICE_TRY(h.norm_epsilon, keys.number("attention.layer_norm_rms_epsilon"));
  if (h.norm_epsilon <= 0.0f || h.norm_epsilon >= 1.0f)
    return keys.wrong("attention.layer_norm_rms_epsilon", "should be above 0 and below 1");
  SLUICE_TRY_STATUS(read_windows(keys, family.windows, h));
  SLUICE_TRY_STATUS(read_heads(keys, family, h));
  if (family.shares_keys) SLUICE_TRY_STATUS(read_sharing(keys, h));
  if (family.per_layer_embeddings) {
    SLUICE_TRY(h.d_per_layer, keys.number_in("embedding_length_per_layer_input", 0, kMaxDimension));
  }
  SLUICE_TRY_STATUS(read_mixture(keys, family, h));
  h.activation = family.activation;
  if (family.scaled_embedding) h.embedding_scale = std::sqrt(static_cast<float>(h.d_model));
  if (h.n_layers == family.scores_scaled_by_width)
    h.attention_scale = 1.0f / std::sqrt(static_cast<float>(h.d_model / h.n_heads));
  if (family.plain_scores) h.attention_scale = 1.0f;
  h.normed_values = family.normed_values;
  SLUICE_TRY_STATUS(read_caps(keys, family, h));
  SLUICE_TRY_STATUS(read_delta_nets(keys, family.delta, h));
  return read_rope(keys, family, h);
}

Result<HyperParameters> read_hyperparameters(const gguf::Header& header, std::vector<std::string>* refused) {
  HyperParameters h;
  SLUICE_TRY(const auto architecture, header.optional_string("general.architecture"));
  if (!architecture) return input_error("metadata key 'general.architecture' is missing");
  const ModelFamily* family = find_family(*architecture);
  if (family == nullptr && is_head_architecture(*architecture))
    return input_error(
        "is a trained head, not a model: name its model by -m, and this file by --head or --draft, as sluice inspect "
        "says of it");
  if (family == nullptr) {
    std::string known;
    for (const ModelFamily& f : kModelFamilies) known += (known.empty() ? "" : ", ") + std::string(f.architecture);
    return input_error("architecture '" + std::string(architecture->substr(0, 32)) + "' is not supported; known are " +
                       known);
  }
  h.architecture = family->architecture;
  SLUICE_TRY(const auto name, header.optional_string("general.name"));
  if (name) h.name = *name;

  const MetadataKeys keys(header, h.architecture, refused);
  SLUICE_TRY(h.n_layers, keys.count("block_count", kMaxLayers));
  SLUICE_TRY_STATUS(leave_further_layers(keys, *family, h));
  SLUICE_TRY(h.d_model, keys.count("embedding_length", kMaxDimension));
  SLUICE_TRY(h.context_length, keys.count("context_length", INT32_MAX));
  const gguf::Value* tokens = header.find("tokenizer.ggml.tokens");
  if (tokens == nullptr || !tokens->is_array_of(gguf::Type::kString))
    return input_error("metadata key 'tokenizer.ggml.tokens' should be an array of strings");
  if (tokens->count < 1 || tokens->count > kMaxDimension)
    return input_error("the vocabulary has " + std::to_string(tokens->count) + " tokens; 1 to " +
                       std::to_string(kMaxDimension) + " are possible");
  h.n_vocab = static_cast<int32_t>(tokens->count);
  SLUICE_TRY_STATUS(read_layer_shape(keys, *family, h));
  return h;
}

}  // namespace sluice
