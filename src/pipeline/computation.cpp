#include "pipeline/computation.h"

#include <algorithm>
#include <utility>

namespace sluice {

void Computation::receive(const Taps&) { SLUICE_CHECK(false, "only heads take what is tapped"); }

namespace {

class Layers final : public Computation {
 public:
  Layers(std::unique_ptr<StageRunner> runner, StageId stage, const HyperParameters& hparams)
      : runner_(std::move(runner)), stage_(stage), d_(static_cast<size_t>(hparams.d_model)), folds_(hparams.folds()) {}

  void enter(const Batch& batch) override { runner_->enter(batch.updates, batch.rows); }

  int32_t run(Batch& batch) override {
    const size_t n = batch.rows.size() * d_;
    SLUICE_CHECK(runner_->options().with_embedding || batch.hidden.size() == n, "a batch brings its rows' states");
    batch.hidden.resize(n);
    if (n == 0) return 0;
    if (journal_) return run_what_is_new(batch);
    runner_->run(batch.rows, batch.hidden);
    return static_cast<int32_t>(batch.rows.size());
  }

  // A state that was folded is gone with its sequence: all is computed again.
  void keep_journal(int64_t bytes) override {
    if (folds_) return;
    const StageOptions& options = runner_->options();
    journal_.emplace(options.n_cells, options.with_head ? 0 : static_cast<int32_t>(d_), bytes);
  }
  Journal* journal() override { return journal_ ? &*journal_ : nullptr; }

  std::optional<Taps> taps(const Batch& batch) const override {
    if (runner_->options().taps.empty()) return std::nullopt;
    Taps taps{.batch = batch.id, .stage = stage_, .rows = {}, .layers = runner_->options().taps, .states = {}};
    for (const Row& row : batch.rows)
      if (row.tapped) taps.rows.push_back(row);
    if (taps.rows.empty()) return taps;
    for (size_t i = 0; i < taps.layers.size(); ++i) {
      const auto states = runner_->tap(i);
      for (size_t r = 0; r < batch.rows.size(); ++r) {
        const auto state = states.subspan(r * d_, d_);
        if (batch.rows[r].tapped) taps.states.insert(taps.states.end(), state.begin(), state.end());
      }
    }
    return taps;
  }

  void logits(const Batch& batch, std::span<const size_t> rows, std::span<float> logits) override {
    hidden_.clear();
    for (const size_t i : rows) {
      const auto state = std::span(batch.hidden).subspan(i * d_, d_);
      hidden_.insert(hidden_.end(), state.begin(), state.end());
    }
    runner_->logits(hidden_, logits);
  }

  uint64_t take_out_of_range() override { return runner_->take_out_of_range(); }
  Spread spread() override { return runner_->spread(); }
  Exactness exactness() const override { return runner_->exactness(); }

 private:
  std::span<float> state(Batch& batch, size_t row) const { return std::span(batch.hidden).subspan(row * d_, d_); }

  // What heads read is computed in any case: of that nothing is kept.
  int32_t run_what_is_new(Batch& batch) {
    const bool is_read = !runner_->options().taps.empty() && std::ranges::any_of(batch.rows, &Row::tapped);
    std::vector<size_t> places;
    std::vector<Row> rows;
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      const Row& row = batch.rows[i];
      const bool found = journal_->finds(row) && runner_->holds(row.cell);
      if (found && !is_read) {
        if (!runner_->options().with_head) std::ranges::copy(journal_->state(row), state(batch, i).begin());
        continue;
      }
      places.push_back(i);
      rows.push_back(row);
    }
    if (rows.size() == batch.rows.size()) {
      runner_->run(batch.rows, batch.hidden);
    } else if (!rows.empty()) {
      hidden_.resize(rows.size() * d_);
      for (size_t i = 0; i < rows.size(); ++i)
        std::ranges::copy(state(batch, places[i]), hidden_.begin() + static_cast<ptrdiff_t>(i * d_));
      runner_->run(rows, hidden_);
      for (size_t i = 0; i < rows.size(); ++i)
        std::ranges::copy(std::span(hidden_).subspan(i * d_, d_), state(batch, places[i]).begin());
    }
    for (const size_t i : places) journal_->keep(batch.rows[i], state(batch, i));
    return static_cast<int32_t>(rows.size());
  }

  std::unique_ptr<StageRunner> runner_;
  StageId stage_;
  size_t d_;
  bool folds_;
  std::vector<float> hidden_;  // of the rows that were asked for last
  std::optional<Journal> journal_;
};

class Nothing final : public Computation {
 public:
  explicit Nothing(int32_t d_state) : d_(static_cast<size_t>(d_state)) {}
  void enter(const Batch&) override {}
  int32_t run(Batch& batch) override {
    batch.hidden.assign(batch.rows.size() * d_, 0.0f);
    return static_cast<int32_t>(batch.rows.size());
  }
  void logits(const Batch&, std::span<const size_t>, std::span<float>) override {
    SLUICE_CHECK(false, "logits of a stage that computes nothing");
  }
  Exactness exactness() const override { return Exactness::kBitwise; }

 private:
  size_t d_;
};

class HeadOfTarget final : public Computation {
 public:
  explicit HeadOfTarget(std::unique_ptr<HeadModule> head) : head_(std::move(head)) {}

  void enter(const Batch& batch) override { head_->enter(batch.updates, batch.rows); }
  int32_t run(Batch& batch) override {
    head_->run(batch, hidden_);
    return static_cast<int32_t>(batch.rows.size());
  }
  // A head's rows are asked for all together or not at all.
  void logits(const Batch&, std::span<const size_t>, std::span<float> logits) override {
    head_->logits(hidden_, logits);
  }
  int32_t guesses() const override { return static_cast<int32_t>(head_->guesses()); }
  void receive(const Taps& taps) override { head_->receive(taps); }
  void forget_received() override { head_->forget_received(); }
  Exactness exactness() const override { return Exactness::kBitwise; }

 private:
  std::unique_ptr<HeadModule> head_;
  std::vector<float> hidden_;  // [node rows, guesses, d_model]
};

}  // namespace

std::unique_ptr<Computation> layers_of(std::unique_ptr<StageRunner> runner, StageId stage,
                                       const HyperParameters& hparams) {
  return std::make_unique<Layers>(std::move(runner), stage, hparams);
}
std::unique_ptr<Computation> nothing(int32_t d_state) { return std::make_unique<Nothing>(d_state); }
std::unique_ptr<Computation> head_of(std::unique_ptr<HeadModule> head) {
  return std::make_unique<HeadOfTarget>(std::move(head));
}

}  // namespace sluice
