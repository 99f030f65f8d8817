#include <unordered_set>

#include "model/head_contents.h"

namespace sluice {

namespace {

// One head's table, part by part.
class Table {
 public:
  Table(const HeadContents& head, HeadWeights& weights)
      : head_(head), p_(head.parameters), w_(weights), d_(p_.hparams.d_model) {}

  std::vector<HeadTensor> make() {
    add_layers();
    switch (p_.kind) {
      case HeadKind::kSpd:
        add_depths();
        break;
      case HeadKind::kEagle3:
        add_pair("enc.output_norm.weight", p_.feature_norm);
        add("token_embd.weight", w_.token_embedding, Need::kOptional, d_, p_.hparams.n_vocab);
        break;
      case HeadKind::kPEagle:
        add_pair("feature_norm.weight", p_.feature_norm);
        add("token_embd.weight", w_.token_embedding, Need::kOptional, d_, p_.hparams.n_vocab);
        add_masks();
        break;
      case HeadKind::kMtp:
        add("token_embd.weight", w_.token_embedding, Need::kOptional, d_, p_.hparams.n_vocab);
        add(kMtpFeatureNorm, w_.feature_norm, Need::kRequired, d_);
        add(kMtpHiddenNorm, w_.hidden_norm, Need::kRequired, d_);
        add(kMtpEmbeddingNorm, w_.embedding_norm, Need::kRequired, d_);
        w_.fc.resize(1);
        add(kMtpProjection, w_.fc[0], Need::kRequired, 2 * d_, d_);
        break;
      case HeadKind::kExit:
      case HeadKind::kDraft:
        break;
    }
    add(kOutputNorm, w_.output_norm, Need::kOptional, d_);
    // The target's matrix has a row for every token.
    add(kOutput, w_.output, p_.vocabulary.empty() ? Need::kOptional : Need::kRequired, d_, p_.n_guessable());
    return std::move(table_);
  }

 private:
  void add(const std::string& name, Tensor& place, Need need, int64_t n_in, int64_t n_out = 0) {
    table_.push_back({name, &place, need, {n_in, n_out}});
  }

  void add_layers() {
    w_.layers.resize(static_cast<size_t>(p_.hparams.n_layers));
    const bool pairs = p_.kind == HeadKind::kEagle3 || p_.kind == HeadKind::kPEagle;
    const bool is_targets = p_.kind == HeadKind::kMtp;
    const ModelFamily& family = is_targets ? *find_family(p_.hparams.architecture) : kHeadFamily;
    for (int32_t i = 0; i < p_.hparams.n_layers; ++i)
      for (const LayerTensor& rule : layer_tensors(p_.hparams, family, i)) {
        if (rule.need == Need::kOptional && !is_targets) continue;  // biases
        LayerWeights& layer = w_.layers[static_cast<size_t>(i)];
        Tensor& place = layer.*rule.member;
        const bool doubled = pairs && i == 0 && (&place == &layer.q || &place == &layer.k || &place == &layer.v);
        TensorShape shape = shape_of(rule);
        if (doubled) shape.n_in *= 2;
        table_.push_back({layer_tensor_name(i, rule.name), &place, rule.need, shape});
      }
  }

  // EAGLE's pair of an embedding and a hidden state, which comes from three of the target's.
  void add_pair(const char* feature_norm, bool is_normed) {
    const auto n_features = static_cast<int64_t>(p_.taps.front().size()) * d_;
    add(layer_tensor_name(0, "attn_norm_2.weight"), w_.hidden_norm, Need::kRequired, d_);
    if (is_normed) add(feature_norm, w_.feature_norm, Need::kRequired, n_features);
    w_.fc.resize(1);
    add("fc.weight", w_.fc[0], Need::kRequired, n_features, d_);
  }

  void add_masks() {
    const Place hidden = head_.places.find("mask_hidden");
    const bool by_depth = hidden && hidden.info->n_dims == 2;
    add("mask_hidden", w_.mask_hidden, Need::kRequired, d_, by_depth ? p_.groups : 0);
    add("mask_embedding", w_.mask_embedding, Need::kRequired, d_);
  }

  // SPD's FC_k. A shared one is entered at depth 1.
  void add_depths() {
    w_.fc.resize(p_.taps.size());
    const size_t end = p_.shared_fc ? 2 : p_.taps.size();
    for (size_t k = p_.output_timing ? 1 : 0; k < end; ++k)
      add("fc." + std::to_string(k) + ".weight", w_.fc[k], Need::kRequired,
          static_cast<int64_t>(p_.taps[k].size()) * d_, d_);
  }

  const HeadContents& head_;
  const HeadParameters& p_;
  HeadWeights& w_;
  int64_t d_;
  std::vector<HeadTensor> table_;
};

}  // namespace

std::vector<HeadTensor> head_tensors(const HeadContents& head, HeadWeights& weights) {
  return Table(head, weights).make();
}

Status check_head_tensors(const HeadContents& head) {
  HeadWeights nowhere;
  std::unordered_set<std::string> known;
  if (!head.parameters.vocabulary.empty()) known.insert(kDraftToTarget);
  for (const HeadTensor& rule : head_tensors(head, nowhere)) {
    const Place at = head.places.find(rule.name);
    if (!at && rule.need == Need::kRequired) return input_error("tensor '" + rule.name + "' is missing");
    if (!at) continue;
    known.insert(rule.name);
    SLUICE_TRY_STATUS(check_tensor(*at.info, rule.shape));
  }
  for (const auto& [name, at] : head.places.all())
    if (!known.contains(name))
      return input_error("tensor '" + name + "' is none that a head of kind " + sluice::name(head.parameters.kind) +
                         " with this metadata has");
  return {};
}

}  // namespace sluice
