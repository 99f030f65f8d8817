// A mixture of experts: y = sum over the chosen e of w_e network_e(x), where a router chooses and weighs. Which rows a
// network computes, and where.
//
// Exactness: what is chosen for a row depends on its own logits alone, and among equals the lower index goes first. A
// row's outputs are added up in the order in which its networks were chosen.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "compute/linear.h"

namespace sluice {

// A feed-forward network: y = (silu(x W_gate^T) * x W_up^T) W_down^T.
struct FeedForward {
  Linear gate, up, down;
};

class ExpertPool;

// Of experts that stand beside a dense network, each behind norms of its own:
//   x += norm(dense_post(dense(norm(x))) + experts_post(sum over e of w_e network_e(experts(x)))), chosen by router(x)
struct NormsBesideDense {
  std::vector<float> router, experts, experts_post, dense_post;  // [d_model]
  FormatSet router_formats;
};

struct Mixture {
  Linear router;                      // [experts, d_model]
  std::vector<float> biases;          // [experts], added to the shares by which they are chosen, or empty
  std::vector<float> scales;          // [experts], by which their outputs are multiplied besides, or empty
  Linear shared_router;               // [1, d_model], if there is a shared expert that is weighed
  std::vector<FeedForward> networks;  // the experts', then that of the shared one, if there is one
  FormatSet formats;                  // of the networks' inputs
  MixtureParameters rules;
  std::optional<NormsBesideDense> beside_dense;
  ExpertPool* pool = nullptr;  // that its experts are in, from this one on; null: all are packed
  int32_t first_in_pool = 0;

  bool has_shared() const { return rules.d_shared > 0; }
  bool is_shared(int32_t network) const { return network >= rules.n_experts; }
};

// A network that computes a row, and what its output counts.
struct ChosenExpert {
  int32_t network = 0;
  float weight = 0.0f;
};

// Those of one row: the likeliest experts, then the shared one. logits: [experts], then the shared one's; overwritten.
// room: [experts], to be written over. choices: [n_used], and one more if there is a shared expert. Logits that are no
// numbers leave outputs that are none.
void choose(const Mixture& mixture, std::span<float> logits, std::span<float> room, std::span<ChosenExpert> choices);

// The rows of each network side by side, in an order of their own: places, from a multiple of Linear::kRowGrain on.
class ExpertGroups {
 public:
  struct Group {
    int32_t network = 0;
    Part places;
  };

  // At most so many places for so many choices among so many networks.
  static int64_t most_places(int64_t n_choices, int64_t n_networks);

  // choices: of one row after another.
  void sort(std::span<const ChosenExpert> choices, int32_t n_networks);
  std::span<const Group> groups() const { return groups_; }       // by network, those that have rows
  int64_t place(size_t choice) const { return places_[choice]; }  // of its row, for its network

 private:
  std::vector<Group> groups_;
  std::vector<int64_t> next_;    // [network]
  std::vector<int64_t> places_;  // [choice]
};

}  // namespace sluice
