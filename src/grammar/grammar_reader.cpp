#include "grammar/grammar_reader.h"

#include <xgrammar/matcher.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/helper_process.h"
#include "base/recent.h"
#include "grammar/gbnf.h"
#include "grammar/grammars.h"
#include "grammar/trigger_finder.h"
#include "grammar/xgrammar_use.h"
#include "wire/sampling.h"

namespace sluice {

namespace {

constexpr HelperProcess::Limits kLimits = {
    .cpu_seconds = 5, .memory_bytes = size_t{1} << 30, .answer_bytes = kLongestGrammar};
constexpr size_t kMostKnown = 64;    // grammars that need not be read again, and as many that are none
constexpr int kMostWhitespace = 20;  // in a row: models that are left alone with it write nothing else

// --- in the helper process ---

xgrammar::Grammar parse(GrammarKind kind, const std::string& source) {
  const auto of_schema = [](const std::string& schema, bool strict) {
    return xgrammar::Grammar::FromJSONSchema(schema, /*any_whitespace=*/true, {}, {}, strict, kMostWhitespace);
  };
  switch (kind) {
    case GrammarKind::kJson:
      return of_schema(R"({"type": "object"})", /*strict=*/false);
    case GrammarKind::kJsonSchema:
      return of_schema(source, /*strict=*/true);
    case GrammarKind::kRegex:
      return xgrammar::Grammar::FromRegex(source);
    case GrammarKind::kGbnf:
      break;
  }
  if (has_attributes(source)) throw std::invalid_argument("rules have no attributes here: leave out what is in [ ]");
  return xgrammar::Grammar::FromEBNF(ebnf_of(source));
}

// What an exception of the library says, in one line. It names a place of its own source first, or after "failed: ".
std::string one_line(std::string what) {
  if (const size_t at = what.find(": "); what.starts_with('[') && at != what.npos) what.erase(0, at + 2);
  std::ranges::replace_if(
      what, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  what.erase(std::min(what.find_last_not_of(' ') + 1, size_t{500}));
  return what;
}

Result<std::string> answer(xgrammar::GrammarCompiler& compiler, std::string_view question) {
  try {
    const auto kind = static_cast<GrammarKind>(question.front());
    const size_t end = question.find('\0', 1);  // of what comes before the answer
    const std::string rules = parse(kind, std::string(question.substr(end + 1))).ToString();
    xgrammar::GrammarMatcher matcher(compiler.CompileGrammar(rules));
    const std::string begin(question.substr(1, end - 1));
    if (!begin.empty() && !matcher.AcceptString(begin)) return input_error("it begins otherwise than the answer");
    return rules;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return input_error(one_line(error.what()));
  }
}

Status check(const std::vector<GrammarTrigger>& triggers) {
  try {
    const TriggerFinder finder(triggers);
    return {};
  } catch (const std::exception& error) {
    return input_error("what it begins with is no pattern: " + one_line(error.what()));
  }
}

}  // namespace

struct GrammarReader::State {
  explicit State(HelperProcess process) : helper(std::move(process)) {}

  const HelperProcess helper;
  Recent<AnswerGrammar> read{kMostKnown};  // by the question
  Recent<Error> refused{kMostKnown};       // likewise; reading them again may take as long as is allowed
};

GrammarReader::GrammarReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrammarReader::GrammarReader(GrammarReader&&) noexcept = default;
GrammarReader& GrammarReader::operator=(GrammarReader&&) noexcept = default;
GrammarReader::~GrammarReader() = default;

Result<GrammarReader> GrammarReader::open(const ModelFile& model, const Tokenizer& tokenizer) {
  const auto compiler =
      std::make_shared<xgrammar::GrammarCompiler>(make_compiler(tokens_of(tokenizer, model.n_logits())));
  const auto work = [compiler](std::string_view question) { return answer(*compiler, question); };
  SLUICE_TRY(auto helper, HelperProcess::start(work, kLimits));
  return GrammarReader(std::make_unique<State>(std::move(helper)));
}

Result<AnswerGrammar> GrammarReader::read(const GrammarSource& source) const {
  const std::string question = static_cast<char>(source.kind) + source.begin + '\0' + source.text;
  if (auto wrong = state_->refused.find(question)) return tl::unexpected<Error>(std::move(*wrong));
  auto known = state_->read.find(question);
  if (!known) {
    auto rules = state_->helper.ask(question);
    if (!rules && rules.error().kind == ErrorKind::kInput) state_->refused.keep(question, rules.error());
    if (!rules) return tl::unexpected<Error>(std::move(rules).error());
    known = {.rules = std::move(*rules), .begin = source.begin, .triggers = {}};
  }
  state_->read.keep(question, *known);
  SLUICE_TRY_STATUS(check(source.triggers));
  known->triggers = source.triggers;
  return std::move(*known);
}

}  // namespace sluice
