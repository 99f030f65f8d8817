#include "support/harness.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>

#include "grammar/grammars.h"
#include "session/assemble.h"
#include "verify/sampler.h"

namespace sluice::test {

namespace {

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

Profile profile_of(const PipelineSpec& setup) {
  return value_of(setup.profile.starts_with("{") ? Profile::parse(setup.profile, "of the test")
                                                 : Profile::load(setup.profile));
}

int32_t cells_of(const PipelineSpec& setup) { return setup.n_cells > 0 ? setup.n_cells : 4 * setup.context + 64 * 32; }

}  // namespace

Opened open(const std::string& path) {
  ModelFile model = value_of(ModelFile::open(path));
  Tokenizer tokenizer = value_of(Tokenizer::load(model));
  return {std::move(model), std::move(tokenizer)};
}

const Opened& open_tiny(const std::string& name, const TinyModelSpec& spec) {
  static std::map<std::string, Opened> models;
  const auto at = models.find(name);
  if (at != models.end()) return at->second;
  return models.emplace(name, open(write_tiny_model(spec, temp_path(name + ".gguf")))).first->second;
}

const Opened& thirty_layers() { return open_tiny("thirty_layers", narrow_model(30)); }
const Opened& six_layers() { return open_tiny("six_layers", narrow_model(6)); }
const Opened& five_layers() { return open_tiny("five_layers", narrow_model(5)); }
const Opened& six_layers_of(const std::string& architecture) {
  return open_tiny("six_layers_of_" + architecture, of_family(narrow_model(6), architecture));
}
const Opened& sharing_layers() { return open_tiny("sharing_layers", sharing_model(narrow_model(9))); }
const Opened& two_layers() { return open_tiny("two_layers", narrow_model(2)); }

std::vector<LayerRange> cuts_of(const Opened& opened, const PipelineSpec& setup) {
  const int32_t n_layers = opened.model.hparams().n_layers;
  if (!setup.cuts.empty()) return value_of(explicit_cuts(setup.cuts, n_layers));
  const HyperParameters& h = opened.model.hparams();
  return balanced_cuts(std::vector<double>(static_cast<size_t>(n_layers), 1.0), 0.0, 0.0, setup.stages,
                       [&h](StageId, LayerRange stage) { return h.parted_by(stage.first) < 0; });
}

std::string describe(const PipelineSpec& setup) {
  std::ostringstream text;
  text << "stages " << setup.stages << ", cuts [";
  for (const int32_t cut : setup.cuts) text << cut << ' ';
  text << "], " << (setup.threads ? "threads" : "virtual") << (setup.lazy ? ", lazy" : "")
       << (setup.paced ? ", paced" : "") << ", profile " << setup.profile << ", jitter " << setup.jitter.amount
       << " of seed " << setup.jitter.seed << ", kv " << (setup.kv == KvType::kF16 ? "f16" : "f32")
       << (setup.devices.empty() ? "" : ", devices from " + setup.devices.front())
       << (setup.activations == Activations::kF16 ? ", activations f16" : "") << ", context " << setup.context
       << ", cells " << cells_of(setup) << ", states " << setup.folding.most_sequences << ", kept " << setup.kept_behind
       << ", row budget " << setup.scheduler.row_budget << ", prompt chunk " << setup.scheduler.prompt_chunk << " to "
       << setup.scheduler.longest_chunk << ", drafts";
  for (const Opened* draft : setup.drafts) text << ' ' << draft->model.hparams().n_layers;
  if (const Faults& f = setup.faults; f.longest > 0.0 || f.crash)
    text << ", faults of seed " << f.seed << ": delays " << f.delays << ", duplicates " << f.duplicates << ", stalls "
         << f.stalls << ", longest " << f.longest << (f.crash ? ", crash at " + std::to_string(*f.crash) : "");
  for (const uint64_t loss : setup.faults.losses) text << ", loss at " << loss;
  if (setup.faults.whose != kTarget) text << " of model " << setup.faults.whose.value;
  if (setup.faults.nobody > 0.0) text << ", nobody in " << setup.faults.nobody;
  if (setup.faults.journal > 0) text << ", journals of " << setup.faults.journal << " bytes";
  if (setup.head != nullptr) text << ", head " << name(setup.head->parameters().kind) << " of " << setup.guesses;
  return text.str();
}

std::string describe(const RequestSpec& spec) {
  std::ostringstream text;
  const SamplingParams& s = spec.sampling;
  text << spec.method << " of width " << spec.method_options.width << " with " << spec.method_options.children
       << " children, depth " << spec.method_options.depth << ", sources " << spec.sources.size() << ", max tokens "
       << spec.max_tokens << ", temperature " << s.temperature << ", top-k " << s.top_k << ", top-p " << s.top_p
       << ", min-p " << s.min_p << ", penalty " << s.repeat_penalty << ", presence " << s.presence_penalty
       << ", frequency " << s.frequency_penalty << ", seed " << s.seed << ", choice " << s.choice << ", biases "
       << s.logit_bias.size()
       << (s.grammar.empty() ? "" : ", grammar " + s.grammar.rules.substr(0, s.grammar.rules.find('\n')))
       << (spec.ignore_end ? ", past the end" : "")
       << (spec.continues ? ", continues " + std::to_string(spec.continues->value) : "")
       << (spec.shares ? ", shares with " + std::to_string(spec.shares->value) : "") << ", prompt [";
  for (const Token token : spec.prompt) text << token << ' ';
  text << "]";
  return text.str();
}

namespace {

Assembly assemble(const Opened& opened, const PipelineSpec& setup) {
  Parts parts{.options = {.executor = setup.threads ? ExecutorKind::kThreads : ExecutorKind::kVirtual,
                          .kv = setup.kv,
                          .activations = setup.activations,
                          .devices = setup.devices,
                          .threads = 1},
              .model = &opened.model,
              .tokenizer = &opened.tokenizer,
              .drafts = {},
              .head = setup.head,
              .cuts = cuts_of(opened, setup),
              .profile = {},
              .jitter = setup.jitter,
              .faults = setup.faults,
              .memo = setup.lazy ? std::make_shared<Memo>() : nullptr,
              .n_draft_cells = cells_of(setup),
              .kept_behind = setup.kept_behind,
              .engine = {.context = setup.context,
                         .n_cells = cells_of(setup),
                         .folding = setup.folding,
                         .scheduler = setup.scheduler,
                         .trace = setup.trace,
                         .first_batch = setup.first_batch}};
  parts.options.request.method_options.depth = setup.guesses;
  for (const HostAddress& host : setup.hosts) parts.options.hosts.push_back({.address = host});
  if (setup.head_host) parts.head_host = HostOptions{.address = *setup.head_host};
  parts.options.spares = setup.spares;
  parts.options.on_host = setup.on_host;
  for (const Opened* draft : setup.drafts) parts.drafts.push_back(&draft->model);
  if (!setup.threads || setup.paced) parts.profile = profile_of(setup);
  return value_of(assemble(parts));
}

}  // namespace

std::unique_ptr<Executor> make_executor(const Opened& opened, const PipelineSpec& setup) {
  return assemble(opened, setup).executor;
}

std::unique_ptr<Engine> make_engine(const Opened& opened, const PipelineSpec& setup,
                                    const std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)>& wrap) {
  Assembly assembly = assemble(opened, setup);
  if (wrap) assembly.executor = wrap(std::move(assembly.executor));
  return std::make_unique<Engine>(opened.tokenizer, std::move(assembly.executor), std::move(assembly.engine));
}

RequestId submit(Engine& engine, const RequestSpec& spec) { return value_of(engine.submit(spec)); }

void finish(Engine& engine) {
  while (engine.busy()) value_of(engine.step());
}

std::vector<Token> answer(const Engine& engine, RequestId id) {
  const Request& request = engine.request(id);
  return {request.tokens.begin() + static_cast<ptrdiff_t>(request.n_prompt()), request.tokens.end()};
}

std::vector<Token> plain_decoding(const Opened& opened, const RequestSpec& spec, KvType kv, int32_t context,
                                  const std::vector<int32_t>& rounded, const std::string& device) {
  const auto runner = value_of(make_stage_runner(opened.model, {.range = {0, opened.model.hparams().n_layers},
                                                                .with_embedding = true,
                                                                .with_head = true,
                                                                .kv = kv,
                                                                .n_cells = context,
                                                                .max_rows = 1,
                                                                .threads = 1,
                                                                .taps = {},
                                                                .rounded = rounded,
                                                                .device = device}));
  std::vector<float> hidden(static_cast<size_t>(opened.model.hparams().d_model));
  std::vector<float> logits(static_cast<size_t>(opened.model.hparams().n_vocab));
  SamplingParams sampling = spec.sampling;
  sampling.answer_from = static_cast<int32_t>(spec.prompt.size());
  std::vector<PathUpdate> updates = {Open{SequenceId(0), sampling}};
  Sampler sampler;
  std::unique_ptr<Constraint> constraint;
  if (!sampling.grammar.empty())
    constraint = constrain_by(opened.model.vocabulary(), opened.model.hparams().n_vocab)(sampling.grammar);
  std::vector<Token> tokens = spec.prompt, out;
  for (int32_t position = 0;; ++position) {
    const Row row{.sequence = SequenceId(0),
                  .token = tokens[static_cast<size_t>(position)],
                  .position = position,
                  .cell = Cell(position),
                  .parent = Cell(position - 1),
                  .kind = Row::Kind::kPrompt};
    if (constraint && position >= sampling.answer_from) constraint->accept(row.token);
    runner->enter(updates, {&row, 1});
    updates.clear();
    runner->run({&row, 1}, hidden);
    if (static_cast<size_t>(position) + 1 < tokens.size()) continue;
    runner->logits(hidden, logits);
    const Token next = sampler.draw(sampling, logits, tokens, position + 1, constraint.get()).token;
    tokens.push_back(next);
    out.push_back(next);
    if ((!spec.ignore_end && opened.tokenizer.ends_generation(next)) ||
        out.size() == static_cast<size_t>(spec.max_tokens) || tokens.size() == static_cast<size_t>(context))
      return out;
  }
}

}  // namespace sluice::test
