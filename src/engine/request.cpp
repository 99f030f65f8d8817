#include "engine/request.h"

#include <algorithm>
#include <utility>

namespace sluice {

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
  }
  return "?";
}

Request::Request(RequestId request_id, SequenceId sequence_id, RequestSpec request_spec)
    : id(request_id),
      sequence(sequence_id),
      spec(std::move(request_spec)),
      tokens(spec.prompt),
      speculation{.tree = TokenTree(spec.prompt.back(), static_cast<int32_t>(spec.prompt.size()) - 1), .target = {}} {
  stats.prompt_tokens = static_cast<int64_t>(spec.prompt.size());
}

size_t Request::cells_to_come() const {
  if (finish != Finish::kNone) return 0;
  const size_t taken = cells.size() + (speculation.target.entered(speculation.tree.root().id) ? 1 : 0);
  return reserved_cells - std::min(reserved_cells, taken);
}

}  // namespace sluice
