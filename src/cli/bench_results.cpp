#include "cli/bench_results.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "method/option_table.h"

namespace sluice {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

template <class File>
json file_of(const File& file) {
  return {{"file", fs::path(file.path()).filename().string()}, {"bytes", file.file_bytes()}};
}

std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

// What a profile costs, without the words about it.
json costs_of(const Profile& profile) {
  json costs = profile.to_json();
  for (const char* word : {"name", "description", "source"}) costs.erase(word);
  return costs;
}

// The draft models that whatever method has.
std::span<const ModelFile> drafts_of(const Session& session) { return session.drafts_for("ar"); }

// Of each method that has one: a head, or a draft model of its own.
json heads_of(const BenchOptions& options, const Session& session) {
  json heads = json::object();
  for (const std::string& method : options.methods)
    if (const HeadFile* head = session.head_for(method))
      heads[method] = file_of(*head);
    else if (drafts_of(session).empty() && !session.drafts_for(method).empty())
      heads[method] = file_of(session.drafts_for(method).front());
  return heads;
}

// Of a file from when one head served all methods of a bench.
json older_heads(const json& settings, const json& now) {
  json heads = json::object();
  const json file = settings.value("head_file", json());
  for (const auto& [method, head] : now.items())
    if (!file.is_null()) heads[method] = file;
  return heads;
}

// Methods may be added from call to call: what was made with a head must have the same one.
bool agree(const std::string& setting, const json& before, const json& now) {
  if (setting != "heads" || !before.is_object()) return before == now;
  for (const auto& [method, file] : now.items())
    if (before.contains(method) && before[method] != file) return false;
  return true;
}

// Settings that came later than others: files that are older were made with their defaults.
BenchSettings later_settings(const BenchOptions& options) {
  const SamplingParams& sampling = options.session.request.sampling;
  BenchSettings settings;
  for (const MethodOption& option : method_option_table())
    settings.emplace_back(option.key(), option.in(options.session.request.method_options));
  settings.emplace_back("activations", name_of(kActivations, options.session.activations));
  settings.emplace_back("lossy", name_of(kLossyRules, sampling.rule));
  settings.emplace_back("lossy_p", sampling.accept_p);
  settings.emplace_back("arrivals", options.arrivals);
  settings.emplace_back("arrivals_seed", options.arrivals_seed);
  settings.emplace_back("also", options.also);
  settings.emplace_back("also_seconds", options.also_seconds);
  settings.emplace_back("chat_template_file", options.session.chat_template_file);
  settings.emplace_back("devices", options.session.devices);
  settings.emplace_back("draft_device", options.session.draft_device);
  settings.emplace_back("width_lock", options.session.width_lock);
  settings.emplace_back("memory", options.session.memory);
  return settings;
}

// What a file that is older than a setting was made with.
json default_of(const std::string& setting) {
  if (setting == "draft_vocab") return BenchOptions().session.draft_vocab;
  for (const auto& [name, value] : later_settings({}))
    if (name == setting) return value;
  return {};
}

// A setting in an error: what is long is not shown.
std::string shown(const json& j) {
  const std::string text = dump(j);
  return text.size() <= 60 ? text : "another";
}

// Whether a run has what the report reads.
bool is_run(const json& run) {
  if (!run.is_object()) return false;
  for (const char* key : {"id", "task", "method"})
    if (!run.contains(key) || !run[key].is_string()) return false;
  for (const char* key : {"temp", "turn", "steps", "drafted", "accepted", "flushes"})
    if (!run.contains(key) || !run[key].is_number()) return false;
  for (const char* key : {"tokens", "prompt"})
    if (!run.contains(key) || !run[key].is_array()) return false;
  if (run.contains("concurrency") && !run["concurrency"].is_number_integer()) return false;
  return run.contains("seconds") && run["seconds"].is_object() && run["seconds"].contains("decode") &&
         run["seconds"]["decode"].is_number();
}

BenchKey key_of(const json& run) {
  return {run["task"].get<std::string>(), run["id"].get<std::string>(), run["method"].get<std::string>(),
          run["temp"].get<float>(), run.value("concurrency", 1)};
}

// Whether a file may take its place by being renamed.
bool can_be_replaced(const std::string& path) {
  std::error_code error;
  const auto type = fs::symlink_status(path, error).type();
  const fs::path parent = fs::path(path).parent_path();
  return (type == fs::file_type::not_found || type == fs::file_type::regular) &&
         access(parent.empty() ? "." : parent.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

BenchSettings bench_settings(const BenchOptions& options, const Session& session) {
  json drafts = json::array(), cuts = json::array(), sources = json::array();
  for (const ModelFile& draft : drafts_of(session)) drafts.push_back(file_of(draft));
  for (const LayerRange& cut : session.cuts()) cuts.push_back(cut.first);
  const SessionOptions& asked = options.session;  // not what the session has chosen where nothing was
  const RequestSpec& request = asked.request;
  for (const SourceKind source : request.sources) sources.push_back(name_of(kSources, source));
  const SamplingParams& sampling = request.sampling;
  BenchSettings settings = {
      {"model", session.model().hparams().name},
      {"model_file", file_of(session.model())},
      {"draft_files", drafts},
      {"sources", sources},
      {"ngram_corpus", asked.ngram_corpus.empty() ? json()
                                                  : json{{"file", fs::path(asked.ngram_corpus).filename()},
                                                         {"tokens", session.corpus_tokens()}}},
      {"stages", session.cuts().size()},
      {"cuts", cuts},
      {"draft_vocab", asked.draft_vocab},
      {"executor", name_of(kExecutors, session.options().executor)},
      {"profile", session.profile() ? session.profile()->name : ""},
      {"costs", session.profile() ? costs_of(*session.profile()) : json()},
      {"compute", name_of(kComputes, asked.compute)},
      {"context", session.options().context},
      {"kv", name_of(kKvTypes, asked.kv)},
      {"verify", name_of(kLosslessRules, sampling.rule)},
      {"threads", asked.simulated() ? 0 : asked.threads},  // of no effect on a simulated clock
      {"max_tokens", request.max_tokens},
      {"top_k", sampling.top_k},
      {"top_p", sampling.top_p},
      {"min_p", sampling.min_p},
      {"repeat_penalty", sampling.repeat_penalty},
      {"seed", sampling.seed},
      {"raw", asked.raw},
      {"ignore_eos", request.ignore_end}};
  for (auto& setting : later_settings(options)) settings.push_back(std::move(setting));
  settings.emplace_back("heads", heads_of(options, session));
  return settings;
}

Error BenchResults::not_ours(const std::string& why) const {
  return {ErrorKind::kInput, "--json " + path_ + ": " + why + "; name another file, or begin anew with --overwrite"};
}

Result<BenchResults> BenchResults::open(const std::string& path, BenchSettings settings, bool overwrite) {
  BenchResults results;
  results.path_ = path;
  results.settings_ = std::move(settings);
  if (path.empty()) return results;
  results.replaceable_ = can_be_replaced(path);
  std::error_code error;
  if (overwrite || !fs::is_regular_file(path, error)) return results;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return input_error("--json " + path + ": cannot be read");
  if (!text.str().empty()) SLUICE_TRY_STATUS(results.read(text.str()));
  return results;
}

Status BenchResults::read(const std::string& text) {
  const auto bad = [&](const std::string& why) { return tl::unexpected<Error>(not_ours(why)); };
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("settings") || !j["settings"].is_object() || !j.contains("runs") ||
      !j["runs"].is_array())
    return bad("it is there already, and not a file of sluice bench");
  for (auto& [name, value] : settings_) {
    const json before =
        j["settings"].value(name, name == "heads" ? older_heads(j["settings"], value) : default_of(name));
    if (!agree(name, before, value))
      return bad("it holds runs of other settings: " + name + " was " + shown(before) + " and is " + shown(value));
    if (name != "heads") continue;
    for (const auto& [method, file] : before.items())
      if (!value.contains(method)) value[method] = file;
  }
  const json& before = j["settings"].value("concurrency", json());
  if (before.is_number() && before != 1)
    return bad("an older version held its conversations in groups that waited for the slowest");
  for (const json& run : j["runs"]) {
    if (!is_run(run)) return bad("it holds a run that sluice bench did not write");
    const BenchKey key = key_of(run);
    const auto [at, is_new] = index_.try_emplace(key, conversations_.size());
    if (is_new) conversations_.push_back({key, {}});
    auto& turns = conversations_[at->second].turns;
    if (run["turn"] != turns.size()) return bad("it holds turns of a conversation out of order");
    turns.push_back(run);
  }
  return {};
}

const BenchResults::Conversation* BenchResults::find(const BenchKey& key) const {
  const auto at = index_.find(key);
  return at == index_.end() ? nullptr : &conversations_[at->second];
}

void BenchResults::put(Conversation conversation) {
  const auto [at, is_new] = index_.try_emplace(conversation.key, conversations_.size());
  if (is_new) conversations_.emplace_back();
  conversations_[at->second] = std::move(conversation);
}

Status BenchResults::write(const json& selection, const json& rest, bool last) const {
  if (path_.empty() || (!replaceable_ && !last)) return {};
  json settings = selection;
  for (const auto& [name, value] : settings_) settings[name] = value;
  const json& heads = settings["heads"];
  settings["head_file"] = heads.size() == 1 ? *heads.begin() : json();
  std::ostringstream file;
  file << "{\n\"settings\": " << settings.dump(1, ' ', false, json::error_handler_t::replace) << ",\n\"runs\": [";
  const char* separator = "\n";
  for (const Conversation& conversation : conversations_)
    for (const json& run : conversation.turns) {
      file << separator << dump(run);
      separator = ",\n";
    }
  file << "\n]";
  for (const auto& [name, value] : rest.items()) file << ",\n" << dump(name) << ": " << dump(value);
  file << "\n}\n";
  if (const auto error = write_whole(path_, file.str(), /*durable=*/last))
    return runtime_error("--json " + path_ + ": cannot be written: " + error.message() +
                         "; name a file on a disk with room");
  return {};
}

}  // namespace sluice
