// The text of --ngram-corpus.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/tokenizer.h"
#include "source/known_text.h"

namespace sluice {

// Reads plain text and makes it what n-grams can use. Errors (kInput) name the file: it can't be read, is empty, longer
// than policy::kLongestCorpus, or not UTF-8.
Result<std::shared_ptr<const KnownText>> read_corpus(const std::string& path, const Tokenizer& tokenizer);

}  // namespace sluice
