// Vocabularies for the tiny models: every byte, the control tokens, and some words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::test {

struct TinyVocabulary {
  std::string model, pre;  // tokenizer.ggml.model; .pre is the caller's choice (empty: none)
  std::vector<std::string> tokens;
  std::vector<int32_t> types;       // llama_token_type, one a token
  std::vector<float> scores;        // llama
  std::vector<std::string> merges;  // gpt2, gemma4
  uint32_t bos = 0, eos = 0;
  bool adds_bos = false;
};

// "gpt2": <|endoftext|>, <|im_start|>, <|im_end|>, the 256 bytes in GPT-2's alphabet, then words, each reachable by
// merges. "llama": <unk>, <s>, </s>, <0x00> … <0xFF>, then letters and words. "gemma4": <pad>, <eos>, <bos>, <0x00> …
// <0xFF>, then letters, line ends and words, each reachable by merges.
TinyVocabulary tiny_vocabulary(const std::string& tokenizer, int32_t extra_tokens);

// How GPT-2's alphabet writes a byte: as a printable character, in UTF-8.
std::string gpt2_byte_text(uint8_t byte);

}  // namespace sluice::test
