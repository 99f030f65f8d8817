#include "grammar/grammars.h"

#include <dlpack/dlpack.h>
#include <xgrammar/matcher.h>

#include <algorithm>
#include <ctime>
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

// Of this thread.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class ByGrammar final : public Constraint {
 public:
  ByGrammar(Compiled grammar, std::string begin, MatchingTime time)
      : grammar_(std::move(grammar)), begin_(std::move(begin)), time_(time), left_(time.beyond) {}

  void accept(Token token) override {
    timed([&] {
      if (ended() || !matcher().AcceptToken(token)) ++outside_;
    });
  }

  void take_back(size_t n) override {
    const size_t outside = std::min(n, outside_);
    outside_ -= outside;
    timed([&] { matcher().Rollback(static_cast<int>(n - outside)); });
  }

  const TokenMask* permitted() override {
    bool all = false;
    timed([&] { all = ended() || !fill_mask(); });
    if (all && !failed_) return nullptr;
    if (failed_) mask_.words.assign(n_words(), 0);
    if (std::ranges::all_of(mask_.words, [](int32_t word) { return word == 0; }))  // no token goes on
      for (const Token end : matcher().GetStopTokenIds()) mask_.add(end);
    return &mask_;
  }

  bool failed() const override { return failed_; }

 private:
  // Does it in the time that there is.
  template <class Do>
  void timed(Do act) {
    matcher();  // whose making is no matching
    if (failed_) return;
    const double begin = processor_seconds();
    try {
      act();
    } catch (const std::exception&) {
      failed_ = true;
    }
    left_ = std::min(left_ + time_.per_call - (processor_seconds() - begin), time_.beyond);
    failed_ = failed_ || left_ < 0.0;
  }

  bool ended() { return outside_ > 0 || matcher().IsTerminated(); }
  size_t n_words() const { return static_cast<size_t>(xgrammar::GetBitmaskSize(n_tokens_)); }

  // Whether there are tokens that may not come.
  bool fill_mask() {
    mask_.words.resize(n_words());
    int64_t shape = std::ssize(mask_.words);
    DLTensor tensor{.data = mask_.words.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    return matcher().FillNextTokenBitmask(&tensor);
  }

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
  const MatchingTime time_;
  double left_;                                      // of time_.beyond
  std::optional<xgrammar::GrammarMatcher> matcher_;  // once it is needed
  int n_tokens_ = 0;
  size_t outside_ = 0;  // tokens accepted behind the grammar's end, or where it could not go on
  TokenMask mask_;
  bool failed_ = false;  // the answer ends there, and nobody else's
};

}  // namespace

Constrain constrain_by(const VocabularyPlace& vocabulary, int32_t n_logits, MatchingTime time) {
  return [compiler = Compiler::of(vocabulary, n_logits),
          time](const AnswerGrammar& grammar) -> std::unique_ptr<Constraint> {
    const auto compile = [compiler, rules = grammar.rules] { return compiler->compile(rules); };
    return std::make_unique<ByGrammar>(std::async(std::launch::async, compile).share(), grammar.begin, time);
  };
}

void prepare(const AnswerGrammar& grammar, const VocabularyPlace& vocabulary, int32_t n_logits) {
  Compiler::of(vocabulary, n_logits)->compile(grammar.rules);
}

}  // namespace sluice
