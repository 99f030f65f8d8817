// libllama on the same file: what a StageRunner's logits are compared with.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "compute/logits.h"

namespace sluice::test {

class Oracle {
 public:
  // Keys and values in f32, no flash attention.
  explicit Oracle(const std::string& path, int32_t context);

  int32_t n_vocab() const;

  // Teacher-forced logits of one text, computed in batches of `width` tokens. May be called by several threads at once.
  Logits logits(std::span<const Token> tokens, int32_t width);

  // Those of the layer that predicts one token further, after tokens[1], tokens[2], … each beside the target's state of
  // the token before; then after n tokens more, the likeliest ones by itself, each beside its own state.
  Logits further_logits(std::span<const Token> tokens, int32_t n);

 private:
  struct Free {
    void operator()(llama_model* m) const { llama_model_free(m); }
  };
  std::unique_ptr<llama_model, Free> model_;
  int32_t context_;
};

// Writes the model at `from` to `to` with every weight as f32, to the value it has: libllama then computes with
// activations that are not rounded.
void write_as_f32(const std::string& from, const std::string& to);

}  // namespace sluice::test
