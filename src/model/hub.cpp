#include "model/hub.h"

#include <common.h>
#include <download.h>
#include <log.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

#include "model/file_identity.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "hf:";
constexpr long kListSeconds = 60;

// OWNER/MODEL[:QUANT]
bool is_repository(std::string_view text) {
  const auto is_word = [](std::string_view word) {
    return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return (c < 0x80 && std::isalnum(c)) || c == '-' || c == '_' || c == '.';
    });
  };
  const size_t slash = text.find('/'), colon = text.find(':');
  if (slash == text.npos || (colon != text.npos && (colon < slash || !is_word(text.substr(colon + 1))))) return false;
  return is_word(text.substr(0, slash)) && is_word(text.substr(0, colon).substr(slash + 1));
}

struct Stopped : std::exception {};
struct NoRoom : std::exception {
  uint64_t needed, free;
  NoRoom(uint64_t needed, uint64_t free) : needed(needed), free(free) {}
};

// Passes progress on. Throws rather than be cancelled: the library deletes what a cancelled download has got.
class Watcher : public common_download_callback {
 public:
  Watcher(const hf_cache::hf_file& file, const OnDownload& on_download) : file_(file), on_download_(on_download) {}
  void on_start(const common_download_progress& progress) override {
    std::error_code error;
    uint64_t needed = progress.total;
    if (const auto there = fs::file_size(file_.local_path + ".downloadInProgress", error); !error && there < needed)
      needed -= there;
    const auto space = fs::space(fs::path(file_.local_path).parent_path(), error);
    if (!error && space.available < needed) throw NoRoom(needed, space.available);
  }
  void on_update(const common_download_progress& progress) override {
    if (!on_download_(file_.path, progress.downloaded, progress.total)) throw Stopped();
  }
  void on_done(const common_download_progress&, bool) override {}

 private:
  const hf_cache::hf_file& file_;
  const OnDownload& on_download_;
};

std::string gigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The library only logs why a repository has no list of files.
Status check_repository(const std::string& repository, const std::string& token) {
  common_remote_params request;
  if (!token.empty()) request.headers.emplace_back("Authorization", "Bearer " + token);
  request.timeout = kListSeconds;
  const std::string endpoint = common_get_model_endpoint();
  long status = 0;
  try {
    status = common_remote_get_content(endpoint + "api/models/" + repository + "/refs", request).first;
  } catch (const std::exception&) {
    return runtime_error(endpoint + " can't be reached: is there a network?");
  }
  if (status == 200) return {};
  if (status == 401 || status == 403 || status == 404)
    return input_error(endpoint + " has no such repository, or it is not public: check the name, or set HF_TOKEN");
  return runtime_error(endpoint + " answers with status " + std::to_string(status) + ": try again later");
}

// What a repository has, if not what was asked for.
std::string what_there_is(const std::string& repository, const std::string& token) {
  std::string list;
  int n = 0;
  for (const auto& file : hf_cache::get_repo_files(repository, token))
    if (file.path.ends_with(".gguf") && ++n <= 12) list += (list.empty() ? "" : ", ") + file.path;
  return n == 0 ? "it has no GGUF file: look for a repository whose name ends in GGUF"
                : "no GGUF file there is named so; there are " + list + (n > 12 ? ", …" : "");
}

// The hub names a large file by its SHA-256.
Status check_contents(const hf_cache::hf_file& file) {
  if (file.oid.size() != 64) return {};
  {
    SLUICE_TRY(const auto opened, OpenFile::open(file.local_path));
    SLUICE_TRY(const auto mapped, opened.map(0, opened.size()));
    if (sha256(mapped.bytes()).hex() == file.oid) return {};
  }
  std::error_code ignored;
  fs::remove(file.local_path, ignored);
  return runtime_error(file.path + " came damaged and was deleted: try again");
}

Result<std::string> download(const std::string& name, const OnDownload& on_download) {
  const auto [repository, quant] = common_download_split_repo_tag(name);
  common_download_opts options;
  options.bearer_token = environment("HF_TOKEN");
  SLUICE_TRY_STATUS(check_repository(repository, options.bearer_token));
  common_params_model wanted;
  wanted.hf_repo = name;
  const auto plan = common_download_get_hf_plan(wanted, options);
  if (plan.model_files.empty()) return input_error(what_there_is(repository, options.bearer_token));
  for (const auto& file : plan.model_files) {
    const bool is_there = fs::exists(file.local_path);
    Watcher watcher(file, on_download);
    options.callback = &watcher;
    const int status = common_download_file_single(file.url, file.local_path, options, /*skip_etag=*/true);
    if (status >= 400)
      return runtime_error("the server answers with status " + std::to_string(status) + " for " + file.path);
    if (status < 0)
      return runtime_error(file.path + " could not be downloaded (is there a network, can " +
                           hf_cache::get_cache_path() + " be written?); what has come is kept: try again to go on");
    if (!is_there) SLUICE_TRY_STATUS(check_contents(file));
  }
  for (const auto& file : plan.model_files) hf_cache::finalize_file(file);
  return plan.primary.final_path;
}

// From the cache, or else downloaded.
Result<std::string> locate(const std::string& name, const OnDownload& on_download) {
  try {
    const std::string cached = common_download_resolve_path(name);
    if (!cached.empty() && fs::exists(cached)) return cached;
    return download(name, on_download);
  } catch (const Stopped&) {
    return tl::unexpected<Error>(
        Error{ErrorKind::kInterrupted, "interrupted; what has come is kept: try again to go on"});
  } catch (const NoRoom& no) {
    return runtime_error("it takes " + gigabytes(no.needed) + ", and " + hf_cache::get_cache_path() + " has room for " +
                         gigabytes(no.free) + "; name another folder by HF_HOME");
  } catch (const std::exception& error) {
    return runtime_error(error.what());
  }
}

// What is wrong with a path, if no model can be there; in words that say what would be right.
std::string complaint(const std::string& path) {
  constexpr std::string_view kHub = "huggingface.co/", kScheme = "https://";
  std::error_code error;
  const auto is_named = [](std::string_view repository) {
    return "a repository of the Hugging Face hub is named hf:" + std::string(repository);
  };
  std::string_view rest = path;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  if (rest.starts_with(kHub)) {
    rest.remove_prefix(kHub.size());
    const std::string_view repository = rest.substr(0, rest.find('/', rest.find('/') + 1));
    return is_named(is_repository(repository) ? repository : "OWNER/MODEL");
  }
  if (!fs::exists(path, error)) {
    if (is_repository(path) && !path.ends_with(".gguf")) return "no such file; " + is_named(path);
    return "no such file; give a GGUF file, or a model's name, hf:OWNER/MODEL[:QUANT]";
  }
  constexpr const char* kConvert =
      "safetensors, where GGUF is needed: convert it by llama.cpp's convert_hf_to_gguf.py, or take a GGUF repository, "
      "hf:OWNER/MODEL";
  if (path.ends_with(".safetensors")) return kConvert;
  if (!fs::is_directory(path, error)) return {};
  bool safetensors = false;
  std::string first;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().string();
    if (name.ends_with(".gguf") && (first.empty() || name < first)) first = name;
    safetensors |= name.ends_with(".safetensors");
  }
  if (!first.empty()) return "a folder; name the file in it, as " + first;
  return safetensors ? std::string("a folder of ") + kConvert : "a folder without a GGUF file; name one";
}

}  // namespace

Result<std::string> locate_model(const std::string& model, const OnDownload& on_download) {
  if (!model.starts_with(kPrefix)) {
    if (const std::string wrong = complaint(model); !wrong.empty()) return input_error(model + ": " + wrong);
    return model;
  }
  const std::string name = model.substr(kPrefix.size());
  if (!is_repository(name)) return input_error(model + ": a model's name is hf:OWNER/MODEL or hf:OWNER/MODEL:QUANT");
  common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT);  // what goes wrong is said here
  auto path = locate(name, on_download);
  if (!path) path.error().message.insert(0, model + ": ");
  return path;
}

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT);
  try {
    for (const auto& cached : common_list_cached_models())
      if (const std::string path = common_download_resolve_path(cached.to_string()); fs::exists(path))
        models.push_back({std::string(kPrefix) + cached.to_string(), path});
  } catch (const std::exception&) {  // no cache that can be read
  }
  return models;
}

}  // namespace sluice
