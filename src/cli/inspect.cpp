#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/machine_memory.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/values.h"
#include "compute/cpu_stage_runner.h"
#include "method/methods.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "model/survey.h"
#include "model/tokenizer.h"
#include "session/cuts.h"
#include "session/installation.h"
#include "session/memory_need.h"
#include "session/speculators.h"

namespace sluice {

namespace {

struct InspectOptions {
  std::string file;
  bool json = false, tensors = false;
};

constexpr Choice<RopeParameters::Scaling> kRopeScalings[] = {{"none", RopeParameters::Scaling::kNone},
                                                             {"linear", RopeParameters::Scaling::kLinear},
                                                             {"yarn", RopeParameters::Scaling::kYarn}};

// What --tensors adds.
template <class File>
void add_details(const File& file, nlohmann::json& j) {
  for (const auto& t : file.tensors())
    j["tensors"].push_back(
        {{"name", t.name}, {"type", t.type}, {"shape", {t.ne[0], t.ne[1], t.ne[2], t.ne[3]}}, {"bytes", t.bytes}});
  for (const auto& m : file.metadata()) j["metadata"].push_back({{"key", m.key}, {"type", m.type}, {"value", m.value}});
}

std::vector<std::string> methods_of(HeadKind kind) {
  return kind == HeadKind::kDraft ? drafting_methods() : std::vector{method_of(kind)};
}

// Whether the model fits here, and what stages of it hold, when a context of the default length is full.
Status add_memory(const ModelFile& model, nlohmann::json& j) {
  nlohmann::json stages = nlohmann::json::object();
  for (const int32_t n : {1, 2, 3, 4}) {
    if (n > most_stages(model.hparams())) break;
    SLUICE_TRY(const auto memory, stage_memory(model, n));
    for (const StageMemory& stage : memory) stages[std::to_string(n)].push_back(stage.bytes());
  }
  const int64_t there = machine_memory(), needed = stages["1"][0].get<int64_t>();
  j["memory"] = {{"there", there},
                 {"needed", needed},
                 {"fits", needed <= there},
                 {"context", default_context(model.hparams())},
                 {"stages", std::move(stages)}};
  return {};
}

// What guesses for the model, that comes with the program or was downloaded, and the methods that can run with it: of
// those that need a head, the ones whose head is there.
void add_speculators(const ModelFile& model, const Tokenizer& tokenizer, nlohmann::json& j) {
  nlohmann::json drafts = nlohmann::json::array(), heads = nlohmann::json::array();
  std::vector<std::string> methods = {"ar"};
  const auto can_run = [&](const std::vector<std::string>& more) {
    methods.insert(methods.end(), more.begin(), more.end());
  };
  can_run(drafting_methods());
  for (const CachedModel& draft : cached_drafts(model, tokenizer)) drafts.push_back(draft.name);
  for (const ShippedHead& head : shipped_heads(installation_folder() + "/heads", model)) {
    const bool is_draft = head.parameters.kind == HeadKind::kDraft;
    if (is_draft) drafts.push_back(head.path);
    if (!is_draft) can_run({method_of(head.parameters.kind)});
    if (!is_draft) heads.push_back({{"file", head.path}, {"head", name(head.parameters.kind)}});
  }
  j["drafts"] = std::move(drafts);
  j["trained_heads"] = std::move(heads);
  j["methods"] = std::move(methods);
}

// A word as a shell takes it.
std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) || std::string_view("_./:@%+=,-").find(c) != std::string_view::npos;
  };
  if (std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// The line to type: a model that was downloaded as a draft, if there is one. (Heads are taken without being named.)
std::string command_for(const InspectOptions& options, const nlohmann::json& described) {
  const nlohmann::json& drafts = described["drafts"];
  const std::string draft = drafts.empty() ? "" : drafts.front().get<std::string>();
  return "sluice run" + (options.file.empty() ? "" : " -m " + quoted(options.file)) +
         (draft.starts_with("hf:") ? " --draft " + quoted(draft) : "") + " \"Why is the sky blue?\"";
}

// By type how many tensors there are, and their bytes.
nlohmann::json types_of(const std::vector<ModelFile::TensorSummary>& tensors) {
  struct Sum {
    int64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const auto& tensor : tensors) {
    ++sums[tensor.type].tensors;
    sums[tensor.type].bytes += tensor.bytes;
  }
  nlohmann::json types = nlohmann::json::object();
  for (const auto& [type, sum] : sums) types[type] = {{"tensors", sum.tensors}, {"bytes", sum.bytes}};
  return types;
}

// The kind of tokenizer, and how it splits a text into words if the file says so.
nlohmann::json tokenizer_of(const std::vector<MetadataEntry>& metadata) {
  nlohmann::json tokenizer = nlohmann::json::object();
  for (const char* key : {"model", "pre"})
    for (const MetadataEntry& entry : metadata)
      if (entry.key == std::string("tokenizer.ggml.") + key) tokenizer[key] = entry.value;
  return tokenizer;
}

// What files of models and of heads have in common.
template <class File>
nlohmann::json describe(const File& file, const HyperParameters& h, bool tensors) {
  nlohmann::json j = {{"file", file.path()},
                      {"architecture", h.architecture},
                      {"type", file.general_type()},
                      {"bytes", file.file_bytes()},
                      {"parameters", file.parameter_count()},
                      {"layers", h.n_layers},
                      {"d_model", h.d_model},
                      {"heads", h.n_heads},
                      {"kv_heads", h.n_kv_heads},
                      {"head_dim", h.head_dim},
                      {"d_ff", h.d_ff},
                      {"tensor_types", types_of(file.tensors())},
                      {"tokenizer", tokenizer_of(file.metadata())},
                      {"supported", true},
                      {"not_supported", nlohmann::json::array()}};
  if (const MixtureParameters& m = h.mixture)
    j["experts"] = {{"count", m.n_experts}, {"used", m.n_used}, {"d_ff", m.d_ff}, {"shared_d_ff", m.d_shared}};
  if (h.window > 0) j["window"] = {{"tokens", h.window}, {"layers", std::ranges::count(h.sees_window, 1)}};
  if (h.window_head_dim > 0) j["window"].update({{"kv_heads", h.window_kv_heads}, {"head_dim", h.window_head_dim}});
  if (h.n_sharing_layers > 0) j["sharing_layers"] = h.n_sharing_layers;
  if (h.d_per_layer > 0) j["d_per_layer"] = h.d_per_layer;
  if (tensors) add_details(file, j);
  return j;
}

Result<nlohmann::json> describe(const ModelFile& model, const Tokenizer& tokenizer, bool tensors) {
  const HyperParameters& h = model.hparams();
  nlohmann::json j = describe(model, h, tensors);
  j.update(
      {{"model", h.name},
       {"vocabulary", h.n_vocab},
       {"context", h.context_length},
       {"rope", {{"base", h.rope.base}, {"dims", h.rope.n_dims}, {"scaling", name_of(kRopeScalings, h.rope.scaling)}}},
       {"tied_head", model.tied_head()},
       {"chat_template", !model.chat_template().empty()},
       {"bos", tokenizer.bos()},
       {"eos", tokenizer.eos()},
       {"layer_bytes", model.layer_bytes(0)},
       {"head_bytes", model.head_bytes()},
       {"kv_bytes_per_token_f16", 2LL * h.values_of_cell()},
       {"exactness", name(kCpuExactness)},
       {"max_stages", most_stages(h)}});
  j["predicts_further"] = HeadFile::open(model.path(), model).has_value();
  SLUICE_TRY_STATUS(add_memory(model, j));
  add_speculators(model, tokenizer, j);
  return j;
}

// What can be said of a file that no model can be made of, for this reason and maybe others; the error if it is none.
Result<nlohmann::json> describe_unsupported(const std::string& path, const Error& error, bool tensors) {
  const auto survey = Survey::open(path);
  if (error.kind != ErrorKind::kInput || !survey) return tl::unexpected(error);
  std::vector<std::string> reasons = survey->unsupported();
  if (reasons.empty()) reasons = {error.message};
  const HyperParameters h = survey->hparams();
  nlohmann::json j = describe(*survey, h, tensors);
  j.update({{"model", h.name},
            {"vocabulary", h.n_vocab},
            {"context", h.context_length},
            {"supported", false},
            {"not_supported", reasons}});
  return j;
}

nlohmann::json describe(const HeadFile& head, bool tensors) {
  const HeadParameters& p = head.parameters();
  const HeadTarget& target = head.target();
  nlohmann::json j = describe(head, p.hparams, tensors);
  j.update({{"head", name(p.kind)},
            {"name", p.hparams.name},
            {"target",
             {{"model", target.name},
              {"fingerprint", target.fingerprint},
              {"layers", target.n_layers},
              {"d_model", target.d_model},
              {"vocabulary", target.n_vocab}}},
            {"draft_vocabulary", p.n_guessable()},
            {"taps", p.taps},
            {"option", p.kind == HeadKind::kDraft ? "--draft" : "--head"},
            {"methods", methods_of(p.kind)}});
  if (p.kind == HeadKind::kSpd) {
    j["stages"] = p.stages();
    j["cuts"] = p.cuts;
    j["attention"] = p.full_attention ? "full" : "single";
    j["timing"] = p.output_timing ? "output" : "input";
  }
  if (p.kind == HeadKind::kPEagle) j["groups"] = p.groups;
  return j;
}

// The report on a file, line by line.
class Lines {
 public:
  explicit Lines(const nlohmann::json& j) : j_(j), out_(text("file") + "\n") {}

  std::string text(const char* key) const { return j_[key].is_string() ? j_[key].get<std::string>() : j_[key].dump(); }
  void add(const char* name, const std::string& value) { out_ += fmt::format("  {:<14}{}\n", name, value); }
  void add_size() {
    add("size", fmt::format("{:.1f} M parameters, {:.1f} MB", j_["parameters"].get<double>() / 1e6,
                            j_["bytes"].get<double>() / 1e6));
  }
  void add_shape() {
    add("shape", fmt::format("{} layers of {}, {} heads over {} KV heads of {}, feed-forward {}", text("layers"),
                             text("d_model"), text("heads"), text("kv_heads"), text("head_dim"), text("d_ff")));
    if (j_.contains("window")) {
      const nlohmann::json& w = j_["window"];
      const std::string heads =
          w.contains("head_dim") ? fmt::format(", over {} KV heads of {}", w["kv_heads"].dump(), w["head_dim"].dump())
                                 : "";
      add("window", fmt::format("of {} tokens in {} layers{}; the others see all", w["tokens"].dump(),
                                w["layers"].dump(), heads));
    }
    if (j_.contains("sharing_layers"))
      add("sharing", fmt::format("the last {} layers read keys and values of earlier ones", text("sharing_layers")));
    if (j_.contains("d_per_layer"))
      add("embeddings", fmt::format("of {} values for each layer besides", text("d_per_layer")));
    if (!j_.contains("experts")) return;
    const nlohmann::json& e = j_["experts"];
    const std::string shared =
        e["shared_d_ff"] == 0 ? "" : fmt::format(", and one of {} that all use", e["shared_d_ff"].dump());
    add("experts", fmt::format("{} a layer of {}, {} of them a token{}", e["count"].dump(), e["d_ff"].dump(),
                               e["used"].dump(), shared));
  }
  void add_types() {
    std::string types;
    for (const auto& [type, sum] : j_["tensor_types"].items())
      types += fmt::format("{}{} in {} tensors, {:.1f} MB", types.empty() ? "" : "; ", type, sum["tensors"].dump(),
                           sum["bytes"].get<double>() / 1e6);
    add("types", types.empty() ? "no tensors" : types);
  }
  std::string tokenizer() const {
    const nlohmann::json& t = j_["tokenizer"];
    return t.value("model", "no") + " tokenizer" + (t.contains("pre") ? " (" + t["pre"].get<std::string>() + ")" : "");
  }
  void add_reasons() {
    out_ += "  not supported:\n";
    for (const auto& reason : j_["not_supported"]) out_ += "    " + reason.get<std::string>() + "\n";
  }
  std::string methods() const {
    std::string methods;
    for (const auto& m : j_["methods"]) methods += (methods.empty() ? "" : ", ") + m.get<std::string>();
    return methods;
  }
  std::string finish() {
    if (j_.contains("metadata"))
      for (const auto& m : j_["metadata"])
        out_ += fmt::format("  {} ({}) = {}\n", m["key"].get<std::string>(), m["type"].get<std::string>(),
                            m["value"].get<std::string>());
    if (j_.contains("tensors"))
      for (const auto& t : j_["tensors"])
        out_ += fmt::format("  {:<36} {:<6} {}\n", t["name"].get<std::string>(), t["type"].get<std::string>(),
                            t["shape"].dump());
    return std::move(out_);
  }

 private:
  const nlohmann::json& j_;
  std::string out_;
};

std::string head_for_people(const nlohmann::json& j) {
  Lines lines(j);
  const auto text = [&](const char* key) { return lines.text(key); };
  lines.add("head", fmt::format("{}, {}", text("head"), text("type")));
  const nlohmann::json& target = j["target"];
  std::string whose = target["model"].get<std::string>();
  if (whose.empty()) whose = "a model that it doesn't name";
  if (target["layers"] > 0) whose += fmt::format(": {} layers", target["layers"].dump());
  whose += fmt::format(" of {}, {} tokens", target["d_model"].dump(), target["vocabulary"].dump());
  if (target["fingerprint"] != "") whose += ", fingerprint " + target["fingerprint"].get<std::string>();
  lines.add("target", whose);
  lines.add_size();
  lines.add_shape();
  lines.add("guesses", j["draft_vocabulary"] == target["vocabulary"]
                           ? "all tokens"
                           : fmt::format("{} of {} tokens", text("draft_vocabulary"), target["vocabulary"].dump()));
  if (j.contains("stages"))
    lines.add("stages", fmt::format("{}, cuts {}, attention {}, timing {}", text("stages"), text("cuts"),
                                    text("attention"), text("timing")));
  if (!j["taps"].empty()) lines.add("taps", fmt::format("states after the target's layers {}", text("taps")));
  lines.add("methods", fmt::format("{} (as {})", lines.methods(), text("option")));
  return lines.finish();
}

std::string gigabytes(const nlohmann::json& bytes) { return fmt::format("{:.2f}", bytes.get<double>() / 1e9); }

void add_memory_lines(const nlohmann::json& memory, Lines& lines) {
  lines.add("memory", fmt::format("{}: it needs {} GB for a context of {} tokens, this machine has {} GB",
                                  memory["fits"].get<bool>() ? "fits here" : "does not fit here",
                                  gigabytes(memory["needed"]), memory["context"].dump(), gigabytes(memory["there"])));
  for (const auto& [n, stages] : memory["stages"].items()) {
    if (n == "1") continue;
    std::string sizes;
    for (const auto& bytes : stages) sizes += (sizes.empty() ? "" : " + ") + gigabytes(bytes);
    lines.add("", fmt::format("{} stages: {} GB", n, sizes));
  }
}

// Names, or files with what they are.
std::string listed(const nlohmann::json& found) {
  std::string text;
  for (const auto& each : found)
    text += (text.empty() ? "" : ", ") +
            (each.is_string() ? each.get<std::string>()
                              : each["file"].get<std::string>() + " (" + each["head"].get<std::string>() + ")");
  return text.empty() ? "none found" : text;
}

std::string for_people(const nlohmann::json& j) {
  Lines lines(j);
  const auto text = [&](const char* key) { return lines.text(key); };
  const auto line = [&](const char* name, const std::string& value) { lines.add(name, value); };
  line("model", fmt::format("{}, architecture {}, {}", text("model"), text("architecture"), text("type")));
  lines.add_size();
  if (!j["supported"].get<bool>()) {
    line("shape",
         fmt::format("{} layers of {}; a context of {} tokens", text("layers"), text("d_model"), text("context")));
    lines.add_types();
    line("vocabulary", text("vocabulary") + " tokens, " + lines.tokenizer());
    lines.add_reasons();
    return lines.finish();
  }
  lines.add_shape();
  if (j["predicts_further"].get<bool>()) line("further", "a layer that predicts one token more: --source mtp");
  lines.add_types();
  line("vocabulary",
       fmt::format("{} tokens, {}, bos {}, eos {}, chat template: {}", text("vocabulary"), lines.tokenizer(),
                   text("bos"), text("eos"), j["chat_template"].get<bool>() ? "yes" : "no"));
  line("context",
       fmt::format("{} tokens; {:.1f} kB of KV cache a token (f16); RoPE scaling {}", text("context"),
                   j["kv_bytes_per_token_f16"].get<double>() / 1e3, j["rope"]["scaling"].get<std::string>()));
  line("weights read",
       fmt::format("a layer {:.2f} MB, the head {:.2f} MB{}", j["layer_bytes"].get<double>() / 1e6,
                   j["head_bytes"].get<double>() / 1e6, j["tied_head"].get<bool>() ? " (tied to the embedding)" : ""));
  line("stages", fmt::format("1 to {}", text("max_stages")));
  add_memory_lines(j["memory"], lines);
  line("drafts", listed(j["drafts"]));
  line("heads", listed(j["trained_heads"]));
  line("methods", lines.methods() + " (exactness on this processor: " + text("exactness") + ")");
  line("run it", text("command"));
  return lines.finish();
}

Result<nlohmann::json> describe_model(const std::string& path, const InspectOptions& options) {
  SLUICE_TRY(const ModelFile model, ModelFile::open(path));
  SLUICE_TRY(const Tokenizer tokenizer, Tokenizer::load(model));
  SLUICE_TRY(nlohmann::json j, describe(model, tokenizer, options.tensors));
  j["command"] = command_for(options, j);
  return j;
}

// A model that cannot be run is described too, and is an error all the same.
Status inspect(const InspectOptions& options) {
  SLUICE_TRY(const std::string path, find_model(options.file, show_downloads()));
  const bool is_head = HeadFile::is_head(path);
  nlohmann::json j;
  Status usable;
  if (is_head) {
    SLUICE_TRY(const HeadFile head, HeadFile::inspect(path));
    j = describe(head, options.tensors);
  } else if (auto described = describe_model(path, options)) {
    j = std::move(*described);
  } else {
    usable = tl::unexpected(described.error());
    SLUICE_TRY(j, describe_unsupported(path, described.error(), options.tensors));
  }
  SLUICE_TRY_STATUS(print(options.json ? j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
                          : is_head    ? head_for_people(j)
                                       : for_people(j)));
  return usable;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App& command = *app.add_subcommand("inspect", "What a GGUF file is, and which methods it can serve");
  command.footer(
      "Examples:\n"
      "  sluice inspect\n"
      "  sluice inspect model.gguf --tensors\n"
      "  sluice inspect model-00001-of-00004.gguf --json\n"
      "  sluice inspect head.gguf");
  auto* file = command.add_option(
      "file", options->file, "A GGUF file, or hf:OWNER/MODEL[:QUANT] (default: " + std::string(kDefaultModel) + ")");
  file->check(not_empty("a GGUF file"));
  add_checked(command, "-m,--model", options->file, not_empty("a GGUF file"), "The same")->excludes(file);
  command.add_flag("--tensors", options->tensors, "List metadata and tensors too");
  command.add_flag("--json", options->json, "One JSON object on stdout, nothing else there");
  command.callback([options, &action] { action = [options] { return inspect(*options); }; });
}

}  // namespace sluice
