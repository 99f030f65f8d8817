#include "support/stage_traffic.h"

#include <map>
#include <string>

#include "pipeline/packing.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice::test {

namespace {

constexpr SequenceId kGreedy(4), kDrawn(7), kForked(8);

const ModelFile& target() {
  static const ModelFile model = [] {
    const TinyModelSpec spec{
        .n_layers = 4, .d_model = 32, .n_heads = 2, .n_kv_heads = 1, .d_ff = 64, .extra_tokens = 0, .seed = 3};
    return ModelFile::open(write_tiny_model(spec, temp_path("traffic-target.gguf"))).value();
  }();
  return model;
}

const ModelFile& hybrid() {
  static const ModelFile model = [] {
    const TinyModelSpec spec{
        .n_layers = 4, .d_model = 32, .n_heads = 2, .n_kv_heads = 1, .d_ff = 64, .extra_tokens = 0, .seed = 3};
    return ModelFile::open(write_tiny_model(of_family(spec, "qwen35"), temp_path("traffic-hybrid.gguf"))).value();
  }();
  return model;
}

const HeadFile& head(const std::string& kind) {
  static std::map<std::string, HeadFile> heads;
  if (const auto at = heads.find(kind); at != heads.end()) return at->second;
  const std::string path = tiny_head(target(), {.kind = kind}).write(temp_path("traffic-" + kind + ".gguf"));
  return heads.emplace(kind, HeadFile::open(path, target()).value()).first->second;
}

const char* head_kind(StageSort sort) {
  switch (sort) {
    case StageSort::kSpd:
      return "spd";
    case StageSort::kEagle3:
      return "eagle3";
    case StageSort::kPEagle:
      return "p-eagle";
    case StageSort::kExit:
      return "exit";
    default:
      return nullptr;
  }
}

// The batches of the story, as they enter a first stage of the target.
std::vector<Batch> batches() {
  const auto row = [](SequenceId sequence, Token token, int32_t position, int32_t cell, int32_t parent,
                      Row::Kind kind = Row::Kind::kNode) {
    return Row{.sequence = sequence,
               .token = token,
               .position = position,
               .cell = Cell(cell),
               .parent = Cell(parent),
               .kind = kind};
  };
  constexpr auto kPrompt = Row::Kind::kPrompt;
  const SamplingParams greedy, drawn{.temperature = 0.8f, .logit_bias = {{70, 0.5f}}, .rule = Rule::kReject};
  const Draws draws{.row = 3, .q = {{71, 0.5f}, {72, 0.25f}}, .tokens = {71, 72}};
  std::vector<Batch> all(4);
  all[0].updates = {Open{kGreedy, greedy, /*checkpoint=*/2}, Open{kDrawn, drawn}};
  all[0].rows = {row(kGreedy, 70, 0, 10, -1, kPrompt), row(kGreedy, 71, 1, 11, 10, kPrompt),
                 row(kDrawn, 70, 0, 20, -1, kPrompt), row(kDrawn, 71, 1, 21, 20), row(kGreedy, 72, 2, 12, 11)};
  all[0].draws = {draws};
  all[1].rows = {row(kGreedy, 73, 3, 13, 12), row(kGreedy, 74, 3, 14, 12), row(kDrawn, 71, 2, 22, 21),
                 row(kDrawn, 72, 2, 23, 21)};
  all[2].updates = {Commit{kGreedy, Cell(12)}, Commit{kDrawn, Cell(21)}};
  all[2].rows = {row(kGreedy, 75, 4, 15, 13), row(kDrawn, 73, 3, 24, 22)};
  all[3].updates = {Fork{kForked, kDrawn, 2, greedy}, Truncate{kGreedy, 2, drawn}, Close{kDrawn}};
  all[3].rows = {row(kGreedy, 76, 2, 30, 11, kPrompt), row(kGreedy, 77, 3, 31, 30), row(kForked, 74, 2, 32, 21)};
  for (size_t b = 0; b < all.size(); ++b) {
    all[b].id = BatchId(static_cast<int64_t>(b));
    for (size_t i = 0; i < all[b].rows.size(); ++i) all[b].rows[i].index = static_cast<uint16_t>(i);
  }
  return all;
}

std::vector<float> some_states(size_t n) {
  std::vector<float> states(n);
  for (size_t i = 0; i < n; ++i) states[i] = 0.01f * static_cast<float>(i % 37) - 0.18f;
  return states;
}

// What the target taps of a batch for the head.
Taps taps_of(const Batch& batch, const HeadParameters& parameters) {
  Taps taps{.batch = batch.id, .stage = StageId(0), .rows = batch.rows, .layers = parameters.tapped_layers()};
  taps.states = some_states(taps.rows.size() * taps.layers.size() * static_cast<size_t>(parameters.hparams.d_model));
  return taps;
}

// The rows of a batch take the states of their own tokens, or of those before; then the last batch refreshes one.
void feature(Batch& batch, const HeadParameters& parameters) {
  const int32_t deepest = static_cast<int32_t>(parameters.taps.size()) - 1;
  for (const Row& row : batch.rows) {
    const bool before = parameters.kind == HeadKind::kEagle3 || parameters.kind == HeadKind::kPEagle;
    if (before && row.position == 0) continue;
    batch.features.push_back({.row = row.index, .cell = before ? row.parent : row.cell, .depth = deepest});
  }
  if (batch.id.value == 2)
    batch.refreshes = {
        {.sequence = kGreedy, .token = 72, .position = 2, .own = Cell(12), .cell = Cell(11), .depth = deepest}};
}

}  // namespace

StageRecipe stage_recipe(StageSort sort) {
  PipelineOptions options{.cuts = {{0, 1}, {1, 3}, {3, 4}},
                          .stage = {.n_cells = kStageCells, .max_rows = kStageRows, .threads = 2}};
  if (const char* kind = head_kind(sort)) {
    options.candidates = 6;
    options.guessable = target().hparams().n_vocab;
    return recipe_for(head(kind), options, 3);
  }
  if (sort == StageSort::kWhole || sort == StageSort::kDraft) options.cuts = {{0, 4}};
  if (sort == StageSort::kDraft) options.candidates = 6, options.guessable = 90;
  if (sort == StageSort::kLazy) options.memo = std::make_shared<Memo>();
  if (sort == StageSort::kHalves) options.activations = Activations::kF16;
  if (sort == StageSort::kFolds) return recipes_for(hybrid(), options)[1];
  const auto recipes = recipes_for(target(), options);
  if (sort == StageSort::kFirst) return recipes.front();
  return sort == StageSort::kMiddle || sort == StageSort::kHalves ? recipes[1] : recipes.back();
}

std::vector<Message> honest_traffic(StageSort sort) {
  const char* kind = head_kind(sort);
  const StageRecipe recipe = stage_recipe(sort);
  const bool takes_states = recipe.kind == StageRecipe::Kind::kLayers && !recipe.options.with_embedding;
  const size_t d_model = static_cast<size_t>(target().hparams().d_model);
  std::vector<Message> messages;
  for (Batch& batch : batches()) {
    if (batch.id.value == 1)
      messages.push_back(Amendment{.dead = {{BatchId(1), 1}},
                                   .late_draws = {{BatchId(1), {.row = 2, .q = {{73, 1.0f}}, .tokens = {73}}}}});
    if (takes_states) batch.hidden = some_states(batch.rows.size() * d_model);
    if (recipe.options.activations() == Activations::kF16) pack_states(batch);
    if (kind != nullptr) {
      const HeadParameters& parameters = head(kind).parameters();
      messages.push_back(taps_of(batch, parameters));
      feature(batch, parameters);
      batch.draws.clear();
    }
    messages.push_back(std::move(batch));
  }
  return messages;
}

Status receive(Stage& stage, const Message& message) {
  try {
    if (const auto* batch = std::get_if<Batch>(&message)) {
      SLUICE_TRY_STATUS(stage.frames.check(*batch));
      stage.worker.process(*batch);
    } else if (const auto* amendment = std::get_if<Amendment>(&message)) {
      SLUICE_TRY_STATUS(stage.frames.check(*amendment));
      stage.worker.amend(*amendment);
    } else if (const auto* taps = std::get_if<Taps>(&message)) {
      SLUICE_TRY_STATUS(stage.frames.check(*taps));
      stage.worker.receive(*taps);
    }
  } catch (const BrokenInvariant& broken) {
    return runtime_error(broken.what());
  }
  return {};
}

}  // namespace sluice::test
