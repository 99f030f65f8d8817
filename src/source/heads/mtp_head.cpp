#include "source/heads/head_modules.h"
#include "source/heads/paired_head.h"

namespace sluice {

namespace {

// Multi-token prediction (DeepSeek-V3, section 2.2), as model files carry it: a layer like the target's own, whose
// input is M [norm(embedding of a token); norm(state of the token before it)]. What is known of the target is its last
// state, behind its output norm; what the layer hands on to itself is its own state, behind its output norm.
class MtpHead final : public PairedHead {
 public:
  MtpHead(std::unique_ptr<HeadLayers> layers, int32_t n_cells)
      : PairedHead(std::move(layers), n_cells),
        embedding_norm_(to_f32_vector(layers_->weights().embedding_norm)),
        hidden_norm_(to_f32_vector(layers_->weights().hidden_norm)),
        feature_norm_(to_f32_vector(layers_->weights().feature_norm)) {}

 private:
  std::vector<float> feature(Cell target) override {
    std::vector<float> x = concatenated(target, parameters().taps.front());
    layers_->normalise(x.data(), 1, x.size(), feature_norm_, x.data());
    return x;
  }

  std::vector<float> handed_on(std::span<const float> state) const override {
    std::vector<float> x(state.size());
    layers_->normalise_for_output(state.data(), 1, x.data());
    return x;
  }

  std::vector<float> compute(Rows& rows) override {
    const size_t d = layers_->d_model(), n = rows.rows.size();
    std::vector<float> pairs(n * 2 * d), x(n * d), normed(n * d);
    for (size_t i = 0; i < n; ++i) {
      layers_->normalise(&rows.embedding[i * d], 1, d, embedding_norm_, &pairs[i * 2 * d]);
      layers_->normalise(&rows.state[i * d], 1, d, hidden_norm_, &pairs[i * 2 * d + d]);
    }
    layers_->product(layers_->fc().front(), pairs.data(), n, x.data());
    layers_->normalise_for(0, x.data(), n, normed.data());
    layers_->compute(0, rows.rows, normed.data(), x.data());
    return x;
  }

  std::vector<float> embedding_norm_, hidden_norm_, feature_norm_;
};

}  // namespace

std::unique_ptr<HeadModule> make_mtp_head(std::unique_ptr<HeadLayers> layers, int32_t n_cells) {
  return std::make_unique<MtpHead>(std::move(layers), n_cells);
}

}  // namespace sluice
