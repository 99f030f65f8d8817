// A host of stages among peers that are no honest coordinators, and a coordinator among hosts that lie.
#include "transport/stage_host.h"

#include <gtest/gtest.h>

#include <thread>

#include "pipeline/stage_memory.h"
#include "support/random_message.h"
#include "support/stage_traffic.h"
#include "transport/ends.h"
#include "transport/generation.h"
#include "transport/raw_peer.h"
#include "transport/remote_pipeline.h"
#include "transport/weights.h"

namespace sluice {
namespace {

using namespace test;

// A coordinator's connections to one stage.
class Coordinator {
 public:
  explicit Coordinator(const StageHost& host, uint64_t epoch = 5)
      : network_({}), epoch_(epoch), address_(host.address()) {
    control = network_.connect(address_, hello(Hello::Role::kControl)).value();
    control->listen(ear.ears());
  }
  Hello hello(Hello::Role role) const { return {.epoch = epoch_, .stage = StageId(0), .role = role}; }

  // A stage of the whole model, or a head, or one that has a next, ready.
  void set_up(StageSort sort = StageSort::kWhole, const std::string& next_address = {}) {
    ASSERT_TRUE(control->send(setup(sort, next_address), Priority::kUrgent));
    ASSERT_TRUE(std::holds_alternative<StageReady>(next()));
    reach_batches();
  }
  static StageSetup setup(StageSort sort, const std::string& next_address) {
    StageRecipe recipe = stage_recipe(sort);
    WeightFiles& files = recipe.files;
    const ModelFile model = ModelFile::open(model_files(recipe).path).value();
    files.identity = files.target_identity = model.identity().value();
    if (!files.target.empty()) files.identity = HeadFile::open(files.path, model)->identity().value();
    return {.recipe = recipe, .next = next_address};
  }
  void reach_batches() { batches = network_.connect(address_, hello(Hello::Role::kBatches)).value(); }
  // A stage's way to the head.
  std::shared_ptr<Connection> reach_taps() { return network_.connect(address_, hello(Hello::Role::kTaps)).value(); }
  Message next() { return decode(ear.next()).value(); }
  // What the stage says when it gives up, if that is the next that it says.
  std::string complaint() { return complaint_to(ear); }
  static std::string complaint_to(Ear& ear) {
    const Message said = decode(ear.next()).value();
    const auto* failed = std::get_if<WorkerFailed>(&said);
    return failed != nullptr ? failed->error.message : "something else";
  }

  Ear ear;

 private:
  SocketNetwork network_;
  uint64_t epoch_;
  HostAddress address_;

 public:
  std::shared_ptr<Connection> control, batches;
};

std::unique_ptr<StageHost> open_host() {
  return StageHost::open({.listen = {"127.0.0.1", 0}, .secret = {}, .threads = 1}).value();
}

void expect_no_stages(const StageHost& host) {
  for (int i = 0; i < 6000 && host.stages() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(host.stages(), 0u);
}

TEST(StageHost, ComputesWhatAnHonestCoordinatorSends) {
  const auto host = open_host();
  Coordinator coordinator(*host);
  coordinator.set_up();
  size_t n_outcomes = 0, n_batches = 0;
  for (const Message& message : honest_traffic(StageSort::kWhole)) {
    const bool is_batch = std::holds_alternative<Batch>(message);
    n_batches += is_batch;
    ASSERT_TRUE((is_batch ? coordinator.batches : coordinator.control)->send(message, Priority::kBulk));
  }
  while (n_outcomes < n_batches) {
    const Message said = coordinator.next();
    ASSERT_FALSE(std::holds_alternative<WorkerFailed>(said)) << std::get<WorkerFailed>(said).error.message;
    n_outcomes += std::holds_alternative<Outcome>(said);
  }
  EXPECT_EQ(host->stages(), 1u);
}

TEST(StageHost, AHeadTellsTheCoordinatorWhenStatesHaveCome) {
  const auto host = open_host();
  uint64_t epoch = 0;
  for (const StageSort sort : {StageSort::kSpd, StageSort::kEagle3, StageSort::kPEagle, StageSort::kExit}) {
    Coordinator coordinator(*host, ++epoch);
    coordinator.set_up(sort);
    const auto stage = coordinator.reach_taps(), another = coordinator.reach_taps();
    for (const Message& message : honest_traffic(sort)) {
      if (const auto* taps = std::get_if<Taps>(&message)) {
        ASSERT_TRUE(stage->send(message, Priority::kBulk));
        const Message said = coordinator.next();
        ASSERT_TRUE(std::holds_alternative<TapsArrived>(said)) << said.index();
        EXPECT_EQ(std::get<TapsArrived>(said).batch, taps->batch);
      } else if (std::holds_alternative<Batch>(message)) {
        ASSERT_TRUE(coordinator.batches->send(message, Priority::kBulk));
        EXPECT_TRUE(std::holds_alternative<StageReport>(coordinator.next()));
        const Message said = coordinator.next();
        ASSERT_TRUE(std::holds_alternative<Outcome>(said)) << said.index();
        EXPECT_FALSE(std::get<Outcome>(said).drafted.empty());
      } else {
        ASSERT_TRUE(coordinator.control->send(message, Priority::kUrgent));
      }
    }
    ASSERT_TRUE(another->send(Taps{.batch = BatchId(9), .layers = {77}}, Priority::kBulk));
    EXPECT_NE(coordinator.complaint().find("after layer 77"), std::string::npos);
  }
}

TEST(StageHost, StatesForAHeadAreRefusedByAStage) {
  const auto host = open_host();
  Coordinator coordinator(*host);
  coordinator.set_up();
  ASSERT_TRUE(coordinator.reach_taps()->send(Taps{}, Priority::kBulk));
  EXPECT_NE(coordinator.complaint().find("no batch"), std::string::npos);
}

TEST(StageHost, WhatIsNoRecipeIsRefused) {
  const auto host = open_host();
  {
    Coordinator coordinator(*host);
    ASSERT_TRUE(coordinator.control->send(Batch{}, Priority::kUrgent));
    EXPECT_NE(coordinator.complaint().find("no recipe"), std::string::npos);
  }
  StageRecipe recipe = stage_recipe(StageSort::kWhole);
  recipe.files.identity = ModelFile::open(recipe.files.path)->identity().value();
  {
    Coordinator coordinator(*host, 7);
    const StageSetup endless{.recipe = recipe, .next = {}, .cuts = std::vector<LayerRange>(5000)};
    ASSERT_TRUE(coordinator.control->send(endless, Priority::kUrgent));
    EXPECT_NE(coordinator.complaint().find("no recipe"), std::string::npos);
  }
  recipe.options.range.last = 1000;
  Coordinator coordinator(*host, 6);
  ASSERT_TRUE(coordinator.control->send(StageSetup{.recipe = recipe, .next = {}}, Priority::kUrgent));
  EXPECT_NE(coordinator.complaint().find("layers"), std::string::npos);
  expect_no_stages(*host);
}

// What it borrows of its target it has by other options.
TEST(StageHost, AHeadOfLayersThatThereAreNotIsRefused) {
  const auto host = open_host();
  for (const LayerRange& range : {LayerRange{-1, 0}, {0, INT32_MAX}, {0, 1}}) {
    StageRecipe recipe = stage_recipe(StageSort::kWhole);
    recipe.kind = StageRecipe::Kind::kHead;
    recipe.options.range = range;
    Coordinator coordinator(*host, 7);
    ASSERT_TRUE(coordinator.control->send(StageSetup{.recipe = recipe, .next = {}}, Priority::kUrgent));
    EXPECT_NE(coordinator.complaint().find("layers of the model"), std::string::npos);
    expect_no_stages(*host);
  }
}

// There is memory for one stage. Whoever wants another, and goes while its model is looked for, is forgotten: it does
// not wait for itself.
TEST(StageHost, WhoGoesBeforeThereIsRoomIsForgotten) {
  StageRecipe recipe = stage_recipe(StageSort::kWhole);
  const ModelFile model = ModelFile::open(recipe.files.path).value();
  recipe.files.identity = model.identity().value();
  const auto host =
      StageHost::open(
          {.listen = {"127.0.0.1", 0}, .secret = {}, .memory = bytes_of_stage(recipe, model) * 3 / 2, .threads = 1})
          .value();
  Coordinator first(*host);
  first.set_up();
  for (uint64_t i = 0; i < 40; ++i) {
    Coordinator hasty(*host, 100 + i);
    ASSERT_TRUE(hasty.control->send(StageSetup{.recipe = recipe, .next = {}}, Priority::kUrgent));
    std::this_thread::sleep_for(std::chrono::microseconds(50 * i));
  }
  for (int i = 0; i < 6000 && host->stages() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(host->stages(), 1u);
}

// At once with its hello, or when the stage is ready.
TEST(StageHost, WhatIsNoMessageEndsTheStage) {
  const auto host = open_host();
  RawPeer hasty(host->address().port);
  Bytes bytes = chunks_of(Hello{.epoch = 3, .stage = StageId(0), .role = Hello::Role::kControl});
  for (const char c : std::string("no chunk")) bytes.push_back(static_cast<std::byte>(c));
  hasty.send(bytes);
  static_cast<void>(hasty.read_to_end());
  RawPeer ready(host->address().port);
  ready.send(Message(Hello{.epoch = 4, .stage = StageId(0), .role = Hello::Role::kControl}));
  StageRecipe recipe = stage_recipe(StageSort::kWhole);
  recipe.files.identity = ModelFile::open(recipe.files.path)->identity().value();
  ready.send(Message(StageSetup{.recipe = recipe, .next = {}}));
  ready.send("no chunk");
  static_cast<void>(ready.read_to_end());
  expect_no_stages(*host);
}

TEST(StageHost, BatchesOfAnotherPipelineAreRefused) {
  const auto host = open_host();
  Coordinator coordinator(*host);
  coordinator.set_up();
  SocketNetwork network({});
  Hello former = coordinator.hello(Hello::Role::kBatches);
  const auto second = network.connect(host->address(), former);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("already"), std::string::npos);
  former.epoch = 99;
  const auto refused = network.connect(host->address(), former);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("has ended"), std::string::npos);
}

TEST(StageHost, WhoComesForItsBatchesTwiceIsRefused) {
  const auto host = open_host();
  Coordinator coordinator(*host);
  coordinator.set_up();
  SocketNetwork network({});
  Hello hello = coordinator.hello(Hello::Role::kRelay);
  const auto first = network.connect(host->address(), hello), second = network.connect(host->address(), hello);
  EXPECT_TRUE(first);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("already"), std::string::npos);
  hello.epoch = 99;
  const auto refused = network.connect(host->address(), hello);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("has ended"), std::string::npos);
}

TEST(StageHost, WhatAStageMustNotBeSentEndsThatStageAlone) {
  const auto host = open_host();
  Coordinator bad(*host, 1), good(*host, 2);
  bad.set_up();
  good.set_up();
  Batch batch{.id = BatchId(0), .updates = {Open{SequenceId(0), {}}}};
  batch.rows.push_back({.sequence = SequenceId(0), .token = 3, .position = 0, .cell = Cell(1 << 30)});
  ASSERT_TRUE(bad.batches->send(batch, Priority::kBulk));
  EXPECT_NE(bad.complaint().find("cell"), std::string::npos);
  batch.rows[0].cell = Cell(0);
  batch.rows[0].index = 0;
  ASSERT_TRUE(good.batches->send(batch, Priority::kBulk));
  EXPECT_TRUE(std::holds_alternative<StageReport>(good.next()));
  EXPECT_TRUE(std::holds_alternative<Outcome>(good.next()));
}

// Whoever hears first that it has gone would blame the stage that it has gone with.
TEST(StageHost, WhenTheNextOneIsLostAllAreToldWho) {
  const auto host = open_host();
  for (uint64_t epoch = Server::kFormerEpoch + 1; epoch < 100; ++epoch) {
    Server next;
    Ear before;
    Coordinator coordinator(*host, epoch);
    coordinator.set_up(StageSort::kFirst, next.address().text());
    coordinator.batches->listen(before.ears());
    next.accepted()->close();
    const std::string lost = kHost + next.address().text() + ": it ended the connection";
    EXPECT_EQ(coordinator.complaint(), lost);
    EXPECT_EQ(Coordinator::complaint_to(before), lost);
  }
}

TEST(StageHost, AmendmentsToBatchesThatNeverComeAreBounded) {
  const auto host = open_host();
  Coordinator coordinator(*host);
  coordinator.set_up();
  Amendment endless;
  for (int32_t i = 0; i < 1 << 14; ++i) endless.dead.push_back({.batch = BatchId(1 << 20), .row = 0});
  for (int32_t id = 0; id < 1000 && host->stages() > 0; ++id) {
    static_cast<void>(coordinator.control->send(endless, Priority::kUrgent));                 // until the stage ends
    static_cast<void>(coordinator.batches->send(Batch{.id = BatchId(id)}, Priority::kBulk));  // when it looks at them
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  expect_no_stages(*host);
}

TEST(StageHost, EndsAlthoughAStageWaitsForTheNextOne) {
  RawListener silent;
  auto host = open_host();
  Coordinator coordinator(*host);
  const std::string next = "127.0.0.1:" + std::to_string(silent.port());
  ASSERT_TRUE(coordinator.control->send(coordinator.setup(StageSort::kFirst, next), Priority::kUrgent));
  const auto peer = silent.accept();
  const auto begin = std::chrono::steady_clock::now();
  host.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  EXPECT_NE(coordinator.complaint().find("shut down"), std::string::npos);
}

TEST(StageHost, ArbitraryMessagesDoNoHarm) {
  const auto host = open_host();
  RandomMessages random(3);
  for (uint64_t i = 0; i < 60; ++i) {
    Coordinator coordinator(*host, i);
    if (i % 2 == 0) coordinator.set_up();
    const auto& to = i % 4 == 0 ? coordinator.batches : coordinator.control;
    for (int n = 0; n < 5; ++n)
      static_cast<void>(to->send(random.of_kind(random.below(std::variant_size_v<Message>)), Priority::kUrgent));
  }
  expect_no_stages(*host);
  Coordinator(*host, 1000).set_up();
}

// What a coordinator hears.
struct Heard final : Links {
  void pass_on(Batch) override {}
  void tap(Taps) override {}
  void report(StageReport) override {}
  void conclude(Outcome) override {}
};

// What the coordinator makes of a stage that says it is ready, and then `lie` to the first batch, or nothing.
std::string heard_of(const std::optional<Message>& lie) {
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;
  Heard heard;
  std::vector<std::shared_ptr<Connection>> all;  // the control connection first
  std::vector<std::thread> threads;
  auto stage = std::make_unique<SocketNetwork>(std::nullopt);
  const auto accept = [&](const Hello&, const std::shared_ptr<Connection>& connection) -> Status {
    all.push_back(connection);
    const size_t i = all.size() - 1;
    connection->listen({.frame =
                            [&, i](const Frame&) {
                              threads.emplace_back([&, i] {  // which may wait, as the network's thread must not
                                if (i == 0)
                                  static_cast<void>(all[0]->send(StageReady{}, Priority::kUrgent));
                                else if (lie)
                                  static_cast<void>(all[0]->send(*lie, Priority::kUrgent));
                              });
                            },
                        .end = [](const Error&) {}});
    return {};
  };
  const HostAddress address = stage->listen({"127.0.0.1", 0}, accept).value();
  const StageRecipe recipe = stage_recipe(StageSort::kWhole);
  const ModelFile model = ModelFile::open(recipe.files.path).value();
  auto remote = open_remote_pipeline({.hosts = {address},
                                      .secret = {},
                                      .search = 0,
                                      .first_pass = 0.3,
                                      .recipes = {recipe},
                                      .n_tokens = 300,
                                      .model = &model,
                                      .on_sent = [](uint64_t, uint64_t) { return false; }})
                    .value();
  const auto fail = [&](const std::string& why) {
    const std::lock_guard lock(mutex);
    failure = why;
    changed.notify_all();
  };
  remote->start(heard, {.failed = [&](const Error& error) { fail("for good: " + error.message); },
                        .replaced = {},
                        .lost = [&](const Error& error, uint32_t) { fail(error.message); }});
  remote->submit(kTarget, Batch{.id = BatchId(7)});
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return !failure.empty(); }));
  EXPECT_TRUE(failure.starts_with("host " + address.text() + ": ") || failure.starts_with("for good: ")) << failure;
  lock.unlock();
  remote.reset();
  stage.reset();  // nothing comes any more
  for (std::thread& thread : threads) thread.join();
  return failure;
}

TEST(RemotePipeline, AHostThatLiesIsNamed) {
  EXPECT_NE(heard_of(Outcome{.batch = BatchId(8)}).find("the outcome of batch 8"), std::string::npos);
  EXPECT_NE(heard_of(StageReport{.stage = StageId(3), .batch = BatchId(7)}).find("the report of stage 3"),
            std::string::npos);
  EXPECT_NE(heard_of(Taps{}).find("nobody asked"), std::string::npos);
  EXPECT_NE(heard_of(TapsArrived{}).find("what only a head says"), std::string::npos);
  EXPECT_NE(heard_of(Batch{}).find("no stage sends"), std::string::npos);
  EXPECT_NE(heard_of(NextUnreachable{}).find("no reason to"), std::string::npos);
  EXPECT_NE(heard_of(Outcome{.batch = BatchId(7), .accepted = {{.sequence = SequenceId(0), .cell = Cell(1 << 20)}}})
                .find("not in the batch"),
            std::string::npos);
  EXPECT_NE(heard_of(WorkerFailed{Error{ErrorKind::kRuntime, "no more memory"}}).find("no more memory"),
            std::string::npos);
}

TEST(RemotePipeline, AHostThatAsksForWeightsWhenItHasThemHoldsNobodyUp) {
  EXPECT_NE(heard_of(WeightBlockAsked{.file = 9}).find("weights that the model does not have"), std::string::npos);
  EXPECT_NE(heard_of(WeightBlockAsked{}).find("for good: interrupted"), std::string::npos) << "the user has said so";
}

TEST(RemotePipeline, AHostThatAnswersButComputesNothingIsLost) {
  EXPECT_NE(heard_of(std::nullopt).find("has computed nothing"), std::string::npos);
}

// It says that it is ready, and by which instructions it computes.
TEST(Generation, StandsInForAFormerOneOnLikeProcessorsOnly) {
  SocketNetwork there({}), here({});
  std::vector<std::thread> threads;
  std::mutex mutex;
  const auto accept = [&](const Hello& hello, const std::shared_ptr<Connection>& connection) -> Status {
    if (hello.role != Hello::Role::kControl) return {};
    connection->listen({.frame =
                            [&, connection](const Frame&) {
                              const std::lock_guard lock(mutex);
                              threads.emplace_back([connection] {
                                static_cast<void>(
                                    connection->send(StageReady{.instructions = "AVX2"}, Priority::kUrgent));
                              });
                            },
                        .end = [](const Error&) {}});
    return {};
  };
  const HostAddress address = there.listen({"127.0.0.1", 0}, accept).value();
  RemotePlan plan{.hosts = {address}, .recipes = {stage_recipe(StageSort::kWhole)}, .alike = "IQ1_S"};
  Unreachable unreachable;
  const auto error_after = [&](const std::optional<Bits>& former) {
    const auto generation = std::make_shared<Generation>(plan, plan.hosts, here, WeightServers(), unreachable, former);
    const auto opened = generation->open(10);
    generation->close();
    return opened ? "none" : opened.error().error.message;
  };
  EXPECT_EQ(error_after({}), "none");
  EXPECT_EQ(error_after(Bits{Exactness::kBitwise, "AVX2"}), "none");
  EXPECT_NE(error_after(Bits{Exactness::kBitwise, "AVX512"}).find("by other instructions (AVX2) than those before"),
            std::string::npos);
  plan.alike.clear();
  EXPECT_EQ(error_after(Bits{Exactness::kBitwise, "AVX512"}), "none");
  const std::lock_guard lock(mutex);
  for (std::thread& thread : threads) thread.join();
}

// Its connections end in any order, and by which it says why is not the first that is heard of.
TEST(Generation, WhyAHostHasGivenUpIsToldWhateverEndsFirst) {
  for (const bool refuses : {true, false}) {
    SocketNetwork there({}), next({}), here({});
    std::shared_ptr<Connection> control;
    std::thread giving_up;
    const auto gives_up = [&](const Hello& hello, const std::shared_ptr<Connection>& connection) -> Status {
      if (hello.role == Hello::Role::kControl) {
        control = connection;
        connection->listen({.frame = [](const Frame&) {}, .end = [](const Error&) {}});
        return {};
      }
      giving_up = std::thread([control, relay = refuses ? nullptr : connection] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (relay) relay->close();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        static_cast<void>(
            control->send(WorkerFailed{Error{ErrorKind::kRuntime, "it has too little memory"}}, Priority::kUrgent));
      });
      return refuses ? Status(runtime_error("it holds no such stage any more")) : Status();
    };
    RemotePlan plan{.hosts = {there.listen({"127.0.0.1", 0}, gives_up).value(),
                              next.listen({"127.0.0.1", 0}, [](auto&&...) { return Status(); }).value()},
                    .recipes = {stage_recipe(StageSort::kFirst), stage_recipe(StageSort::kLast)}};
    plan.hosts.front().relay = true;
    Unreachable unreachable;
    const auto generation = std::make_shared<Generation>(plan, plan.hosts, here, WeightServers(), unreachable);
    const auto opened = generation->open(10);
    generation->close();
    giving_up.join();
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().error.message.find("too little memory"), std::string::npos)
        << opened.error().error.message;
    EXPECT_EQ(opened.error().stage, 0u);
    EXPECT_TRUE(opened.error().in_set_up) << "to ask it again is of no use";
  }
}

TEST(RemotePipeline, WhatIsSubmittedBeforeItIsResumedIsDropped) {
  const StageRecipe recipe = [] {
    StageRecipe whole = stage_recipe(StageSort::kWhole);
    whole.files.identity = ModelFile::open(whole.files.path)->identity().value();
    return whole;
  }();
  auto first = open_host();
  const auto second = open_host();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint32_t> replaced;
  std::vector<BatchId> came;
  struct Outcomes final : Links {
    std::function<void(BatchId)> came;
    void pass_on(Batch) override {}
    void tap(Taps) override {}
    void report(StageReport) override {}
    void conclude(Outcome outcome) override { came(outcome.batch); }
  } links;
  const auto note = [&](auto& list, auto what) {
    const std::lock_guard lock(mutex);
    list.push_back(what);
    changed.notify_all();
  };
  const auto wait_for = [&](const auto& list, size_t n) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::minutes(1), [&] { return list.size() >= n; });
  };
  links.came = [&](BatchId batch) { note(came, batch); };
  const auto remote = open_remote_pipeline({.hosts = {first->address()},
                                            .spares = {second->address()},
                                            .secret = {},
                                            .recipes = {recipe},
                                            .n_tokens = 300})
                          .value();
  remote->start(links, {.failed = {},
                        .replaced = [&](uint32_t generation) { note(replaced, generation); },
                        .lost = [](const Error& error, uint32_t) { ADD_FAILURE() << error.message; }});
  remote->submit(kTarget, Batch{.id = BatchId(1)});
  ASSERT_TRUE(wait_for(came, 1));
  first.reset();
  ASSERT_TRUE(wait_for(replaced, 1));
  remote->submit(kTarget, Batch{.id = BatchId(2)});
  remote->resume(replaced.front() + 1);  // of none that there is
  remote->submit(kTarget, Batch{.id = BatchId(3)});
  remote->resume(replaced.front());
  remote->submit(kTarget, Batch{.id = BatchId(4)});
  ASSERT_TRUE(wait_for(came, 2));
  EXPECT_EQ(came, (std::vector{BatchId(1), BatchId(4)}));
  EXPECT_EQ(second->stages(), 2u) << "the spare's connection, and the stage";
}

}  // namespace
}  // namespace sluice
