#include "session/assemble.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "compute/foreign_products.h"
#include "grammar/grammars.h"
#include "pipeline/recipe.h"
#include "session/policy.h"
#include "transport/remote_pipeline.h"

namespace sluice {

namespace {

class Assembler {
 public:
  explicit Assembler(const Parts& parts) : parts_(parts), options_(parts.options), engine_(parts.engine) {}

  Result<Assembly> assemble() {
    engine_.cuts = parts_.cuts;
    engine_.constrain = constrain_by(parts_.model->vocabulary(), parts_.model->n_logits(), kToGuide);
    if (parts_.profile) SLUICE_TRY_STATUS(parts_.profile->check_stages(parts_.cuts.size()));
    if (parts_.profile)
      engine_.cost.emplace(*parts_.profile, parts_.cuts, parts_.model->hparams().d_model, options_.activations);
    SLUICE_TRY_STATUS(add_target());
    for (const ModelFile* draft : parts_.drafts) SLUICE_TRY_STATUS(add_draft(*draft));
    if (parts_.head != nullptr) SLUICE_TRY_STATUS(add_head(*parts_.head));
    auto executor = options_.executor == ExecutorKind::kVirtual
                        ? make_virtual_executor(std::move(pipelines_), parts_.jitter, parts_.faults)
                        : make_threads_executor(std::move(pipelines_));
    return Assembly{std::move(executor), std::move(engine_)};
  }

 private:
  Status add_target() {
    engine_.folds = parts_.model->hparams().folds();
    PipelineOptions options = shared_options();
    options.cuts = parts_.cuts;
    options.activations = options_.activations;
    options.stage.n_cells = engine_.n_cells;
    options.stage.longest_path = parts_.longest_path;
    for (size_t s = 0; s < parts_.cuts.size(); ++s) options.devices.push_back(options_.device(s));
    if (parts_.head != nullptr) options.stage.taps = parts_.head->parameters().tapped_layers();
    engine_.cut_back = cut_back(*parts_.model, options, !options_.hosts.empty());
    if (!options_.hosts.empty()) return add_remote_target(options);
    options.journal = parts_.faults.journal;
    options.memory = static_cast<int64_t>(options_.memory * (1 << 30));
    SLUICE_TRY(auto workers, make_workers(*parts_.model, options));
    pipelines_.push_back({.workers = std::move(workers), .remote = nullptr, .cost = engine_.cost});
    pipelines_.back().remake = [model = parts_.model, options] { return make_workers(*model, options); };
    return {};
  }

  Status add_remote_target(PipelineOptions options) {
    if (parts_.profile && parts_.profile->draft_on)
      return input_error("--profile " + parts_.profile->name +
                         ": draft_on can't be kept to with --hosts: leave it out, and say it by --draft-on, or give "
                         "--stages");
    options.stage.threads = parts_.host_threads;
    options.stored = parts_.memo != nullptr;
    SLUICE_TRY(RemotePlan plan, remote_plan(*parts_.model, options_.hosts, options));
    plan.cost = engine_.cost;
    if (parts_.memo) plan.memo = std::filesystem::absolute(options_.memo).string();
    if (parts_.head != nullptr && parts_.head_host) {
      SLUICE_TRY(plan.head, remote_head(*parts_.head));
    } else if (parts_.head != nullptr) {
      plan.taps.emplace(StageLimits::of(recipe_for(*parts_.head, options, n_guesses()), *parts_.head));
    }
    return add_remote(std::move(plan));
  }

  // Comes behind all draft models.
  Result<RemotePlan::Head> remote_head(const HeadFile& file) const {
    if (file.parameters().kind == HeadKind::kMtp)
      return input_error("--source mtp is a layer of the model's own file and computed here: give the head no host");
    const size_t i = parts_.drafts.size();
    PipelineOptions options = draft_options(parts_.tokenizer->size());
    options.stage.threads = parts_.head_host->threads > 0 ? parts_.head_host->threads : parts_.host_threads;
    RemotePlan::Head head{.id = ModelId(static_cast<int32_t>(i) + 1),
                          .host = parts_.head_host->address,
                          .recipe = recipe_for(file, options, n_guesses()),
                          .file = &file,
                          .cost = {},
                          .cuts = {{0, file.parameters().hparams.n_layers}}};
    WeightFiles& files = head.recipe.files;
    files.path = std::filesystem::absolute(files.path).string();
    files.target = std::filesystem::absolute(files.target).string();
    SLUICE_TRY(files.identity, file.identity());
    SLUICE_TRY(files.target_identity, parts_.model->identity());
    if (!parts_.profile) return head;
    SLUICE_TRY(auto costs, parts_.profile->for_draft(i, i + 1));
    head.cost.emplace(std::move(costs), head.cuts, file.parameters().hparams.d_model);
    return head;
  }

  Result<RemotePlan> remote_plan(const ModelFile& model, std::span<const HostOptions> hosts,
                                 const PipelineOptions& options) const {
    RemotePlan plan{.id = ModelId(static_cast<int32_t>(pipelines_.size())),
                    .hosts = {},
                    .spares = options_.spares,
                    .secret = parts_.secret,
                    .job = options_.job,
                    .patience = options_.patience,
                    .recipes = recipes_for(model, options),
                    .n_tokens = parts_.model->hparams().n_vocab,
                    .taps = {},
                    .cost = {},
                    .cuts = options.cuts,
                    .memo = {},
                    .model = &model,
                    .on_sent = options_.on_weights_sent,
                    .alike = foreign_product(model),
                    .say = options_.on_host};
    SLUICE_TRY(const Sha256 identity, model.identity());
    for (size_t s = 0; s < plan.recipes.size(); ++s) {
      StageRecipe& recipe = plan.recipes[s];
      recipe.files.path = std::filesystem::absolute(recipe.files.path).string();
      recipe.files.identity = identity;
      if (hosts[s].threads > 0) recipe.options.threads = hosts[s].threads;
      if (!hosts[s].device.empty()) recipe.options.device = hosts[s].device;
      plan.hosts.push_back(hosts[s].address);
    }
    return plan;
  }

  Status add_remote(RemotePlan plan) {
    SLUICE_TRY(auto remote, open_remote_pipeline(std::move(plan)));
    pipelines_.push_back({.workers = {}, .remote = std::move(remote), .cost = std::nullopt});
    return {};
  }

  Status add_draft(const ModelFile& draft) {
    const HyperParameters& hparams = draft.hparams();
    const int32_t n_tokens = parts_.tokenizer->size();
    PipelineOptions options =
        draft_options(options_.draft_vocab > 0 ? std::min(options_.draft_vocab, n_tokens) : n_tokens);
    options.cuts = {{0, hparams.n_layers}};
    options.journal = 1;  // its only stage sends no states
    const size_t i = engine_.drafts.size();
    engine_.drafts.push_back({.name = hparams.name,
                              .n_cells = options.stage.n_cells,
                              .head = std::nullopt,
                              .folds = hparams.folds(),
                              .cut_back = cut_back(draft, options, i < options_.draft_hosts.size())});
    if (i < options_.draft_hosts.size()) return add_remote_draft(draft, options, i);
    SLUICE_TRY(auto workers, make_workers(draft, options));
    return add_draft_pipeline({.workers = std::move(workers),
                               .remote = nullptr,
                               .cost = std::nullopt,
                               .remake = [&draft, options] { return make_workers(draft, options); }},
                              hparams, i, parts_.drafts.size());
  }

  Status add_remote_draft(const ModelFile& draft, PipelineOptions options, size_t i) {
    SLUICE_TRY_STATUS(check_moves(draft));
    options.stage.threads = parts_.host_threads;
    engine_.drafts.back().shares = stage_on(options_.draft_hosts[i]);
    SLUICE_TRY(RemotePlan plan, remote_plan(draft, std::span(&options_.draft_hosts[i], 1), options));
    if (parts_.profile) {
      SLUICE_TRY(auto costs, parts_.profile->for_draft(i, parts_.drafts.size()));
      plan.cost.emplace(std::move(costs), options.cuts, draft.hparams().d_model);
    }
    return add_remote(std::move(plan));
  }

  // The first stage of the target that this host holds.
  std::optional<size_t> stage_on(const HostOptions& host) const {
    const auto address = [](const HostOptions& one) { return one.address.text(); };
    const auto stage = std::ranges::find(options_.hosts, address(host), address);
    if (stage == options_.hosts.end()) return std::nullopt;
    return static_cast<size_t>(stage - options_.hosts.begin());
  }

  int32_t n_guesses() const { return options_.request.method_options.depth; }

  Status add_head(const HeadFile& file) {
    const HeadParameters& head = file.parameters();
    const PipelineOptions options = draft_options(parts_.tokenizer->size());
    const size_t i = engine_.drafts.size();
    engine_.drafts.push_back({.name = name(head.kind), .n_cells = options.stage.n_cells, .n_stages = 1, .head = head});
    if (parts_.head_host) {  // with the target's stages
      engine_.drafts.back().shares = stage_on(*parts_.head_host);
      engine_.drafts.back().lost_with_target = true;
      pipelines_.push_back({.workers = {}, .remote = nullptr, .cost = std::nullopt, .is_head = true});
      return {};
    }
    SLUICE_TRY(auto workers, make_head_worker(file, options, n_guesses()));
    return add_draft_pipeline({.workers = std::move(workers), .remote = nullptr, .cost = std::nullopt, .is_head = true},
                              head.hparams, i, i + 1);
  }

  // The i-th of `n` that draft.
  Status add_draft_pipeline(Pipeline pipeline, const HyperParameters& hparams, size_t i, size_t n) {
    if (parts_.profile) {
      SLUICE_TRY(auto costs, parts_.profile->for_draft(i, n));
      if (const auto& stage = parts_.profile->draft_on)
        pipeline.shares = engine_.drafts[i].shares = static_cast<size_t>(*stage);
      pipeline.cost.emplace(std::move(costs), std::vector<LayerRange>{{0, hparams.n_layers}}, hparams.d_model);
    }
    pipelines_.push_back(std::move(pipeline));
    return {};
  }

  PipelineOptions shared_options() const {
    return {.stage = {.kv = options_.kv,
                      .max_rows = engine_.scheduler.row_budget,
                      .threads = options_.threads,
                      .width_lock = options_.width_lock,
                      .kept_behind = parts_.kept_behind},
            .memo = parts_.memo};
  }

  // Of sequences of a model. What a host with a device holds may come to one without.
  static std::optional<size_t> cut_back(const ModelFile& model, const PipelineOptions& options, bool on_hosts) {
    const bool forgets = model.hparams().window > 0 && options.memo == nullptr;
    const bool on_cpu = on_hosts || (options.devices.empty() ? options.stage.device == kCpuDevice
                                                             : std::ranges::count(options.devices, kCpuDevice) > 0);
    if (!forgets || !on_cpu) return std::nullopt;
    return static_cast<size_t>(options.stage.kept_behind - options.stage.max_rows);
  }

  PipelineOptions draft_options(int32_t guessable) const {
    PipelineOptions options = shared_options();
    options.stage.n_cells = parts_.n_draft_cells;
    if (parts_.longest_path > 0) options.stage.longest_path = parts_.longest_path + policy::kDraftedAhead;
    options.stage.device = options_.draft_device;
    options.candidates = options_.request.method_options.children;
    options.guessable = guessable;
    return options;
  }

  const Parts& parts_;
  const SessionOptions& options_;
  EngineOptions engine_;
  std::vector<Pipeline> pipelines_;  // by model, the target first
};

}  // namespace

Result<Assembly> assemble(const Parts& parts) { return Assembler(parts).assemble(); }

}  // namespace sluice
