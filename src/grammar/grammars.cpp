#include "grammar/grammars.h"

#include <dlpack/dlpack.h>
#include <xgrammar/matcher.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "grammar/trigger_finder.h"
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
  xgrammar::CompiledGrammar compile(const std::string& rules) { return loaded().compiler.CompileGrammar(rules); }

  // Of control tokens too: some of them are triggers.
  std::string piece(Token token) { return loaded().tokenizer.piece(token, /*special=*/true); }

 private:
  struct Loaded {
    Tokenizer tokenizer;
    xgrammar::GrammarCompiler compiler;
  };

  Loaded& loaded() {
    const std::lock_guard lock(mutex_);
    if (!loaded_) {
      auto tokenizer = Tokenizer::load(vocabulary_);
      if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
      auto compiler = make_compiler(tokens_of(*tokenizer, n_logits_));
      loaded_.emplace(Loaded{std::move(*tokenizer), std::move(compiler)});
    }
    return *loaded_;
  }

  const VocabularyPlace vocabulary_;
  const int32_t n_logits_;
  std::mutex mutex_;
  std::optional<Loaded> loaded_;  // once there is a grammar
};

// Of this thread.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class ByGrammar final : public Constraint {
 public:
  // What the answer begins with has been read with the grammar; or else, of what a trigger begins, all may follow.
  enum class Begin : uint8_t { kIsOfIt, kMayBeOfIt };

  ByGrammar(Compiled grammar, std::string begin, Begin is, MatchingTime time)
      : grammar_(std::move(grammar)), begin_(std::move(begin)), is_(is), time_(time), left_(time.beyond) {}

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
      if (!begin_.empty() && !matcher_->AcceptString(begin_)) {
        if (is_ == Begin::kIsOfIt) throw std::runtime_error("the grammar begins otherwise");
        ++outside_;
      }
    }
    return *matcher_;
  }

  Compiled grammar_;
  std::string begin_;
  const Begin is_;
  const MatchingTime time_;
  double left_;                                      // of time_.beyond
  std::optional<xgrammar::GrammarMatcher> matcher_;  // once it is needed
  int n_tokens_ = 0;
  size_t outside_ = 0;  // tokens accepted behind the grammar's end, or where it could not go on
  TokenMask mask_;
  bool failed_ = false;  // the answer ends there, and nobody else's
};

// Until a trigger comes all may come; from its place on, what the grammar permits.
class FromTrigger final : public Constraint {
 public:
  using Piece = std::function<std::string(Token)>;
  // The constraint of an answer that goes on behind a text with which the grammar begins.
  using Begin = std::function<std::unique_ptr<Constraint>(std::string)>;

  FromTrigger(std::vector<GrammarTrigger> triggers, Piece piece, Begin begin)
      : triggers_(std::move(triggers)), piece_(std::move(piece)), begin_(std::move(begin)) {}

  void accept(Token token) override {
    ++n_;
    if (grammar_ != nullptr) return grammar_->accept(token);
    const std::string piece = piece_(token);
    text_ += piece;
    ends_.push_back(text_.size());
    if (const auto place = find(piece.size())) grammar_ = begin_(text_.substr(*place));
  }

  void take_back(size_t n) override {
    n_ -= n;
    if (n_ >= ends_.size()) return grammar_ != nullptr ? grammar_->take_back(n) : void();
    if (n > 0) grammar_.reset();
    ends_.resize(n_);
    text_.resize(ends_.empty() ? 0 : ends_.back());
  }

  const TokenMask* permitted() override { return grammar_ != nullptr ? grammar_->permitted() : nullptr; }
  bool failed() const override { return grammar_ != nullptr && grammar_->failed(); }

 private:
  // A pattern that is none, which a reader of grammars refuses, or takes too long has not come.
  std::optional<size_t> find(size_t fresh) {
    try {
      if (!finder_) finder_.emplace(triggers_);
      return finder_->find(text_, fresh);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  const std::vector<GrammarTrigger> triggers_;
  std::optional<TriggerFinder> finder_;
  const Piece piece_;
  const Begin begin_;
  size_t n_ = 0;                         // tokens
  std::vector<size_t> ends_;             // of those up to the one with which the trigger came, in
  std::string text_;                     // what they say
  std::unique_ptr<Constraint> grammar_;  // once it has come
};

}  // namespace

Constrain constrain_by(const VocabularyPlace& vocabulary, int32_t n_logits, MatchingTime time) {
  return [compiler = Compiler::of(vocabulary, n_logits),
          time](const AnswerGrammar& grammar) -> std::unique_ptr<Constraint> {
    const auto compile = [compiler, rules = grammar.rules] { return compiler->compile(rules); };
    const Compiled compiled = std::async(std::launch::async, compile).share();
    if (grammar.triggers.empty())
      return std::make_unique<ByGrammar>(compiled, grammar.begin, ByGrammar::Begin::kIsOfIt, time);
    const auto piece = [compiler](Token token) { return compiler->piece(token); };
    const auto begin = [compiled, time](std::string text) {
      return std::make_unique<ByGrammar>(compiled, std::move(text), ByGrammar::Begin::kMayBeOfIt, time);
    };
    return std::make_unique<FromTrigger>(grammar.triggers, piece, begin);
  };
}

void prepare(const AnswerGrammar& grammar, const VocabularyPlace& vocabulary, int32_t n_logits) {
  Compiler::of(vocabulary, n_logits)->compile(grammar.rules);
}

}  // namespace sluice
