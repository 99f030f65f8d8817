#include "engine/drafting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <vector>

namespace sluice {
namespace {

// Wants so many rows, if it may.
class Wants final : public sluice::Method {
 public:
  explicit Wants(const size_t& rows) : rows_(rows) {}
  Proposal propose(Speculation& speculation, const Idle& idle) override {
    TokenTree& tree = speculation.tree;
    const size_t rows = std::min(rows_, idle.rows);
    while (tree.size() < rows) tree.append(tree.root().id, static_cast<Token>(tree.size()), 0.5f);
    Proposal proposal;
    for (const auto& node : tree.nodes().first(rows)) proposal.enter.push_back(node.id);
    return proposal;
  }

 private:
  const size_t& rows_;
};

// Of many requests, each of which could fill a batch by itself, no more is asked for than enters, by and by; and more
// of each as soon as others want less.
TEST(Drafting, AsksForLittleMoreThanABatchHolds) {
  constexpr size_t kBudget = 64, kRequests = 16;
  std::list<Request> all;
  std::vector<Request*> requests;
  size_t first_half = kBudget, second_half = kBudget;
  for (size_t i = 0; i < kRequests; ++i) {
    Request& request = all.emplace_back(RequestId(static_cast<int32_t>(i)), RequestSpec{.prompt = {0}, .sampling = {}});
    request.method = {
        .name = "wants", .traits = {}, .policy = std::make_unique<Wants>(i < kRequests / 2 ? first_half : second_half)};
    requests.push_back(&request);
  }
  Drafting drafting(kBudget, {});
  const std::vector<Room> rooms = {{.idle = true, .free_cells = 1000, .spare_cells = 1000}};
  const auto proposed = [&] {
    const Proposals proposals = drafting.ask(requests, rooms, {.floor = -10.0});
    drafting.chosen(proposals, proposals.rows, 1.0, 0.0);
    return proposals.rows.size();
  };
  EXPECT_EQ(proposed(), 2 * kBudget);
  for (int batch = 0; batch < 8; ++batch) proposed();
  for (int batch = 0; batch < 8; ++batch) {
    const size_t rows = proposed();
    EXPECT_GE(rows, kBudget);
    EXPECT_LE(rows, kBudget * 3 / 2);
  }
  first_half = 1;
  for (int batch = 0; batch < 8; ++batch) proposed();
  EXPECT_GE(proposed(), kBudget);
}

}  // namespace
}  // namespace sluice
