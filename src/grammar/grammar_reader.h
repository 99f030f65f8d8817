// Reads what a request's answer is to be, where it can do no harm.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model_file.h"
#include "model/tokenizer.h"
#include "wire/sampling.h"

namespace sluice {

// How a form of answers is written.
enum class GrammarKind : uint8_t {
  kJson,        // any JSON object
  kJsonSchema,  // properties that it doesn't name are not written, unless it has additionalProperties
  kRegex,       // of the whole answer
  kGbnf,        // rules `name ::= …`, of which `root` is the answer, as llama.cpp has them
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJson;
  std::string text;
  std::string begin = {};                     // AnswerGrammar::begin
  std::vector<GrammarTrigger> triggers = {};  // AnswerGrammar::triggers
};

// Grammars and schemas are not trusted: a helper process reads and compiles them, within bounds of time and memory.
//
// Thread safety: may be asked by several threads at once; they are served one after the other.
class GrammarReader {
 public:
  // For a model with this tokenizer. REQUIRES: the process has one thread (HelperProcess).
  static Result<GrammarReader> open(const ModelFile& model, const Tokenizer& tokenizer);

  // What any stage can compile, as it has been by the helper in time. What was read or refused lately is known. Errors
  // (kInput) say what is wrong with the source; others (kRuntime), why nothing can be read now.
  Result<AnswerGrammar> read(const GrammarSource& source) const;

  GrammarReader(GrammarReader&&) noexcept;
  GrammarReader& operator=(GrammarReader&&) noexcept;
  ~GrammarReader();

 private:
  struct State;
  explicit GrammarReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice
