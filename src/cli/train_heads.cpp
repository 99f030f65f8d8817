#include <spdlog/fmt/fmt.h>

#include <span>
#include <thread>

#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/train.h"
#include "session/installation.h"
#include "train/train.h"

namespace sluice {

namespace {

struct HeadOptions {
  std::string model;
  TrainOptions train;
};

void add_train_options(CLI::App& command, HeadOptions& options) {
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
  command.add_option("--tokens", train.tokens, "Answer tokens to train on; more than there are means several epochs")
      ->capture_default_str()
      ->check(tokens);
  command.add_option("--batch", train.batch, "Conversations a step")->capture_default_str()->check(whole_number(1));
  command.add_option(
      "--from", train.from,
      "Exported head to begin with, of the same kind and options: to train it longer, on other text, or, with a "
      "larger --draft-vocab, for more tokens");
  command.add_option("--lr", train.lr, "Peak of the learning rate")->capture_default_str()->check(number(0, 1, true));
  command.add_option("--warmup", train.warmup, "Share of the tokens in which it rises; then it falls to 0")
      ->capture_default_str()
      ->check(number(0, 1));
  command.add_option("--clip", train.clip, "Largest norm of the gradient")
      ->capture_default_str()
      ->check(number(0, 1e9, true));
  command.add_option("--weight-decay", train.weight_decay, "Of AdamW")->capture_default_str()->check(number(0, 1));
  command.add_option("--beta2", train.beta2, "Of AdamW: how long it remembers the size of gradients")
      ->capture_default_str()
      ->check(number(0, 0.999999));
  command
      .add_option("--draft-vocab", train.draft_vocab,
                  "The corpus' most frequent tokens, which alone are guessed; 0: all")
      ->capture_default_str()
      ->check(whole_number(0));
  command.add_option("--max-length", train.max_tokens, "Tokens of a conversation; the rest is left out")
      ->capture_default_str()
      ->check(whole_number(2));
  command.add_option("--evaluate-every", train.evaluate_every, "Tokens")->capture_default_str()->check(tokens);
  command.add_option("--checkpoint-every", train.checkpoint_every, "Tokens")->capture_default_str()->check(tokens);
  command.add_option("--held-out", train.held_out, "Held-out conversations of an evaluation")
      ->capture_default_str()
      ->check(whole_number(0));
  add_choice(command, "--type", train.type, kMatrixTypes,
             "Of the exported matrices; q5_0 is a third of f16; iq4_nl and q4_0 are a little less, iq4_nl the better");
  add_choice(command, "--output-type", train.output_type, kMatrixTypes,
             "Of the output matrix, which bears coarse steps worst (default: as --type)");
  add_choice(command, "--dtype", train.dtype, kPrecisions,
             "Of the products while training; bf16 pays where the processor has it");
  command.add_option("--seed", train.seed, "Another seed, another order")->capture_default_str()->check(seed_number());
  command.add_option("--threads", train.threads, "CPU threads (default: all cores)")->check(whole_number(1, 256));
  add_model_option(command, options.model);
}

Status train_head(HeadOptions& options, const char* what,
                  const std::function<Result<TrainFigures>(const ModelFile&, const TrainHooks&)>& train) {
  if (options.train.threads == 0)
    options.train.threads = std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
  SLUICE_TRY(const std::string path, find_model(options.model, show_downloads()));
  SLUICE_TRY(const auto model, ModelFile::open(path));
  ProgressBar bar(what);
  const TrainHooks hooks{.interrupted = interrupted,
                         .progress = [&](double share, const std::string& note) { bar.show(share, note); }};
  const auto figures = train(model, hooks);
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

}  // namespace

void add_train_spd(CLI::App& train, Action& action) {
  struct Options {
    HeadOptions head;
    SpdOptions spd;
    int32_t stages = 10;
    std::vector<int32_t> cuts;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = *train.add_subcommand("spd", "Trains a module for Speculative Pipeline Decoding");
  command.footer(
      "Examples:\n"
      "  sluice train spd --data corpus --stages 10 --layers 2 --out spd-10\n"
      "  sluice train spd --data corpus --stages 5 --layers 1 --tokens 3000000 --lr 1e-3 --out spd-5");
  SpdOptions& spd = options->spd;
  auto* stages = command.add_option("--stages", options->stages, "n, of equal size")
                     ->capture_default_str()
                     ->check(whole_number(1));
  add_list_option(command, "--cuts", options->cuts, "First layers of the second, third, … stage")
      .check(whole_number(1))
      ->excludes(stages);
  command.add_option("--layers", spd.layers, "Decoder layers of the module")
      ->capture_default_str()
      ->check(whole_number(1, 64));
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
  add_train_options(command, options->head);
  command.callback([options, &action] {
    action = [options]() -> Status {
      return train_head(options->head, "spd",
                        [&](const ModelFile& model, const TrainHooks& hooks) -> Result<TrainFigures> {
                          SLUICE_TRY_STATUS(check_depth(options->spd.layers, options->spd.init, model));
                          SLUICE_TRY(options->spd.cuts, boundaries(options->cuts, options->stages, model));
                          if (options->spd.output_timing && options->spd.cuts.size() == 2)
                            return input_error("--output-timing: needs at least two stages");
                          return train_spd(model, options->spd, options->head.train, hooks);
                        });
    };
  });
}

void add_train_eagle3(CLI::App& train, Action& action) {
  struct Options {
    HeadOptions head;
    Eagle3Options eagle3;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = *train.add_subcommand("eagle3", "Trains an EAGLE-3 head, in llama.cpp's file format");
  command.footer(
      "Examples:\n"
      "  sluice train eagle3 --data corpus --out eagle3\n"
      "  sluice train eagle3 --data corpus --unroll 7 --type q8_0 --out eagle3");
  Eagle3Options& eagle3 = options->eagle3;
  add_list_option(command, "--taps", eagle3.taps, "Layers of the features, three (default: 2, L/2, L-3)")
      .check(whole_number(0))
      ->expected(3);
  command.add_option("--unroll", eagle3.unroll, "Steps of the training-time test")
      ->capture_default_str()
      ->check(whole_number(1, 16));
  command.add_option("--decay", eagle3.decay, "Weight of a step's loss against that of the one before")
      ->capture_default_str()
      ->check(number(0, 1, true));
  command.add_option("--hca", eagle3.hca, "Weight of the harmonised context alignment loss; 0 is off")
      ->capture_default_str()
      ->check(number(0, 1000));
  command.add_flag("--norm-before-fc,!--no-norm-before-fc", eagle3.norm_before_fc,
                   "An RMS norm before the features are fused");
  add_choice(command, "--init", eagle3.init, kEagleInits, "How the layer begins: as the target's, or at random");
  add_train_options(command, options->head);
  command.callback([options, &action] {
    action = [options] {
      return train_head(options->head, "eagle3", [&](const ModelFile& model, const TrainHooks& hooks) {
        return train_eagle3(model, options->eagle3, options->head.train, hooks);
      });
    };
  });
}

namespace {

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

struct ShallowCommand {
  HeadOptions head;
  ShallowOptions shallow;
};

constexpr const char* kInitHelp = "How the layers begin: as the target's, or at random";
constexpr Choice<bool> kShallowRandom[] = {{"target", false}, {"random", true}};

}  // namespace

void add_train_exit(CLI::App& train, Action& action) {
  auto options = std::make_shared<ShallowCommand>();
  options->shallow.input = -1;
  CLI::App& command = *train.add_subcommand("exit", "Trains an early exit, as PPSD guesses with");
  command.footer(
      "Examples:\n"
      "  sluice train exit --data corpus --stages 10 --layers 29 --out exit\n"
      "  sluice train exit --data corpus --exit 6 --out exit-6");
  ShallowOptions& shallow = options->shallow;
  command.add_option("--stages", shallow.stages, "Stages of the pipeline; the exit is after the first")
      ->capture_default_str()
      ->check(whole_number(1));
  command.add_option("--exit", shallow.input, "Exit after so many layers instead")->check(whole_number(0));
  add_layers_option(command, shallow.layers,
                    "Layers of the target that the exit's own begin as (default: none, a norm and a matrix)");
  add_choice(command, "--init", shallow.random, kShallowRandom, kInitHelp);
  add_train_options(command, options->head);
  command.callback([options, &action] {
    action = [options] {
      return train_head(options->head, "exit",
                        [&](const ModelFile& model, const TrainHooks& hooks) -> Result<TrainFigures> {
                          ShallowOptions& shallow = options->shallow;
                          const int32_t n_layers = model.hparams().n_layers;
                          SLUICE_TRY_STATUS(check_layers(shallow.layers, model));
                          if (shallow.input < 0 && shallow.stages > n_layers)
                            return input_error("--stages: the model has only " + std::to_string(n_layers) + " layers");
                          if (shallow.input < 0) shallow.input = n_layers / shallow.stages;
                          if (shallow.input > n_layers)
                            return input_error("--exit: the model has only " + std::to_string(n_layers) + " layers");
                          return train_shallow(model, shallow, options->head.train, hooks);
                        });
    };
  });
}

void add_train_draft(CLI::App& train, Action& action) {
  auto options = std::make_shared<ShallowCommand>();
  options->shallow.draft = true;
  CLI::App& command = *train.add_subcommand("draft", "Trains a shallow draft model with the target's tokenizer");
  command.footer(
      "Examples:\n"
      "  sluice train draft --data corpus --out draft\n"
      "  sluice train draft --data corpus --layers 0,1 --draft-vocab 0 --out draft-2");
  ShallowOptions& shallow = options->shallow;
  shallow.layers = {};
  add_layers_option(command, shallow.layers,
                    "Layers of the target that the draft's begin as (default: the first four)");
  add_choice(command, "--init", shallow.random, kShallowRandom, kInitHelp);
  add_train_options(command, options->head);
  command.callback([options, &action] {
    action = [options] {
      return train_head(options->head, "draft",
                        [&](const ModelFile& model, const TrainHooks& hooks) -> Result<TrainFigures> {
                          ShallowOptions& shallow = options->shallow;
                          SLUICE_TRY_STATUS(check_layers(shallow.layers, model));
                          if (shallow.layers.empty())
                            for (int32_t l = 0; l < std::min(4, model.hparams().n_layers); ++l)
                              shallow.layers.push_back(l);
                          return train_shallow(model, shallow, options->head.train, hooks);
                        });
    };
  });
}

void add_train_p_eagle(CLI::App& train, Action& action) {
  struct Options {
    HeadOptions head;
    PEagleOptions p_eagle;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command =
      *train.add_subcommand("p-eagle", "Trains a P-EAGLE head, which drafts several tokens in one pass");
  command.footer(
      "Examples:\n"
      "  sluice train p-eagle --data corpus --out p-eagle\n"
      "  sluice train p-eagle --data corpus --layers 4 --groups 8 --max-length 4096 --segments 8 --out p-eagle-4");
  PEagleOptions& p_eagle = options->p_eagle;
  command.add_option("--layers", p_eagle.layers, "Decoder layers")->capture_default_str()->check(whole_number(1, 64));
  command.add_option("--groups", p_eagle.groups, "K_train: depths that are trained")
      ->capture_default_str()
      ->check(whole_number(1, 64));
  command
      .add_option("--retention", p_eagle.retention, "Share of the positions that each depth keeps of the one before")
      ->capture_default_str()
      ->check(number(0, 1, true));
  command.add_option("--segments", p_eagle.segments, "Segments of a sequence, with gradients accumulated over them")
      ->capture_default_str()
      ->check(whole_number(1, 4096));
  add_choice(command, "--hidden", p_eagle.hidden, kMaskedStates,
             "Hidden state of the masked positions: one shared, or one for each depth");
  command.add_flag("--train-embedding", p_eagle.train_embedding,
                   "Train the whole token embedding; the file grows by it");
  add_list_option(command, "--taps", p_eagle.taps, "Layers of the features, three (default: 2, L/2, L-3)")
      .check(whole_number(0))
      ->expected(3);
  add_choice(command, "--init", p_eagle.init, kEagleInits, kInitHelp);
  add_train_options(command, options->head);
  command.callback([options, &action] {
    action = [options] {
      return train_head(options->head, "p-eagle",
                        [&](const ModelFile& model, const TrainHooks& hooks) -> Result<TrainFigures> {
                          SLUICE_TRY_STATUS(check_depth(options->p_eagle.layers, options->p_eagle.init, model));
                          return train_p_eagle(model, options->p_eagle, options->head.train, hooks);
                        });
    };
  });
}

}  // namespace sluice
