#include "cli/options.h"

#include <algorithm>

#include "cli/output.h"
#include "cli/values.h"
#include "method/method.h"
#include "source/make_source.h"

namespace sluice {

void add_model_option(CLI::App& command, CommonOptions& options) {
  command.add_option("-m,--model", options.model, "Target model, a GGUF file (default: the embedded default model)")
      ->envname("SLUICE_MODEL")
      ->check(not_empty("a GGUF file"));
}

void add_engine_options(CLI::App& command, CommonOptions& options) {
  std::vector<std::string> methods = method_names();
  methods.insert(methods.begin(), "auto");
  command.add_option("--method", options.method, "How to decode")->capture_default_str()->check(one_of(methods));
  command
      .add_option("--draft", options.drafts,
                  "Draft model or draft head with the target's vocabulary, a GGUF file; once for each, smallest first")
      ->allow_extra_args(false)
      ->check(not_empty("a GGUF file"));
  command
      .add_option("--head", options.heads,
                  "Trained head of the target: a GGUF file of sluice train (spd, eagle3, p-eagle, exit), once for each "
                  "kind: a method takes its own; run, chat and bench know those that come with the program")
      ->allow_extra_args(false)
      ->check(not_empty("a GGUF file"));
  add_list_option(command, "--source", options.sources,
                  "Token sources of the method: ngram, draft, head; n-grams are fused with the others (default: what "
                  "the method was made for, else the best that is given; for surge with n-grams beside it)");
  command
      .add_option("--ngram-corpus", options.ngram_corpus,
                  "Plain text (UTF-8) that n-grams know beforehand, as a project's sources or the manuals that answers "
                  "quote; n-grams then join the draft model, e.g. --draft small.gguf --ngram-corpus manual.txt")
      ->check(not_empty("a text file"));
  auto* stages = command.add_option("--stages", options.stages, "Pipeline stages, at most one a layer of the model")
                     ->capture_default_str()
                     ->check(whole_number(1));
  add_list_option(command, "--cuts", options.cuts,
                  "First layers of the second, third, … stage, e.g. 10,20 for three stages")
      .check(whole_number(1))
      ->excludes(stages);
  command.add_option("--width", options.width, "Nodes a level of the token tree")
      ->capture_default_str()
      ->check(whole_number(1, 256));
  command.add_option("--levels", options.levels, "Levels of the tree that enter in a step, for specpipe")
      ->capture_default_str()
      ->check(whole_number(1, 16));
  command
      .add_option("--group", options.group,
                  "Stages that share a level, which enters in so many parts, for specpipe in long pipelines")
      ->capture_default_str()
      ->check(whole_number(1, 256));
  command.add_option("--children", options.children, "Candidates a node of the tree")
      ->capture_default_str()
      ->check(whole_number(1, 64));
  command.add_option("--depth", options.depth, "Draft length, for methods that draft chains")
      ->capture_default_str()
      ->check(whole_number(1, 64));
  add_list_option(command, "--tree", options.branching, "Children of a node of a static tree, by level")
      .capture_default_str()
      ->check(whole_number(1, 16));
  command
      .add_option("--tree-nodes", options.tree_nodes, "Instead: the best tree of so many nodes, --depth levels deep")
      ->check(whole_number(1, 255));
  command
      .add_option("--draft-rows", options.draft_rows,
                  "Nodes that a draft model expands at a time, for surge; 0: as many as pay")
      ->capture_default_str()
      ->check(whole_number(0, 256));
  command
      .add_option("--draft-vocab", options.draft_vocab,
                  "Draft models guess among their first tokens only, so many, the commonest in most vocabularies: a "
                  "smaller output matrix to read, e.g. 32768; 0: all")
      ->capture_default_str()
      ->check(whole_number(0));
  command
      .add_option(
          "--draft-p-min", options.draft_p_min,
          "sd, eagle3 and p-eagle draft no further once the tokens that they have drafted are, all together, less "
          "likely to be right than this, e.g. 0.5 with --depth 8; 0: always --depth tokens")
      ->capture_default_str()
      ->check(number(0.0, 1.0));
  command.add_option("--budget", options.budget, "Outcomes of a verification that ssd drafts for")
      ->capture_default_str()
      ->check(whole_number(1, 128));
  command
      .add_option(
          "--fallback", options.fallback,
          "Who drafts for ssd when an outcome was not foreseen: draft, ngram, or auto: the draft model for up to "
          "4 requests at a time, n-grams for more")
      ->capture_default_str()
      ->check(one_of({"draft", "ngram", "auto"}));
  command
      .add_option("--lookahead", options.lookahead,
                  "Tokens that a verifier of pipespec waits for; auto: it waits while those that are there are as good "
                  "as certain")
      ->capture_default_str()
      ->transform(whole_number_or_auto(0, 64, kWaitForDoubt));
  command.add_option("--executor", options.executor, "threads: a thread a stage; virtual: on a simulated clock")
      ->capture_default_str()
      ->check(one_of({"threads", "virtual"}));
  command.add_option("--profile", options.profile,
                     "Device and link profile, a name (uniform, paper-8x, paper-8x-10gbe, local) or a JSON file: the "
                     "costs of `virtual`, "
                     "the pace of `threads`");
  command.add_option("--compute", options.compute, "full, or lazy: only the committed path (with --executor virtual)")
      ->capture_default_str()
      ->check(one_of({"full", "lazy"}));
  command.add_option("--memo", options.memo,
                     "File that keeps what --compute lazy has computed, for other schedules over the same texts");
  command.add_option("-c,--context", options.context, "Context in tokens (default: the model's, at most 8192)")
      ->check(whole_number(2));
  command.add_option("--kv", options.kv, "Type of the KV cache; it changes bits")
      ->capture_default_str()
      ->check(one_of({"f16", "f32"}));
  command
      .add_option(
          "--verify", options.verify,
          "Verification rule: match gives one text a seed, whatever the method; reject is the papers' speculative "
          "sampling, with guesses that are drawn (all methods but pipespec)")
      ->capture_default_str()
      ->check(one_of({"match", "reject"}));
  command
      .add_option(
          "--lossy", options.lossy,
          "Another text, for fewer flushes: relaxed takes whichever guess the target holds likeliest, top-p the "
          "best guess among the target's likeliest tokens that add up to --lossy-p")
      ->capture_default_str()
      ->check(one_of({"none", "relaxed", "top-p"}))
      ->excludes(command.get_option("--verify"));
  command.add_option("--lossy-p", options.sampling.accept_p, "P of --lossy top-p")
      ->capture_default_str()
      ->check(number(0, 1, /*above=*/true));
  command.add_flag("--replacement", options.replacement, "Rule reject: draw the children of a node with replacement");
  command
      .add_option("--saguaro", options.saguaro,
                  "C of SAGUARO sampling for ssd under rule reject: 1 is off; auto takes what promises most tokens a "
                  "second of the verifications so far")
      ->capture_default_str()
      ->transform(share_or_auto());
  command
      .add_option("--saguaro-tokens", options.saguaro_tokens,
                  "F of it: the likeliest tokens that count C times; 0: as many as are drafted for")
      ->capture_default_str()
      ->check(whole_number(0, 64));
  command.add_option("--threads", options.threads, "CPU threads a stage (default: the cores shared by the stages)")
      ->check(whole_number(1, 256));
}

CLI::Validator temperature() { return number(0, 100); }

void add_generation_options(CLI::App& command, CommonOptions& options) {
  SamplingParams& sampling = options.sampling;
  command.add_option("-n,--max-tokens", options.max_tokens, "Longest answer, in tokens")
      ->capture_default_str()
      ->check(whole_number(1));
  command.add_option("--temp", sampling.temperature, "Temperature; 0 is greedy")
      ->capture_default_str()
      ->check(temperature());
  command.add_option("--top-k", sampling.top_k, "Sample among the k likeliest; 0 is off")
      ->capture_default_str()
      ->check(whole_number(0));
  command.add_option("--top-p", sampling.top_p, "Sample among the likeliest that add up to p; 1 is off")
      ->capture_default_str()
      ->check(number(0, 1, /*above=*/true));
  command
      .add_option("--min-p", sampling.min_p, "Sample among those at least p times as likely as the likeliest; 0 is off")
      ->capture_default_str()
      ->check(number(0, 1));
  command.add_option("--repeat-penalty", sampling.repeat_penalty, "Penalty for tokens that occurred before; 1 is none")
      ->capture_default_str()
      ->check(number(0, 100, /*above=*/true));
  command.add_option("--seed", sampling.seed, "One seed gives one text, whatever the method")
      ->capture_default_str()
      ->check(seed_number());
  command.add_flag("--raw", options.raw,
                   "Take the prompt as it is, without the chat template; <|im_start|> and the like in it are then the "
                   "vocabulary's special tokens, not plain text");
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on when the model ends its answer");
}

Status check(const CommonOptions& options) {
  if (options.compute == "lazy" && !options.simulated())
    return input_error("--compute lazy works only on a simulated clock: add --executor virtual");
  if (!options.memo.empty() && options.compute != "lazy")
    return input_error("--memo keeps the results of --compute lazy");
  if (!options.memo.empty()) SLUICE_TRY_STATUS(check_writable("--memo", options.memo));
  constexpr int64_t kMostNodes = 255;  // with the root they fit into a batch
  int64_t level = 1, nodes = 0;
  for (const int32_t children : options.branching) {
    nodes += level *= children;
    if (nodes > kMostNodes)
      return input_error("--tree: a tree of " + std::to_string(nodes) + " nodes or more; there may be " +
                         std::to_string(kMostNodes) + " at most, the root not counted");
  }
  if (!options.heads.empty() && options.compute == "lazy")
    return input_error("--compute lazy computes no hidden states, which --head reads: leave it out");
  constexpr size_t kMostDrafts = 8;
  if (options.drafts.size() > kMostDrafts)
    return input_error("--draft was given " + std::to_string(options.drafts.size()) +
                       " times; a hierarchy has at most " + std::to_string(kMostDrafts) + " draft models");
  SLUICE_TRY_STATUS(
      make_sources(options.sources, {options.drafts.size(), !options.heads.empty()}, false).map([](const auto&) {}));
  const auto& named = options.sources;
  if (!options.ngram_corpus.empty() && !named.empty() && std::find(named.begin(), named.end(), "ngram") == named.end())
    return input_error("--ngram-corpus is for n-grams, which --source leaves out: add ngram to it, as in ngram," +
                       named.front());
  return options.trace.empty() ? Status() : check_writable("--trace", options.trace);
}

}  // namespace sluice
