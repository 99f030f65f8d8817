#include "serve/answer_parts.h"

#include <algorithm>
#include <utility>

namespace sluice {

using Kind = AnswerPart::Kind;

std::vector<AnswerParts::Step> AnswerParts::take(const AssistantDelta& more) {
  std::vector<Step> steps;
  add_text(Kind::kReasoning, more.reasoning, steps);
  add_text(Kind::kContent, more.content, steps);
  for (const auto& [index, call] : more.tool_calls) {
    if (index >= calls_.size()) {
      calls_.push_back(parts_.size());
      begin({.kind = Kind::kCall, .id = call.id, .name = call.name}, steps);
    }
    grow(calls_[std::min(index, calls_.size() - 1)], call.arguments, steps);
  }
  return steps;
}

std::vector<AnswerParts::Step> AnswerParts::finish() {
  if (!std::exchange(open_, false)) return {};
  return {{.kind = Step::Kind::kEnd, .part = parts_.size() - 1}};
}

void AnswerParts::begin(AnswerPart part, std::vector<Step>& steps) {
  for (Step& end : finish()) steps.push_back(std::move(end));
  open_ = true;
  steps.push_back({.kind = Step::Kind::kBegin, .part = parts_.size()});
  parts_.push_back(std::move(part));
}

void AnswerParts::grow(size_t part, const std::string& more, std::vector<Step>& steps) {
  if (more.empty()) return;
  parts_[part].text += more;
  steps.push_back({.kind = Step::Kind::kMore, .part = part, .more = more});
}

void AnswerParts::add_text(Kind kind, const std::string& more, std::vector<Step>& steps) {
  if (more.empty()) return;
  if (!open_ || parts_.back().kind != kind) begin({.kind = kind}, steps);
  grow(parts_.size() - 1, more, steps);
}

AssistantDelta delta_of(const AssistantMessage& message) {
  AssistantDelta all{.content = message.content, .reasoning = message.reasoning, .tool_calls = {}};
  for (size_t i = 0; i < message.tool_calls.size(); ++i) all.tool_calls.push_back({i, message.tool_calls[i]});
  return all;
}

}  // namespace sluice
