// A model opened for use: what every command that generates text starts from.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/answer_parser.h"
#include "chat/chat_template.h"
#include "chat/chat_text.h"
#include "engine/engine.h"
#include "grammar/grammar_reader.h"
#include "model/file_map.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "model/tokenizer.h"
#include "pipeline/memo.h"
#include "session/contender.h"
#include "session/kept_plan.h"
#include "session/memory_need.h"
#include "session/options.h"
#include "transport/secret.h"

namespace sluice {

// Which heads may serve: those of the options, or also those that come with the program.
enum class Heads : uint8_t { kGiven, kGivenOrShipped };

class Session {
 public:
  // With `compared` (bench) each of these methods runs, with a head of its own kind that is given or comes with the
  // program; else the method that was asked for does, with the head that is given or, without that, one that comes with
  // it. Errors name the file, or the option of the command line.
  static Result<Session> open(const SessionOptions& options, Heads heads = Heads::kGiven,
                              const std::vector<std::string>& compared = {});

  // As they were given, but for what was chosen for them: context, stages and threads are known.
  const SessionOptions& options() const { return options_; }
  const ModelFile& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::vector<LayerRange>& cuts() const { return cuts_; }
  const std::vector<ModelFile>& drafts() const { return drafts_; }
  // Those of an engine for this method: where methods are compared, the draft that comes with the program is for `auto`
  // alone, as it is in a run.
  std::span<const ModelFile> drafts_for(const std::string& asked) const;
  // The head that an engine for this method loads; null: none.
  const HeadFile* head_for(const std::string& asked) const;
  const std::string& profile_name() const { return profile_name_; }
  const std::optional<Profile>& profile() const { return profile_; }  // none: neither simulated nor paced
  // Which plan is for this session, as it was opened.
  Result<PlanKey> plan_key() const;
  // What the plan that is kept for it says, in words; empty: there is none, or it says nothing.
  const std::string& planned() const { return planned_; }
  size_t corpus_tokens() const { return corpus_ ? corpus_->size() : 0; }
  double load_seconds() const { return load_seconds_; }
  // Of the files that it computes with. To be polled while an engine runs, and looked at when it has come to an end.
  FileWatch& files() const { return *files_; }
  // Writes the memo to its file, if there is one.
  Status save_memo() const;

  // Whether cells for so many requests at a time can be numbered, and their keys and values be held in memory. The
  // error names --context and --concurrency, and what would be right.
  Status check_room(int32_t n_requests) const { return memory_need().check(n_requests); }
  // A pipeline of its own for up to `n_requests` requests at a time, by a method or the session's.
  Result<std::unique_ptr<Engine>> make_engine(int32_t n_requests = 1) const {
    return make_engine(options_.request.method, n_requests);
  }
  Result<std::unique_ptr<Engine>> make_engine(const std::string& method, int32_t n_requests) const;

  // Goes on with other stages, at the prices of a profile, which say where drafts run; what was computed is kept.
  // REQUIRES: a simulated clock; the profile is for so many stages.
  void take_prices(const Profile& profile, std::vector<LayerRange> cuts);

  // The tokens of a prompt or of a conversation, whose messages can't write the template's control tokens (ChatText).
  // Without a template in the model the last message is plain text; with --raw it may hold special tokens.
  Result<std::vector<Token>> encode(const std::vector<ChatMessage>& messages) const;
  // Whether conversations are more than their last message: the model has a chat template, and --raw is not given.
  bool has_template() const { return template_.has_value(); }
  // What the template makes of a conversation, messages and tools, of which nothing else is read but whether an answer
  // begins at its end; the error says that there is none.
  Result<std::string> render(const ChatTemplateInput& conversation) const;
  const std::string& template_source() const { return template_source_; }  // Jinja; empty: there is none

  // How answers are read; null: there is no template, or nobody asked for it (SessionOptions::reads_answers).
  const AnswerParser* answers() const { return answers_ ? &*answers_ : nullptr; }
  // Reads in which form an answer is to be; null: nobody asked for it (SessionOptions::reads_answers).
  const GrammarReader* grammars() const { return grammars_ ? &*grammars_ : nullptr; }
  // The prompt of a conversation, and how its answer is read if there is anything in it to be told apart: the family
  // reasons, or there are tools. As encode(), but conversations with tools or calls, and such in which a model that can
  // reason is not to, are rendered as the parser does it.
  struct Question {
    std::vector<Token> prompt;
    std::optional<AnswerFormat> format;
  };
  // messages and tools: of the conversation nothing else is read. A schema that the parser does not take is left out:
  // then the format has no grammar of it.
  Result<Question> question(AnswerRequest request) const;

  // What to ask of the engine for a prompt; method `auto` begins as the plan says, or as the best
  // method that the files at hand allow.
  RequestSpec spec(std::vector<Token> prompt) const { return spec(std::move(prompt), options_.request.method); }
  RequestSpec spec(std::vector<Token> prompt, const std::string& method) const;
  // The method that `auto` tries against plain decoding, or the one asked for.
  std::string method() const { return method(options_.request.method); }
  std::string method(const std::string& asked) const;

 private:
  Session() = default;
  void find_whether_it_reasons();
  Result<std::vector<Token>> encode(const ChatTemplateInput& input, const ChatText::Render& render) const;
  ChatTemplateInput template_input(const std::vector<ChatMessage>& messages) const;
  Status take_hosts();
  Status open_model();
  Status open_template();
  Result<std::string> find_draft(const std::string& draft_name) const;
  Status open_draft(const std::string& draft_name);
  Status open_head(const std::string& path);
  Status open_heads(Heads heads);
  Status take_shipped();
  Status take_shipped_heads();
  // The draft that comes with the program for exactly this model, if there is one.
  std::optional<std::string> shipped_draft() const;
  Result<bool> take_shipped_head(const std::string& method, bool for_auto);
  Status take_head_of_auto();
  Status take_further_layer();
  Status check_source_head() const;
  Status take_cuts();
  Status take_plan();
  Status place_drafts();
  std::optional<Profile> prices() const;
  void watch_files();
  MemoryNeed memory_need() const;
  std::vector<std::string> methods() const;

  SessionOptions options_;
  int32_t asked_threads_ = 0;     // 0: nobody asked
  std::optional<Secret> secret_;  // of the hosts
  std::unique_ptr<ModelFile> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<ModelFile> drafts_;
  std::vector<HeadFile> heads_;        // one of a kind, those of --head first
  bool draft_is_autos_ = false;        // others do without
  std::optional<HeadKind> auto_head_;  // that `auto` guesses by
  double auto_p_min_ = 0;              // where a chain of it ends if nobody says so
  std::vector<std::string> compared_;  // methods of a bench
  std::unique_ptr<FileWatch> files_;
  std::shared_ptr<Memo> memo_;               // if lazy
  std::shared_ptr<const KnownText> corpus_;  // if --ngram-corpus
  std::string template_source_;
  std::optional<ChatTemplate> template_;
  std::optional<AnswerParser> answers_;
  std::optional<GrammarReader> grammars_;
  bool reasons_ = false;  // the family's answers may hold reasoning
  std::vector<LayerRange> cuts_;
  std::optional<Profile> profile_;
  std::string profile_name_;
  std::optional<DraftPlace> draft_on_;    // as was asked for, or as the plan says
  std::optional<HostOptions> head_host_;  // of the head that an engine loads; none: this process
  std::optional<Contender> best_;         // what `auto` begins with, by the plan
  std::string planned_;
  double load_seconds_ = 0;
};

}  // namespace sluice
