// Records what happens, for the trace of a run and for who watches it.
#pragma once

#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/step_log.h"
#include "engine/trace.h"
#include "model/tokenizer.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

class Recorder {
 public:
  // on: else nothing is kept. n_stages: of each model, the target first. REQUIRES: the tokenizer outlives this.
  Recorder(bool on, BatchId first_batch, const Tokenizer& tokenizer, std::span<const size_t> n_stages);

  // Tells what happens to this log too; null: to none any more. It must live until then.
  void watch(StepLog* log) { log_ = log; }

  // A batch leaves for a model, whose row i is plan[i].
  void submitted(const Batch& batch, ModelId model, std::span<const Planned> plan, double now);
  // A stage was busy.
  void computed(const StageReport& report);
  // What has become of a node's row in the target.
  void resolved(const Resident& row, Fate fate, double now);
  // The newest token of a request, its root, has come; `hit`: without a flush.
  void said(const Request& request, bool hit, double now);

  // Of what was recorded; the header is the caller's to fill in.
  const Trace& trace() const { return trace_; }

 private:
  bool on_;
  BatchId first_batch_;
  const Tokenizer* tokenizer_;
  std::vector<int32_t> first_line_;  // of each model's stages in the timeline: the target's, then those of the others
  Trace trace_;
  StepLog* log_ = nullptr;
};

}  // namespace sluice
