#include "pipeline/frame_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "source/guess.h"
#include "tree/token_tree.h"
#include "verify/sampler.h"

namespace sluice {

namespace {

tl::unexpected<Error> refuse(const std::string& what) {
  return input_error("a peer sent what it must not: " + what + "; do all hosts run the same release?");
}

Status check_within(const char* what, int64_t value, int64_t end) {
  if (0 <= value && value < end) return {};
  return refuse(std::string(what) + " is " + std::to_string(value) + ", of " + std::to_string(end));
}

Status check_candidates(const std::vector<Candidate>& candidates, size_t most, int32_t n_tokens) {
  if (candidates.size() > most)
    return refuse(std::to_string(candidates.size()) + " candidates, of " + std::to_string(most));
  std::unordered_set<Token> tokens;
  for (const auto& [token, probability] : candidates) {
    SLUICE_TRY_STATUS(check_within("a candidate", token, n_tokens));
    if (!tokens.insert(token).second) return refuse("a candidate comes twice");
    if (!(probability >= 0.0f && probability <= 1.0f)) return refuse("a candidate's probability is none");
  }
  return {};
}

// What was drawn was drawn from q, and without replacement once.
Status check_draws(const Draws& draws, int32_t n_tokens) {
  SLUICE_TRY_STATUS(check_candidates(draws.q, TokenTree::kMaxCandidates, n_tokens));
  if (draws.tokens.size() > TokenTree::kMaxCandidates) return refuse("more draws than candidates");
  std::unordered_set<Token> drawn;
  for (const Token token : draws.tokens) {
    const auto is_it = [&](const Candidate& c) { return c.token == token && c.probability > 0.0f; };
    if (std::ranges::none_of(draws.q, is_it)) return refuse("a token was drawn that its source could not draw");
    if (!drawn.insert(token).second && !draws.replacement) return refuse("a token was drawn twice");
  }
  const Bend& bend = draws.bend;
  if (!(bend.c > 0.0 && bend.c <= 1.0)) return refuse("a bend is none");
  return check_within("a bend's number of tokens", bend.f, int64_t{n_tokens} + 1);
}

}  // namespace

StageLimits StageLimits::of(const StageRecipe& recipe, const ModelFile& model) {
  using Kind = StageRecipe::Kind;
  const bool follows = recipe.kind == Kind::kLayers ? !recipe.options.with_embedding : recipe.stage != StageId(0);
  const bool takes_states = follows && recipe.kind != Kind::kNothing && recipe.kind != Kind::kLazy;
  return {.n_cells = recipe.options.n_cells,
          .max_rows = recipe.options.max_rows,
          .n_tokens = model.hparams().n_vocab,
          .foreign_tokens = recipe.options.foreign_tokens,
          .d_state = takes_states ? model.hparams().d_model : 0,
          .activations = recipe.options.activations(),
          .folds = recipe.kind != Kind::kNothing && recipe.kind != Kind::kZeros && model.hparams().folds(),
          .head = {}};
}

StageLimits StageLimits::of(const StageRecipe& recipe, const HeadFile& head) {
  return {.n_cells = recipe.options.n_cells,
          .max_rows = recipe.options.max_rows,
          .n_tokens = head.parameters().hparams.n_vocab,
          .head = head.parameters()};
}

int64_t FrameCheck::end_of_tokens() const {
  return limits_.foreign_tokens ? int64_t{std::numeric_limits<Token>::max()} + 1 : limits_.n_tokens;
}

Status FrameCheck::check(const Batch& batch) {
  const size_t n_rows = batch.rows.size();
  if (batch.id <= newest_)
    return refuse("batch " + std::to_string(batch.id.value) + " after " + std::to_string(newest_.value));
  newest_ = batch.id;
  if (!(batch.after >= 0.0) || !std::isfinite(batch.after))
    return refuse("a batch " + std::to_string(batch.after) + " s after the one before");
  SLUICE_TRY_STATUS(check_within("the number of rows", std::ssize(batch.rows), int64_t{limits_.max_rows} + 1));
  const bool halves = limits_.activations == Activations::kF16;
  if (halves ? !batch.hidden.empty() : !batch.halves.empty())
    return refuse(std::string("states as ") +
                  (halves ? "f32, to a stage that takes f16" : "f16, to one that takes f32"));
  const size_t n = halves ? batch.halves.size() : batch.hidden.size();
  if (n != n_rows * static_cast<size_t>(limits_.d_state))
    return refuse(std::to_string(n) + " numbers as the states of " + std::to_string(n_rows) + " rows");
  for (const PathUpdate& update : batch.updates) SLUICE_TRY_STATUS(check(update));
  int32_t before = -1;
  std::unordered_set<int32_t> written;  // cells, by threads that know nothing of each other
  for (const Row& row : batch.rows) {
    SLUICE_TRY_STATUS(check(row));
    if (row.index <= before) return refuse("rows are out of order");
    if (!written.insert(row.cell.value).second) return refuse("two rows with one cell");
    before = row.index;
  }
  for (const Refresh& refresh : batch.refreshes)
    if (!written.insert(refresh.own.value).second) return refuse("a cell is refreshed that the batch writes already");
  for (const Draws& draws : batch.draws) SLUICE_TRY_STATUS(check(draws));
  SLUICE_TRY_STATUS(limits_.head ? check_for_head(batch) : check_for_layers(batch));
  return follow(batch);
}

Status FrameCheck::check(const PathUpdate& update) const {
  const SamplingParams* sampling = sampling_of(update);
  if (sampling == nullptr) return {};
  const auto tokens = static_cast<int32_t>(std::min<int64_t>(end_of_tokens(), std::numeric_limits<int32_t>::max()));
  const Status right = sluice::check(*sampling, tokens);
  return right ? right : refuse(right.error().message);
}

// A path has a cell for each position.
Status FrameCheck::check(const Row& row) const {
  SLUICE_TRY_STATUS(check_within("a row's token", row.token, end_of_tokens()));
  SLUICE_TRY_STATUS(check_within("a row's position", row.position, limits_.n_cells));
  SLUICE_TRY_STATUS(check_within("a row's cell", row.cell.value, limits_.n_cells));
  if (row.position > 0) SLUICE_TRY_STATUS(check_within("a parent's cell", row.parent.value, limits_.n_cells));
  return check_within("a row's number", row.index, limits_.max_rows);
}

Status FrameCheck::check(const Draws& draws) const {
  SLUICE_TRY_STATUS(check_within("a row's number", draws.row, limits_.max_rows));
  return check_draws(draws, limits_.n_tokens);
}

Status FrameCheck::check_for_layers(const Batch& batch) const {
  if (batch.features.empty() && batch.refreshes.empty()) return {};
  return refuse("a head's inputs, to a stage that is none");
}

// How deep the states are that a row or a refresh takes: SPD's modules have a matrix for each depth, but with output
// timing none for 0.
Status FrameCheck::check_depth(int32_t depth) const {
  const HeadParameters& head = *limits_.head;
  if (head.kind != HeadKind::kSpd) return {};
  if (depth == 0 && head.output_timing) return refuse("states at depth 0, which this head does not know");
  return check_within("a depth", depth, std::ssize(head.taps));
}

Status FrameCheck::check_for_head(const Batch& batch) const {
  const HeadKind kind = limits_.head->kind;
  std::unordered_set<uint16_t> featured;
  for (const Feature& feature : batch.features) {
    if (!feature.cell.valid() || !featured.insert(feature.row).second) return refuse("a row's states come twice");
    SLUICE_TRY_STATUS(check_depth(feature.depth));
  }
  for (const Row& row : batch.rows) {
    if (featured.erase(row.index) > 0) continue;
    const bool needs = kind == HeadKind::kExit || (kind == HeadKind::kSpd && row.kind == Row::Kind::kPrompt);
    if (needs) return refuse("a row lacks the states that it is computed from");
    if (kind == HeadKind::kSpd) SLUICE_TRY_STATUS(check_depth(0));
  }
  if (!featured.empty()) return refuse("states of a row that is not there");
  SLUICE_TRY_STATUS(check_within("the number of refreshes", std::ssize(batch.refreshes), int64_t{limits_.n_cells} + 1));
  for (const Refresh& refresh : batch.refreshes) {
    if (!refresh.cell.valid()) return refuse("a refresh from nowhere");
    SLUICE_TRY_STATUS(check_depth(refresh.depth));
    SLUICE_TRY_STATUS(check({.sequence = refresh.sequence,
                             .token = refresh.token,
                             .position = refresh.position,
                             .cell = refresh.own,
                             .parent = refresh.own}));
  }
  return {};
}

// What is folded can't be taken apart.
Status FrameCheck::follow_folded(const PathUpdate& update) {
  Folded& folded = folded_[sequence_of(update)];
  if (const auto* open = std::get_if<Open>(&update)) folded = {0, 0, std::max(open->checkpoint, 0)};
  if (std::holds_alternative<Close>(update)) folded_.erase(sequence_of(update));
  const auto* fork = std::get_if<Fork>(&update);
  const auto* truncate = std::get_if<Truncate>(&update);
  if (fork == nullptr && truncate == nullptr) return {};
  if (fork != nullptr) folded = folded_[fork->from];
  const int32_t length = fork != nullptr ? fork->length : truncate->length;
  if (length != 0 && length < folded.tokens && length != folded.checkpoint)
    return refuse("a path of " + std::to_string(folded.tokens) + " folded tokens is cut to " + std::to_string(length));
  folded.tokens = std::min(folded.tokens, length);
  if (fork != nullptr || length == 0) folded.checkpoint = 0;
  folded.next_checkpoint = fork != nullptr ? fork->checkpoint : truncate->checkpoint;
  if (folded.next_checkpoint != 0 && folded.next_checkpoint <= length)
    return refuse("a checkpoint at " + std::to_string(folded.next_checkpoint) + " of " + std::to_string(length) +
                  " tokens that are there");
  return {};
}

// By the rules of those who will keep the paths.
Status FrameCheck::follow(const Batch& batch) {
  try {
    for (const PathUpdate& update : batch.updates) {
      const bool begins = std::holds_alternative<Open>(update) || std::holds_alternative<Fork>(update);
      const auto* close = std::get_if<Close>(&update);
      if (begins && std::ssize(open_) >= limits_.n_cells) return refuse("more sequences than cells");
      if (close != nullptr && open_.erase(close->sequence) == 0) return refuse("a sequence is closed that isn't open");
      paths_.apply(update);
      if (limits_.folds) SLUICE_TRY_STATUS(follow_folded(update));
      if (begins) open_.insert(sequence_of(update));
    }
    for (const Row& row : batch.rows) paths_.enter(row);
    if (limits_.folds)
      for (auto& [sequence, folded] : folded_) {
        folded.tokens = static_cast<int32_t>(paths_.committed(sequence).size());
        if (folded.next_checkpoint == 0 || folded.next_checkpoint > folded.tokens) continue;
        folded.checkpoint = std::exchange(folded.next_checkpoint, 0);
      }
  } catch (const BrokenInvariant& broken) {
    return refuse(broken.why());
  }
  return {};
}

Status FrameCheck::check(const Amendment& amendment) const {
  for (const auto& late : amendment.late_draws) SLUICE_TRY_STATUS(check(late.draws));
  return {};
}

Status FrameCheck::check(const Taps& taps) const {
  if (!limits_.head) return refuse("states of another model, to a stage that is no head");
  const std::vector<int32_t> known = limits_.head->tapped_layers();
  for (const int32_t layer : taps.layers)
    if (!std::binary_search(known.begin(), known.end(), layer))
      return refuse("states after layer " + std::to_string(layer) + ", which this head does not read");
  if (taps.layers.size() > known.size()) return refuse("states of a layer come twice");
  SLUICE_TRY_STATUS(check_within("the number of rows", std::ssize(taps.rows), int64_t{limits_.max_rows} + 1));
  const auto d_model = static_cast<size_t>(limits_.head->hparams.d_model);
  if (taps.states.size() != taps.layers.size() * taps.rows.size() * d_model)
    return refuse(std::to_string(taps.states.size()) + " numbers as the states of " + std::to_string(taps.rows.size()) +
                  " rows after " + std::to_string(taps.layers.size()) + " layers");
  for (const Row& row : taps.rows) {
    if (!row.cell.valid()) return refuse("states of no cell");
    SLUICE_TRY_STATUS(check_within("a row's token", row.token, limits_.n_tokens));
  }
  return {};
}

namespace {

std::string number(BatchId batch) { return std::to_string(batch.value); }

// Whether this batch's turn has come.
Status check_turn(const char* what, BatchId batch, std::optional<BatchId> awaited) {
  if (batch == awaited) return {};
  return refuse(std::string(what) + " of batch " + number(batch) + ", " +
                (awaited ? "before " + number(*awaited) : "where none is awaited"));
}

}  // namespace

void ReportCheck::submitted(const Batch& batch) {
  to_report_.push_back({batch.id, batch.rows.size(), {}});
  if (!recipe_.last) return;
  to_conclude_.push_back(to_report_.back());
  for (const Row& row : batch.rows)
    if (row.kind == Row::Kind::kNode) to_conclude_.back().nodes.emplace_back(row.sequence, row.cell);
}

Status ReportCheck::check_sender(ModelId model) const {
  if (model == model_) return {};
  return refuse("what model " + std::to_string(model.value) + " would say, from model " + std::to_string(model_.value));
}

Status ReportCheck::check(const StageReport& report) {
  SLUICE_TRY_STATUS(check_sender(report.model));
  if (report.stage != recipe_.stage) return refuse("the report of stage " + std::to_string(report.stage.value));
  if (!std::isfinite(report.begin) || !(report.end >= report.begin) || !std::isfinite(report.end))
    return refuse("a pass from " + std::to_string(report.begin) + " to " + std::to_string(report.end) + " s");
  for (const double seconds : {report.waited, report.received, report.computed})
    if (!(seconds >= 0.0) || !std::isfinite(seconds)) return refuse("a link of " + std::to_string(seconds) + " s");
  SLUICE_TRY_STATUS(
      check_turn("the report", report.batch, to_report_.empty() ? std::nullopt : std::optional(to_report_.front().id)));
  const size_t n_rows = to_report_.front().n_rows;
  to_report_.pop_front();
  SLUICE_TRY_STATUS(check_within("the number of rows", report.rows_received, static_cast<int64_t>(n_rows) + 1));
  return check_within("the number of rows", report.rows_computed, static_cast<int64_t>(n_rows) + 1);
}

Status ReportCheck::check(const Outcome& outcome) {
  SLUICE_TRY_STATUS(check_sender(outcome.model));
  SLUICE_TRY_STATUS(check_turn("the outcome", outcome.batch,
                               to_conclude_.empty() ? std::nullopt : std::optional(to_conclude_.front().id)));
  const Given given = std::move(to_conclude_.front());
  to_conclude_.pop_front();
  const bool guesses = recipe_.candidates > 0;
  if (guesses ? !outcome.accepted.empty() : !outcome.drafted.empty())
    return refuse(guesses ? "verdicts of a model that guesses" : "guesses of the model that verifies");
  for (const Accepted& accepted : outcome.accepted) SLUICE_TRY_STATUS(check_verdict(accepted, given));
  for (const Drafted& drafted : outcome.drafted) SLUICE_TRY_STATUS(check_guess(drafted, given.n_rows));
  return {};
}

Status ReportCheck::check_verdict(const Accepted& accepted, const Given& given) const {
  if (std::ranges::count(given.nodes, std::pair(accepted.sequence, accepted.cell)) == 0)
    return refuse("a verdict on what is not in the batch");
  SLUICE_TRY_STATUS(check_within("a verdict's token", accepted.next, n_tokens_));
  if (!accepted.odds.empty() && accepted.odds.size() != kBends.size()) return refuse("odds of other bends");
  if (!std::isfinite(accepted.logprob)) return refuse("a log-probability that is no number");
  if (accepted.top.size() > static_cast<size_t>(kMostTopLogprobs))
    return refuse("more likely tokens than may be asked for");
  for (const TokenLogprob& one : accepted.top) {
    SLUICE_TRY_STATUS(check_within("a likely token", one.token, n_tokens_));
    if (!std::isfinite(one.logprob)) return refuse("a log-probability that is no number");
  }
  return {};
}

Status ReportCheck::check_guess(const Drafted& drafted, size_t n_rows) const {
  SLUICE_TRY_STATUS(check_within("a row's number", drafted.row, static_cast<int64_t>(n_rows)));
  SLUICE_TRY_STATUS(check_within("a guess's depth", drafted.depth, recipe_.guesses));
  const size_t most = std::max(TopLogits::kKept, static_cast<size_t>(std::max(recipe_.candidates, 0)));
  return check_candidates(drafted.candidates, most, n_tokens_);
}

ArrivalCheck::ArrivalCheck(std::span<const StageRecipe> target) {
  for (const StageRecipe& recipe : target)
    if (!recipe.options.taps.empty()) awaited_[recipe.stage] = {};
}

void ArrivalCheck::submitted(const Batch& batch) {
  for (auto& [stage, awaited] : awaited_) awaited.push_back(batch.id);
}

Status ArrivalCheck::check(const TapsArrived& taps) {
  const auto found = awaited_.find(taps.stage);
  if (found == awaited_.end())
    return refuse("states of stage " + std::to_string(taps.stage.value) + ", which is not tapped");
  std::deque<BatchId>& awaited = found->second;
  SLUICE_TRY_STATUS(check_turn("states", taps.batch, awaited.empty() ? std::nullopt : std::optional(awaited.front())));
  awaited.pop_front();
  return {};
}

}  // namespace sluice
