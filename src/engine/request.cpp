#include "engine/request.h"

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

auto& of_model(auto& speculation, ModelId model) {
  return model == kTarget ? speculation.target : speculation.drafts[static_cast<size_t>(model.value) - 1];
}

}  // namespace

const char* name(Finish finish) {
  switch (finish) {
    case Finish::kNone:
      return "running";
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kCancelled:
      return "cancelled";
    case Finish::kFailed:
      return "failed";
  }
  return "?";
}

Request::Request(RequestId request_id, RequestSpec request_spec)
    : id(request_id),
      spec(std::move(request_spec)),
      tokens(spec.prompt),
      speculation{.tree = TokenTree(spec.prompt.back(), static_cast<int32_t>(spec.prompt.size()) - 1),
                  .target = {},
                  .drafts = {}} {
  stats.prompt_tokens = static_cast<int64_t>(spec.prompt.size());
}

const Residency& Request::residency(ModelId model) const { return of_model(speculation, model); }
Residency& Request::residency(ModelId model) { return of_model(speculation, model); }

size_t Request::cells_to_come(ModelId model) const {
  if (finish != Finish::kNone || !sequence.valid()) return 0;
  const Residency& there = residency(model);
  const size_t taken = there.committed.size() + (there.entered(speculation.tree.root().id) ? 1 : 0);
  return reserved_cells - std::min(reserved_cells, taken);
}

void Request::note_committed(BatchId batch) {
  const size_t n = speculation.target.committed.size();
  if (!committed_in.empty() && committed_in.back().first == batch)
    committed_in.back().second = n;
  else
    committed_in.emplace_back(batch, n);
}

std::optional<size_t> Request::source_of(ModelId draft) const {
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i].draft && static_cast<int32_t>(*sources[i].draft) + 1 == draft.value) return i;
  return std::nullopt;
}

void Request::learn_pace(double now, double expected, bool came) {
  constexpr double kNewest = 1.0 / 16;  // of the average
  if (n_answer() > 1) {
    const double seconds = now - stats.last_token;
    const double weight = std::max(kNewest, 1.0 / static_cast<double>(n_answer() - 1));
    seconds_per_token_ += weight * (seconds - seconds_per_token_);
  }
  trust_.learn(expected, came);
}

std::optional<double> Request::seconds_per_token() const {
  constexpr size_t kEnough = 4;
  if (n_answer() <= kEnough) return std::nullopt;
  return seconds_per_token_;
}

std::string Request::source_name() const {
  std::string text;
  for (const SourceSlot& slot : sources) text += (text.empty() ? "" : ",") + slot.name();
  return text.empty() ? "none" : text;
}

}  // namespace sluice
