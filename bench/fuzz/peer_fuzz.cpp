// libFuzzer target: whatever bytes come over a connection to a stage, cut anywhere, they are refused, or are a hello
// and then messages that break nothing of what a stage keeps; never a crash, and no more is held than a peer may have
// held.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "compute/paths.h"
#include "pipeline/frame_check.h"
#include "pipeline/journal.h"
#include "transport/chunks.h"
#include "wire/codec.h"

namespace {

using namespace sluice;

constexpr size_t kMostGreeting = 4096, kMostFrame = size_t{1} << 20;  // bytes
constexpr int32_t kCells = 48, kState = 4;

void require(bool what) {
  if (!what) std::abort();
}

HeadParameters head() {
  HeadParameters head{.kind = HeadKind::kEagle3, .taps = {{1, 2, 3}}};
  head.hparams.d_model = kState;
  return head;
}

// What a stage, or a head, does with messages before it computes.
class Stage {
 public:
  bool take(const Batch& batch) {
    if (!frames_.check(batch)) return false;
    for (const PathUpdate& update : batch.updates) paths_.apply(update);
    for (const Row& row : batch.rows) {
      paths_.enter(row);
      static_cast<void>(journal_.finds(row));
    }
    return finds_all(batch);
  }
  bool take(const Amendment& amendment) { return frames_.check(amendment).has_value(); }
  bool take(const Taps& taps) { return to_head_.check(taps).has_value(); }
  template <class Other>
  bool take(const Other&) {
    return false;
  }

 private:
  // A broken invariant ends the stage, as in a host (HeldStage::run).
  bool finds_all(const Batch& batch) const {
    Path path;
    try {
      for (const Row& row : batch.rows) {
        paths_.find(row, path);
        require(path.size() == row.position + 1 && path[row.position] == row.cell);
      }
    } catch (const BrokenInvariant&) {
      return false;
    }
    return true;
  }

  FrameCheck frames_{{.n_cells = kCells, .max_rows = 16, .n_tokens = 64, .d_state = kState, .head = {}}};
  FrameCheck to_head_{{.n_cells = kCells, .max_rows = 16, .n_tokens = 64, .head = head()}};
  Paths paths_{kCells};
  Journal journal_{kCells, kState, 1 << 10};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = size_t{1} + data[0] * size_t{16};  // bytes that come at a time
  auto left = std::as_bytes(std::span(data, size)).subspan(1);
  ChunkReader reader(kMostGreeting);
  Stage stage;
  bool greeted = false, refused = false;
  const ChunkReader::Sink sink{.frame =
                                   [&](Bytes frame, Priority) {
                                     require(frame.size() <= (greeted ? kMostFrame : kMostGreeting));
                                     const auto message = decode(frame);
                                     if (!message || refused) return void(refused = true);
                                     if (greeted) {
                                       refused =
                                           !std::visit([&](const auto& what) { return stage.take(what); }, *message);
                                     } else {
                                       greeted = std::holds_alternative<Hello>(*message);
                                       refused = !greeted;
                                       if (greeted) reader.set_most(kMostFrame);
                                     }
                                   },
                               .beat = [](uint64_t) {}};
  while (!left.empty() && !refused) {
    const auto next = left.first(std::min(piece, left.size()));
    if (!reader.take(next, sink)) break;
    left = left.subspan(next.size());
  }
  return 0;
}
