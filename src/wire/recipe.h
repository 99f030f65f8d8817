// What a stage is made of: enough for another process, on another host that has the files, to make it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/layer_range.h"
#include "wire/batch.h"

namespace sluice {

// kQ8_0: bytes in blocks of 32 of a head with a scale each, as ggml's type of that name; on processors alone.
enum class KvType : uint8_t { kF16, kF32, kQ8_0 };

// How hidden states go from a stage to the next. With kF16 they are rounded there, on every executor, so the text is
// another one; which, the cuts say.
enum class Activations : uint8_t { kF32, kF16 };

// This machine's processors, by kernels of our own. Others are ggml's ("ggml:cuda0"): compute/ggml_device.h.
inline constexpr const char* kCpuDevice = "cpu";

// Rows of every pass on a device of ggml's. CUDA's kernels for quantised weights are the same for 1 to 4 rows, so a row
// alone needs no more than its own time, and four take some 1.6 times as long (docs/devices.md).
inline constexpr int32_t kWidthLock = 4;
inline constexpr int32_t kMostWidthLock = 512;

// Of layers with a window: positions before it whose keys and values stay. A sequence can be cut back by so many, less
// the rows of a batch, which enter before they are computed.
inline constexpr int32_t kKeptBehind = 1024 + kMostRows;

// Layers of a model on one device.
struct StageOptions {
  LayerRange range;
  bool with_embedding = true;  // rows come as tokens
  bool with_head = true;       // logits can be asked
  int32_t n_logits = 0;        // of so many first tokens only; 0: all
  KvType kv = KvType::kF16;
  int32_t n_cells = 0;           // cells 0 … n_cells - 1 may be used
  int32_t max_rows = kMostRows;  // the widest batch
  int32_t threads = 1;
  // Rows may hold tokens of a larger vocabulary: their embedding is zero. (Else such a token ends the program.)
  bool foreign_tokens = false;
  std::vector<int32_t> taps;  // layers whose output is kept: tap l is the hidden state after layer l (0: the embedding)
  // Activations::kF16: the layers after which states go to another stage, and are rounded. Of all stages, so that a
  // stage knows how they come and how they leave, and a model that one stage computes alone says what all would.
  std::vector<int32_t> rounded = {};
  std::string device = kCpuDevice;
  int32_t width_lock = kWidthLock;  // on a device of ggml's; 0: passes have the rows that there are, and bits move
  int32_t longest_path = 0;         // tokens of one text, guesses included; 0: as many as there are cells
  int64_t expert_memory = 0;  // on the CPU: bytes for experts, of which those are there that were used last; 0: for all
  int32_t kept_behind = kKeptBehind;  // on the CPU; negative: all stay
  Activations activations() const { return rounded.empty() ? Activations::kF32 : Activations::kF16; }
  bool operator==(const StageOptions&) const = default;
};

// Where a model's weights are, and how to tell that they are the right ones.
struct WeightFiles {
  std::string path;
  std::string target;  // of a head, the draft model that is one included: the model that it belongs to; else empty
  Sha256 identity;     // of all that is computed with (docs/formats.md); zeros: whatever is there
  Sha256 target_identity = {};  // of a head on another host: of `target` alone
  bool operator==(const WeightFiles&) const = default;
};

struct StageRecipe {
  enum class Kind : uint8_t {
    kLayers,   // they are computed
    kNothing,  // a stage before the last of a model that is computed lazily
    kLazy,     // its last, with all layers: it computes what is asked for
    kHead,     // a trained head over the target's states
    // Of a model in other processes whose answers are stored, where messages have their true size:
    kZeros,   // a stage before the last: it passes on zeros for states
    kStored,  // its last, with all layers for what is not stored
  };
  StageId stage;
  Kind kind = Kind::kLayers;
  WeightFiles files;
  // Of a head: cells, threads, and what it borrows of its target (with_embedding, with_head).
  StageOptions options;
  bool last = true;  // of its model: it verifies, or guesses
  // 0: the target's. Else a draft model's or a head's, whose last stage gives so many candidates a row, of tokens below
  // `guessable`.
  int32_t candidates = 0, guessable = 0;
  int32_t guesses = 1;  // of a head that can: so many tokens in a row
  bool operator==(const StageRecipe&) const = default;
};

}  // namespace sluice
