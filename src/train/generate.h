// The target answers prompts, many at a time, and what it says becomes the corpus.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "train/corpus.h"
#include "train/exclusion.h"
#include "train/jobs.h"

namespace sluice {

struct GenerateOptions {
  int64_t tokens = 1'000'000;  // answer tokens wanted in all, those of earlier runs included
  int32_t concurrency = 32;    // requests at a time
  int32_t max_answer = 384, max_prompt = 384;
  int32_t top_k = 50;
  uint64_t seed = 0;
  std::string method = "ar";
  std::vector<SourceKind> sources;
};

// How a prompt begins that the target writes itself.
struct Opening {
  std::string text;           // of the prompt; may be empty
  std::vector<Token> tokens;  // the chat template's opening of a user turn, and the text
};

// What the caller knows of models and users.
struct GenerateHooks {
  std::function<Result<std::vector<Token>>(const std::string& prompt)> encode;  // chat template applied
  std::vector<Opening> openings;
  std::function<bool()> interrupted;
  std::function<void(int64_t tokens, double tokens_per_second)> progress;
};

struct GenerateFigures {
  int64_t answers = 0, tokens = 0;  // of this run
  double seconds = 0;
  int64_t excluded = 0;  // prompts that held a benchmark question
  int64_t too_long = 0;  // prompts
  int64_t unfinished =
      0;  // prompts of the target itself that it did not end, left empty, wrote before, or that are no text
};

// Errors leave what was written before. An interrupt drops the answers under way.
Result<GenerateFigures> generate(Engine& engine, const Tokenizer& tokenizer, JobList& jobs, CorpusWriter& corpus,
                                 const Exclusion& exclusion, const GenerateOptions& options,
                                 const GenerateHooks& hooks);

// What all the user turns that begin with `text` begin with: the tokens that two conversations have in common whose
// messages have no more in common.
Result<Opening> opening_of_user_turn(const std::string& text,
                                     const std::function<Result<std::vector<Token>>(const std::string&)>& encode);

// How many examples hold a benchmark question, in prompt or answer.
int64_t count_excluded(const Corpus& corpus, const Tokenizer& tokenizer, const Exclusion& exclusion);

}  // namespace sluice
