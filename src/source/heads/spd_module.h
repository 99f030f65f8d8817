#pragma once

#include "source/heads/head_module.h"

namespace sluice {

// SPD's speculation module (sections 3.2 to 3.7). A token's feature g^k is made of the states at the depth k to which
// it has got in the target's pipeline; a guess is made from the newest token's g^0 over the features of all before it.
// Tokens that have left the pipeline keep their keys and values; those of the others come anew as refreshes.
class SpdModule final : public HeadModule {
 public:
  SpdModule(std::unique_ptr<HeadLayers> layers, int32_t n_cells);
  void run(const Batch& batch, std::vector<float>& hidden) override;

 private:
  // Rows and their features, before and after the projection.
  struct Features {
    std::vector<BlockRow> rows;
    std::vector<int32_t> depths;
    std::vector<std::vector<float>> states;  // concatenated
  };
  void add(Features& features, BlockRow row, int32_t depth, Cell target) const;
  std::vector<float> project(const Features& features);  // eq. (1). [rows, d_model]
  void run_single(std::span<const BlockRow> seen, std::span<const float> features, std::span<const BlockRow> asked,
                  std::vector<float>& hidden);
  void run_full(std::span<const BlockRow> seen, std::vector<float> x, std::span<const BlockRow> asked,
                std::vector<float>& hidden);
};

}  // namespace sluice
