#include "engine/trace.h"

#include <algorithm>

#include "base/file.h"

namespace sluice {

std::vector<double> Trace::utilisation() const {
  const size_t stages = static_cast<size_t>(std::max(header.stages, 0));
  std::vector<double> busy(stages, 0.0);
  const double window = header.decode_end - header.decode_begin;
  if (!(window > 0)) return busy;

  // The union of a stage's spans, so that spans which overlap are not counted twice.
  std::vector<std::vector<std::pair<double, double>>> spans_of(stages);
  for (const TraceSpan& span : spans) {
    if (!span.stage.valid() || static_cast<size_t>(span.stage.value) >= stages) continue;
    const double begin = std::max(span.begin, header.decode_begin), end = std::min(span.end, header.decode_end);
    if (begin < end) spans_of[static_cast<size_t>(span.stage.value)].emplace_back(begin, end);
  }
  for (size_t stage = 0; stage < stages; stage++) {
    std::sort(spans_of[stage].begin(), spans_of[stage].end());
    double covered = header.decode_begin;
    for (const auto& [begin, end] : spans_of[stage]) {
      busy[stage] += std::max(0.0, end - std::max(begin, covered));
      covered = std::max(covered, end);
    }
    busy[stage] = std::min(busy[stage] / window, 1.0);
  }
  return busy;
}

Status Trace::write(const std::string& path) const {
  if (const auto error = write_whole(path, path.ends_with(".html") ? html() : chrome_json()))
    return runtime_error("cannot write the trace '" + path + "': " + error.message() +
                         "; name a file on a disk with room");
  return {};
}

}  // namespace sluice
