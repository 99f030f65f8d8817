// What happened when: every batch at every stage, every row's fate, every token; written as a Chrome trace or a
// timeline page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/ids.h"
#include "base/result.h"

namespace sluice {

// What became of a row in the end.
enum class Fate : uint8_t {
  kUnresolved,  // still in flight when the run ended
  kPrompt,      // prefill
  kAccepted,    // on the committed path
  kPruned,      // its branch died while the tree lived on
  kFlushed,     // the whole tree died: the target's token was not in it
  kDrafted,     // a draft model was asked what follows it
};
inline constexpr Choice<Fate> kFates[] = {{"unresolved", Fate::kUnresolved}, {"prompt", Fate::kPrompt},
                                          {"accepted", Fate::kAccepted},     {"pruned", Fate::kPruned},
                                          {"flushed", Fate::kFlushed},       {"drafted", Fate::kDrafted}};
inline const char* name(Fate fate) { return name_of(kFates, fate); }

struct TraceRow {
  NodeId node;  // none for prompt rows
  int32_t request = 0;
  Token token = kNoToken;
  std::string text;  // of the token
  int32_t position = 0;
  int32_t parent_row = -1;   // index in this batch of its parent, -1: entered earlier
  float probability = 1.0f;  // given its parent
  double log_path = 0.0;     // from the root at the time it entered
  Fate fate = Fate::kUnresolved;
  double resolved = -1;  // seconds; -1: never
};

struct TraceBatch {
  BatchId id;
  ModelId model = kTarget;
  double submitted = 0;  // seconds on the executor's clock
  std::vector<TraceRow> rows;
};

// A stage was busy with a batch.
struct TraceSpan {
  StageId stage;  // of the target; draft models' stages are numbered on from there
  BatchId batch;
  double begin = 0, end = 0;
  int32_t rows_computed = 0;  // the rest had been cancelled before
};

struct TraceEmission {
  double time = 0;
  int32_t request = 0;
  int32_t position = 0;
  std::string text;
  bool hit = true;  // false: the tree did not hold the token, and the pipeline was flushed
};

struct TraceHeader {
  std::string model, method, source, executor, profile;
  int32_t stages = 1;               // of the target
  std::vector<std::string> drafts;  // what the draft models' stages are called
  int32_t width = 1;
  double steps = 0;  // pipeline steps spent in decoding, as `run --json` counts them; 0: unknown
  std::vector<std::pair<int32_t, int32_t>> cuts;  // layers [first, last) of each stage
  double decode_begin = 0, decode_end = 0;        // seconds
  bool simulated = false;                         // the seconds are simulated ones
};

struct Trace {
  TraceHeader header;
  std::vector<TraceBatch> batches;  // by id
  std::vector<TraceSpan> spans;     // by end
  std::vector<TraceEmission> emissions;

  // Busy share of each stage between decode_begin and decode_end. [stages]
  std::vector<double> utilisation() const;

  std::string chrome_json() const;  // Chrome trace event format; opens in Perfetto
  std::string html() const;         // a self-contained page
  // Writes to `path`: the page if it ends in .html, else Chrome's format. The file is written beside its place and
  // renamed, so that no half-written trace is left behind; an error (a full disk, a missing folder) names the file.
  // kind kRuntime.
  Status write(const std::string& path) const;
};

}  // namespace sluice
