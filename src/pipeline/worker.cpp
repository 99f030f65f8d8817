#include "pipeline/worker.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "source/draw.h"

namespace sluice {

namespace {

constexpr size_t kHeadRows = 4;  // for so many the output matrix is read in hardly more time than for one

// The rows, and of each the first child in the batch, which is the likeliest, and of that the first child, in turn: as
// many as the head takes at once.
std::vector<size_t> foreseen(std::span<const Row> rows, std::vector<size_t> found) {
  const size_t most = (found.size() + kHeadRows - 1) / kHeadRows * kHeadRows;
  for (size_t at = 0; at < found.size() && found.size() < most; ++at) {
    const Row& parent = rows[found[at]];
    for (size_t i = found[at] + 1; i < rows.size(); ++i)
      if (rows[i].sequence == parent.sequence && rows[i].parent == parent.cell) {
        found.push_back(i);
        break;
      }
  }
  return found;
}

// What was drawn for a row, or entered below it; none if nothing was said. The last that was said says all.
const Draws* draws_of(const Batch& batch, size_t i) {
  const auto said = std::find_if(batch.draws.rbegin(), batch.draws.rend(),
                                 [&](const Draws& draws) { return draws.row == batch.rows[i].index; });
  return said == batch.draws.rend() ? nullptr : &*said;
}

}  // namespace

Worker::Worker(Options options, StageRunner runner) : options_(std::move(options)), runner_(std::move(runner)) {}

Worker::Worker(Options options, std::optional<LazyRunner> runner, std::shared_ptr<Memo> memo)
    : options_(std::move(options)), lazy_(std::move(runner)), memo_(std::move(memo)) {}

Worker::Worker(Options options, std::unique_ptr<HeadModule> head)
    : options_(std::move(options)), head_(std::move(head)) {}

void Worker::amend(const Amendment& amendment) {
  dead_.insert(dead_.end(), amendment.dead.begin(), amendment.dead.end());
  if (options_.last) late_draws_.insert(late_draws_.end(), amendment.late_draws.begin(), amendment.late_draws.end());
}

Worker::Done Worker::process(Batch batch) {
  if (options_.last) learn(batch);
  if (runner_) runner_->enter(batch.updates, batch.rows);
  if (lazy_) lazy_->enter(batch.updates, batch.rows);
  if (head_) head_->enter(batch.updates, batch.rows);
  drop_dead(batch);
  add_late_draws(batch);
  if (options_.last && !drafts()) drop_hopeless(batch);

  Done done;
  done.rows_computed = static_cast<int32_t>(batch.rows.size());
  if (runner_ && !batch.rows.empty()) {
    batch.hidden.resize(batch.rows.size() * static_cast<size_t>(options_.d_model));
    runner_->run(batch.rows, batch.hidden);
  }
  if (options_.feeds_heads) done.taps = tapped(batch);
  if (options_.last) {
    done.outcome.batch = batch.id;
    if (head_) {
      guess_by_head(batch, done);
    } else if (drafts()) {
      guess(batch, done);
    } else {
      verify(batch, done);
    }
  }
  done.onward = std::move(batch);
  return done;
}

// What the last stage has to know of the sequences.
void Worker::learn(const Batch& batch) {
  for (const auto& update : batch.updates) {
    if (!drafts()) {
      verifier_.apply(update);
    } else if (const auto* open = std::get_if<Open>(&update)) {
      sampling_[open->sequence] = open->sampling;
    } else if (const auto* cut = std::get_if<Truncate>(&update)) {
      sampling_[cut->sequence] = cut->sampling;
    } else if (const auto* close = std::get_if<Close>(&update)) {
      sampling_.erase(close->sequence);
    }
  }
  if (drafts()) return;
  for (const Row& row : batch.rows)
    if (row.kind == Row::Kind::kPrompt) verifier_.enter_prompt(row);
}

void Worker::drop(Batch& batch, const std::vector<bool>& keep) const {
  const size_t d = batch.hidden.empty() ? 0 : static_cast<size_t>(options_.d_model);
  size_t kept = 0;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    if (!keep[i]) continue;
    if (kept != i) {
      batch.rows[kept] = batch.rows[i];
      std::copy_n(batch.hidden.begin() + static_cast<ptrdiff_t>(i * d), d,
                  batch.hidden.begin() + static_cast<ptrdiff_t>(kept * d));
    }
    ++kept;
  }
  batch.rows.resize(kept);
  batch.hidden.resize(kept * d);
}

void Worker::drop_dead(Batch& batch) {
  std::vector<uint16_t> dead;
  for (const auto& entry : dead_)
    if (entry.batch == batch.id) dead.push_back(entry.row);
  std::erase_if(dead_, [&](const auto& entry) { return entry.batch <= batch.id; });  // FIFO: none is still to come
  if (dead.empty()) return;
  std::sort(dead.begin(), dead.end());
  std::vector<bool> keep(batch.rows.size());
  for (size_t i = 0; i < keep.size(); ++i) keep[i] = !std::binary_search(dead.begin(), dead.end(), batch.rows[i].index);
  drop(batch, keep);
}

void Worker::add_late_draws(Batch& batch) {
  for (auto& late : late_draws_)
    if (late.batch == batch.id) batch.draws.push_back(std::move(late.draws));
  std::erase_if(late_draws_, [&](const auto& late) { return late.batch <= batch.id; });
}

// At the last stage the verdict on everything before is known, so what hangs from another branch need not be computed.
void Worker::drop_hopeless(Batch& batch) {
  std::vector<bool> keep(batch.rows.size());
  std::set<std::pair<SequenceId, Cell>> hopeful;
  for (size_t i = 0; i < keep.size(); ++i) {
    const Row& row = batch.rows[i];
    keep[i] = row.kind == Row::Kind::kPrompt || !verifier_.alive({&row, 1}).empty() ||
              hopeful.contains({row.sequence, row.parent});
    if (keep[i]) hopeful.emplace(row.sequence, row.cell);
  }
  drop(batch, keep);
}

// Round by round down the accepted paths: of each sequence at most one row is alive at a time.
void Worker::verify(const Batch& batch, Done& done) {
  std::vector<size_t> known;  // the rows whose logits are there, in their order
  for (;;) {
    const std::vector<size_t> alive = verifier_.alive(batch.rows);
    if (alive.empty()) return;
    auto& accepted = done.outcome.accepted;
    if (lazy()) {
      for (const size_t i : alive) accepted.push_back(accept_lazily(batch, i));
    } else {
      know(batch, alive, known);
      std::vector<Verifier::Alive> rows;
      for (const size_t i : alive) rows.push_back({batch.rows[i], logits_of(i, known), draws_of(batch, i)});
      for (Accepted& one : verifier_.accept(rows, runner_->spread())) accepted.push_back(std::move(one));
    }
    done.head_rows += static_cast<int32_t>(alive.size());
  }
}

// Computes the logits of the alive rows that are not known, and of those that the paths may come to next.
void Worker::know(const Batch& batch, std::span<const size_t> alive, std::vector<size_t>& known) {
  std::vector<size_t> unknown;
  for (const size_t i : alive)
    if (std::find(known.begin(), known.end(), i) == known.end()) unknown.push_back(i);
  if (unknown.empty()) return;
  const auto d = static_cast<ptrdiff_t>(options_.d_model);
  const size_t v = static_cast<size_t>(options_.n_vocab), before = known.size() * v;
  std::vector<float> hidden;
  for (const size_t i : foreseen(batch.rows, std::move(unknown))) {
    const auto row = batch.hidden.begin() + static_cast<ptrdiff_t>(i) * d;
    hidden.insert(hidden.end(), row, row + d);
    known.push_back(i);
  }
  logits_.resize(known.size() * v);
  runner_->logits(hidden, std::span(logits_).subspan(before));
}

std::span<const float> Worker::logits_of(size_t i, std::span<const size_t> known) const {
  const auto place = static_cast<size_t>(std::find(known.begin(), known.end(), i) - known.begin());
  const size_t v = static_cast<size_t>(options_.n_vocab);
  return std::span(logits_).subspan(place * v, v);
}

// The verdict on an alive row, from the memo if the target's own token after it is there.
Accepted Worker::accept_lazily(const Batch& batch, size_t i) {
  const Row& row = batch.rows[i];
  const Draws* const draws = draws_of(batch, i);
  const PathKey key = lazy_->key(row).with(verifier_.sampling(row.sequence));
  if (const Draw* draw = draws == nullptr ? memo_->find_draw(key) : nullptr) return verifier_.accept(row, *draw);
  logits_.resize(static_cast<size_t>(options_.n_vocab));
  lazy_->logits({&row, 1}, logits_);
  Accepted accepted = verifier_.accept(row, logits_, draws);
  if (draws == nullptr) memo_->keep(key, Draw{accepted.next, accepted.logprob});
  return accepted;
}

Taps Worker::tapped(const Batch& batch) const {
  Taps taps{.batch = batch.id, .stage = options_.stage, .rows = {}, .layers = runner_->options().taps, .states = {}};
  for (const Row& row : batch.rows)
    if (row.tapped) taps.rows.push_back(row);
  if (taps.rows.empty()) return taps;
  const auto d = static_cast<ptrdiff_t>(options_.d_model);
  for (size_t i = 0; i < taps.layers.size(); ++i) {
    const auto states = runner_->tap(i);
    for (size_t r = 0; r < batch.rows.size(); ++r)
      if (const auto state = states.begin() + static_cast<ptrdiff_t>(r) * d; batch.rows[r].tapped)
        taps.states.insert(taps.states.end(), state, state + d);
  }
  return taps;
}

std::vector<Candidate> Worker::candidates(const TopLogits& top, SequenceId sequence, int32_t position) const {
  const SamplingParams& sampling = sampling_.at(sequence);
  return sampling.rule == Rule::kReject ? draft_distribution(top, sampling)
                                        : sluice::guess(top, sampling, position, options_.candidates);
}

void Worker::guess_by_head(const Batch& batch, Done& done) {
  std::vector<float> hidden;
  head_->run(batch, hidden);
  const size_t n = hidden.size() / static_cast<size_t>(options_.d_model);
  const auto v = static_cast<size_t>(options_.n_vocab);
  logits_.resize(n * v);
  head_->logits(hidden, logits_);
  size_t i = 0;
  for (const Row& row : batch.rows) {
    if (row.kind == Row::Kind::kPrompt) continue;
    for (size_t depth = 0; depth < head_->guesses(); ++depth, ++i) {
      const auto below = static_cast<int32_t>(depth);
      done.outcome.drafted.push_back(
          {row.index, below,
           candidates(top(std::span(logits_).subspan(i * v, v)), row.sequence, row.position + 1 + below)});
    }
  }
  done.head_rows = static_cast<int32_t>(n);
}

void Worker::guess(const Batch& batch, Done& done) {
  const size_t d = static_cast<size_t>(options_.d_model);
  std::vector<Row> rows;
  std::vector<float> hidden;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    if (batch.rows[i].kind == Row::Kind::kPrompt) continue;
    rows.push_back(batch.rows[i]);
    if (!lazy())
      hidden.insert(hidden.end(), batch.hidden.begin() + static_cast<ptrdiff_t>(i * d),
                    batch.hidden.begin() + static_cast<ptrdiff_t>((i + 1) * d));
  }
  const std::vector<TopLogits> top = tops(rows, hidden);
  for (size_t i = 0; i < rows.size(); ++i)
    done.outcome.drafted.push_back({rows[i].index, 0, candidates(top[i], rows[i].sequence, rows[i].position + 1)});
  done.head_rows = static_cast<int32_t>(rows.size());
}

std::vector<TopLogits> Worker::tops(std::span<const Row> rows, std::span<const float> hidden) {
  const size_t v = static_cast<size_t>(options_.n_vocab);
  std::vector<TopLogits> top(rows.size());
  std::vector<Row> unknown;
  std::vector<size_t> places;
  // Another target may have more or fewer tokens that can be guessed.
  const auto key = [&](const Row& row) { return lazy_->key(row).with(static_cast<uint64_t>(options_.guessable)); };
  for (size_t i = 0; i < rows.size(); ++i) {
    if (const TopLogits* known = lazy() ? memo_->find_top(key(rows[i])) : nullptr) {
      top[i] = *known;
    } else {
      unknown.push_back(rows[i]);
      places.push_back(i);
    }
  }
  if (unknown.empty()) return top;
  logits_.resize(unknown.size() * v);
  if (lazy()) {
    lazy_->logits(unknown, logits_);
  } else {
    runner_->logits(hidden, logits_);
  }
  for (size_t i = 0; i < unknown.size(); ++i) {
    top[places[i]] = this->top(std::span(logits_).subspan(i * v, v));
    if (lazy()) memo_->keep(key(unknown[i]), top[places[i]]);
  }
  return top;
}

// A head over some of the tokens has a row for each, and the rows rise as the tokens do.
TopLogits Worker::top(std::span<const float> logits) const {
  const auto& tokens = options_.vocabulary;
  if (tokens.empty()) return top_logits(logits, options_.guessable);
  const auto end = std::lower_bound(tokens.begin(), tokens.end(), options_.guessable);
  TopLogits top = top_logits(logits, static_cast<int32_t>(end - tokens.begin()));
  for (auto& entry : top.entries) entry.token = tokens[static_cast<size_t>(entry.token)];
  return top;
}

namespace {

// Tells the paths of one model from those of others: by all that is in its files, and the type of its KV cache.
Result<PathKey> identity(const ModelFile& model, KvType kv) {
  SLUICE_TRY(const Sha256 files, model.identity());
  PathKey key = PathKey{}.with(static_cast<uint64_t>(kv));
  for (size_t i = 0; i < files.bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, &files.bytes[i], sizeof word);
    key = key.with(word);
  }
  return key;
}

}  // namespace

Result<std::vector<Worker>> make_workers(const ModelFile& model, const PipelineOptions& options) {
  std::vector<Worker> workers;
  const size_t n = options.cuts.size();
  const bool lazy = options.memo != nullptr;
  const bool limited = options.guessable > 0 && model.head_tokens().empty();
  const int32_t n_logits = limited ? std::min(options.guessable, model.n_logits()) : model.n_logits();
  for (size_t s = 0; s < n; ++s) {
    const bool last = s + 1 == n;
    std::vector<int32_t> taps;
    for (const int32_t layer : options.taps)
      if (layer > 0 && stage_of_layer(options.cuts, layer) == static_cast<int32_t>(s)) taps.push_back(layer);
    const Worker::Options worker{.stage = StageId(static_cast<int32_t>(s)),
                                 .last = last,
                                 .d_model = model.hparams().d_model,
                                 .n_vocab = n_logits,
                                 .candidates = options.candidates,
                                 .guessable = options.guessable,
                                 .vocabulary = model.head_tokens(),
                                 .feeds_heads = !taps.empty()};
    if (lazy && !last) {
      workers.emplace_back(worker, std::nullopt, options.memo);
      continue;
    }
    const LayerRange range = lazy ? LayerRange{0, model.hparams().n_layers} : options.cuts[s];
    SLUICE_TRY(auto runner, StageRunner::create(model, {.range = range,
                                                        .with_embedding = range.first == 0,
                                                        .with_head = last,
                                                        .n_logits = n_logits,
                                                        .kv = options.kv,
                                                        .n_cells = options.n_cells,
                                                        .max_rows = options.max_rows,
                                                        .threads = options.threads,
                                                        .foreign_tokens = options.candidates > 0,
                                                        .taps = std::move(taps)}));
    if (lazy) {
      SLUICE_TRY(const PathKey key, identity(model, options.kv));
      workers.emplace_back(worker, LazyRunner(std::move(runner), key, model.hparams().d_model), options.memo);
    } else {
      workers.emplace_back(worker, std::move(runner));
    }
  }
  return workers;
}

Result<std::vector<Worker>> make_head_worker(const HeadFile& head, const PipelineOptions& options, int32_t guesses) {
  SLUICE_TRY(auto module,
             HeadModule::create(head, {.n_cells = options.n_cells, .threads = options.threads, .guesses = guesses}));
  const HeadParameters& parameters = head.parameters();
  std::vector<Worker> workers;
  workers.emplace_back(Worker::Options{.stage = StageId(0),
                                       .last = true,
                                       .d_model = parameters.hparams.d_model,
                                       .n_vocab = parameters.n_guessable(),
                                       .candidates = options.candidates,
                                       .guessable = options.guessable,
                                       .vocabulary = parameters.vocabulary},
                       std::move(module));
  return workers;
}

int32_t stage_of_layer(std::span<const LayerRange> cuts, int32_t layer) {
  const auto at = std::find_if(cuts.begin(), cuts.end(), [layer](const LayerRange& cut) { return layer <= cut.last; });
  SLUICE_CHECK(at != cuts.end(), "a layer of the model");
  return static_cast<int32_t>(at - cuts.begin());
}

}  // namespace sluice
