// Which experts a row uses, and where its rows come to lie.
#include "compute/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "compute/decoding.h"

namespace sluice::test {
namespace {

// Of so many experts; its weights have no part in what is tested here.
class Router {
 public:
  Router(int32_t n_experts, int32_t n_used, bool has_shared) {
    mixture_.rules = {.n_experts = n_experts, .n_used = n_used, .d_shared = has_shared ? 1 : 0};
  }
  Mixture& mixture() { return mixture_; }
  std::vector<ChosenExpert> choose(std::vector<float> logits) const {
    const MixtureParameters& rules = mixture_.rules;
    std::vector<float> room(static_cast<size_t>(rules.n_experts));
    logits.resize(room.size() + 1);
    std::vector<ChosenExpert> chosen(static_cast<size_t>(rules.n_used) + (mixture_.has_shared() ? 1 : 0));
    sluice::choose(mixture_, logits, room, chosen);
    return chosen;
  }

 private:
  Mixture mixture_;
};

std::vector<int32_t> networks(const std::vector<ChosenExpert>& chosen) {
  std::vector<int32_t> all;
  for (const ChosenExpert& one : chosen) all.push_back(one.network);
  return all;
}

TEST(Mixture, TheLikeliestExpertsAreChosenByTheirSharesOfAll) {
  const auto chosen = Router(4, 2, false).choose({0.0f, 2.0f, -1.0f, 1.0f});
  EXPECT_EQ(networks(chosen), (std::vector<int32_t>{1, 3}));
  const double all = 1 + std::exp(2.0) + std::exp(-1.0) + std::exp(1.0);
  EXPECT_NEAR(chosen[0].weight, std::exp(2.0) / all, 1e-6);
  EXPECT_NEAR(chosen[1].weight, std::exp(1.0) / all, 1e-6);
}

TEST(Mixture, WeightsAreNormalisedAndScaledWhereTheFamilyDoesSo) {
  Router router(4, 2, false);
  router.mixture().rules.normalised = true;
  router.mixture().rules.scale = 2.5f;
  const auto chosen = router.choose({0.0f, 2.0f, -1.0f, 1.0f});
  EXPECT_NEAR(chosen[0].weight, 2.5 * std::exp(1.0) / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(chosen[0].weight + chosen[1].weight, 2.5, 1e-6);
}

TEST(Mixture, AmongEqualsTheLowerIndexGoesFirst) {
  EXPECT_EQ(networks(Router(6, 3, false).choose({1, 3, 3, 1, 3, 3})), (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(networks(Router(3, 3, false).choose({7, 7, 7})), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Mixture, ASharedExpertCountsByItsOwnLogit) {
  Router router(3, 1, true);
  auto chosen = router.choose({0, 0, 5, 0.5f});
  EXPECT_EQ(networks(chosen), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(chosen[1].weight, 1.0f) << "as it is, where it has no router of its own";
  router.mixture().rules.is_shared_gated = true;
  chosen = router.choose({0, 0, 5, 0.5f});
  EXPECT_NEAR(chosen[1].weight, 1 / (1 + std::exp(-0.5)), 1e-6);
}

TEST(Mixture, BiasesDecideWhoIsChosenButNotWhatHeCounts) {
  Router router(3, 2, false);
  router.mixture().rules.gating = MixtureParameters::Gating::kSigmoid;
  EXPECT_EQ(networks(router.choose({1, 2, 0})), (std::vector<int32_t>{1, 0}));
  router.mixture().biases = {0.0f, -1.0f, 0.5f};
  const auto chosen = router.choose({1, 2, 0});
  EXPECT_EQ(networks(chosen), (std::vector<int32_t>{2, 0}));
  EXPECT_NEAR(chosen[0].weight, 0.5, 1e-6);
  EXPECT_NEAR(chosen[1].weight, 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(Mixture, LogitsThatAreNoNumbersChooseSomeExpertAllTheSame) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits :
       {std::vector{kNan, kNan, kNan}, {1.0f, kNan, 2.0f}, {kInfinity, kInfinity, 0.0f}, {-kInfinity, 0.0f, kNan}})
    for (const ChosenExpert& one : Router(3, 2, true).choose(logits)) {
      EXPECT_GE(one.network, 0);
      EXPECT_LE(one.network, 3);
    }
}

TEST(ExpertGroups, RowsOfANetworkLieSideBySideFromAWholePanelOn) {
  Dice dice(4);
  for (int round = 0; round < 200; ++round) {
    const int32_t n_networks = 1 + dice.below(20);
    std::vector<ChosenExpert> chosen(static_cast<size_t>(dice.below(120)));
    std::map<int32_t, int64_t> count;
    for (ChosenExpert& one : chosen) ++count[one.network = dice.below(n_networks)];
    ExpertGroups groups;
    groups.sort({}, 3);  // what was there before is forgotten
    groups.sort(chosen, n_networks);
    std::set<int64_t> places;
    int64_t end = 0;
    ASSERT_EQ(groups.groups().size(), count.size());
    for (const auto& group : groups.groups()) {
      EXPECT_EQ(group.places.begin % Linear::kRowGrain, 0);
      EXPECT_GE(group.places.begin, end);
      end = group.places.end;
      EXPECT_EQ(end - group.places.begin, count[group.network]);
    }
    EXPECT_LE(end, ExpertGroups::most_places(std::ssize(chosen), n_networks));
    for (size_t i = 0; i < chosen.size(); ++i) {
      const auto group = std::ranges::find(groups.groups(), chosen[i].network, &ExpertGroups::Group::network);
      const int64_t place = groups.place(i);
      EXPECT_TRUE(group->places.begin <= place && place < group->places.end);
      EXPECT_TRUE(places.insert(place).second) << "a place of its own";
    }
  }
}

}  // namespace
}  // namespace sluice::test
