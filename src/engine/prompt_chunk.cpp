#include "engine/prompt_chunk.h"

#include <algorithm>
#include <limits>

#include "engine/policy.h"

namespace sluice {

namespace {

// A pass of fewer rows than were seen is taken to cost as much as the narrowest.
double pass(const PassTimes& times, size_t rows) {
  return rows == 0 ? 0.0 : times.seconds(std::max(static_cast<int32_t>(rows), times.narrowest()));
}

// The same, but fewer rows cost less, as the next ones cost more.
double narrow_pass(const PassTimes& times, size_t rows) {
  const auto narrowest = static_cast<size_t>(times.narrowest());
  if (rows >= narrowest) return pass(times, rows);
  const double there = pass(times, narrowest);
  return there -
         (pass(times, 2 * narrowest) - there) * static_cast<double>(narrowest - rows) / static_cast<double>(narrowest);
}

}  // namespace

size_t prompt_chunk(size_t rows, size_t stages, const PassTimes& times, size_t usual, size_t most) {
  const auto narrowest = static_cast<size_t>(times.narrowest()), widest = static_cast<size_t>(times.widest());
  if (narrowest == 0) return std::max<size_t>(1, usual / 2);
  if (narrowest == widest) return usual;
  const size_t tried = std::clamp(policy::kWiderChunk * widest, policy::kPromptQuantum, most);
  size_t best = usual;
  double least = std::numeric_limits<double>::infinity();
  for (size_t chunk = std::min(policy::kPromptQuantum, most); chunk <= tried; chunk += policy::kPromptQuantum) {
    const size_t full = std::min(chunk, rows);  // rows of all batches but the last
    const double doubt = chunk > widest ? policy::kWiderGain : 1.0;
    const double seconds =
        doubt * (static_cast<double>(rows / full + stages - 1) * pass(times, full) + pass(times, rows % full));
    if (seconds < least) best = chunk, least = seconds;
  }
  return best;
}

size_t prompt_rows_within(double seconds, size_t beside, size_t stages, const PassTimes& times, size_t most) {
  const auto widest = static_cast<size_t>(times.widest());
  if (widest == 0) return std::min(policy::kPromptQuantum, most);
  const size_t passes = stages == 1 ? 1 : stages + 1;  // a row waits until the first stage is free
  const auto takes = [&](size_t rows) { return static_cast<double>(passes) * narrow_pass(times, beside + rows); };
  const size_t tried = std::max<size_t>(policy::kWiderChunk * widest, beside + policy::kPromptQuantum) - beside;
  size_t rows = std::clamp<size_t>(tried, 1, most);
  while (rows > 1 && takes(rows) > seconds) rows -= std::clamp<size_t>(rows / 8, 1, policy::kPromptQuantum);
  return rows;
}

}  // namespace sluice
