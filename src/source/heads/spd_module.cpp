#include <algorithm>

#include "source/heads/head_modules.h"

namespace sluice {

namespace {

// SPD's speculation module (sections 3.2 to 3.7). A token's feature g^k is made of the states at the depth k to which
// it has got in the target's pipeline; a guess is made from the newest token's g^0 over the features of all before it.
// Tokens that have left the pipeline keep their keys and values; those of the others come anew as refreshes.
class SpdModule final : public HeadModule {
 public:
  SpdModule(std::unique_ptr<HeadLayers> layers, int32_t n_cells)
      : HeadModule(std::move(layers), n_cells, /*first_position=*/0) {}

  void run(const Batch& batch, std::vector<float>& hidden) override {
    const int32_t n = parameters().stages();
    Features seen, asked;
    for (const Refresh& r : batch.refreshes) {
      add(seen, head_row(r.sequence, r.position, r.own), r.depth, r.cell);
      if (r.last) states_.forget(r.cell);
    }
    for (const Row& row : batch.rows) {
      const Feature* feature = feature_of(batch, row);
      if (row.kind == Row::Kind::kPrompt) {
        add(seen, head_row(row), n, feature->cell);
        if (feature->last) states_.forget(feature->cell);
      } else if (feature != nullptr) {
        add(asked, head_row(row), feature->depth, feature->cell);
      } else {  // g^0 needs the token alone
        asked.rows.push_back(head_row(row));
        asked.depths.push_back(0);
        layers_->embed(row.token, asked.states.emplace_back(layers_->d_model()).data());
      }
    }
    hidden = project(asked);
    if (parameters().full_attention)
      run_full(seen.rows, project(seen), asked.rows, hidden);
    else
      run_single(seen.rows, project(seen), asked.rows, hidden);
  }

 private:
  // Rows and their features, before and after the projection.
  struct Features {
    std::vector<BlockRow> rows;
    std::vector<int32_t> depths;
    std::vector<std::vector<float>> states;  // concatenated
  };

  void add(Features& features, BlockRow row, int32_t depth, Cell target) const {
    features.rows.push_back(std::move(row));
    features.depths.push_back(depth);
    features.states.push_back(concatenated(target, parameters().taps[static_cast<size_t>(depth)]));
  }

  // eq. (1). [rows, d_model]
  std::vector<float> project(const Features& features) {
    const size_t d = layers_->d_model(), n = features.rows.size();
    std::vector<float> projected(n * d);
    for (size_t depth = 0; depth < parameters().taps.size(); ++depth) {  // rows of one depth share a matrix
      std::vector<size_t> members;
      std::vector<float> x;
      for (size_t i = 0; i < n; ++i) {
        if (features.depths[i] != static_cast<int32_t>(depth)) continue;
        members.push_back(i);
        x.insert(x.end(), features.states[i].begin(), features.states[i].end());
      }
      if (members.empty()) continue;
      if (parameters().feature_norm) layers_->normalise(x.data(), x.size() / d, d, {}, x.data());
      std::vector<float> y(members.size() * d);
      layers_->product(layers_->fc()[depth], x.data(), members.size(), y.data());
      for (size_t i = 0; i < members.size(); ++i)
        std::copy_n(y.begin() + static_cast<ptrdiff_t>(i * d), d,
                    projected.begin() + static_cast<ptrdiff_t>(members[i] * d));
    }
    return projected;
  }

  // Section 3.2 with a single block of queries (appendix A.3): of the rows that are only seen, every layer's keys and
  // values come from their features.
  void run_single(std::span<const BlockRow> seen, std::span<const float> features, std::span<const BlockRow> asked,
                  std::vector<float>& hidden) {
    std::vector<float> inputs(std::max(features.size(), hidden.size()));
    for (size_t layer = 0; layer < layers_->n_layers(); ++layer) {
      layers_->normalise_for(layer, features.data(), seen.size(), inputs.data());
      layers_->keep(layer, seen, inputs.data());
      layers_->normalise_for(layer, hidden.data(), asked.size(), inputs.data());
      layers_->compute(layer, asked, inputs.data(), hidden.data());
    }
  }

  // The authors' later form: every row is a query too.
  void run_full(std::span<const BlockRow> seen, std::vector<float> x, std::span<const BlockRow> asked,
                std::vector<float>& hidden) {
    std::vector<float> inputs(std::max(x.size(), hidden.size()));
    for (size_t layer = 0; layer < layers_->n_layers(); ++layer) {
      layers_->normalise_for(layer, x.data(), seen.size(), inputs.data());
      if (layer + 1 < layers_->n_layers())
        layers_->compute(layer, seen, inputs.data(), x.data());
      else
        layers_->keep(layer, seen, inputs.data());
      layers_->normalise_for(layer, hidden.data(), asked.size(), inputs.data());
      layers_->compute(layer, asked, inputs.data(), hidden.data());
    }
  }
};

}  // namespace

std::unique_ptr<HeadModule> make_spd_module(std::unique_ptr<HeadLayers> layers, int32_t n_cells) {
  return std::make_unique<SpdModule>(std::move(layers), n_cells);
}

}  // namespace sluice
