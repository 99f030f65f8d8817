// Whether a model that is free had better wait for news.
#pragma once

#include <optional>
#include <span>

#include "engine/lane.h"
#include "engine/request.h"

namespace sluice {

// When stages take equal times, the verdict on the root comes just after the first stage has fallen free, later by a
// message, and so does the answer of a draft model that takes as long. What enters then had better know them: after a
// verdict most of the nodes that would have entered may be dead, and an answer names likelier ones. If news is due
// within a small part of a step, this is when, on the clock that says it is `now`.
std::optional<double> news_due(std::span<const Lane> lanes, std::span<Request* const> running, double now);

// A draft model's own answer comes just after it has fallen free, and its next questions depend on it: whether it is
// due.
bool answer_due(const Lane& lane, double now);

// Nothing is under way, no report of the first stage either, and no state that a head waits for.
bool is_quiet(const Lane& lane, std::span<Request* const> running);

}  // namespace sluice
