// The vocabulary in a file's metadata, checked for everything that libllama takes for granted.
#pragma once

#include "model/gguf.h"

namespace sluice {

struct VocabularyFacts {
  // libllama splits a text into words with std::regex, which recurses once or more for every character of a word.
  bool splits_recursively = false;
};

// Tokenizer kinds gpt2 (byte-level BPE), llama (SentencePiece) and gemma4 (BPE over characters, with tokens for single
// bytes). After success libllama loads the vocabulary and
// tokenizes any valid UTF-8 without assertion or exception. An error has no file name in it.
Result<VocabularyFacts> read_vocabulary(const gguf::Header& header);

}  // namespace sluice
