#include "pipeline/worker.h"

#include <algorithm>
#include <utility>

#include "pipeline/packing.h"

namespace sluice {

void Worker::amend(const Amendment& amendment) {
  dead_.insert(dead_.end(), amendment.dead.begin(), amendment.dead.end());
  if (ending_) late_draws_.insert(late_draws_.end(), amendment.late_draws.begin(), amendment.late_draws.end());
}

void Worker::forget() {
  Batch last;
  for (const SequenceId sequence : std::exchange(open_, {})) last.updates.emplace_back(Close{sequence});
  if (ending_) ending_->enter(last);
  computation_->enter(last);
  computation_->forget_received();
  dead_.clear();
  late_draws_.clear();
}

void Worker::follow(const Batch& batch) {
  for (const PathUpdate& update : batch.updates) {
    if (std::holds_alternative<Open>(update) || std::holds_alternative<Fork>(update)) open_.insert(sequence_of(update));
    if (std::holds_alternative<Close>(update)) open_.erase(sequence_of(update));
  }
}

Worker::Done Worker::process(Batch batch) {
  if (!batch.halves.empty()) unpack_states(batch);
  follow(batch);
  if (ending_) ending_->enter(batch);
  computation_->enter(batch);
  drop_dead(batch);
  add_late_draws(batch);
  if (ending_) keep(batch, ending_->hopeful(batch.rows));

  Done done;
  done.rows_computed = computation_->run(batch);
  done.taps = computation_->taps(batch);
  if (ending_) {
    done.outcome.batch = batch.id;
    done.head_rows = ending_->conclude(batch, *computation_, done.outcome);
    done.lookups = ending_->take_lookups();
  }
  done.out_of_range = computation_->take_out_of_range();
  done.onward = std::move(batch);
  return done;
}

// Drops the rows that are not wanted, with their states.
void Worker::keep(Batch& batch, const std::vector<bool>& wanted) {
  const size_t d = batch.rows.empty() ? 0 : batch.hidden.size() / batch.rows.size();
  size_t kept = 0;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    if (!wanted[i]) continue;
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
  std::vector<bool> alive(batch.rows.size());
  for (size_t i = 0; i < alive.size(); ++i)
    alive[i] = !std::binary_search(dead.begin(), dead.end(), batch.rows[i].index);
  keep(batch, alive);
}

void Worker::add_late_draws(Batch& batch) {
  for (auto& late : late_draws_)
    if (late.batch == batch.id) batch.draws.push_back(std::move(late.draws));
  std::erase_if(late_draws_, [&](const auto& late) { return late.batch <= batch.id; });
}

}  // namespace sluice
