// What can be chosen of each kind of head, and of the training itself. No libtorch here.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/ids.h"

namespace sluice {

enum class Attention : uint8_t { kSingle, kFull };
inline constexpr Choice<Attention> kAttentions[] = {{"single", Attention::kSingle}, {"full", Attention::kFull}};

// How many tokens are in flight in an example: half of the time n, else 1 … n - 1 alike (SPD appendix A.2), or few more
// often than many, as flushes leave them.
enum class Fill : uint8_t { kUniform, kFlushes };
inline constexpr Choice<Fill> kFills[] = {{"uniform", Fill::kUniform}, {"flushes", Fill::kFlushes}};

// How a head's layers begin: as the target's last on fitted states, as its last or first, at random (docs/training.md).
enum class Init : uint8_t { kLens, kLast, kFirst, kRandom };
inline constexpr Choice<Init> kSpdInits[] = {
    {"lens", Init::kLens}, {"last", Init::kLast}, {"first", Init::kFirst}, {"random", Init::kRandom}};
inline constexpr Choice<Init> kEagleInits[] = {{"last", Init::kLast}, {"random", Init::kRandom}};

// P-EAGLE's hidden state of the masked positions: one, or one for each depth (an ablation).
enum class MaskedState : uint8_t { kShared, kByDepth };
inline constexpr Choice<MaskedState> kMaskedStates[] = {{"shared", MaskedState::kShared},
                                                        {"depth", MaskedState::kByDepth}};

// Of products while training; parameters and everything else are f32.
enum class Precision : uint8_t { kF32, kBf16 };
inline constexpr Choice<Precision> kPrecisions[] = {{"f32", Precision::kF32}, {"bf16", Precision::kBf16}};

// Of exported matrices.
inline constexpr Choice<ggml_type> kMatrixTypes[] = {{"f16", GGML_TYPE_F16},   {"iq4_nl", GGML_TYPE_IQ4_NL},
                                                     {"q4_0", GGML_TYPE_Q4_0}, {"q5_0", GGML_TYPE_Q5_0},
                                                     {"q5_1", GGML_TYPE_Q5_1}, {"q8_0", GGML_TYPE_Q8_0}};

struct SpdOptions {
  std::vector<int32_t> cuts;  // n + 1: first layers of the stages, and the number of layers
  int32_t layers = 2;         // L_s
  Attention attention = Attention::kSingle;
  Fill fill = Fill::kUniform;
  bool feature_norm = true;
  Init init = Init::kLens;
  // Ablations of the paper.
  bool output_timing = false, single_depth = false, shared_fc = false;
};

struct Eagle3Options {
  std::vector<int32_t> taps;  // three; empty: 2, L/2, L-3
  int32_t unroll = 5;         // steps of the training-time test
  double decay = 0.8;         // weight of step i's loss is decay^i
  bool norm_before_fc = true;
  double hca = 0;           // weight of the harmonised context alignment loss; 0: off
  Init init = Init::kLast;  // or at random
};

// An early exit (PPSD) or a draft model: some layers over the states after one of the target's layers.
struct ShallowOptions {
  bool draft = false;           // from the embedding, as a model of its own; else an exit
  int32_t input = 0;            // l: the states H^l
  std::vector<int32_t> layers;  // of the target, that the head's begin as; may be empty for an exit
  bool random = false;          // begin at random instead
  int32_t stages = 10;          // of PPSD's pipeline, for its evaluation
};

struct PEagleOptions {
  std::vector<int32_t> taps;  // three; empty: 2, L/2, L-3
  int32_t layers = 2;
  int32_t groups = 8;      // K_train: depths trained, the next-token depth 0 included
  double retention = 0.8;  // r of COD: depth d keeps a share r^d of its positions
  int32_t segments = 1;    // of a sequence, with gradients accumulated
  MaskedState hidden = MaskedState::kShared;
  bool train_embedding = false;  // unfreeze the whole token embedding, not only the mask row
  int32_t evaluate_depths = 7;
  Init init = Init::kLast;  // or at random
};

struct TrainOptions {
  std::vector<std::string> corpora;  // folders, one after another
  std::string out;                   // folder
  std::string from;                  // exported head whose weights and draft vocabulary it begins with; empty: none
  int64_t tokens = 1'000'000;        // answer tokens to train on; more than the corpus holds means several epochs
  int32_t batch = 1;                 // examples a step
  double lr = 1e-3;
  double warmup = 0.03;  // share of the tokens
  double clip = 1.0;     // of the gradient's norm
  double weight_decay = 0.01;
  double beta2 = 0.95;                // of AdamW
  int32_t draft_vocab = 4096;         // 0: the whole vocabulary
  int32_t max_tokens = 768;           // of an example
  int64_t evaluate_every = 50'000;    // tokens
  int64_t checkpoint_every = 50'000;  // tokens
  int32_t held_out = 40;              // examples of an evaluation
  Precision dtype = Precision::kF32;
  uint64_t seed = 0;
  int32_t threads = 0;
  bool overlap = true;                   // capture the next example while training on this one
  ggml_type type = GGML_TYPE_F16;        // of the exported matrices
  std::optional<ggml_type> output_type;  // of the output matrix, if another than that
};

}  // namespace sluice
