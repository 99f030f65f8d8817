#include "pipeline/worker.h"

#include <algorithm>
#include <set>

namespace sluice {

Worker::Worker(Options options, std::optional<StageRunner> runner) : options_(options), runner_(std::move(runner)) {}

void Worker::cancel(const Cancel& cancel) {
  cancelled_.insert(cancelled_.end(), cancel.rows.begin(), cancel.rows.end());
}

Worker::Done Worker::process(Batch batch) {
  if (options_.last) {
    for (const auto& update : batch.updates) verifier_.apply(update);
    for (const Row& row : batch.rows)
      if (row.kind == Row::Kind::kPrompt) verifier_.enter_prompt(row);
  }
  if (runner_) runner_->enter(batch.updates, batch.rows);
  drop_cancelled(batch);
  if (options_.last) drop_dead(batch);

  Done done;
  done.rows_computed = static_cast<int32_t>(batch.rows.size());
  if (runner_ && !batch.rows.empty()) {
    batch.hidden.resize(batch.rows.size() * static_cast<size_t>(options_.d_model));
    if (!options_.lazy) runner_->run(batch.rows, batch.hidden);
  }
  if (options_.last) {
    done.outcome.batch = batch.id;
    verify(batch, done);
  }
  done.onward = std::move(batch);
  return done;
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

void Worker::drop_cancelled(Batch& batch) {
  std::vector<uint16_t> dead;
  for (const auto& entry : cancelled_)
    if (entry.batch == batch.id) dead.push_back(entry.row);
  std::erase_if(cancelled_, [&](const auto& entry) { return entry.batch <= batch.id; });  // FIFO: none is still to come
  if (dead.empty()) return;
  std::sort(dead.begin(), dead.end());
  std::vector<bool> keep(batch.rows.size());
  for (size_t i = 0; i < keep.size(); ++i) keep[i] = !std::binary_search(dead.begin(), dead.end(), batch.rows[i].index);
  drop(batch, keep);
}

// At the last stage the verdict on everything before is known, so what hangs from another branch need not be computed.
void Worker::drop_dead(Batch& batch) {
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

void Worker::verify(const Batch& batch, Done& done) {
  const size_t d = static_cast<size_t>(options_.d_model), v = static_cast<size_t>(options_.n_vocab);
  std::vector<float> hidden;
  std::vector<Row> rows;
  if (options_.lazy) {  // the prompt is always computed
    std::copy_if(batch.rows.begin(), batch.rows.end(), std::back_inserter(rows),
                 [](const Row& r) { return r.kind == Row::Kind::kPrompt; });
    hidden.resize(rows.size() * d);
    if (!rows.empty()) runner_->run(rows, hidden);
  }
  // Round by round down the accepted paths: of each sequence at most one row is alive at a time.
  for (;;) {
    const std::vector<size_t> alive = verifier_.alive(batch.rows);
    if (alive.empty()) return;
    rows.clear();
    hidden.resize(alive.size() * d);
    for (size_t i = 0; i < alive.size(); ++i) {
      rows.push_back(batch.rows[alive[i]]);
      if (!options_.lazy)
        std::copy_n(batch.hidden.begin() + static_cast<ptrdiff_t>(alive[i] * d), d,
                    hidden.begin() + static_cast<ptrdiff_t>(i * d));
    }
    if (options_.lazy) runner_->run(rows, hidden);
    logits_.resize(alive.size() * v);
    runner_->logits(hidden, logits_);
    for (size_t i = 0; i < alive.size(); ++i)
      done.outcome.accepted.push_back(verifier_.accept(rows[i], std::span(logits_).subspan(i * v, v)));
    done.head_rows += static_cast<int32_t>(alive.size());
  }
}

Result<std::vector<Worker>> make_workers(const ModelFile& model, const PipelineOptions& options) {
  std::vector<Worker> workers;
  const size_t n = options.cuts.size();
  for (size_t s = 0; s < n; ++s) {
    const bool last = s + 1 == n;
    std::optional<StageRunner> runner;
    if (!options.lazy || last) {
      const LayerRange range = options.lazy ? LayerRange{0, model.hparams().n_layers} : options.cuts[s];
      SLUICE_TRY(runner, StageRunner::create(model, {.range = range,
                                                     .with_embedding = range.first == 0,
                                                     .with_head = last,
                                                     .kv = options.kv,
                                                     .n_cells = options.n_cells,
                                                     .max_rows = options.max_rows,
                                                     .threads = options.threads,
                                                     .taps = {}}));
    }
    workers.emplace_back(Worker::Options{.stage = StageId(static_cast<int32_t>(s)),
                                         .last = last,
                                         .lazy = options.lazy,
                                         .d_model = model.hparams().d_model,
                                         .n_vocab = model.hparams().n_vocab},
                         std::move(runner));
  }
  return workers;
}

}  // namespace sluice
