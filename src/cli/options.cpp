#include "cli/options.h"

#include "cli/output.h"
#include "method/methods.h"

namespace sluice {

void add_model_option(CLI::App& command, std::string& model) {
  command.add_option("-m,--model", model, "Target model, a GGUF file (default: the embedded default model)")
      ->envname("SLUICE_MODEL")
      ->check(not_empty("a GGUF file"));
}

void add_kv_option(CLI::App& command, KvType& kv, const std::string& what) {
  add_choice(command, "--kv", kv, kKvTypes, what);
}

void add_engine_options(CLI::App& command, SessionOptions& options) {
  RequestSpec& request = options.request;
  MethodOptions& method = request.method_options;
  std::vector<std::string> methods = method_names();
  methods.insert(methods.begin(), kAutoMethod);
  command.add_option("--method", request.method, "How to decode")->capture_default_str()->check(one_of(methods));
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
  add_list_option(command, "--source", request.sources,
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
  command.add_option("--width", method.width, "Nodes a level of the token tree")
      ->capture_default_str()
      ->check(whole_number(1, 256));
  command.add_option("--levels", method.levels, "Levels of the tree that enter in a step, for specpipe")
      ->capture_default_str()
      ->check(whole_number(1, 16));
  command
      .add_option("--group", method.group,
                  "Stages that share a level, which enters in so many parts, for specpipe in long pipelines")
      ->capture_default_str()
      ->check(whole_number(1, 256));
  command.add_option("--children", method.children, "Candidates a node of the tree")
      ->capture_default_str()
      ->check(whole_number(1, 64));
  command.add_option("--depth", method.depth, "Draft length, for methods that draft chains")
      ->capture_default_str()
      ->check(whole_number(1, 64));
  add_list_option(command, "--tree", method.branching, "Children of a node of a static tree, by level")
      .capture_default_str()
      ->check(whole_number(1, 16));
  command.add_option("--tree-nodes", method.tree_nodes, "Instead: the best tree of so many nodes, --depth levels deep")
      ->check(whole_number(1, 255));
  command
      .add_option("--draft-rows", method.draft_rows,
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
          "--draft-p-min", method.draft_p_min,
          "sd, eagle3 and p-eagle draft no further once the tokens that they have drafted are, all together, less "
          "likely to be right than this, e.g. 0.5 with --depth 8; 0: always --depth tokens")
      ->capture_default_str()
      ->check(number(0.0, 1.0));
  command.add_option("--budget", method.budget, "Outcomes of a verification that ssd drafts for")
      ->capture_default_str()
      ->check(whole_number(1, 128));
  add_choice(command, "--fallback", method.fallback, kFallbacks,
             "Who drafts for ssd when an outcome was not foreseen: draft, ngram, or auto: the draft model for up to "
             "4 requests at a time, n-grams for more");
  command
      .add_option("--lookahead", method.lookahead,
                  "Tokens that a verifier of pipespec waits for; auto: it waits while those that are there are as good "
                  "as certain")
      ->capture_default_str()
      ->transform(whole_number_or_auto(0, 64, kWaitForDoubt));
  add_choice(command, "--executor", options.executor, kExecutors,
             "threads: a thread a stage; virtual: on a simulated clock");
  command.add_option("--profile", options.profile,
                     "Device and link profile, a name (uniform, paper-8x, paper-8x-10gbe, local) or a JSON file: the "
                     "costs of `virtual`, "
                     "the pace of `threads`");
  add_choice(command, "--compute", options.compute, kComputes,
             "full, or lazy: only the committed path (with --executor virtual)");
  command.add_option("--memo", options.memo,
                     "File that keeps what --compute lazy has computed, for other schedules over the same texts");
  command.add_option("-c,--context", options.context, "Context in tokens (default: the model's, at most 8192)")
      ->check(whole_number(2));
  add_kv_option(command, options.kv, "Type of the KV cache; it changes bits");
  CLI::Option& verify = add_choice(
      command, "--verify", request.sampling.rule, kLosslessRules,
      "Verification rule: match gives one text a seed, whatever the method; reject is the papers' speculative "
      "sampling, with guesses that are drawn (all methods but pipespec)");
  add_choice(command, "--lossy", request.sampling.rule, kLossyRules,
             "Another text, for fewer flushes: relaxed takes whichever guess the target holds likeliest, top-p the "
             "best guess among the target's likeliest tokens that add up to --lossy-p")
      .excludes(&verify);
  command.add_option("--lossy-p", request.sampling.accept_p, "P of --lossy top-p")
      ->capture_default_str()
      ->check(number(0, 1, /*above=*/true));
  command.add_flag("--replacement", method.replacement, "Rule reject: draw the children of a node with replacement");
  command
      .add_option("--saguaro", method.saguaro,
                  "C of SAGUARO sampling for ssd under rule reject: 1 is off; auto takes what promises most tokens a "
                  "second of the verifications so far")
      ->capture_default_str()
      ->transform(share_or_auto());
  command
      .add_option("--saguaro-tokens", method.saguaro_tokens,
                  "F of it: the likeliest tokens that count C times; 0: as many as are drafted for")
      ->capture_default_str()
      ->check(whole_number(0, 64));
  command.add_option("--threads", options.threads, "CPU threads a stage (default: the cores shared by the stages)")
      ->check(whole_number(1, 256));
}

CLI::Validator temperature() { return number(0, 100); }

void add_generation_options(CLI::App& command, SessionOptions& options) {
  SamplingParams& sampling = options.request.sampling;
  command.add_option("-n,--max-tokens", options.request.max_tokens, "Longest answer, in tokens")
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
  command.add_flag("--ignore-eos", options.request.ignore_end, "Go on when the model ends its answer");
}

Status check_options(const SessionOptions& options) {
  SLUICE_TRY_STATUS(check(options));
  return options.memo.empty() ? Status() : check_writable("--memo", options.memo);
}

}  // namespace sluice
