// Ranks of a job: who they are, how they reach each other, stages that they hold, their end.
#include "transport/mpi_job.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/stage_traffic.h"
#include "transport/ends.h"
#include "transport/stage_host.h"

namespace sluice {
namespace {

using namespace test;

TEST(MpiJob, KnowsItsRanks) {
  const Ranks ranks(3);
  EXPECT_EQ(ranks.job(2)->rank(), 2);
  EXPECT_EQ(ranks.job(2)->size(), 3);
  EXPECT_EQ(ranks.job(0)->name(2), "rank 2 (machine1)");
  EXPECT_EQ(ranks.job(1)->ranks_here(), 2);
  EXPECT_EQ(ranks.job(2)->ranks_here(), 1);
}

TEST(MpiJob, ARankReachesItself) {
  const Ranks ranks(1);
  Server server(ranks.job(0)->network());
  const auto network = ranks.job(0)->network();
  const auto connection = network->connect(HostAddress::of_rank(0), kHello).value();
  ASSERT_TRUE(connection->send(Bytes(3 * kChunkBytes, std::byte{7}), Priority::kBulk));
  EXPECT_EQ(server.ear.next().size(), 3 * kChunkBytes);
}

TEST(MpiJob, WhoComesBeforeAnybodyListensIsServedThen) {
  const Ranks ranks(2);
  std::thread early([&] {
    const auto network = ranks.job(0)->network();
    EXPECT_TRUE(network->connect(HostAddress::of_rank(1), kHello, {.patience = 60}));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Server server(ranks.job(1)->network());
  early.join();
}

TEST(MpiJob, ARankThatDoesNotListenIsGivenUp) {
  const Ranks ranks(2);
  const auto failed = ranks.job(0)->network()->connect(HostAddress::of_rank(1), kHello, {.connect = 1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message,
            "rank 1 (machine0): it did not answer within 1 s: is it up, and a sluice of this release?");
}

TEST(MpiJob, WhoIsNoRankIsNotReached) {
  const Ranks ranks(2);
  const auto network = ranks.job(0)->network();
  for (const HostAddress& address : {HostAddress::of_rank(2), HostAddress{"127.0.0.1", 7001}}) {
    const auto failed = network->connect(address, kHello);
    ASSERT_FALSE(failed);
    EXPECT_TRUE(failed.error().message.starts_with(address.text() + ": ")) << failed.error().message;
  }
  EXPECT_FALSE(SocketNetwork({}).connect(HostAddress::of_rank(1), kHello));
}

TEST(MpiJob, WhatHasToBeStartedAndIsNotIsSaid) {
  const auto failed = MpiJob::open([]() -> Result<std::unique_ptr<MessagePassing>> { return runtime_error("no MPI"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no MPI");
}

// Rank 1 never comes to an end.
TEST(MpiJobDeathTest, WhoDoesNotComeToAnEndIsNamedAndTheJobCanBeAborted) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto stuck = [] {
    FakeMpi mpi(2);
    const auto first = MpiJob::open(mpi.start(0)).value(), second = MpiJob::open(mpi.start(1)).value();
    const Status ended = first->end(0.5);
    std::fprintf(stderr, "%s", ended ? "ended" : ended.error().message.c_str());
    first->abort(7);
  };
  EXPECT_EXIT(stuck(), testing::ExitedWithCode(7), "rank 1 .machine0. did not come to an end");
}

// A stage of rank 1, for rank 0.
TEST(MpiJob, RanksHoldStages) {
  const Ranks ranks(2);
  const auto host = StageHost::open({.secret = {}, .job = ranks.job(1), .threads = 1}).value();
  EXPECT_EQ(host->address(), HostAddress::of_rank(1));
  Ear ear;
  const auto network = ranks.job(0)->network();
  const auto reach = [&](Hello::Role role) {
    return network->connect(host->address(), {.epoch = 5, .stage = StageId(0), .role = role}).value();
  };
  const auto control = reach(Hello::Role::kControl);
  control->listen(ear.ears());
  StageRecipe recipe = stage_recipe(StageSort::kWhole);
  recipe.files.identity = ModelFile::open(recipe.files.path)->identity().value();
  ASSERT_TRUE(control->send(StageSetup{.recipe = recipe, .next = {}}, Priority::kUrgent));
  const auto next = [&] { return decode(ear.next()).value(); };
  ASSERT_TRUE(std::holds_alternative<StageReady>(next()));
  const auto batches = reach(Hello::Role::kBatches);
  size_t n_outcomes = 0, n_batches = 0;
  for (const Message& message : honest_traffic(StageSort::kWhole)) {
    const bool is_batch = std::holds_alternative<Batch>(message);
    n_batches += is_batch;
    ASSERT_TRUE((is_batch ? batches : control)->send(message, Priority::kBulk));
  }
  while (n_outcomes < n_batches) {
    const Message said = next();
    ASSERT_FALSE(std::holds_alternative<WorkerFailed>(said)) << std::get<WorkerFailed>(said).error.message;
    n_outcomes += std::holds_alternative<Outcome>(said);
  }
}

}  // namespace
}  // namespace sluice
