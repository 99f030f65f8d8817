#include "engine/recorder.h"

#include <algorithm>

namespace sluice {

Recorder::Recorder(bool on, BatchId first_batch, const Tokenizer& tokenizer, std::span<const size_t> n_stages)
    : on_(on), first_batch_(first_batch), tokenizer_(&tokenizer) {
  int32_t line = 0;
  for (const size_t n : n_stages) {
    first_line_.push_back(line);
    line += static_cast<int32_t>(n);
  }
}

void Recorder::submitted(const Batch& batch, ModelId model, std::span<const Planned> plan, double now) {
  if (log_ != nullptr) {
    const auto prompts = std::ranges::count_if(plan, [](const Planned& planned) { return !planned.node.valid(); });
    log_->entered({.batch = batch.id,
                   .model = model,
                   .time = now,
                   .prompt_rows = static_cast<int32_t>(prompts),
                   .node_rows = static_cast<int32_t>(plan.size()) - static_cast<int32_t>(prompts)});
  }
  if (!on_) return;
  TraceBatch& traced = trace_.batches.emplace_back(TraceBatch{.id = batch.id, .model = model, .submitted = now});
  for (size_t i = 0; i < plan.size(); ++i) {
    const Row& sent = batch.rows[i];
    TraceRow row{.node = plan[i].node,
                 .request = plan[i].request->id.value,
                 .token = sent.token,
                 .text = tokenizer_->piece(sent.token, true),
                 .position = sent.position};
    if (!plan[i].node.valid()) {
      row.fate = Fate::kPrompt;
    } else {
      const auto& node = plan[i].request->speculation.tree.node(plan[i].node);
      row.probability = node.probability;
      row.log_path = node.log_path;
      if (model != kTarget) row.fate = Fate::kDrafted;
      const Resident* parent = node.parent.valid() ? plan[i].request->residency(model).find(node.parent) : nullptr;
      if (parent != nullptr && parent->batch == batch.id) row.parent_row = parent->row;
    }
    traced.rows.push_back(std::move(row));
  }
}

void Recorder::computed(const StageReport& report) {
  const int32_t line = first_line_[static_cast<size_t>(report.model.value)] + report.stage.value;
  const TraceSpan span{StageId(line), report.batch, report.begin, report.end, report.rows_computed};
  if (log_ != nullptr) log_->computed(span);
  if (on_) trace_.spans.push_back(span);
}

void Recorder::resolved(const Resident& row, Fate fate, double now) {
  if (log_ != nullptr) log_->resolved(row.batch, fate, now);
  if (!on_) return;
  const auto batch = static_cast<size_t>(row.batch.value - first_batch_.value);
  TraceRow& traced = trace_.batches[batch].rows[row.row];
  traced.fate = fate;
  traced.resolved = now;
}

void Recorder::said(const Request& request, bool hit, double now) {
  if (log_ != nullptr) log_->came(request.id.value, hit, now);
  if (!on_) return;
  const auto& root = request.speculation.tree.root();
  trace_.emissions.push_back({now, request.id.value, root.position, tokenizer_->piece(root.token, true), hit});
}

}  // namespace sluice
