#include "train/train.h"

#include <spdlog/fmt/fmt.h>

#include <span>
#include <thread>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "session/installation.h"

namespace sluice {

namespace {

// What all commands take.
struct TrainCommand {
  std::string model;
  TrainOptions train;
};

void add_train_options(CLI::App& command, TrainCommand& options) {
  TrainOptions& train = options.train;
  const auto tokens = whole_number(1, int64_t{1} << 40);
  command
      .add_option(
          "--data", train.corpora,
          "Corpus of sluice train data; may be given more than once: only the last may grow while a run goes on")
      ->required()
      ->allow_extra_args(false)
      ->check(not_empty("a folder"));
  command
      .add_option("--out", train.out, "Folder for checkpoint.gguf, log.jsonl and head.gguf; a run begun there goes on")
      ->required()
      ->check(not_empty("a folder"));
  add_value(command, "--tokens", train.tokens, tokens,
            "Answer tokens to train on; more than there are means several epochs");
  add_value(command, "--batch", train.batch, whole_number(1), "Conversations a step");
  command.add_option(
      "--from", train.from,
      "Exported head to begin with, of the same kind and options: to train it longer, on other text, or, with a "
      "larger --draft-vocab, for more tokens");
  add_value(command, "--lr", train.lr, number(0, 1, true), "Peak of the learning rate");
  add_value(command, "--warmup", train.warmup, number(0, 1),
            "Share of the tokens in which it rises; then it falls to 0");
  add_value(command, "--clip", train.clip, number(0, 1e9, true), "Largest norm of the gradient");
  add_value(command, "--weight-decay", train.weight_decay, number(0, 1), "Of AdamW");
  add_value(command, "--beta2", train.beta2, number(0, 0.999999),
            "Of AdamW: how long it remembers the size of gradients");
  add_value(command, "--draft-vocab", train.draft_vocab, whole_number(0),
            "The corpus' most frequent tokens, which alone are guessed; 0: all");
  add_value(command, "--max-length", train.max_tokens, whole_number(2),
            "Tokens of a conversation; the rest is left out");
  add_value(command, "--evaluate-every", train.evaluate_every, tokens, "Tokens");
  add_value(command, "--checkpoint-every", train.checkpoint_every, tokens, "Tokens");
  add_value(command, "--held-out", train.held_out, whole_number(0), "Held-out conversations of an evaluation");
  add_choice(command, "--type", train.type, kMatrixTypes,
             "Of the exported matrices; q5_0 is a third of f16; iq4_nl and q4_0 are a little less, iq4_nl the better");
  add_choice(command, "--output-type", train.output_type, kMatrixTypes,
             "Of the output matrix, which bears coarse steps worst (default: as --type)");
  add_choice(command, "--dtype", train.dtype, kPrecisions,
             "Of the products while training; bf16 pays where the processor has it");
  add_value(command, "--seed", train.seed, seed_number(), "Another seed, another order");
  add_checked(command, "--threads", train.threads, whole_number(1, 256), "CPU threads (default: all cores)");
  add_model_option(command, options.model);
}

// The head's own options, for a model.
using HeadFor = std::function<Result<HeadOptions>(const ModelFile&)>;

Status run_command(const std::string& what, TrainCommand& options, const HeadFor& head_for) {
  if (options.train.threads == 0)
    options.train.threads = std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
  SLUICE_TRY(const std::string path, find_model(options.model, show_downloads()));
  SLUICE_TRY(const auto model, ModelFile::open(path));
  SLUICE_TRY(const HeadOptions head, head_for(model));
  ProgressBar bar(what);
  const TrainHooks hooks{.interrupted = interrupted,
                         .progress = [&](double share, const std::string& note) { bar.show(share, note); }};
  const auto figures = train_head(model, head, options.train, hooks);
  bar.finish();
  if (!figures) return tl::unexpected<Error>(figures.error());
  if (interrupted())
    return interrupted_error("the same command goes on from " + options.train.out + "/checkpoint.gguf");
  return print(fmt::format(
      "{}/head.gguf: trained on {} tokens; this run took {:.0f} s, of which {:.0f} s were spent waiting for "
      "the target\n{}\n",
      options.train.out, figures->tokens, figures->seconds, figures->capture_seconds, figures->evaluation.dump()));
}

// n + 1 boundaries: the inner ones as given; or equal stages if the layers divide, else the later ones are one larger.
Result<std::vector<int32_t>> boundaries(std::span<const int32_t> inner, int32_t stages, const ModelFile& model) {
  const int32_t layers = model.hparams().n_layers;
  std::vector<int32_t> cuts = {0};
  if (!inner.empty()) {
    cuts.insert(cuts.end(), inner.begin(), inner.end());
    cuts.push_back(layers);
  } else {
    for (int32_t k = 1; k <= stages; ++k) cuts.push_back(k * layers / stages);
  }
  for (size_t i = 1; i < cuts.size(); ++i)
    if (cuts[i] <= cuts[i - 1])
      return input_error("--stages or --cuts: the model's " + std::to_string(layers) +
                         " layers can't be cut there; each stage needs a layer");
  return cuts;
}

Status check_depth(int32_t layers, Init init, const ModelFile& model) {
  if (init != Init::kRandom && layers > model.hparams().n_layers)
    return input_error(
        fmt::format("--layers {}: the module begins as the model's layers, of which there are {}; take "
                    "fewer, or --init random",
                    layers, model.hparams().n_layers));
  return {};
}

void add_layers_option(CLI::App& command, std::vector<int32_t>& layers, const std::string& what) {
  add_list_option(command, "--layers", layers, what).check(whole_number(0));
}

Status check_layers(const std::vector<int32_t>& layers, const ModelFile& model) {
  for (const int32_t layer : layers)
    if (layer >= model.hparams().n_layers)
      return input_error("--layers " + std::to_string(layer) + ": the model's layers are 0 to " +
                         std::to_string(model.hparams().n_layers - 1));
  return {};
}

template <class Options>
struct CommandOf : TrainCommand {
  Options head;
};

constexpr const char* kInitHelp = "How the layers begin: as the target's, or at random";
constexpr Choice<bool> kShallowRandom[] = {{"target", false}, {"random", true}};

// The last options of a command, and what it does.
void finish_command(CLI::App& command, Action& action, std::shared_ptr<TrainCommand> options, HeadFor head_for) {
  add_train_options(command, *options);
  command.callback([&command, &action, options = std::move(options), head_for = std::move(head_for)] {
    action = [&command, options, head_for] { return run_command(command.get_name(), *options, head_for); };
  });
}

void add_train_spd(CLI::App& train, Action& action) {
  struct Options : CommandOf<SpdOptions> {
    int32_t stages = 10;
    std::vector<int32_t> cuts;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = *train.add_subcommand("spd", "Trains a module for Speculative Pipeline Decoding");
  command.footer(
      "Examples:\n"
      "  sluice train spd --data corpus --stages 10 --layers 2 --out spd-10\n"
      "  sluice train spd --data corpus --stages 5 --layers 1 --tokens 3000000 --lr 1e-3 --out spd-5");
  SpdOptions& spd = options->head;
  auto* stages = add_value(command, "--stages", options->stages, whole_number(1), "n, of equal size");
  add_list_option(command, "--cuts", options->cuts, "First layers of the second, third, … stage")
      .check(whole_number(1))
      ->excludes(stages);
  add_value(command, "--layers", spd.layers, whole_number(1, 64), "Decoder layers of the module");
  add_choice(command, "--attention", spd.attention, kAttentions,
             "single: only the newest row is a query; full: every row is");
  add_choice(command, "--fill", spd.fill, kFills,
             "Tokens in flight while training: uniform, half of the time n (the paper's), or flushes, mostly few, as "
             "flushes leave them");
  add_choice(command, "--init", spd.init, kSpdInits,
             "How the layers begin: as the target's last on fitted states (lens), as its last or first, at random");
  command.add_flag("--output-timing", spd.output_timing, "Ablation: guess after the step, on its output");
  command.add_flag("--single-depth", spd.single_depth, "Ablation: only the deepest state of each token");
  command.add_flag("--shared-fc", spd.shared_fc, "Ablation: one FC for the depths 1 to n");
  command.add_flag("--feature-norm,!--no-feature-norm", spd.feature_norm, "Divide states by their root mean square");
  finish_command(command, action, options, [options](const ModelFile& model) -> Result<HeadOptions> {
    SpdOptions& spd = options->head;
    SLUICE_TRY_STATUS(check_depth(spd.layers, spd.init, model));
    SLUICE_TRY(spd.cuts, boundaries(options->cuts, options->stages, model));
    if (spd.output_timing && spd.cuts.size() == 2) return input_error("--output-timing: needs at least two stages");
    return spd;
  });
}

void add_train_eagle3(CLI::App& train, Action& action) {
  auto options = std::make_shared<CommandOf<Eagle3Options>>();
  CLI::App& command = *train.add_subcommand("eagle3", "Trains an EAGLE-3 head, in llama.cpp's file format");
  command.footer(
      "Examples:\n"
      "  sluice train eagle3 --data corpus --out eagle3\n"
      "  sluice train eagle3 --data corpus --unroll 7 --type q8_0 --out eagle3");
  Eagle3Options& eagle3 = options->head;
  add_list_option(command, "--taps", eagle3.taps, "Layers of the features, three (default: 2, L/2, L-3)")
      .check(whole_number(0))
      ->expected(3);
  add_value(command, "--unroll", eagle3.unroll, whole_number(1, 16), "Steps of the training-time test");
  add_value(command, "--decay", eagle3.decay, number(0, 1, true),
            "Weight of a step's loss against that of the one before");
  add_value(command, "--hca", eagle3.hca, number(0, 1000), "Weight of the harmonised context alignment loss; 0 is off");
  command.add_flag("--norm-before-fc,!--no-norm-before-fc", eagle3.norm_before_fc,
                   "An RMS norm before the features are fused");
  add_choice(command, "--init", eagle3.init, kEagleInits, "How the layer begins: as the target's, or at random");
  finish_command(command, action, options, [options](const ModelFile&) { return options->head; });
}

void add_train_exit(CLI::App& train, Action& action) {
  auto options = std::make_shared<CommandOf<ShallowOptions>>();
  options->head.input = -1;
  CLI::App& command = *train.add_subcommand("exit", "Trains an early exit, as PPSD guesses with");
  command.footer(
      "Examples:\n"
      "  sluice train exit --data corpus --stages 10 --layers 29 --out exit\n"
      "  sluice train exit --data corpus --exit 6 --out exit-6");
  ShallowOptions& shallow = options->head;
  add_value(command, "--stages", shallow.stages, whole_number(1),
            "Stages of the pipeline; the exit is after the first");
  add_checked(command, "--exit", shallow.input, whole_number(0), "Exit after so many layers instead");
  add_layers_option(command, shallow.layers,
                    "Layers of the target that the exit's own begin as (default: none, a norm and a matrix)");
  add_choice(command, "--init", shallow.random, kShallowRandom, kInitHelp);
  finish_command(command, action, options, [options](const ModelFile& model) -> Result<HeadOptions> {
    ShallowOptions& shallow = options->head;
    const int32_t n_layers = model.hparams().n_layers;
    SLUICE_TRY_STATUS(check_layers(shallow.layers, model));
    if (shallow.input < 0 && shallow.stages > n_layers)
      return input_error("--stages: the model has only " + std::to_string(n_layers) + " layers");
    if (shallow.input < 0) shallow.input = n_layers / shallow.stages;
    if (shallow.input > n_layers)
      return input_error("--exit: the model has only " + std::to_string(n_layers) + " layers");
    return shallow;
  });
}

void add_train_draft(CLI::App& train, Action& action) {
  auto options = std::make_shared<CommandOf<ShallowOptions>>();
  options->head.draft = true;
  CLI::App& command = *train.add_subcommand("draft", "Trains a shallow draft model with the target's tokenizer");
  command.footer(
      "Examples:\n"
      "  sluice train draft --data corpus --out draft\n"
      "  sluice train draft --data corpus --layers 0,1 --draft-vocab 0 --out draft-2");
  ShallowOptions& shallow = options->head;
  shallow.layers = {};
  add_layers_option(command, shallow.layers,
                    "Layers of the target that the draft's begin as (default: the first four)");
  add_choice(command, "--init", shallow.random, kShallowRandom, kInitHelp);
  finish_command(command, action, options, [options](const ModelFile& model) -> Result<HeadOptions> {
    ShallowOptions& shallow = options->head;
    SLUICE_TRY_STATUS(check_layers(shallow.layers, model));
    if (shallow.layers.empty())
      for (int32_t l = 0; l < std::min(4, model.hparams().n_layers); ++l) shallow.layers.push_back(l);
    return shallow;
  });
}

void add_train_p_eagle(CLI::App& train, Action& action) {
  auto options = std::make_shared<CommandOf<PEagleOptions>>();
  CLI::App& command =
      *train.add_subcommand("p-eagle", "Trains a P-EAGLE head, which drafts several tokens in one pass");
  command.footer(
      "Examples:\n"
      "  sluice train p-eagle --data corpus --out p-eagle\n"
      "  sluice train p-eagle --data corpus --layers 4 --groups 8 --max-length 4096 --segments 8 --out p-eagle-4");
  PEagleOptions& p_eagle = options->head;
  add_value(command, "--layers", p_eagle.layers, whole_number(1, 64), "Decoder layers");
  add_value(command, "--groups", p_eagle.groups, whole_number(1, 64), "K_train: depths that are trained");
  add_value(command, "--retention", p_eagle.retention, number(0, 1, true),
            "Share of the positions that each depth keeps of the one before");
  add_value(command, "--segments", p_eagle.segments, whole_number(1, 4096),
            "Segments of a sequence, with gradients accumulated over them");
  add_choice(command, "--hidden", p_eagle.hidden, kMaskedStates,
             "Hidden state of the masked positions: one shared, or one for each depth");
  command.add_flag("--train-embedding", p_eagle.train_embedding,
                   "Train the whole token embedding; the file grows by it");
  add_list_option(command, "--taps", p_eagle.taps, "Layers of the features, three (default: 2, L/2, L-3)")
      .check(whole_number(0))
      ->expected(3);
  add_choice(command, "--init", p_eagle.init, kEagleInits, kInitHelp);
  finish_command(command, action, options, [options](const ModelFile& model) -> Result<HeadOptions> {
    SLUICE_TRY_STATUS(check_depth(options->head.layers, options->head.init, model));
    return options->head;
  });
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App& train = *app.add_subcommand("train", "Trains a speculator for a model");
  train.require_subcommand(1);
  train.footer(
      "Examples:\n"
      "  sluice train data --self 5000 --out corpus\n"
      "  sluice train spd --data corpus --stages 10 --out spd-10");
  add_train_data(train, action);
  add_train_spd(train, action);
  add_train_eagle3(train, action);
  add_train_p_eagle(train, action);
  add_train_exit(train, action);
  add_train_draft(train, action);
}

}  // namespace sluice
