#include "session/session.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "chat/chat_text.h"
#include "model/utf8.h"
#include "plan/measure.h"
#include "session/assemble.h"
#include "session/auto_method.h"
#include "session/corpus_file.h"
#include "session/cuts.h"
#include "session/installation.h"
#include "session/policy.h"
#include "session/speculators.h"

namespace sluice {

namespace {

Result<Profile> load_profile(const std::string& name) {
  if (name != "local") return Profile::load(name);
  const std::string path = local_profile_path();
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return input_error("--profile local: this machine has not been measured yet; run sluice plan once");
  return Profile::load(path);
}

Result<std::string> read_template(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string source{std::istreambuf_iterator<char>(stream), {}};
  if (!stream || source.empty()) return input_error("--chat-template-file " + file + ": it can't be read, or is empty");
  return source;
}

}  // namespace

Result<Session> Session::open(const SessionOptions& options, Heads heads, const std::vector<std::string>& compared) {
  const auto begin = std::chrono::steady_clock::now();
  SLUICE_TRY_STATUS(check(options));
  Session session;
  session.options_ = options;
  session.asked_threads_ = options.threads;
  session.draft_on_ = options.draft_on;
  session.compared_ = compared;
  if (!options.stages_asked_for() && options.devices.size() > 1)
    session.options_.stages = static_cast<int32_t>(options.devices.size());
  SLUICE_TRY_STATUS(session.take_hosts());
  SLUICE_TRY_STATUS(session.open_model());
  for (const std::string& draft : options.drafts) SLUICE_TRY_STATUS(session.open_draft(draft));
  session.profile_name_ = options.profile.empty() && options.simulated() ? "uniform" : options.profile;
  if (!session.profile_name_.empty()) {
    SLUICE_TRY(session.profile_, load_profile(session.profile_name_));
  }
  SLUICE_TRY_STATUS(session.open_heads(heads));
  SLUICE_TRY_STATUS(session.take_plan());
  session.watch_files();
  if (!options.ngram_corpus.empty()) {
    SLUICE_TRY(session.corpus_, read_corpus(options.ngram_corpus, *session.tokenizer_));
  }
  if (options.lazy()) {
    session.memo_ = std::make_shared<Memo>();
    std::error_code error;
    if (options.compute == Compute::kStored && !std::filesystem::exists(options.memo, error))
      return input_error("--memo " + options.memo +
                         ": there is no such file: fill it by --executor virtual --compute lazy, the same otherwise");
    if (!options.memo.empty()) SLUICE_TRY_STATUS(session.memo_->load(options.memo));
  }
  if (const size_t n = options.devices.size(); n > 1 && n != session.options_.n_stages())
    return input_error("--device names " + std::to_string(n) + " devices, and there are " +
                       std::to_string(session.options_.n_stages()) + " stages: give one for all, or one for each");
  SLUICE_TRY(session.cuts_, choose_cuts(*session.model_, session.options_, session.profile_));
  session.options_.stages = static_cast<int32_t>(session.cuts_.size());
  if (!options.exact() && session.options_.stages == 1)
    return input_error(
        "--activations f16 is how stages send each other states, and there is one stage: leave it out, or add --stages "
        "or --hosts");
  SLUICE_TRY_STATUS(session.place_drafts());
  if (options.threads == 0) {  // simulated stages take turns, and stages elsewhere have cores of their own
    const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
    const bool alone = options.simulated() || !options.hosts.empty();
    session.options_.threads = std::max(1, alone ? cores : cores / session.options_.stages);
  }
  session.load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return session;
}

// Each of them holds a stage.
Status Session::take_hosts() {
  if (options_.hosts.empty()) return {};
  options_.executor = options_.job ? ExecutorKind::kMpi : ExecutorKind::kHosts;
  options_.stages = static_cast<int32_t>(options_.hosts.size());
  if (options_.hosts_say_layers())
    for (int32_t cut = 0; options_.cuts.size() + 1 < options_.hosts.size();)
      options_.cuts.push_back(cut += options_.hosts[options_.cuts.size()].layers);
  if (options_.secret.empty()) return {};
  return Secret::load(options_.secret).map([this](const Secret& secret) { secret_ = secret; });
}

Status Session::open_model() {
  SLUICE_TRY(options_.model, find_model(options_.model, options_.on_download));
  SLUICE_TRY(auto model, ModelFile::open(options_.model));
  model_ = std::make_unique<ModelFile>(std::move(model));
  const int32_t longest = model_->hparams().context_length;
  if (options_.context > longest)
    return input_error("--context " + std::to_string(options_.context) + ": the model was trained for " +
                       std::to_string(longest) + " tokens at most");
  if (options_.context == 0) options_.context = default_context(model_->hparams());
  SLUICE_TRY_STATUS(open_template());  // its helper process is forked off while this one is small
  SLUICE_TRY(auto tokenizer, Tokenizer::load(*model_));
  tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  if (options_.reads_answers) {
    SLUICE_TRY(grammars_, GrammarReader::open(*model_, *tokenizer_));
  }
  find_whether_it_reasons();
  return {};
}

Status Session::open_template() {
  const std::string& file = options_.chat_template_file;
  template_source_ = model_->chat_template();
  if (!file.empty()) {
    SLUICE_TRY(template_source_, read_template(file));
  }
  if (template_source_.empty() || options_.raw) return {};
  auto opened = ChatTemplate::open(template_source_);
  if (!opened)
    return input_error((file.empty() ? options_.model : "--chat-template-file " + file) + ": " +
                       opened.error().message + "; --raw goes without the chat template");
  template_ = std::move(*opened);
  if (options_.reads_answers) {
    SLUICE_TRY(answers_, AnswerParser::open(template_source_));
  }
  return {};
}

void Session::find_whether_it_reasons() {
  if (!answers_) return;
  const AnswerRequest example{.conversation = template_input({{.role = "user", .content = "Hello"}})};
  const auto format = answers_->format(example);
  reasons_ = format && !format->reasoning_begin.empty();
}

// What was trained for this very model goes before what was downloaded.
Result<std::string> Session::find_draft(const std::string& draft_name) const {
  if (draft_name == kAutoDraft) {
    const auto shipped = shipped_draft();
    return shipped ? *shipped : cached_draft(*model_, *tokenizer_);
  }
  auto found = locate_model(draft_name, options_.on_download);
  if (!found) found.error().message.insert(0, "--draft ");
  return found;
}

Status Session::open_draft(const std::string& draft_name) {
  SLUICE_TRY(const std::string path, find_draft(draft_name));
  if (HeadFile::is_head(path)) {
    SLUICE_TRY(auto head, ModelFile::open_draft(path, *model_));
    drafts_.push_back(std::move(head));
    return {};
  }
  SLUICE_TRY(auto draft, ModelFile::open(path));
  SLUICE_TRY(const auto vocabulary, Tokenizer::load(draft));
  SLUICE_TRY_STATUS(check_vocabulary(path, vocabulary, options_.model, *tokenizer_));
  drafts_.push_back(std::move(draft));
  return {};
}

void Session::watch_files() {
  std::vector<std::shared_ptr<const OpenFile>> files = model_->files();
  const auto add = [&](const auto& more) { files.insert(files.end(), more.begin(), more.end()); };
  for (const ModelFile& draft : drafts_) add(draft.files());
  for (const HeadFile& head : heads_) add(head.files());
  files_ = std::make_unique<FileWatch>(std::move(files));
}

Result<PlanKey> Session::plan_key() const {
  PlanKey key{.model = {},
              .drafts = {},
              .hosts = {},
              .stages = options_.cuts.empty() ? options_.stages : static_cast<int32_t>(options_.cuts.size()) + 1,
              .pace = profile_ ? pace_of(*profile_) : "",
              .devices = options_.devices};
  SLUICE_TRY(const Sha256 identity, model_->identity());
  key.model = identity.hex();
  for (const ModelFile& draft : drafts_) {
    SLUICE_TRY(const Sha256 of_draft, draft.identity());
    key.drafts.push_back(of_draft.hex());
  }
  for (const HostOptions& host : options_.hosts) key.hosts.push_back(host.address.text());
  return key;
}

// Of hosts its cuts, unless others are asked for; and what `auto` begins with and where the draft model runs then,
// unless something of it is.
Status Session::take_plan() {
  if (!has_plans()) return {};
  SLUICE_TRY(const PlanKey key, plan_key());
  const auto plan = find_plan(key);
  if (!plan) return {};
  if (!options_.hosts.empty() && options_.cuts.empty() && plan->cuts.size() + 1 == options_.hosts.size()) {
    options_.cuts = plan->cuts;
    for (const int32_t cut : plan->cuts) planned_ += (planned_.empty() ? "cuts " : ",") + std::to_string(cut);
  }
  const RequestSpec& request = options_.request;
  const bool is_open = request.method == kAutoMethod && !auto_head_ && request.sources.empty() &&
                       options_.ngram_corpus.empty() && request.method_options == MethodOptions();
  if (is_open) best_ = plan->best(!drafts_.empty());
  const auto say = [this](const std::string& what) { planned_ += (planned_.empty() ? "" : ", ") + what; };
  if (best_ && best_->drafts() && !drafts_.empty() && !draft_on_ && options_.draft_hosts.empty()) {
    draft_on_ = plan->draft_on;
    if (*draft_on_ != DraftPlace()) say("the draft model " + draft_on_->for_people());
  }
  if (best_) say("auto begins with " + best_->name());
  return {};
}

// On hosts they are held by those; else the profile's prices are of where they are. An engine loads one head at most,
// which comes behind all draft models.
Status Session::place_drafts() {
  const size_t n = drafts_.size() + (heads_.empty() ? 0 : 1);
  if (draft_on_) {
    SLUICE_TRY_STATUS(draft_on_->check(n > 0, cuts_.size()));
    if (options_.hosts.empty()) return {};
    HostOptions host{.address = draft_on_->host};
    if (draft_on_->kind == DraftPlace::Kind::kStage) host = options_.hosts[static_cast<size_t>(draft_on_->stage)];
    options_.draft_hosts.assign(*draft_on_ == DraftPlace() ? 0 : n, host);
  }
  if (options_.draft_hosts.size() > n)
    return input_error("--hosts names " + std::to_string(options_.draft_hosts.size()) +
                       " hosts of what drafts, and there are " + std::to_string(n) +
                       " draft models and heads: give a --draft or --head for each, or leave role = \"draft\" out");
  if (options_.draft_hosts.size() <= drafts_.size()) return {};
  head_host_ = options_.draft_hosts.back();
  options_.draft_hosts.pop_back();
  return {};
}

std::optional<Profile> Session::prices() const {
  std::optional<Profile> prices = profile_;
  if (!prices || !draft_on_ || !options_.hosts.empty()) return prices;
  prices->draft_on.reset();
  if (draft_on_->kind == DraftPlace::Kind::kStage) prices->draft_on = draft_on_->stage;
  return prices;
}

void Session::take_prices(const Profile& profile, std::vector<LayerRange> cuts) {
  SLUICE_CHECK(options_.simulated(), "real stages take the time that they take");
  profile_ = profile;
  profile_name_ = profile.name;
  draft_on_.reset();
  cuts_ = std::move(cuts);
  options_.stages = static_cast<int32_t>(cuts_.size());
}

std::string Session::method(const std::string& asked) const {
  if (asked != kAutoMethod) return asked;
  if (best_) return best_->method;
  return best_method({.draft = !drafts_.empty(), .head = auto_head_});
}

// An engine loads one head at most.
MemoryNeed Session::memory_need() const {
  MemoryNeed need{.context = options_.context,
                  .cells = cells_of_request(options_.context, options_.stages, options_.request.method_options),
                  .bytes = 1};  // what other hosts hold they count themselves
  const auto add = [&](const HyperParameters& h, int32_t n_stages, bool on_cpu) {
    need.bytes += bytes_of_cell(h, options_.kv, n_stages);
    need.folded += folded_bytes(h);
    if (!on_cpu || memo_) return;  // then layers with windows hold all
    const auto windows = window_memory(h, options_.kv, {0, h.n_layers}, need.cells, need.cells - need.context);
    need.windowed += windows.bytes_of_cell;
    need.in_windows += windows.bytes();
  };
  const auto is_cpu = [](const std::string& device) { return device == kCpuDevice; };
  if (options_.hosts.empty()) add(model_->hparams(), options_.stages, std::ranges::all_of(options_.devices, is_cpu));
  for (size_t i = options_.draft_hosts.size(); i < drafts_.size(); ++i)
    add(drafts_[i].hparams(), 1, is_cpu(options_.draft_device));
  int64_t dearest_head = 0;
  for (const HeadFile& head : heads_)
    if (!head_host_) dearest_head = std::max(dearest_head, bytes_of_cell(head.parameters().hparams, KvType::kF32));
  need.bytes += dearest_head;
  return need;
}

Result<std::unique_ptr<Engine>> Session::make_engine(const std::string& method, int32_t n_requests) const {
  const MemoryNeed need = memory_need();
  SLUICE_TRY_STATUS(need.check(n_requests));
  EngineOptions engine;
  engine.context = options_.context;
  engine.n_cells = static_cast<int32_t>(n_requests * need.cells);
  engine.folding.most_sequences = std::max(engine.folding.most_sequences, 2 * static_cast<size_t>(n_requests));
  engine.corpus = corpus_;
  engine.trace = options_.trace;
  engine.scheduler.prompt_chunk = options_.stages == 1 ? policy::kPromptRowsAlone : policy::kPromptRowsPiped;
  engine.scheduler.longest_chunk = policy::kPromptRowsAlone;
  engine.scheduler.longest_gap = options_.longest_gap;
  Parts parts{.options = options_,
              .model = model_.get(),
              .tokenizer = tokenizer_.get(),
              .drafts = {},
              .head = head_for(method),
              .head_host = head_host_,
              .cuts = cuts_,
              .secret = secret_,
              .host_threads = asked_threads_,
              .profile = prices(),
              .memo = memo_,
              .n_draft_cells = engine.n_cells + policy::kDraftedAhead,
              .longest_path = static_cast<int32_t>(need.cells),
              .engine = std::move(engine)};
  for (const ModelFile& draft : drafts_for(method)) parts.drafts.push_back(&draft);
  SLUICE_TRY(auto assembly, assemble(parts));
  return std::make_unique<Engine>(*tokenizer_, std::move(assembly.executor), std::move(assembly.engine));
}

// What was computed with another file than it is kept for must not come back.
Status Session::save_memo() const {
  if (options_.memo.empty()) return {};
  SLUICE_TRY_STATUS(files_->look());
  return memo_->save(options_.memo);
}

Result<std::vector<Token>> Session::encode(const std::vector<ChatMessage>& messages) const {
  for (const ChatMessage& message : messages)
    if (const size_t at = first_invalid_utf8(message.content); at < message.content.size())
      return input_error("the " + std::string(message.role == "system" ? "system message" : "prompt") +
                         " is not UTF-8 text: byte " + std::to_string(at + 1) +
                         " of it belongs to no character; convert it, for instance with iconv");
  if (!template_)
    return tokenizer_->encode(messages.back().content, /*add_special=*/true, /*parse_special=*/options_.raw);
  return encode(template_input(messages), [&](const ChatTemplateInput& input) { return template_->render(input); });
}

Result<std::vector<Token>> Session::encode(const ChatTemplateInput& input, const ChatText::Render& render) const {
  const ChatText chat(*tokenizer_, template_source_);
  SLUICE_TRY(auto tokens, chat.encode(input, render));
  if (tokenizer_->adds_bos() && (tokens.empty() || tokens.front() != tokenizer_->bos()))
    tokens.insert(tokens.begin(), tokenizer_->bos());
  return tokens;
}

Result<Session::Question> Session::question(AnswerRequest request) const {
  const auto tools = std::move(request.conversation.tools);
  request.conversation = template_input(request.conversation.messages);
  request.conversation.tools = tools;
  const auto is_more = [](const ChatMessage& message) { return !message.extra.empty(); };
  const bool mended =
      !tools.empty() || (reasons_ && !request.thinking) || std::ranges::any_of(request.conversation.messages, is_more);
  Question question;
  if (answers() != nullptr && (mended || reasons_)) {
    auto format = answers_->format(request);
    if (!format && !request.schema.empty()) {
      request.schema.clear();
      format = answers_->format(request);
    }
    const bool unavailable = !format && format.error().kind == ErrorKind::kRuntime;
    if (!format && (mended || unavailable)) return tl::unexpected<Error>(std::move(format).error());
    if (format) question.format = std::move(*format);  // else the answer is a text as it stands
  }
  if (!mended || answers() == nullptr) {
    SLUICE_TRY(question.prompt, encode(request.conversation.messages));
    return question;
  }
  const auto render = [&](const ChatTemplateInput& input) -> Result<std::string> {
    AnswerRequest concealed = request;
    concealed.conversation = input;
    SLUICE_TRY(AnswerFormat format, answers_->format(concealed));
    return std::move(format.prompt);
  };
  SLUICE_TRY(question.prompt, encode(request.conversation, render));
  return question;
}

ChatTemplateInput Session::template_input(const std::vector<ChatMessage>& messages) const {
  const auto special = [&](Token token) { return token == kNoToken ? std::string() : tokenizer_->piece(token, true); };
  return {.messages = messages,
          .add_generation_prompt = true,
          .bos_token = special(tokenizer_->bos()),
          .eos_token = special(tokenizer_->eos())};
}

Result<std::string> Session::render(const ChatTemplateInput& conversation) const {
  if (!template_) return input_error(options_.model + " has no chat template");
  AnswerRequest request{.conversation = template_input(conversation.messages)};
  request.conversation.add_generation_prompt = conversation.add_generation_prompt;
  if (answers() == nullptr || conversation.tools.empty()) return template_->render(request.conversation);
  request.conversation.tools = conversation.tools;
  SLUICE_TRY(AnswerFormat format, answers_->format(request));
  return std::move(format.prompt);
}

RequestSpec Session::spec(std::vector<Token> prompt, const std::string& asked) const {
  RequestSpec spec = options_.request;
  spec.prompt = std::move(prompt);
  spec.method = method(asked);
  double& p_min = spec.method_options.draft_p_min;
  if (asked == kAutoMethod && p_min == 0) p_min = auto_p_min_;
  if (asked == kAutoMethod && best_) {
    spec.method_options = best_->options;
    spec.sources = best_->sources;
  }
  // The head that `auto` brought is for methods of its kind: others guess by what they would without it.
  if (spec.sources.empty() && !heads_.empty() && drafts_.empty() && head_for(asked) == nullptr)
    spec.sources = {SourceKind::kNgram};
  return spec;
}

}  // namespace sluice
