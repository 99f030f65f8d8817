// A stage can be made wherever its files are, from what came as bytes.
#include "pipeline/recipe.h"

#include <gtest/gtest.h>

#include "support/harness.h"
#include "support/tiny_head.h"
#include "wire/codec.h"

namespace sluice {
namespace {

using namespace test;
using Kind = StageRecipe::Kind;

StageRecipe sent(const StageRecipe& recipe) { return std::get<StageRecipe>(decode(encode(recipe)).value()); }

PipelineOptions three_stages() {
  return {.cuts = {{0, 2}, {2, 4}, {4, 6}}, .stage = {.n_cells = 64, .max_rows = 16, .threads = 1}};
}

Batch prompt(const std::vector<Token>& tokens) {
  Batch batch{.id = BatchId(0), .updates = {Open{SequenceId(0), {}}}, .rows = {}, .hidden = {}};
  for (const Token token : tokens) {
    const auto i = static_cast<int32_t>(batch.rows.size());
    batch.rows.push_back({.sequence = SequenceId(0),
                          .token = token,
                          .position = i,
                          .cell = sluice::Cell(i),
                          .parent = sluice::Cell(i - 1),
                          .kind = Row::Kind::kPrompt,
                          .index = static_cast<uint16_t>(i)});
  }
  batch.rows.back().kind = Row::Kind::kNode;
  return batch;
}

// What the last of them makes of a batch, and the states that come out of it.
Worker::Done run(std::vector<Worker>& workers, Batch batch) {
  Worker::Done done;
  for (Worker& worker : workers) {
    done = worker.process(std::move(batch));
    batch = done.onward;
  }
  return done;
}

TEST(Recipe, AStageMadeElsewhereComputesTheSame) {
  const ModelFile& model = six_layers().model;
  auto here = make_workers(model, three_stages()).value();
  std::vector<Worker> there;
  for (StageRecipe recipe : recipes_for(model, three_stages())) {
    recipe.files.identity = model.identity().value();
    there.push_back(std::move(make_stage(sent(recipe)).value().worker));
  }
  const auto expected = run(here, prompt({70, 71, 72})), done = run(there, prompt({70, 71, 72}));
  ASSERT_EQ(done.outcome.accepted.size(), 1u);
  EXPECT_EQ(done.outcome.accepted[0].next, expected.outcome.accepted[0].next);
  EXPECT_EQ(done.onward.hidden, expected.onward.hidden);
  EXPECT_EQ(there[1].stage(), StageId(1));
  EXPECT_EQ(there[1].exactness(), Exactness::kBitwise);
}

TEST(Recipe, NamesTheLayersTheTapsAndWhoGuesses) {
  PipelineOptions options = three_stages();
  options.stage.taps = {0, 2, 3, 6};
  const auto recipes = recipes_for(six_layers().model, options);
  ASSERT_EQ(recipes.size(), 3u);
  EXPECT_EQ(recipes[1].options.range, (LayerRange{2, 4}));
  EXPECT_TRUE(recipes[0].options.with_embedding && !recipes[1].options.with_embedding);
  EXPECT_TRUE(recipes[2].options.with_head && recipes[2].last && !recipes[1].last);
  EXPECT_EQ(recipes[0].options.taps, std::vector<int32_t>{2}) << "the embedding is nobody's";
  EXPECT_EQ(recipes[1].options.taps, std::vector<int32_t>{3});
  EXPECT_EQ(recipes[2].options.taps, std::vector<int32_t>{6});
  EXPECT_EQ(recipes[0].candidates, 0);

  options.stage.taps.clear();
  options.candidates = 6;
  options.guessable = 40;
  const auto of_draft = recipes_for(six_layers().model, options);
  EXPECT_TRUE(of_draft[0].options.foreign_tokens);
  EXPECT_EQ(of_draft[2].options.n_logits, 40);
}

TEST(Recipe, LazilyTheLastStageHasAllLayersAndTheOthersNothing) {
  PipelineOptions options = three_stages();
  options.memo = std::make_shared<Memo>();
  const auto recipes = recipes_for(six_layers().model, options);
  EXPECT_EQ(recipes[0].kind, Kind::kNothing);
  EXPECT_EQ(recipes[2].kind, Kind::kLazy);
  EXPECT_EQ(recipes[2].options.range, (LayerRange{0, 6}));
}

TEST(Recipe, AnotherFileThanWasMeantIsRefused) {
  StageRecipe recipe = recipes_for(six_layers().model, three_stages())[0];
  recipe.files.identity = two_layers().model.identity().value();
  const auto made = make_stage(sent(recipe));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::kInput);
  EXPECT_EQ(made.error().message, recipe.files.path + ": another file than the pipeline's, which has the SHA-256 " +
                                      recipe.files.identity.hex() + ": copy that one here");
  recipe.files.path = "/nowhere.gguf";
  EXPECT_NE(make_stage(recipe).error().message.find("/nowhere.gguf"), std::string::npos);
}

TEST(Recipe, OfAHeadNamesItsTarget) {
  const ModelFile& target = six_layers().model;
  const TinyHeadSpec spec{.kind = "exit"};
  const auto head = HeadFile::open(tiny_head(target, spec).write(temp_path("recipe_head.gguf")), target).value();
  StageRecipe recipe = recipe_for(head, {.stage = {.n_cells = 32}, .candidates = 5, .guessable = 40}, 1);
  EXPECT_EQ(recipe.kind, Kind::kHead);
  EXPECT_EQ(recipe.files.target, target.path());
  recipe.files.identity = head.identity().value();
  EXPECT_TRUE(make_stage(sent(recipe)));
  recipe.files.identity = target.identity().value();
  EXPECT_FALSE(make_stage(sent(recipe)));
}

TEST(Recipe, OfADraftHeadNamesItsTarget) {
  const ModelFile& target = six_layers().model;
  const TinyHeadSpec spec{.kind = "draft"};
  const auto draft =
      ModelFile::open_draft(tiny_head(target, spec).write(temp_path("recipe_draft.gguf")), target).value();
  const PipelineOptions options{
      .cuts = {{0, draft.hparams().n_layers}}, .stage = {.n_cells = 32}, .candidates = 5, .guessable = 40};
  StageRecipe recipe = recipes_for(draft, options)[0];
  EXPECT_EQ(recipe.kind, Kind::kLayers);
  EXPECT_EQ(recipe.files.target, target.path());
  recipe.files.identity = draft.identity().value();
  auto there = make_stage(sent(recipe));
  ASSERT_TRUE(there) << there.error().message;
  auto here = make_workers(draft, options).value();
  const auto expected = here[0].process(prompt({70, 71})), done = there->worker.process(prompt({70, 71}));
  ASSERT_EQ(done.outcome.drafted.size(), 1u);
  EXPECT_EQ(done.outcome.drafted[0].candidates[0].token, expected.outcome.drafted[0].candidates[0].token);
  EXPECT_EQ(done.onward.hidden, expected.onward.hidden);
}

TEST(Recipe, ThatContradictsItselfIsRefused) {
  StageRecipe recipe = recipes_for(six_layers().model, three_stages())[0];
  recipe.options.range = {0, 7};
  EXPECT_FALSE(make_stage(recipe));
  recipe = recipes_for(six_layers().model, three_stages())[2];
  recipe.options.with_head = false;
  EXPECT_FALSE(make_stage(recipe));
  recipe = recipes_for(six_layers().model, three_stages())[2];
  recipe.kind = Kind::kNothing;
  EXPECT_FALSE(make_stage(recipe));
  recipe = recipes_for(six_layers().model, three_stages())[0];
  recipe.kind = Kind::kHead;
  EXPECT_FALSE(make_stage(recipe)) << "no target is named";
  recipe = recipes_for(six_layers().model, three_stages())[2];
  recipe.guesses = 1 << 30;
  EXPECT_FALSE(make_stage(recipe));
  recipe = recipes_for(six_layers().model, three_stages())[1];
  recipe.options.max_rows = 1 << 30;
  EXPECT_FALSE(make_stage(recipe)) << "it would take all memory there is";
}

}  // namespace
}  // namespace sluice
