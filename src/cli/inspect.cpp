#include <spdlog/fmt/fmt.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/values.h"

namespace sluice {

namespace {

struct InspectOptions {
  std::string file;
  bool json = false, tensors = false;
};

const char* rope_scaling(const RopeParameters& rope) {
  switch (rope.scaling) {
    case RopeParameters::Scaling::kNone:
      return "none";
    case RopeParameters::Scaling::kLinear:
      return "linear";
    case RopeParameters::Scaling::kYarn:
      return "yarn";
  }
  return "?";
}

nlohmann::json describe(const ModelFile& model, const Tokenizer& tokenizer, bool tensors) {
  const HyperParameters& h = model.hparams();
  nlohmann::json j = {{"file", model.path()},
                      {"model", h.name},
                      {"architecture", h.architecture},
                      {"type", model.general_type()},
                      {"bytes", model.file_bytes()},
                      {"parameters", model.parameter_count()},
                      {"layers", h.n_layers},
                      {"d_model", h.d_model},
                      {"heads", h.n_heads},
                      {"kv_heads", h.n_kv_heads},
                      {"head_dim", h.head_dim},
                      {"d_ff", h.d_ff},
                      {"vocabulary", h.n_vocab},
                      {"context", h.context_length},
                      {"rope", {{"base", h.rope.base}, {"dims", h.rope.n_dims}, {"scaling", rope_scaling(h.rope)}}},
                      {"tied_head", model.tied_head()},
                      {"chat_template", !model.chat_template().empty()},
                      {"bos", tokenizer.bos()},
                      {"eos", tokenizer.eos()},
                      {"layer_bytes", model.layer_bytes(0)},
                      {"head_bytes", model.head_bytes()},
                      {"kv_bytes_per_token_f16", 4LL * h.n_layers * h.n_kv_heads * h.head_dim},
                      {"exactness", kCpuExactness},
                      {"max_stages", h.n_layers},
                      {"methods", method_names()}};
  if (!tensors) return j;
  for (const auto& t : model.tensors())
    j["tensors"].push_back(
        {{"name", t.name}, {"type", t.type}, {"shape", {t.ne[0], t.ne[1], t.ne[2], t.ne[3]}}, {"bytes", t.bytes}});
  for (const auto& m : model.metadata())
    j["metadata"].push_back({{"key", m.key}, {"type", m.type}, {"value", m.value}});
  return j;
}

std::string for_people(const nlohmann::json& j) {
  const auto text = [&](const char* key) { return j[key].is_string() ? j[key].get<std::string>() : j[key].dump(); };
  std::string out = fmt::format("{}\n", text("file"));
  const auto line = [&](const std::string& name, const std::string& value) {
    out += fmt::format("  {:<14}{}\n", name, value);
  };
  line("model", fmt::format("{}, architecture {}, {}", text("model"), text("architecture"), text("type")));
  line("size", fmt::format("{:.1f} M parameters, {:.1f} MB", j["parameters"].get<double>() / 1e6,
                           j["bytes"].get<double>() / 1e6));
  line("shape", fmt::format("{} layers of {}, {} heads over {} KV heads of {}, feed-forward {}", text("layers"),
                            text("d_model"), text("heads"), text("kv_heads"), text("head_dim"), text("d_ff")));
  line("vocabulary", fmt::format("{} tokens, bos {}, eos {}, chat template: {}", text("vocabulary"), text("bos"),
                                 text("eos"), j["chat_template"].get<bool>() ? "yes" : "no"));
  line("context",
       fmt::format("{} tokens; {:.1f} kB of KV cache a token (f16); RoPE scaling {}", text("context"),
                   j["kv_bytes_per_token_f16"].get<double>() / 1e3, j["rope"]["scaling"].get<std::string>()));
  line("weights read",
       fmt::format("a layer {:.2f} MB, the head {:.2f} MB{}", j["layer_bytes"].get<double>() / 1e6,
                   j["head_bytes"].get<double>() / 1e6, j["tied_head"].get<bool>() ? " (tied to the embedding)" : ""));
  line("stages", fmt::format("1 to {}", text("max_stages")));
  std::string methods;
  for (const auto& m : j["methods"]) methods += (methods.empty() ? "" : ", ") + m.get<std::string>();
  line("methods", methods + " (exactness on this processor: " + text("exactness") + ")");
  if (j.contains("metadata"))
    for (const auto& m : j["metadata"])
      out += fmt::format("  {} ({}) = {}\n", m["key"].get<std::string>(), m["type"].get<std::string>(),
                         m["value"].get<std::string>());
  if (j.contains("tensors"))
    for (const auto& t : j["tensors"])
      out += fmt::format("  {:<36} {:<6} {}\n", t["name"].get<std::string>(), t["type"].get<std::string>(),
                         t["shape"].dump());
  return out;
}

Status inspect(const InspectOptions& options) {
  std::string path = options.file;
  if (path.empty()) {
    SLUICE_TRY(path, default_model());
  }
  SLUICE_TRY(const ModelFile model, ModelFile::open(path));
  SLUICE_TRY(const Tokenizer tokenizer, Tokenizer::load(model));
  const nlohmann::json j = describe(model, tokenizer, options.tensors);
  return print(options.json ? j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : for_people(j));
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App& command = *app.add_subcommand("inspect", "What a GGUF file is, and which methods it can serve");
  command.footer(
      "Examples:\n"
      "  sluice inspect\n"
      "  sluice inspect model.gguf --tensors\n"
      "  sluice inspect model-00001-of-00004.gguf --json");
  auto* file = command.add_option("file", options->file, "A GGUF file (default: the embedded default model)");
  file->check(not_empty("a GGUF file"));
  command.add_option("-m,--model", options->file, "The same")->check(not_empty("a GGUF file"))->excludes(file);
  command.add_flag("--tensors", options->tensors, "List metadata and tensors too");
  command.add_flag("--json", options->json, "One JSON object on stdout, nothing else there");
  command.callback([options, &action] { action = [options] { return inspect(*options); }; });
}

}  // namespace sluice
