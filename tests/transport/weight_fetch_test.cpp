// A host that does not have a model gets what its stage reads from the coordinator, and no more.
#include "transport/weight_fetch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "compute/packed_size.h"
#include "model/file_identity.h"
#include "pipeline/recipe.h"
#include "pipeline/stage_memory.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"
#include "transport/remote_pipeline.h"
#include "transport/stage_host.h"
#include "transport/weight_server.h"

namespace sluice {
namespace {

using namespace test;
namespace fs = std::filesystem;

// Eight layers of 3 MiB.
const ModelFile& large_model(int32_t shards = 1) {
  const auto make = [](int32_t n_shards, const std::string& name) {
    TinyModelSpec spec;
    spec.n_layers = 8;
    spec.d_model = 256;
    spec.d_ff = 768;
    spec.head_dim = 64;
    spec.shards = n_shards;
    return ModelFile::open(write_tiny_model(spec, temp_path(name))).value();
  };
  static const ModelFile whole = make(1, "large.gguf"), parts = make(3, "large-parts.gguf");
  return shards == 1 ? whole : parts;
}

// What hosts have said, by any thread.
class Said {
 public:
  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    text_ += line + "\n";
  }
  bool has(const std::string& word) {
    const std::lock_guard lock(mutex_);
    return text_.find(word) != std::string::npos;
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

class Fetching : public ::testing::Test {
 protected:
  Fetching() { fs::remove_all(folder_); }

  std::unique_ptr<StageHost> host(int64_t cache_bytes = 0) {
    return StageHost::open({.listen = {"127.0.0.1", 0},
                            .secret = {},
                            .cache = {.folder = folder_, .bytes = cache_bytes},
                            .threads = 1,
                            .say = [this](const std::string& line) { said_.add(line); }})
        .value();
  }

  // A pipeline over these hosts, which know no such path.
  Result<std::unique_ptr<RemoteStages>> open(const ModelFile& model, const std::vector<HostAddress>& hosts,
                                             std::vector<LayerRange> cuts) {
    sent_ = 0;
    RemotePlan plan{
        .hosts = hosts, .secret = {}, .recipes = recipes_for(model, {.cuts = cuts, .stage = {.n_cells = 64}})};
    for (StageRecipe& recipe : plan.recipes)
      recipe.files = {.path = "/nowhere/model.gguf", .target = {}, .identity = model.identity().value()};
    plan.n_tokens = model.hparams().n_vocab;
    plan.cuts = std::move(cuts);
    plan.model = &model;
    plan.on_sent = [this](uint64_t sent, uint64_t) { return (sent_ = sent) < stop_after_; };
    return open_remote_pipeline(std::move(plan));
  }

  fs::path kept(const ModelFile& model) const { return fs::path(folder_) / "weights" / model.identity()->hex(); }

  const std::string folder_ = temp_path("fetched");
  Said said_;
  uint64_t sent_ = 0, stop_after_ = UINT64_MAX;
};

// Of one file, or of several.
class FetchingParts : public Fetching, public ::testing::WithParamInterface<int32_t> {};

TEST_P(FetchingParts, AStageGetsWhatItReadsAndNoMore) {
  const ModelFile& model = large_model(GetParam());
  const auto a = host();
  ASSERT_TRUE(open(model, {a->address(), a->address()}, {{0, 2}, {2, 8}}).has_value()) << said_.text();
  EXPECT_EQ(sent_ * kWeightBlockBytes / model.file_bytes(), 1u) << "all of it in two parts";
  EXPECT_TRUE(said_.has("fetched")) << said_.text();
  fs::remove_all(folder_);

  ASSERT_TRUE(open(model, {a->address()}, {{0, 8}}).has_value());
  for (const fs::directory_entry& file : fs::directory_iterator(kept(model)))
    if (file.path().extension() == ".gguf") {
      const auto whole = fs::path(model.path()).parent_path() /
                         (GetParam() == 1 ? "large.gguf" : "large-parts" + file.path().filename().string().substr(5));
      EXPECT_EQ(file_identity(OpenFile::open(file.path()).value()).value(),
                file_identity(OpenFile::open(whole).value()).value());
    }
}

TEST_P(FetchingParts, WhatWasFetchedIsNotSentAgain) {
  const ModelFile& model = large_model(GetParam());
  const std::vector<LayerRange> middle = {{0, 2}, {2, 8}};
  const auto a = host(), again = host();  // the first one would have its stages at hand
  ASSERT_TRUE(open(model, {a->address(), a->address()}, middle).has_value());
  ASSERT_TRUE(open(model, {again->address(), again->address()}, middle).has_value());
  EXPECT_EQ(sent_, 0u);
  EXPECT_TRUE(said_.has("takes model.gguf from " + kept(model).string())) << said_.text();
}

INSTANTIATE_TEST_SUITE_P(Files, FetchingParts, ::testing::Values(1, 3));

// The stage is where the model is; the head's host has neither file.
class FetchingAHead : public Fetching {
 protected:
  Result<std::unique_ptr<RemoteStages>> open_with_head(const StageHost& stage, const StageHost& there) {
    sent_ = 0;
    PipelineOptions options{.cuts = {{0, 8}}, .stage = {.n_cells = 64}};
    options.stage.taps = head_.parameters().tapped_layers();
    RemotePlan plan{.hosts = {stage.address()}, .secret = {}, .recipes = recipes_for(model_, options)};
    plan.recipes[0].files.identity = model_.identity().value();
    plan.n_tokens = options.guessable = model_.hparams().n_vocab;
    options.candidates = 4;
    plan.head = {.id = ModelId(1), .host = there.address(), .recipe = recipe_for(head_, options, 1), .file = &head_};
    plan.head->recipe.files = {.path = "/nowhere/head.gguf",
                               .target = "/nowhere/model.gguf",
                               .identity = head_.identity().value(),
                               .target_identity = model_.identity().value()};
    plan.model = &model_;
    plan.on_sent = [this](uint64_t, uint64_t) { return ++sent_, true; };
    return open_remote_pipeline(std::move(plan));
  }

  const ModelFile& model_ = large_model();
  const HeadFile head_ =
      HeadFile::open(tiny_head(model_, {.kind = "eagle3", .own_output = false}).write(temp_path("large-eagle3.gguf")),
                     model_)
          .value();
};

TEST_F(FetchingAHead, ItGetsItsFileAndWhatItBorrows) {
  const auto stage = host(), there = host(), again = host();
  const auto opened = open_with_head(*stage, *there);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_GT(sent_, 0u);
  for (const char* words : {" of head.gguf in ", " of model.gguf in ", "the eagle3 head of "})
    EXPECT_TRUE(said_.has(words)) << words << " in " << said_.text();
  EXPECT_LT(bytes_kept({.folder = folder_}), head_.file_bytes() + model_.file_bytes() / 2);
  ASSERT_TRUE(open_with_head(*stage, *again));
  EXPECT_EQ(sent_, 0u);
}

TEST_F(FetchingAHead, WithoutFetchingTheErrorNamesTheFile) {
  const auto stage = host();
  const auto closed = StageHost::open({.listen = {"127.0.0.1", 0}, .secret = {}, .threads = 1}).value();
  const auto refused = open_with_head(*stage, *closed);
  ASSERT_FALSE(refused);
  for (const std::string& words : {closed->address().text(), std::string("model.gguf"), std::string("--no-fetch")})
    EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
}

TEST_F(Fetching, WhatIsMissingIsLeftAHole) {
  const ModelFile& model = large_model();
  const StageRecipe recipe = recipes_for(model, {.cuts = {{0, 1}, {1, 2}, {2, 8}}, .stage = {.n_cells = 64}})[1];
  const auto offered = offer_weights(model, recipe).value();
  auto store = WeightStore::open({.folder = folder_}, *model.identity(), offered, [] { return false; }).value();
  for (const auto& block : store.missing()) {
    const WeightBlockAsked asked{.file = block.file, .block = block.block};
    ASSERT_TRUE(store.put(block, read_weights(model.files(), asked).value()));
  }
  ASSERT_TRUE(store.keep());
  EXPECT_LT(bytes_kept({.folder = folder_}), model.file_bytes() / 2);
  const auto part = ModelFile::open_part(store.path(), *model.identity());
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_EQ(*part->identity(), *model.identity());
  const auto layer = [](const ModelFile& file, int32_t l) {
    const StageWeights weights = file.map({l, l + 1}, false, false).value();
    const Tensor& gate = weights.layers[0].gate;
    return std::string(reinterpret_cast<const char*>(gate.data), gate.row_bytes * static_cast<size_t>(gate.ne[1]));
  };
  EXPECT_EQ(layer(*part, 1), layer(model, 1));
  EXPECT_EQ(layer(*part, 6), std::string(layer(model, 6).size(), '\0'));
}

TEST_F(Fetching, OneAtATimeFetchesIntoAFolder) {
  const ModelFile& model = large_model();
  const auto offered =
      offer_weights(model, recipes_for(model, {.cuts = {{0, 8}}, .stage = {.n_cells = 64}})[0]).value();
  const WeightCache cache{.folder = folder_};
  const auto first = WeightStore::open(cache, *model.identity(), offered, [] { return false; });
  ASSERT_TRUE(first);
  EXPECT_FALSE(WeightStore::open(cache, *model.identity(), offered, [] { return true; }));
}

TEST_F(Fetching, AFolderThatMadeRoomForAnotherIsMadeAgain) {
  const ModelFile& model = large_model();
  const auto offered =
      offer_weights(model, recipes_for(model, {.cuts = {{0, 8}}, .stage = {.n_cells = 64}})[0]).value();
  fs::create_directories(kept(model));
  auto used = FileLock::try_take((kept(model) / "used").string(), FileLock::Kind::kAlone);
  ASSERT_TRUE(used);
  const auto store = WeightStore::open({.folder = folder_}, *model.identity(), offered, [&] {
    if (std::exchange(used, nullptr)) fs::remove_all(kept(model));
    return false;
  });
  EXPECT_TRUE(store) << store.error().message;
}

TEST_F(Fetching, GoesOnAfterABreak) {
  const ModelFile& model = large_model();
  const auto a = host();
  stop_after_ = 10;
  const auto stopped = open(model, {a->address()}, {{0, 8}});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kInterrupted);
  const uint64_t sent_before = sent_;
  stop_after_ = UINT64_MAX;
  ASSERT_TRUE(open(model, {a->address()}, {{0, 8}}).has_value()) << said_.text();
  const uint64_t blocks = (model.file_bytes() + kWeightBlockBytes - 1) / kWeightBlockBytes;
  EXPECT_LT(sent_, blocks);
  EXPECT_LE(sent_ + sent_before, blocks + kWeightBlocksAhead);
}

TEST_F(Fetching, DamagedWeightsAreRefused) {
  const ModelFile& model = large_model();
  const auto offered =
      offer_weights(model, recipes_for(model, {.cuts = {{0, 8}}, .stage = {.n_cells = 64}})[0]).value();
  auto store = WeightStore::open({.folder = folder_}, *model.identity(), offered, [] { return false; }).value();
  const WeightStore::Block block = store.missing()[1];
  WeightBlock came = read_weights(model.files(), {.file = block.file, .block = block.block}).value();
  came.bytes[17] ^= 1;
  const Status damaged = store.put(block, came);
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().message.find("damaged"), std::string::npos);
  came.bytes.pop_back();
  EXPECT_FALSE(store.put(block, came));
  came.block += 1;
  EXPECT_FALSE(store.put(block, came));
  EXPECT_FALSE(read_weights(model.files(), {.file = 1, .block = 0}));
  EXPECT_FALSE(read_weights(model.files(), {.file = 0, .block = 1 << 30}));
}

TEST_F(Fetching, OfAFileThatWasCutNothingIsTakenForThere) {
  const ModelFile& model = large_model();
  const auto offered =
      offer_weights(model, recipes_for(model, {.cuts = {{0, 8}}, .stage = {.n_cells = 64}})[0]).value();
  const auto store_of_it = [&] {
    return WeightStore::open({.folder = folder_}, *model.identity(), offered, [] { return false; }).value();
  };
  size_t all = 0;
  {
    WeightStore store = store_of_it();
    all = store.missing().size();
    const auto block = store.missing().front();
    ASSERT_TRUE(store.put(block, read_weights(model.files(), {.file = block.file, .block = block.block}).value()));
    ASSERT_TRUE(store.keep());
  }
  ASSERT_EQ(store_of_it().missing().size(), all - 1);
  fs::resize_file(kept(model) / "model.gguf", 1000);
  EXPECT_EQ(store_of_it().missing().size(), all);
  EXPECT_EQ(store_of_it().missing().size(), all) << "it has its length again, and holes";
}

TEST_F(Fetching, AnOfferThatIsNoModelIsRefused) {
  const WeightCache cache{.folder = folder_};
  const auto refused = [&](WeightsOffered offered) {
    return !WeightStore::open(cache, Sha256(), offered, [] { return false; }).has_value();
  };
  const Sha256 hash;
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({.files = {{.bytes = 0}}}));
  EXPECT_TRUE(refused({.files = {{.bytes = uint64_t{1} << 60}}}));
  EXPECT_TRUE(refused({.files = {{.bytes = 10, .blocks = {0}}}}));
  EXPECT_TRUE(refused({.files = {{.bytes = 10, .blocks = {1}, .hashes = {hash}}}}));
  EXPECT_TRUE(refused({.files = {{.bytes = 1 << 22, .blocks = {2, 1}, .hashes = {hash, hash}}}}));
  EXPECT_FALSE(refused({.files = {{.bytes = 10, .blocks = {0}, .hashes = {hash}}}}));
}

TEST_F(Fetching, TheCacheStaysWithinItsSize) {
  const ModelFile& model = large_model();
  const auto small = host(1'000'000);
  const auto refused = open(model, {small->address()}, {{0, 8}});
  ASSERT_FALSE(refused);
  for (const std::string& word : {small->address().text(), std::string("--cache-size"), std::string("--models")})
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  fs::create_directories(fs::path(folder_) / "weights" / "former");
  std::ofstream(fs::path(folder_) / "weights" / "former" / "model.gguf") << std::string(20'000'000, 'x');
  const auto enough = host(static_cast<int64_t>(model.file_bytes()) + 4'000'000);
  ASSERT_TRUE(open(model, {enough->address()}, {{0, 8}}).has_value()) << said_.text();
  EXPECT_FALSE(fs::exists(fs::path(folder_) / "weights" / "former"));
}

TEST_F(Fetching, AFolderThatCannotBeWrittenIsNamed) {
  const auto a = host();
  std::ofstream(folder_) << "a file";
  const auto refused = open(large_model(), {a->address()}, {{0, 8}});
  ASSERT_FALSE(refused);
  for (const std::string& word : {a->address().text(), folder_, std::string("--cache"), std::string("--no-fetch")})
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  fs::remove(folder_);
}

TEST_F(Fetching, WhereNotAllExpertsFitAPartOfThemIsKept) {
  const ModelFile model =
      ModelFile::open(write_tiny_model(with_experts({}, "qwen3moe"), temp_path("fetched-experts.gguf"))).value();
  const LayerRange all = {0, model.hparams().n_layers};
  const StageRecipe recipe = recipes_for(model, {.cuts = {all}, .stage = {.n_cells = 64}}).front();
  const auto a = StageHost::open({.listen = {"127.0.0.1", 0},
                                  .secret = {},
                                  .cache = {.folder = folder_},
                                  .memory = bytes_of_stage(recipe, model) - expert_bytes(model, all) / 4,
                                  .threads = 1,
                                  .say = [this](const std::string& line) { said_.add(line); }})
                     .value();
  const auto opened = open(model, {a->address()}, {all});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE(said_.has("% of its experts")) << said_.text();
}

TEST_F(Fetching, TooLittleMemoryIsSaidBeforeAnythingIsSent) {
  const auto a =
      StageHost::open(
          {.listen = {"127.0.0.1", 0}, .secret = {}, .cache = {.folder = folder_}, .memory = 1 << 20, .threads = 1})
          .value();
  const auto refused = open(large_model(), {a->address()}, {{0, 8}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("memory"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace sluice
