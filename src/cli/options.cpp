#include "cli/options.h"

#include <unistd.h>

#include <cstdio>
#include <memory>

#include "cli/help.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "compute/kernels/pack.h"
#include "method/methods.h"
#include "method/option_table.h"
#include "session/hosts_file.h"
#include "session/installation.h"
#include "session/policy.h"

namespace sluice {

void add_model_option(CLI::App& command, std::string& model) {
  command
      .add_option("-m,--model", model,
                  "Target model, a GGUF file, or hf:OWNER/MODEL[:QUANT] of the Hugging Face hub, as -hf OWNER/MODEL in "
                  "llama.cpp (default: " +
                      std::string(kDefaultModel) + ")")
      ->envname("SLUICE_MODEL")
      ->check(not_empty("a GGUF file"));
}

void add_kv_option(CLI::App& command, KvType& kv, const std::string& what) {
  add_choice(command, "--kv", kv, kKvTypes, what);
}

namespace {

// Adds an option to a command, by what it may be.
class Adder {
 public:
  Adder(CLI::App& command, const MethodOption& option, MethodOptions& options)
      : command_(command), option_(option), options_(options) {}

  void operator()(const WholeNumber& kind) const {
    const bool on = options_.*kind.field >= kind.low || options_.*kind.field == kind.automatic;
    CLI::Option& added = add(kind);
    if (on) added.capture_default_str();
    if (kind.automatic)
      added.transform(whole_number_or_auto(kind.low, kind.high, *kind.automatic));
    else
      added.check(whole_number(kind.low, kind.high));
  }
  void operator()(const RealNumber& kind) const {
    CLI::Option& added = *add(kind).capture_default_str();
    if (kind.automatic)
      added.transform(number_or_auto(kind.low, kind.high, *kind.automatic));
    else
      added.check(number(kind.low, kind.high));
  }
  void operator()(const WholeNumbers& kind) const {
    add_list_option(command_, option_.flag, options_.*kind.field, option_.help)
        .capture_default_str()
        ->check(whole_number(kind.low, kind.high));
  }
  void operator()(const FallbackName& kind) const {
    add_choice(command_, option_.flag, options_.*kind.field, kFallbacks, option_.help);
  }
  void operator()(const Flag& kind) const { command_.add_flag(option_.flag, options_.*kind.field, option_.help); }

 private:
  template <class Kind>
  CLI::Option& add(const Kind& kind) const {
    return *command_.add_option(option_.flag, options_.*kind.field, option_.help);
  }

  CLI::App& command_;
  const MethodOption& option_;
  MethodOptions& options_;
};

}  // namespace

void add_draft_option(CLI::App& command, std::vector<std::string>& drafts) {
  command
      .add_option(
          "--draft", drafts,
          "Draft model or draft head with the target's vocabulary, a GGUF file or a name as --model takes; once "
          "for each, smallest first; auto: the one that comes with the program for this model, else the smallest "
          "downloaded model that fits")
      ->allow_extra_args(false)
      ->check(not_empty("a GGUF file"));
}

void add_compact_option(CLI::App& command) {
  command.add_flag_callback(
      "--compact", [] { kernels::keep_indices(true); },
      "On processors, weights in IQ1, IQ2 and IQ3 as small as in the file, at a third of the speed of single rows; the "
      "answers are the same (default: only where they don't fit otherwise)");
}

void add_device_options(CLI::App& command, SessionOptions& options) {
  add_list_option(
      command, "--device", options.devices,
      "Devices of the target's stages, one for all or one each, e.g. ggml:cuda0,ggml:cuda1 for two stages: cpu "
      "(ours, bitwise; the default) or one of ggml's by its name, as ggml:cpu, ggml:cuda0, ggml:vulkan0 "
      "(docs/devices.md)")
      .transform(in_lower_case());
  command
      .add_option("--draft-device", options.draft_device,
                  "Device of draft models, likewise; trained heads stay on the CPU")
      ->capture_default_str()
      ->transform(in_lower_case());
  add_value(command, "--width-lock", options.width_lock, whole_number(0, kMostWidthLock),
            "Rows of every pass on devices of ggml's, so that all methods give the same tokens there; 0: as many as "
            "there are, which is faster, and tokens may differ (greedy-checked)");
}

void add_engine_options(CLI::App& command, SessionOptions& options) {
  RequestSpec& request = options.request;
  options.on_download = show_downloads();
  options.on_weights_sent = show_sending();
  begin_group(command, kCommonGroup);
  std::vector<std::string> methods = method_names();
  methods.insert(methods.begin(), kAutoMethod);
  add_value(command, "--method", request.method, one_of(methods), "How to decode");
  add_draft_option(command, options.drafts);
  auto* stages = add_value(command, "--stages", options.stages, whole_number(1),
                           "Pipeline stages, at most one a layer of the model");
  begin_group(command, "Where guesses come from");
  command
      .add_option("--head", options.heads,
                  "Trained head of the target: a GGUF file of sluice train (spd, eagle3, p-eagle, exit), once for each "
                  "kind: a method takes its own; run, chat and bench know those that come with the program")
      ->allow_extra_args(false)
      ->check(not_empty("a GGUF file"));
  add_choices(command, "--source", request.sources, kSources,
              "Token sources of the method; n-grams are fused with the others (default: what the method was made for, "
              "else the best that is given; for surge with n-grams beside it)");
  add_checked(command, "--ngram-corpus", options.ngram_corpus, not_empty("a text file"),
              "Plain text (UTF-8) that n-grams know beforehand, as a project's sources or the manuals that answers "
              "quote; n-grams then join the draft model, e.g. --draft small.gguf --ngram-corpus manual.txt");
  add_value(command, "--draft-vocab", options.draft_vocab, whole_number(0),
            "Draft models guess among their first tokens only, so many, the commonest in most vocabularies: a "
            "smaller output matrix to read, e.g. 32768; 0: all");
  begin_group(command, "Of methods");
  for (const MethodOption& option : method_option_table())
    std::visit(Adder(command, option, request.method_options), option.value);
  begin_group(command, "Verification");
  CLI::Option& verify = add_choice(
      command, "--verify", request.sampling.rule, kLosslessRules,
      "Verification rule: match gives one text a seed, whatever the method; reject is the papers' speculative "
      "sampling, with guesses that are drawn (all methods but pipespec)");
  add_choice(command, "--lossy", request.sampling.rule, kLossyRules,
             "Another text, for fewer flushes: relaxed takes whichever guess the target holds likeliest, top-p the "
             "best guess among the target's likeliest tokens that add up to --lossy-p")
      .excludes(&verify);
  add_value(command, "--lossy-p", request.sampling.accept_p, number(0, 1, /*above=*/true), "P of --lossy top-p");
  begin_group(command, "Pipeline");
  add_list_option(command, "--cuts", options.cuts,
                  "First layers of the second, third, … stage, e.g. 10,20 for three stages")
      .check(whole_number(1))
      ->excludes(stages);
  add_choice(
      command, "--executor", options.executor, kExecutors,
      "threads: a thread a stage; hosts: those of --hosts; mpi: the ranks that mpirun or srun has started, which "
      "is the default there; virtual: on a simulated clock");
  add_hosts_options(command, options, *stages);
  command.add_option(
      "--profile", options.profile,
      "Device and link profile, a name (uniform, paper-8x, moe-8x, paper-8x-10gbe, wan-6, local) or a JSON file: the "
      "costs of `virtual`, "
      "the pace of `threads`");
  add_choice(
      command, "--compute", options.compute, kComputes,
      "full; lazy: only the committed path (with --executor virtual); or stored: stages take the time of --profile, "
      "and answers come from --memo");
  add_choice(command, "--activations", options.activations, kActivations,
             "As what hidden states go from a stage to the next: f32, exact; or f16, half the bytes, but another text "
             "than the model's own (the same for all methods with the same cuts)");
  command.add_option("--memo", options.memo,
                     "File that keeps what --compute lazy has computed, for other schedules over the same texts, and "
                     "for --compute stored");
  begin_group(command, "Memory and devices");
  add_device_options(command, options);
  add_checked(command, "-c,--context", options.context, whole_number(2),
              "Context in tokens (default: the model's, at most " + std::to_string(policy::kDefaultContext) + ")");
  add_kv_option(command, options.kv, "Type of the KV cache; it changes bits");
  add_checked(
      command, "--memory", options.memory, number(0, 1e6, /*above=*/true),
      "GiB for the target's weights and cells: of a mixture of experts those stay in the file that were not used "
      "for longest (default: as many as it needs)");
  add_compact_option(command);
  add_checked(command, "--threads", options.threads, whole_number(1, 256),
              "CPU threads a stage (default: the cores shared by the stages)");
  begin_group(command, kCommonGroup);
}

namespace {

// What is read while it is checked is taken afterwards.
CLI::Validator address_list() {
  return {[](const std::string& text) {
            const auto hosts = parse_hosts(text);
            return hosts ? std::string() : hosts.error().message;
          },
          ""};
}

CLI::Validator host_list(std::shared_ptr<HostsFile> hosts) {
  return {[hosts = std::move(hosts)](const std::string& text) {
            auto read = hosts_of(text);
            if (read) *hosts = std::move(*read);
            return read ? std::string() : read.error().message;
          },
          ""};
}

}  // namespace

// Options are taken in the order in which they are added: --secret and --patience go before what the file says.
void add_hosts_options(CLI::App& command, SessionOptions& options, CLI::Option& stages) {
  const auto hosts = std::make_shared<HostsFile>();
  CLI::Option& named = *command.add_option_function<std::string>(
      "--hosts", [hosts, &options](const std::string&) { take_hosts(*hosts, options); },
      "Other processes that hold the target's stages, one each, in this order: where sluice stage listens, as in "
      "a:7001,b:7001, or a file that says so, as in hosts.toml (docs/hosts.md); draft models and heads stay here, or "
      "are where --draft-on says");
  named.check(host_list(hosts))->excludes(&stages);
  command
      .add_option_function<std::string>(
          "--spares", [&options](const std::string& text) { options.spares = *parse_hosts(text); },
          "More of them, which take the stages of a host that is lost, the first that answers first")
      ->check(address_list());
  command
      .add_flag_callback(
          "--relay",
          [&options] {
            for (HostOptions& host : options.hosts) host.address.relay = true;
            for (HostAddress& spare : options.spares) spare.relay = true;
          },
          "Hosts that only this machine reaches: what stages send each other goes by way of this process. By itself it "
          "does so where a host can't reach the next")
      ->needs(&named);
  command
      .add_option_function<std::string>(
          "--draft-on", [&options](const std::string& text) { options.draft_on = *DraftPlace::parse(text); },
          "Where draft models and heads run: here; the number of a stage, whose device, or host, they share; or "
          "HOST:PORT, where sluice stage listens (default: as the file of --hosts, the profile or sluice plan "
          "says, else here)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const auto place = DraftPlace::parse(text);
            return place ? std::string() : place.error().message;
          },
          ""));
  options.on_host = [](const std::string& line) {
    const char* const begin = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0 ? "\n" : "";
    std::fprintf(stderr, "%ssluice: %s\n", begin, line.c_str());
  };
  add_secret_options(command, options.secret, options.patience);
}

void add_secret_options(CLI::App& command, std::string& secret, double& patience) {
  add_checked(command, "--secret", secret, not_empty("a file"),
              "File of sluice secret, the same on all hosts; without it they must be this machine");
  add_value(command, "--patience", patience, number(0.5, 3600),
            "Seconds after which a host that is silent counts as gone");
}

CLI::Validator temperature() { return number(0, 100); }

void add_generation_options(CLI::App& command, SessionOptions& options) {
  SamplingParams& sampling = options.request.sampling;
  begin_group(command, kCommonGroup);
  add_value(command, "-n,--max-tokens", options.request.max_tokens, whole_number(1), "Longest answer, in tokens");
  add_value(command, "--temp", sampling.temperature, temperature(), "Temperature; 0 is greedy");
  add_value(command, "--seed", sampling.seed, seed_number(), "One seed gives one text, whatever the method");
  begin_group(command, "Text");
  add_value(command, "--top-k", sampling.top_k, whole_number(0), "Sample among the k likeliest; 0 is off");
  add_value(command, "--top-p", sampling.top_p, number(0, 1, /*above=*/true),
            "Sample among the likeliest that add up to p; 1 is off");
  add_value(command, "--min-p", sampling.min_p, number(0, 1),
            "Sample among those at least p times as likely as the likeliest; 0 is off");
  add_value(command, "--repeat-penalty", sampling.repeat_penalty, number(0, 100, /*above=*/true),
            "Penalty for tokens that occurred before; 1 is none");
  add_checked(command, "--chat-template-file", options.chat_template_file, not_empty("a file"),
              "Jinja chat template in place of the model's own");
  command.add_flag("--raw", options.raw,
                   "Take the prompt as it is, without the chat template; <|im_start|> and the like in it are then the "
                   "vocabulary's special tokens, not plain text");
  command.add_flag("--ignore-eos", options.request.ignore_end, "Go on when the model ends its answer");
  begin_group(command, kCommonGroup);
}

Status check_settings(const CLI::App& command, const std::vector<std::string>& methods) {
  return check_settings_are_read(
      [&](const char* flag) -> std::optional<std::string> {
        const CLI::Option* option = command.get_option(flag);
        if (option->count() == 0) return std::nullopt;
        return CLI::detail::join(option->results(), ",");
      },
      methods);
}

Status check_options(const SessionOptions& options) {
  SLUICE_TRY_STATUS(check(options));
  return options.memo.empty() ? Status() : check_writable("--memo", options.memo);
}

}  // namespace sluice
