// A pipeline that speculates one level a step, as a trace: nothing is computed, but times, prunings and flushes fit
// together.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/trace.h"

namespace sluice::test {

class SyntheticPipeline {
 public:
  SyntheticPipeline(int stages, int steps, int width, double hit_rate)
      : stages_(stages), steps_(steps), width_(width), hit_rate_(hit_rate) {
    TraceHeader& header = trace_.header;
    header = {.model = "SmolLM2-135M-Instruct",
              .method = "specpipe",
              .source = "draft",
              .executor = "virtual",
              .profile = "uniform"};
    header.stages = stages;
    header.width = width;
    header.steps = steps;
    header.simulated = true;
    for (int stage = 0; stage < stages; stage++) header.cuts.emplace_back(3 * stage, 3 * stage + 3);
  }

  Trace run() {
    free_at_.assign(static_cast<size_t>(stages_), 0.0);
    for (int chunk = 0; chunk < 3; chunk++) prompt(chunk);
    clock_ = free_at_.back();
    trace_.header.decode_begin = clock_;
    emit(true);
    for (int step = 0; step < steps_; step++) advance();
    trace_.header.decode_end = clock_;
    trace_.spans = std::move(finished_);
    std::sort(trace_.spans.begin(), trace_.spans.end(),
              [](const TraceSpan& a, const TraceSpan& b) { return a.end < b.end; });
    return std::move(trace_);
  }

 private:
  static constexpr double kStep = 1e-3;

  struct InFlight {
    size_t batch;  // in trace_.batches
    int stage = 0;
  };

  double noise() { return std::uniform_real_distribution<double>(0.0, 1.0)(random_); }

  std::string word() {
    static const char* const kWords[] = {" the",      " sky", " is",    " blue", " because", " light",
                                         " scatters", ",",    ".",      " of",   "\n",       " Rayleigh",
                                         "ing",       " a",   " short", " wave", "length"};
    return kWords[random_() % std::size(kWords)];
  }

  TraceBatch& new_batch() {
    TraceBatch& batch = trace_.batches.emplace_back();
    batch.id = BatchId(static_cast<int32_t>(trace_.batches.size()) - 1);
    batch.submitted = clock_;
    return batch;
  }

  void prompt(int chunk) {
    TraceBatch& batch = new_batch();
    for (int i = 0; i < 16; i++) {
      TraceRow row{.token = i,
                   .text = word(),
                   .position = 16 * chunk + i,
                   .parent_row = i - 1,
                   .fate = Fate::kPrompt,
                   .resolved = 0};
      batch.rows.push_back(row);
    }
    double begin = 0;
    for (int stage = 0; stage < stages_; stage++) {
      double& free = free_at_[static_cast<size_t>(stage)];
      begin = std::max(begin, free);
      free = begin + 4 * kStep;
      finished_.push_back({StageId(stage), batch.id, begin, free, 16});
      begin = free;
    }
  }

  // One pipeline step: what is in flight moves on by one stage, the last is verified, a new level enters.
  void advance() {
    enter();
    for (InFlight& flight : flights_) {
      TraceBatch& batch = trace_.batches[flight.batch];
      const auto alive = std::count_if(batch.rows.begin(), batch.rows.end(),
                                       [](const TraceRow& row) { return row.fate == Fate::kUnresolved; });
      const double time =
          alive == 0 ? 0.02 * kStep : kStep * (0.8 + 0.012 * static_cast<double>(alive) + 0.06 * noise());
      finished_.push_back({StageId(flight.stage), batch.id, clock_, clock_ + time, static_cast<int32_t>(alive)});
      flight.stage++;
    }
    clock_ += kStep;
    if (flights_.empty() || flights_.front().stage < stages_) return;
    const size_t out = flights_.front().batch;
    flights_.erase(flights_.begin());
    verify(out);
    if (flights_.empty() && root_ != kNone) {
      trace_.emissions.back().hit = false;
      root_ = kNone;
    }
  }

  void enter() {
    const size_t index = trace_.batches.size();
    const bool is_root = root_ == kNone;
    if (is_root) root_ = index;
    std::vector<int> parents;
    if (!is_root) {
      const std::vector<TraceRow>& rows = trace_.batches.back().rows;
      for (int i = 0; i < static_cast<int>(rows.size()); i++) {
        if (rows[static_cast<size_t>(i)].fate != Fate::kPruned) parents.push_back(i);
      }
      if (parents.empty()) return;  // the last level died: the tree ends here, and the stages idle until it is verified
    }
    TraceBatch& batch = new_batch();
    parents_.resize(index + 1);
    for (int i = 0; i < (is_root ? 1 : width_); i++) {
      TraceRow row{.node = NodeId(next_node_++), .token = i, .text = word(), .position = position_};
      row.probability = static_cast<float>(0.6 * std::pow(0.5, i) + 0.02 * noise());
      row.log_path = is_root ? 0.0 : -0.4 * (i + 1) - noise();
      batch.rows.push_back(row);
      const size_t rank = std::min(static_cast<size_t>(std::floor(-2.0 * std::log(noise() + 1e-9))),
                                   parents.empty() ? 0 : parents.size() - 1);
      parents_[index].push_back(is_root ? -1 : parents[i == 0 ? 0 : rank]);
    }
    position_++;
    flights_.push_back({index});
  }

  // The level `out` left the last stage: its accepted row is a child of the accepted row before it, if there is one.
  void verify(size_t out) {
    TraceBatch& batch = trace_.batches[out];
    int accepted = -1;
    if (out == root_) accepted = 0;
    for (size_t i = 0; accepted < 0 && i < batch.rows.size(); i++) {
      if (parents_[out][i] == accepted_ && batch.rows[i].fate == Fate::kUnresolved && noise() < hit_rate_)
        accepted = static_cast<int>(i);
    }
    emit(accepted >= 0);
    if (accepted < 0) {
      for (size_t b = out; b < trace_.batches.size(); b++) resolve(b, Fate::kFlushed, [](size_t) { return true; });
      flights_.clear();
      root_ = kNone;
      return;
    }
    batch.rows[static_cast<size_t>(accepted)].fate = Fate::kAccepted;
    batch.rows[static_cast<size_t>(accepted)].resolved = clock_;
    resolve(out, Fate::kPruned, [](size_t) { return true; });
    accepted_ = accepted;
    for (size_t b = out + 1; b < trace_.batches.size(); b++) {
      resolve(b, Fate::kPruned, [&](size_t row) {
        const int parent = parents_[b][row];
        return b == out + 1 ? parent != accepted
                            : trace_.batches[b - 1].rows[static_cast<size_t>(parent)].fate == Fate::kPruned;
      });
    }
  }

  template <class Dies>
  void resolve(size_t batch, Fate fate, Dies dies) {
    std::vector<TraceRow>& rows = trace_.batches[batch].rows;
    for (size_t i = 0; i < rows.size(); i++) {
      if (rows[i].fate != Fate::kUnresolved || !dies(i)) continue;
      rows[i].fate = fate;
      rows[i].resolved = clock_;
    }
  }

  void emit(bool hit) {
    trace_.emissions.push_back(
        {.time = clock_, .position = 48 + static_cast<int32_t>(trace_.emissions.size()), .text = word(), .hit = hit});
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
  const int stages_, steps_, width_;
  const double hit_rate_;
  Trace trace_;
  std::vector<TraceSpan> finished_;
  std::vector<std::vector<int>> parents_;  // of a batch's rows, in the batch before it
  std::vector<double> free_at_;
  std::vector<InFlight> flights_;
  std::mt19937 random_{7};
  double clock_ = 0;
  int position_ = 48, accepted_ = 0, next_node_ = 0;
  size_t root_ = kNone;  // the batch that holds the root of the present tree
};

inline Trace synthetic_trace(int stages, int steps, int width, double hit_rate) {
  return SyntheticPipeline(stages, steps, width, hit_rate).run();
}

}  // namespace sluice::test
