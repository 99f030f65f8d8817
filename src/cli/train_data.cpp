#include <spdlog/fmt/fmt.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "method/methods.h"
#include "session/session.h"
#include "train/generate.h"

namespace sluice {

namespace {

struct TrainDataOptions {
  std::string model;
  KvType kv = KvType::kF16;
  int32_t threads = 0;  // 0: all cores
  std::vector<std::string> prompts, exclude, openings;
  std::string out;
  std::vector<float> temps = {0.0f, 1.0f};
  int32_t self = 0;
  GenerateOptions generate;
};

// What a corpus must have been begun with for a run to go on in it.
nlohmann::json settings_of(const TrainDataOptions& options, const Session& session) {
  nlohmann::json settings = {{"model", session.model().hparams().name},
                             {"n_vocab", session.model().hparams().n_vocab},
                             {"prompts", options.prompts},
                             {"self", options.self},
                             {"temps", options.temps},
                             {"top_k", options.generate.top_k},
                             {"max_answer", options.generate.max_answer},
                             {"max_prompt", options.generate.max_prompt},
                             {"seed", options.generate.seed},
                             {"kv", name_of(kKvTypes, options.kv)}};
  if (!options.openings.empty()) settings["openings"] = options.openings;  // older corpora have no such key
  return settings;
}

Status report(const TrainDataOptions& options, const GenerateFigures& figures, const Tokenizer& tokenizer,
              const Exclusion& exclusion) {
  SLUICE_TRY(const Corpus corpus, Corpus::open(options.out));
  std::string text = fmt::format(
      "{}: {} answers with {} tokens to train on, {} with {} held out\n"
      "this run: {} answers, {} tokens, {:.0f} tokens/s; left out: {} prompts too long, {} self-written ones without "
      "an "
      "end\n",
      options.out, corpus.train.size(), count_answer_tokens(corpus.train), corpus.held_out.size(),
      count_answer_tokens(corpus.held_out), figures.answers, figures.tokens,
      static_cast<double>(figures.tokens) / std::max(figures.seconds, 1e-9), figures.too_long, figures.unfinished);
  if (exclusion.size() > 0)
    text += fmt::format("benchmark questions: {} checked, {} prompts left out for holding one, {} in what is stored\n",
                        exclusion.size(), figures.excluded, count_excluded(corpus, tokenizer, exclusion));
  return print(text);
}

Status run(const TrainDataOptions& options) {
  if (options.prompts.empty() && options.self == 0)
    return input_error("no prompts: name files by --prompts, or let the model write its own by --self N");
  SLUICE_TRY(const auto groups, read_prompt_groups(options.prompts));
  SLUICE_TRY(const auto exclusion, Exclusion::load(options.exclude));
  SLUICE_TRY(const Session session, Session::open({.model = options.model,
                                                   .context = options.generate.max_prompt + options.generate.max_answer,
                                                   .kv = options.kv,
                                                   .threads = options.threads,
                                                   .on_download = show_downloads()}));
  const Tokenizer& tokenizer = session.tokenizer();
  GenerateHooks hooks;
  hooks.encode = [&](const std::string& prompt) { return session.encode({{"user", prompt}}); };
  if (options.self > 0) {
    for (const std::string& text : options.openings.empty() ? std::vector<std::string>{""} : options.openings) {
      SLUICE_TRY(auto opening, opening_of_user_turn(text, hooks.encode));
      hooks.openings.push_back(std::move(opening));
    }
  } else if (!options.openings.empty()) {
    return input_error("--opening is how prompts begin that the model writes itself: say how many by --self N");
  }
  SLUICE_TRY(auto corpus, CorpusWriter::open(options.out, settings_of(options, session)));
  JobList jobs(groups, options.self, options.temps, options.generate.seed, hooks.openings.size());
  SLUICE_TRY(const auto engine, session.make_engine(options.generate.concurrency));
  const auto share = [&](int64_t tokens) {
    return std::min(1.0, static_cast<double>(tokens) / static_cast<double>(options.generate.tokens));
  };
  ProgressBar bar("answering", share(corpus.answer_tokens()));
  hooks.interrupted = interrupted;
  hooks.progress = [&](int64_t tokens, double rate) {
    bar.show(std::min(share(tokens), 0.999), fmt::format("{} tokens, {:.0f} tokens/s", tokens, rate));
  };
  const auto figures = generate(*engine, tokenizer, jobs, corpus, exclusion, options.generate, hooks);
  bar.finish();
  if (!figures) return tl::unexpected<Error>(figures.error());
  SLUICE_TRY_STATUS(report(options, *figures, tokenizer, exclusion));
  if (interrupted()) return interrupted_error("the same command goes on from there");
  return {};
}

}  // namespace

void add_train_data(CLI::App& train, Action& action) {
  auto options = std::make_shared<TrainDataOptions>();
  CLI::App& command =
      *train.add_subcommand("data", "Lets the target answer prompts: the text that heads are trained on");
  command.footer(
      "Prompt files: one JSON object a line, {\"prompt\": \"...\", \"source\": \"...\"} (the source is optional).\n"
      "A folder that was begun is gone on with by the same command, also after a kill, and with more --tokens.\n"
      "Examples:\n"
      "  sluice train data --self 5000 --out corpus\n"
      "  sluice train data --self 2000 --opening 'Write a Python function that' --opening 'Explain' --out corpus\n"
      "  sluice train data --prompts prompts.jsonl --self 3000 --exclude benchmarks --tokens 2000000 --out corpus");
  auto& generate = options->generate;
  command.add_option("--out", options->out, "Folder of the corpus")->required()->check(not_empty("a folder"));
  command.add_option("--prompts", options->prompts, "Prompt file; may be given more than once")
      ->allow_extra_args(false);
  add_checked(command, "--self", options->self, whole_number(0),
              "Prompts that the target writes itself, from its chat template's opening");
  command
      .add_option(
          "--opening", options->openings,
          "How these prompts begin, e.g. \"Write a Python function that\", so that the corpus holds text of this "
          "kind; may be given more than once, --self prompts for each")
      ->allow_extra_args(false);
  command
      .add_option("--exclude", options->exclude,
                  "Benchmark file, or folder of them, whose questions are not answered; may be given more than once")
      ->allow_extra_args(false);
  add_value(command, "--tokens", generate.tokens, whole_number(1, int64_t{1} << 40), "Answer tokens wanted in all");
  add_list_option(command, "--temps", options->temps, "Temperatures, which prompts take in turn; 0 is greedy")
      .capture_default_str()
      ->check(temperature());
  add_value(command, "--top-k", generate.top_k, whole_number(0), "Sample among the k likeliest; 0 is off");
  add_value(command, "-n,--max-tokens", generate.max_answer, whole_number(1), "Longest answer, in tokens");
  add_value(command, "--max-prompt", generate.max_prompt, whole_number(1),
            "Longest prompt, in tokens; longer ones are left out");
  add_value(command, "--concurrency", generate.concurrency, whole_number(1, 256), "Requests at a time");
  add_value(command, "--method", generate.method, one_of(method_names()), "How to decode; it changes no token");
  add_choices(command, "--source", generate.sources, kSources, "Token sources of the method");
  add_value(command, "--seed", generate.seed, seed_number(), "Another seed, another corpus");
  add_checked(command, "--threads", options->threads, whole_number(1, 256), "CPU threads (default: all cores)");
  add_kv_option(command, options->kv);
  add_model_option(command, options->model);
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace sluice
