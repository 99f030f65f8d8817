// A model opened for use: what every command that generates text starts from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "engine/engine.h"
#include "model/chat_template.h"
#include "model/file_watch.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "model/tokenizer.h"

namespace sluice {

// The embedded default model: SLUICE_MODEL, or the one that the set-up put beside the program. Errors say how to get
// it.
Result<std::string> default_model();

// Which heads may serve: that of --head, or without one those that come with the program too.
enum class Heads : uint8_t { kGiven, kGivenOrShipped };

class Session {
 public:
  static Result<Session> open(const CommonOptions& options, Heads heads = Heads::kGiven);

  const ModelFile& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::vector<LayerRange>& cuts() const { return cuts_; }
  const std::vector<ModelFile>& drafts() const { return drafts_; }
  const std::optional<HeadFile>& head() const { return head_; }
  const std::string& profile_name() const { return profile_name_; }
  const std::optional<Profile>& profile() const { return profile_; }  // none: neither simulated nor paced
  int32_t context() const { return options_.context; }                // tokens a conversation may have
  size_t corpus_tokens() const { return corpus_ ? corpus_->size() : 0; }
  double load_seconds() const { return load_seconds_; }
  // Of the files that it computes with. To be polled while an engine runs, and looked at when it has come to an end.
  FileWatch& files() const { return *files_; }
  // Writes the memo to its file, if there is one.
  Status save_memo() const;

  // A pipeline of its own for up to `n_requests` requests at a time.
  Result<std::unique_ptr<Engine>> make_engine(int32_t n_requests = 1, Jitter jitter = {}) const;

  // The tokens of a prompt or of a conversation. Without a template in the model the last message is taken as it is.
  Result<std::vector<Token>> encode(const std::vector<ChatMessage>& messages) const;

  // What to ask of the engine for a prompt; method `auto` begins as the best method that the files at hand allow.
  RequestSpec spec(std::vector<Token> prompt) const;
  // The method that `auto` tries against plain decoding, or the one asked for.
  std::string method() const;

 private:
  Session() = default;
  void take_shipped_head();
  Status open_head();
  void watch_files();
  Status add_head(EngineOptions& engine, std::vector<Pipeline>& pipelines, PipelineOptions pipeline) const;

  CommonOptions options_;
  std::unique_ptr<ModelFile> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<ModelFile> drafts_;
  std::optional<HeadFile> head_;
  std::unique_ptr<FileWatch> files_;
  std::shared_ptr<Memo> memo_;               // if lazy
  std::shared_ptr<const KnownText> corpus_;  // if --ngram-corpus
  std::optional<ChatTemplate> template_;
  std::vector<LayerRange> cuts_;
  std::optional<Profile> profile_;
  std::string profile_name_;
  double load_seconds_ = 0;
};

}  // namespace sluice
