#include "transport/held_stage.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "compute/foreign_products.h"
#include "pipeline/delayed_queue.h"
#include "pipeline/packing.h"
#include "transport/emulated_link.h"
#include "transport/weights.h"
#include "wire/codec.h"

namespace sluice {

namespace {

constexpr size_t kLongestPipeline = 4096;  // stages; each takes some memory at every other

// What is stored takes no time of its own.
bool can_be_held(const StageSetup& setup) {
  using Kind = StageRecipe::Kind;
  const Kind kind = setup.recipe.kind;
  const bool computes = kind == Kind::kLayers || kind == Kind::kHead;
  return computes || ((kind == Kind::kZeros || kind == Kind::kStored) && !setup.pace.empty());
}

}  // namespace

HeldStage::HeldStage(const StageMeans& means, const Hello& hello, std::shared_ptr<Connection> control)
    : means_(means), hello_(hello), control_(std::move(control)) {}

void HeldStage::listen() {
  control_->listen(
      {.frame = [self = shared_from_this()](Frame frame) { self->from_coordinator_.push(std::move(frame)); },
       .end = [self = shared_from_this()](const Error&) { self->end(); }});
}

Status HeldStage::take(std::shared_ptr<Connection> batches) {
  const std::lock_guard lock(mutex_);
  if (before_ || ended_) return runtime_error("batches come to this stage by another connection already");
  before_ = std::move(batches);
  take_from(*before_);
  return {};
}

// Whoever sends it tells the coordinator when it cannot go on.
void HeldStage::take_from(Connection& before) {
  before.listen({.frame = [self = shared_from_this()](Frame frame) { self->batches_.push(std::move(frame)); },
                 .end = [](const Error&) {}});
}

Status HeldStage::take_taps(std::shared_ptr<Connection> taps) {
  const std::lock_guard lock(mutex_);
  if (ended_ || taps_.size() == kLongestPipeline) return runtime_error("it takes no states from further stages");
  taps_.push_back(std::move(taps));
  take_from(*taps_.back());
  return {};
}

Status HeldStage::take_relay(std::shared_ptr<Connection> relay) {
  const std::lock_guard lock(mutex_);
  if (relay_ || ended_) return runtime_error("the coordinator has come for its batches already");
  relay_ = std::move(relay);
  relay_came_.notify_all();
  return {};
}

void HeldStage::end() {
  ended_ = true;
  from_coordinator_.close();
  batches_.close();
  control_->close();
  const std::lock_guard lock(mutex_);
  if (before_) before_->close();
  for (const auto& taps : taps_) taps->close();
  if (relay_) relay_->close();
  relay_came_.notify_all();
}

// All are told before run() can see that it has ended, and close what is open without a word.
void HeldStage::end_because(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    control_->close_because(error);
    if (before_) before_->close_because(error);
    for (const auto& taps : taps_) taps->close_because(error);
    ended_ = true;
    relay_came_.notify_all();
  }
  from_coordinator_.close();
  batches_.close();
}

void HeldStage::run() {
  Status served;
  try {
    served = serve();
  } catch (const std::bad_alloc&) {
    served = runtime_error("it has too little memory: give the stage fewer layers by --cuts, or a smaller --context");
  } catch (const std::exception& error) {
    served = runtime_error("stage " + std::to_string(hello_.stage.value) + " failed: " + error.what());
  }
  if (!served && !ended_) {
    means_.say(what_ + ": " + served.error().message);
    end_because(served.error());
  }
  for (const auto& onward : {next_, head_})
    if (onward) onward->close();
  if (bytes_ > 0) means_.say(what_ + ": handed back");
  end();
  ways_ = {};
  // What is stored opens its memo anew: that may hold more by then.
  using Kind = StageRecipe::Kind;
  if (made_ && sound_ && (made_->recipe.kind == Kind::kLayers || made_->recipe.kind == Kind::kHead)) {
    made_->bytes = bytes_.exchange(0);
    means_.keep(std::move(*made_));
  }
  made_.reset();
}

Status HeldStage::serve() {
  what_ = "stage " + std::to_string(hello_.stage.value) + " for " + control_->peer();
  SLUICE_TRY(const auto setup, next_setup());
  if (!setup) return {};
  if (hello_.role == Hello::Role::kSpare) return stand_by(*setup);
  SLUICE_TRY_STATUS(make(*setup));
  SLUICE_TRY_STATUS(reach_next(*setup));
  reach_head(*setup);
  lay_ways(setup->cuts.size());
  SLUICE_TRY_STATUS(control_->send(StageReady{.exactness = static_cast<uint8_t>(made_->stage.worker.exactness()),
                                              .instructions = ggml_instructions(),
                                              .bytes = static_cast<uint64_t>(bytes_),
                                              .cut_off = cut_off_},
                                   Priority::kUrgent));
  if (pace_) wait_exactly();
  while (const auto frame = batches_.pop()) {
    const auto begin = std::chrono::steady_clock::now();
    busy_ = true;
    SLUICE_TRY_STATUS(process(*frame));
    note_turn(begin);
    ++progress_;
    busy_ = false;
  }
  return {};
}

// Of the first batch its own time: it is some part of a turn.
void HeldStage::note_turn(std::chrono::steady_clock::time_point begin) {
  constexpr double kLongest = 5.0, kNewest = 0.25;
  const auto before = std::exchange(begun_, begin);
  if (progress_ == 0)
    turn_ = seconds_to(std::chrono::steady_clock::now()) - seconds_to(begin);
  else
    turn_ = turn_ + kNewest * (std::min(seconds_to(begin) - seconds_to(before), kLongest) - turn_);
}

Result<std::optional<StageSetup>> HeldStage::next_setup() {
  const auto frame = from_coordinator_.pop();
  if (!frame) return std::nullopt;
  SLUICE_TRY(auto message, decode(frame->bytes()));
  auto* setup = std::get_if<StageSetup>(&message);
  const bool good = setup != nullptr && setup->recipe.stage == hello_.stage &&
                    (can_be_held(*setup) || hello_.role == Hello::Role::kSpare) && setup->model.valid() &&
                    setup->model == hello_.model && (setup->taps_to.empty() || setup->head.valid()) &&
                    setup->patience > 0 && setup->connect > 0 && setup->recipe.last == setup->next.empty() &&
                    setup->cuts.size() <= kLongestPipeline && setup->recipe.options.rounded.size() < kLongestPipeline;
  if (!good) return runtime_error("it was sent what is no recipe of a stage; do all hosts run the same release?");
  return std::move(*setup);
}

// Finds the model, and has it in memory as far as the system keeps what was read: what is left to do, when a stage is
// lost, is to make its layers. Without it here, they are fetched then.
Status HeldStage::stand_by(const StageSetup& setup) {
  const auto model = find_model(setup.recipe.files, means_.models);
  if (!model && means_.cache.folder.empty()) return tl::unexpected<Error>(model.error());
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  std::vector<std::byte> piece(kPiece);
  if (model)
    for (const auto& file : model->files())
      for (uint64_t at = 0; at < file->size() && !ended_; at += kPiece)
        SLUICE_TRY_STATUS(file->read(at, std::span(piece).first(std::min(kPiece, file->size() - at))));
  means_.say("standing by for " + control_->peer() + (model ? ": " + model->hparams().name : ""));
  SLUICE_TRY_STATUS(
      control_->send(StageReady{.exactness = 0, .instructions = ggml_instructions(), .bytes = 0}, Priority::kUrgent));
  while (batches_.pop()) {
  }
  return {};
}

Status HeldStage::make(const StageSetup& setup) {
  if (means_.spare && !setup.replaces)
    return runtime_error("it is a spare, for when a host is lost: name it by --spares, not by --hosts");
  StageRecipe recipe = setup.recipe;
  const int32_t asked = means_.threads > 0 ? means_.threads : recipe.options.threads;
  const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  recipe.options.threads = std::clamp(asked > 0 ? asked : cores, 1, 256);
  if (!means_.device.empty() && recipe.kind != StageRecipe::Kind::kHead) recipe.options.device = means_.device;
  made_ = means_.take(recipe);
  if (made_) {
    bytes_ = made_->bytes;
  } else {
    SLUICE_TRY(made_, made_of(recipe, setup.memo));
    keep_journal();
  }
  if (Journal* const journal = made_->stage.worker.journal(); journal != nullptr)
    setup.replaces ? journal->begin_anew() : journal->clear();
  SLUICE_TRY_STATUS(keep_pace(setup, made_->d_model));
  last_ = recipe.last;
  model_ = setup.model;
  means_.say(what_ + ": " + made_->what);
  return {};
}

// So many in all.
Status HeldStage::set_aside(int64_t bytes) {
  if (bytes <= bytes_) return {};
  SLUICE_TRY_STATUS(means_.reserve(bytes - bytes_, [this] { return ended_.load(); }));
  bytes_ = bytes;
  return {};
}

Status HeldStage::keep_pace(const StageSetup& setup, int32_t d_model) {
  if (setup.pace.empty()) return {};
  SLUICE_TRY(Profile profile, Profile::parse(setup.pace, "the coordinator's profile"));
  if (static_cast<size_t>(setup.recipe.stage.value) >= setup.cuts.size())
    return runtime_error("it was sent a profile without its cuts");
  SLUICE_TRY_STATUS(profile.check_stages(setup.cuts.size()));
  pace_.emplace(std::move(profile), setup.cuts, d_model);
  return {};
}

// Directly, or by way of the coordinator, which reaches both.
Status HeldStage::reach_next(const StageSetup& setup) {
  if (setup.next.empty()) return {};
  relayed_ = setup.relay;
  if (!relayed_) {
    auto next = connect(setup.next,
                        {.epoch = hello_.epoch,
                         .model = hello_.model,
                         .stage = StageId(hello_.stage.value + 1),
                         .role = Hello::Role::kBatches},
                        setup);
    relayed_ = !next;
    if (next) next_ = std::move(*next);
    if (!next) SLUICE_TRY_STATUS(control_->send(NextUnreachable{next.error()}, Priority::kUrgent));
  }
  if (relayed_) {
    SLUICE_TRY(next_, wait_for_relay());
  }
  hear(*next_);
  return {};
}

// Directly, or else by the coordinator's connection.
void HeldStage::reach_head(const StageSetup& setup) {
  if (setup.taps_to.empty()) return;
  auto head =
      connect(setup.taps_to,
              {.epoch = hello_.epoch, .model = setup.head, .stage = StageId(0), .role = Hello::Role::kTaps}, setup);
  if (!head) {
    cut_off_ = head.error().message;
    return;
  }
  head_ = std::move(*head);
  hear(*head_);
}

// When it ends, so does the stage.
void HeldStage::hear(Connection& onward) {
  const auto give_up = [weak = weak_from_this()](const Error& error) {
    if (const auto self = weak.lock(); self && !self->ended_) self->end_because(error);
  };
  onward.listen({.frame =
                     [give_up, peer = onward.peer()](const Frame& frame) {
                       const auto message = decode(frame.bytes());
                       const auto* failed = message ? std::get_if<WorkerFailed>(&*message) : nullptr;
                       if (failed != nullptr) give_up(said_by(peer, failed->error));
                     },
                 .end = give_up});
}

Result<std::shared_ptr<Connection>> HeldStage::connect(const std::string& text, const Hello& hello,
                                                       const StageSetup& setup) {
  SLUICE_TRY(const HostAddress to, HostAddress::parse(text));
  ConnectionOptions options{.patience = setup.patience, .connect = setup.connect};
  options.progress = [weak = weak_from_this()] {
    const auto self = weak.lock();
    return self ? self->progress() : 0;
  };
  return means_.network->connect(to, hello, options);
}

// For as long as the coordinator is there.
Result<std::shared_ptr<Connection>> HeldStage::wait_for_relay() {
  std::unique_lock lock(mutex_);
  relay_came_.wait(lock, [&] { return relay_ || ended_; });
  if (ended_) return runtime_error("the coordinator has gone");
  return relay_;
}

void HeldStage::lay_ways(size_t n_stages) {
  const auto& taps = head_ ? head_ : control_;
  ways_ = {.onward = next_, .taps = taps, .reports = control_, .outcomes = control_};
  if (!pace_) return;
  const PipelineLinks links(*pace_, model_, n_stages);
  const auto s = static_cast<size_t>(hello_.stage.value);
  // By way of the coordinator it takes two links, of which this is the first.
  if (next_) ways_.onward = over_link(next_, relayed_ ? links.taps[s] : links.edges[s + 1]);
  ways_.taps = over_link(taps, links.taps[s]);
  ways_.reports = over_link(control_, links.reports[s]);
  ways_.outcomes = over_link(control_, links.edges.back());
}

Status HeldStage::process(const Frame& frame) {
  SLUICE_TRY(auto message, decode(frame.bytes()));
  if (auto* batch = std::get_if<Batch>(&message)) return process(std::move(*batch), frame);
  const auto* taps = std::get_if<Taps>(&message);
  if (taps != nullptr && made_->recipe.kind == StageRecipe::Kind::kHead) return receive(*taps);
  return runtime_error("a stage was sent what is no batch; do all hosts run the same release?");
}

// What the coordinator asks once it knows of them comes after them.
Status HeldStage::receive(const Taps& taps) {
  SLUICE_TRY_STATUS(made_->stage.frames.check(taps));
  made_->stage.worker.receive(taps);
  send(*ways_.reports, TapsArrived{taps.batch, taps.stage}, Priority::kUrgent);
  if (broken_) return tl::unexpected<Error>(*broken_);
  return {};
}

Status HeldStage::process(Batch batch, const Frame& frame) {
  Stage& stage = made_->stage;
  sound_ = false;
  SLUICE_TRY_STATUS(stage.frames.check(batch));
  SLUICE_TRY_STATUS(take_amendments());
  const auto begin = std::chrono::steady_clock::now();
  waited_ = std::chrono::duration<double>(begin - frame.came()).count();
  rows_received_ = static_cast<uint16_t>(batch.rows.size());
  const auto bytes = static_cast<double>(frame.bytes().size());
  link_.saw(bytes, batch.after, seconds_to(frame.came()));
  received_ = link_.seconds_per_byte() * bytes;
  Worker::Done done = stage.worker.process(std::move(batch));
  sound_ = true;
  auto end = std::chrono::steady_clock::now();
  computed_ = std::chrono::duration<double>(end - begin).count();
  if (pace_) {
    const double seconds = pace_->stage_seconds(stage.worker.stage(), done.rows_computed, done.head_rows);
    end = end_of_pass(begin, end, seconds, done.lookups);
    batches_.wait_until(end);
  }
  route(std::move(done), model_, stage.worker.stage(), last_, seconds_to(begin), seconds_to(end), *this);
  if (broken_) return tl::unexpected<Error>(*broken_);
  return {};
}

Status HeldStage::take_amendments() {
  Stage& stage = made_->stage;
  while (const auto frame = from_coordinator_.try_pop()) {
    SLUICE_TRY(const auto message, decode(frame->bytes()));
    const auto* amendment = std::get_if<Amendment>(&message);
    if (amendment == nullptr) return runtime_error("a stage was sent what is no amendment");
    SLUICE_TRY_STATUS(stage.frames.check(*amendment));
    stage.worker.amend(*amendment);
    if (stage.worker.pending() > Worker::kMostPending)
      return runtime_error("a stage was sent amendments to more rows than can be on their way to it");
  }
  return {};
}

double HeldStage::seconds_to(std::chrono::steady_clock::time_point time) const {
  return std::chrono::duration<double>(time - start_).count();
}

void HeldStage::pass_on(Batch batch) {
  if (made_->recipe.options.activations() == Activations::kF16) pack_states(batch);
  batch.after = passed_on_.lap();
  send(*ways_.onward, std::move(batch), Priority::kBulk);
}
void HeldStage::tap(Taps taps) { send(*ways_.taps, std::move(taps), Priority::kBulk); }
void HeldStage::report(StageReport report) {
  report.waited = waited_;
  report.received = received_;
  report.rows_received = rows_received_;
  report.computed = computed_;
  send(*ways_.reports, report, Priority::kUrgent);
}
void HeldStage::conclude(Outcome outcome) { send(*ways_.outcomes, std::move(outcome), Priority::kUrgent); }

void HeldStage::send(Connection& to, const Message& message, Priority priority) {
  if (const Status sent = to.send(message, priority); !sent && !broken_) broken_ = sent.error();
}

}  // namespace sluice
