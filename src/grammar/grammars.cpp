#include "grammar/grammars.h"

#include <dlpack/dlpack.h>
#include <xgrammar/matcher.h>

#include <algorithm>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "grammar/xgrammar_use.h"
#include "model/tokenizer.h"

namespace sluice {

namespace {

using Compiled = std::shared_future<xgrammar::CompiledGrammar>;

// Of a vocabulary, for all that a process does with it.
class Compiler {
 public:
  Compiler(VocabularyPlace vocabulary, int32_t n_logits) : vocabulary_(std::move(vocabulary)), n_logits_(n_logits) {}

  static std::shared_ptr<Compiler> of(const VocabularyPlace& vocabulary, int32_t n_logits) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, int32_t>, std::weak_ptr<Compiler>> all;
    const std::lock_guard lock(mutex);
    auto& known = all[{vocabulary.path, n_logits}];
    auto compiler = known.lock();
    if (compiler == nullptr) known = compiler = std::make_shared<Compiler>(vocabulary, n_logits);
    return compiler;
  }

  // What is known already comes at once, also while another grammar is compiled.
  xgrammar::CompiledGrammar compile(const std::string& rules) { return compiler().CompileGrammar(rules); }

 private:
  xgrammar::GrammarCompiler& compiler() {
    const std::lock_guard lock(mutex_);
    if (!compiler_) {
      const auto tokenizer = Tokenizer::load(vocabulary_);
      if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
      compiler_.emplace(make_compiler(tokens_of(*tokenizer, n_logits_)));
    }
    return *compiler_;
  }

  const VocabularyPlace vocabulary_;
  const int32_t n_logits_;
  std::mutex mutex_;
  std::optional<xgrammar::GrammarCompiler> compiler_;  // once there is a grammar
};

class ByGrammar final : public Constraint {
 public:
  ByGrammar(Compiled grammar, std::string begin) : grammar_(std::move(grammar)), begin_(std::move(begin)) {}

  void accept(Token token) override {
    if (ended() || !goes_on_with(token)) ++outside_;
  }

  void take_back(size_t n) override {
    const size_t outside = std::min(n, outside_);
    outside_ -= outside;
    matcher().Rollback(static_cast<int>(n - outside));
  }

  const TokenMask* permitted() override {
    if (!broken_ && ended()) return nullptr;
    auto& words = mask_.words;
    words.resize(static_cast<size_t>(xgrammar::GetBitmaskSize(n_tokens_)));
    int64_t shape = std::ssize(words);
    DLTensor tensor{.data = words.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    try {
      if (!broken_ && !matcher().FillNextTokenBitmask(&tensor)) return nullptr;
    } catch (const std::exception&) {
      broken_ = true;
    }
    if (broken_) words.assign(words.size(), 0);
    if (std::ranges::all_of(words, [](int32_t word) { return word == 0; }))  // no token goes on
      for (const Token end : matcher().GetStopTokenIds()) mask_.add(end);
    return &mask_;
  }

 private:
  bool goes_on_with(Token token) {
    try {
      return !broken_ && matcher().AcceptToken(token);
    } catch (const std::exception&) {
      broken_ = true;
      return false;
    }
  }
  bool ended() { return outside_ > 0 || matcher().IsTerminated(); }

  xgrammar::GrammarMatcher& matcher() {
    if (!matcher_) {
      const auto& grammar = grammar_.get();
      n_tokens_ = grammar.GetTokenizerInfo().GetVocabSize();
      matcher_.emplace(grammar);
      if (!begin_.empty() && !matcher_->AcceptString(begin_)) throw std::runtime_error("the grammar begins otherwise");
    }
    return *matcher_;
  }

  Compiled grammar_;
  std::string begin_;
  std::optional<xgrammar::GrammarMatcher> matcher_;  // once it is needed
  int n_tokens_ = 0;
  size_t outside_ = 0;  // tokens accepted behind the grammar's end, or where it could not go on
  TokenMask mask_;
  bool broken_ = false;  // the library has failed: the answer ends there, and nobody else's
};

}  // namespace

Constrain constrain_by(const VocabularyPlace& vocabulary, int32_t n_logits) {
  return [compiler = Compiler::of(vocabulary, n_logits)](const AnswerGrammar& grammar) -> std::unique_ptr<Constraint> {
    const auto compile = [compiler, rules = grammar.rules] { return compiler->compile(rules); };
    return std::make_unique<ByGrammar>(std::async(std::launch::async, compile).share(), grammar.begin);
  };
}

void prepare(const AnswerGrammar& grammar, const VocabularyPlace& vocabulary, int32_t n_logits) {
  Compiler::of(vocabulary, n_logits)->compile(grammar.rules);
}

}  // namespace sluice
