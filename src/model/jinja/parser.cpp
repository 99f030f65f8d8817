#include "model/jinja/parser.h"

#include <algorithm>
#include <set>

#include "model/jinja/lexer.h"

namespace sluice::jinja {
namespace {

using Kind = Token::Kind;
using Names = std::initializer_list<std::string_view>;

// Deep enough for any template that people write, and shallow enough for the stack. It bounds the parser's recursion
// and the depth of the trees it makes, which differ: a chain such as a + b + … nests to the left without recursion.
constexpr int kMaxDepth = 200;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body run() {
    Body body = statements({});
    if (now().kind != Kind::kEnd) error("unexpected " + describe(now()));
    return body;
  }

 private:
  // --- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    const size_t at = at_;
    at_ = std::min(at_ + 1, tokens_.size() - 1);
    return tokens_[at];
  }
  bool is(Kind kind, std::string_view text) const { return now().kind == kind && now().text == text; }
  bool is_op(std::string_view text) const { return is(Kind::kOperator, text); }
  bool is_word(std::string_view text) const { return is(Kind::kName, text); }
  bool skip_op(std::string_view text) { return is_op(text) && (take(), true); }
  bool skip_word(std::string_view text) { return is_word(text) && (take(), true); }
  void expect_op(std::string_view text) {
    if (!skip_op(text)) error("expected '" + std::string(text) + "', got " + describe(now()));
  }
  std::string expect_name() {
    if (now().kind != Kind::kName) error("expected a name, got " + describe(now()));
    return take().text;
  }
  void expect_block_end() {
    if (now().kind != Kind::kBlockEnd) error("expected the end of the statement, got " + describe(now()));
    take();
  }
  [[noreturn]] void error(std::string message) const { throw TemplateError{std::move(message), now().line}; }
  static std::string describe(const Token& token) {
    switch (token.kind) {
      case Kind::kData:
        return "text";
      case Kind::kPrintBegin:
        return "'{{'";
      case Kind::kPrintEnd:
        return "'}}'";
      case Kind::kBlockBegin:
        return "'{%'";
      case Kind::kBlockEnd:
        return "'%}'";
      case Kind::kEnd:
        return "the end of the template";
      default:
        return "'" + token.text.substr(0, 40) + "'";
    }
  }

  struct Deeper {
    explicit Deeper(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kMaxDepth) parser.error("the template nests too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  // --- statements

  // Up to the tag that begins with one of `ends` (whose name is then the current token), or the end of the template.
  Body statements(Names ends) {
    const Deeper deeper(*this);
    Body body;
    while (now().kind != Kind::kEnd) {
      const Token token = take();
      if (token.kind == Kind::kData) {
        auto text = make(Statement::Kind::kText, token.line);
        text->text = token.text;
        body.push_back(std::move(text));
      } else if (token.kind == Kind::kPrintBegin) {
        auto print = make(Statement::Kind::kPrint, token.line);
        print->expr = tuple();
        if (now().kind != Kind::kPrintEnd) error("expected '}}', got " + describe(now()));
        take();
        body.push_back(std::move(print));
      } else if (token.kind == Kind::kBlockBegin) {
        if (now().kind != Kind::kName) error("expected a statement, got " + describe(now()));
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return body;
        body.push_back(statement());
        expect_block_end();
      } else {
        error("unexpected " + describe(token));
      }
    }
    if (ends.size() > 0) error("expected '" + std::string(*(ends.end() - 1)) + "', got the end of the template");
    return body;
  }

  static std::unique_ptr<Statement> make(Statement::Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  // The body of a statement whose head has just been read, and its end tag's name.
  Body block(std::string_view end) {
    expect_block_end();
    Body body = statements({end});
    take();
    return body;
  }

  std::unique_ptr<const Statement> statement() {
    const Token word = take();
    if (word.text == "set") return set(word.line);
    if (word.text == "for") return for_loop(word.line);
    if (word.text == "if") return if_else(word.line);
    if (word.text == "macro") return macro(word.line);
    if (word.text == "call") return call_block(word.line);
    if (word.text == "with") return with(word.line);
    if (word.text == "filter") {
      auto result = make(Statement::Kind::kFilterBlock, word.line);
      result->expr = filters(nullptr, true);
      result->body = block("endfilter");
      return result;
    }
    if (word.text == "generation") {
      auto result = make(Statement::Kind::kScope, word.line);
      result->body = block_without_loop("endgeneration");
      return result;
    }
    if (word.text == "break" || word.text == "continue") {
      if (loops_ == 0) error("'" + word.text + "' outside of a loop");
      return make(word.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, word.line);
    }
    throw TemplateError{"unknown statement '" + word.text.substr(0, 40) + "'", word.line};
  }

  // Macros and blocks that become macros end the reach of break and continue.
  Body block_without_loop(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body result = block(end);
    loops_ = loops;
    return result;
  }

  std::unique_ptr<const Statement> set(int line) {
    auto target = assignment_target(true);
    if (skip_op("=")) {
      auto result = make(Statement::Kind::kSet, line);
      result->target = std::move(target);
      result->expr = tuple();
      return result;
    }
    auto result = make(Statement::Kind::kSetBlock, line);
    result->target = std::move(target);
    if (is_op("|")) result->expr = filters(nullptr, false);
    result->body = block("endset");
    return result;
  }

  std::unique_ptr<const Statement> for_loop(int line) {
    auto result = make(Statement::Kind::kFor, line);
    result->target = assignment_target(false);
    if (!skip_word("in")) error("expected 'in', got " + describe(now()));
    result->expr = tuple(false);
    if (skip_word("if")) result->condition = expression();
    if (is_word("recursive")) error("recursive loops are not supported");
    expect_block_end();
    ++loops_;
    result->body = statements({"else", "endfor"});
    --loops_;
    if (take().text == "else") result->otherwise = block("endfor");
    return result;
  }

  std::unique_ptr<const Statement> if_else(int line) {
    auto result = make(Statement::Kind::kIf, line);
    for (std::string word = "elif"; word != "endif"; word = take().text) {
      if (word == "else") {
        result->otherwise = block("endif");
        break;
      }
      auto condition = tuple(false);
      expect_block_end();
      auto body = statements({"elif", "else", "endif"});
      result->branches.emplace_back(std::move(condition), std::move(body));
    }
    return result;
  }

  void signature(Statement& result) {
    expect_op("(");
    while (!is_op(")")) {
      if (!result.parameters.empty()) expect_op(",");
      if (is_op(")")) error("expected a name, got ')'");
      std::string name = expect_name();
      ExprPtr otherwise;
      if (skip_op("=")) {
        otherwise = expression();
      } else if (!result.parameters.empty() && result.parameters.back().second) {
        error("a parameter without default after one with");
      }
      result.parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    expect_op(")");
  }

  // Reads a macro's body and notes which special names it mentions.
  void macro_body(Statement& result, std::string_view end) {
    const size_t begin = at_;
    result.body = block_without_loop(end);
    for (size_t i = begin; i < at_; ++i) {
      if (tokens_[i].kind != Kind::kName) continue;
      result.uses_varargs |= tokens_[i].text == "varargs";
      result.uses_kwargs |= tokens_[i].text == "kwargs";
      result.uses_caller |= tokens_[i].text == "caller";
    }
  }

  std::unique_ptr<const Statement> macro(int line) {
    auto result = make(Statement::Kind::kMacro, line);
    result->text = expect_name();
    signature(*result);
    macro_body(*result, "endmacro");
    return result;
  }

  std::unique_ptr<const Statement> call_block(int line) {
    auto result = make(Statement::Kind::kCallBlock, line);
    if (is_op("(")) signature(*result);
    result->text = "caller";
    result->expr = expression();
    if (result->expr->kind != Expr::Kind::kCall) error("expected a call");
    macro_body(*result, "endcall");
    return result;
  }

  std::unique_ptr<const Statement> with(int line) {
    auto result = make(Statement::Kind::kWith, line);
    while (now().kind != Kind::kBlockEnd) {
      if (!result->parameters.empty()) expect_op(",");
      std::string name = expect_name();
      expect_op("=");
      result->parameters.emplace_back(std::move(name), expression());
    }
    result->body = block("endwith");
    return result;
  }

  // a | a, b | (a, b), c | namespace.attribute
  ExprPtr assignment_target(bool with_namespace) {
    const Deeper deeper(*this);
    std::vector<ExprPtr> targets;
    bool is_tuple = false;
    const int line = now().line;
    while ((now().kind == Kind::kName && !(is_word("in") && !targets.empty())) || is_op("(")) {
      targets.push_back(is_op("(") ? parenthesised_target(with_namespace) : name_target(with_namespace));
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (targets.empty()) error("expected a name to assign to, got " + describe(now()));
    if (!is_tuple) return std::move(targets[0]);
    auto result = node(Expr::Kind::kTuple, line);
    result->args = std::move(targets);
    return finish(std::move(result));
  }

  ExprPtr parenthesised_target(bool with_namespace) {
    expect_op("(");
    ExprPtr target = assignment_target(with_namespace);
    expect_op(")");
    return target;
  }

  ExprPtr name_target(bool with_namespace) {
    static const std::set<std::string_view> kConstants = {"true", "false", "none", "True", "False", "None"};
    auto name = node(Expr::Kind::kName);
    name->name = take().text;
    if (kConstants.contains(name->name)) error("can't assign to '" + name->name + "'");
    if (with_namespace && skip_op(".")) {
      name->kind = Expr::Kind::kNamespaceTarget;
      name->constant = Value(expect_name());
    }
    return name;
  }

  // --- expressions, loosest first

  std::unique_ptr<Expr> node(Expr::Kind kind, int line = 0) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line ? line : now().line;
    return expr;
  }
  // To be called once a node has its children.
  ExprPtr finish(std::unique_ptr<Expr> expr) const {
    const auto above = [&](const ExprPtr& child) {
      if (child) expr->depth = std::max(expr->depth, child->depth + 1);
    };
    for (const auto& child : expr->args) above(child);
    for (const auto& [name, child] : expr->named) above(child);
    above(expr->star);
    above(expr->double_star);
    if (expr->depth > kMaxDepth) throw TemplateError{"an expression nests too deeply", expr->line};
    return expr;
  }
  template <class... Args>
  std::unique_ptr<Expr> open_node(Expr::Kind kind, int line, std::string name, Args... args) const {
    auto expr = node(kind, line);
    expr->name = std::move(name);
    (expr->args.push_back(std::move(args)), ...);
    return expr;
  }
  template <class... Args>
  ExprPtr node_of(Expr::Kind kind, int line, std::string name, Args... args) const {
    return finish(open_node(kind, line, std::move(name), std::move(args)...));
  }

  bool at_tuple_end() const {
    return now().kind == Kind::kPrintEnd || now().kind == Kind::kBlockEnd || is_op(")") || is_word("recursive");
  }

  // An expression, or a tuple when commas follow.
  ExprPtr tuple(bool with_conditional = true, bool parentheses = false) {
    const int line = now().line;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    while (!at_tuple_end()) {
      items.push_back(with_conditional ? expression() : disjunction());
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && items.size() == 1) return std::move(items[0]);
    if (items.empty() && !parentheses) error("expected an expression, got " + describe(now()));
    auto result = node(Expr::Kind::kTuple, line);
    result->args = std::move(items);
    return finish(std::move(result));
  }

  ExprPtr expression() {
    const Deeper deeper(*this);
    const int line = now().line;
    ExprPtr value = disjunction();
    while (skip_word("if")) {
      ExprPtr condition = disjunction();
      ExprPtr otherwise = skip_word("else") ? expression() : nullptr;
      value = node_of(Expr::Kind::kConditional, line, "", std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }

  ExprPtr disjunction() {
    ExprPtr left = conjunction();
    while (is_word("or")) {
      const int line = take().line;
      ExprPtr right = conjunction();
      left = node_of(Expr::Kind::kOr, line, "", std::move(left), std::move(right));
    }
    return left;
  }

  ExprPtr conjunction() {
    ExprPtr left = negation();
    while (is_word("and")) {
      const int line = take().line;
      ExprPtr right = negation();
      left = node_of(Expr::Kind::kAnd, line, "", std::move(left), std::move(right));
    }
    return left;
  }

  ExprPtr negation() {
    const Deeper deeper(*this);
    if (!is_word("not")) return comparison();
    const int line = take().line;
    return node_of(Expr::Kind::kUnary, line, "not", negation());
  }

  ExprPtr comparison() {
    static const std::set<std::string_view> kOperators = {"==", "!=", "<", "<=", ">", ">="};
    const int line = now().line;
    ExprPtr first = sum();
    auto result = node(Expr::Kind::kCompare, line);
    while (true) {
      if (now().kind == Kind::kOperator && kOperators.contains(now().text)) {
        result->ops.push_back(take().text);
      } else if (skip_word("in")) {
        result->ops.push_back("in");
      } else if (is_word("not") && next().kind == Kind::kName && next().text == "in") {
        take();
        take();
        result->ops.push_back("not in");
      } else {
        break;
      }
      if (result->args.empty()) result->args.push_back(std::move(first));
      result->args.push_back(sum());
    }
    if (result->ops.empty()) return first;
    return finish(std::move(result));
  }

  // Binary operators of one precedence, to the left.
  template <class Operand>
  ExprPtr binary(Names operators, Operand operand) {
    ExprPtr left = operand();
    while (now().kind == Kind::kOperator &&
           std::find(operators.begin(), operators.end(), now().text) != operators.end()) {
      const Token op = take();
      ExprPtr right = operand();
      left = node_of(Expr::Kind::kBinary, op.line, op.text, std::move(left), std::move(right));
    }
    return left;
  }

  ExprPtr sum() {
    return binary({"+", "-"}, [&] { return concatenation(); });
  }

  ExprPtr concatenation() {
    const int line = now().line;
    ExprPtr first = product();
    if (!is_op("~")) return first;
    auto result = open_node(Expr::Kind::kConcat, line, "", std::move(first));
    while (skip_op("~")) result->args.push_back(product());
    return finish(std::move(result));
  }

  ExprPtr product() {
    return binary({"*", "/", "//", "%"}, [&] { return binary({"**"}, [&] { return unary(true); }); });
  }

  ExprPtr unary(bool with_filters) {
    const Deeper deeper(*this);
    ExprPtr value;
    if (is_op("-") || is_op("+")) {
      const Token op = take();
      value = node_of(Expr::Kind::kUnary, op.line, op.text, unary(false));
    } else {
      value = primary();
    }
    while (true) {
      if (is_op(".") || is_op("[")) {
        value = subscript(std::move(value));
      } else if (is_op("(")) {
        value = call(std::move(value));
      } else {
        break;
      }
    }
    if (!with_filters) return value;
    while (true) {
      if (is_op("|")) {
        value = filters(std::move(value), false);
      } else if (is_word("is")) {
        value = test(std::move(value));
      } else if (is_op("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExprPtr primary() {
    const Token token = take();
    auto constant = node(Expr::Kind::kConstant, token.line);
    switch (token.kind) {
      case Kind::kName:
        if (token.text == "true" || token.text == "True") {
          constant->constant = Value(true);
        } else if (token.text == "false" || token.text == "False") {
          constant->constant = Value(false);
        } else if (token.text == "none" || token.text == "None") {
          constant->constant = Value(None{});
        } else {
          constant->kind = Expr::Kind::kName;
          constant->name = token.text;
        }
        return constant;
      case Kind::kString: {
        std::string text = token.text;
        while (now().kind == Kind::kString) text += take().text;
        constant->constant = Value(std::move(text));
        return constant;
      }
      case Kind::kInteger:
        constant->constant = Value(token.integer);
        return constant;
      case Kind::kFloat:
        constant->constant = Value(token.number);
        return constant;
      case Kind::kOperator:
        if (token.text == "(") {
          const Deeper deeper(*this);
          ExprPtr value = tuple(true, true);
          expect_op(")");
          return value;
        }
        if (token.text == "[") return list(token.line);
        if (token.text == "{") return dict(token.line);
        [[fallthrough]];
      default:
        throw TemplateError{"unexpected " + describe(token), token.line};
    }
  }

  ExprPtr list(int line) {
    auto result = node(Expr::Kind::kList, line);
    while (!is_op("]")) {
      result->args.push_back(expression());
      if (!is_op("]")) expect_op(",");
    }
    take();
    return finish(std::move(result));
  }

  ExprPtr dict(int line) {
    auto result = node(Expr::Kind::kDict, line);
    while (!is_op("}")) {
      result->args.push_back(expression());
      expect_op(":");
      result->args.push_back(expression());
      if (!is_op("}")) expect_op(",");
    }
    take();
    return finish(std::move(result));
  }

  ExprPtr subscript(ExprPtr object) {
    const Token token = take();
    if (token.text == ".") {
      if (now().kind == Kind::kName) {
        return node_of(Expr::Kind::kAttribute, token.line, take().text, std::move(object));
      }
      if (now().kind != Kind::kInteger) error("expected a name or number after '.'");
      auto index = node(Expr::Kind::kConstant);
      index->constant = Value(take().integer);
      return node_of(Expr::Kind::kItem, token.line, "", std::move(object), ExprPtr(std::move(index)));
    }
    std::vector<ExprPtr> indices;
    bool slices = false;
    while (!is_op("]")) {
      if (!indices.empty()) expect_op(",");
      indices.push_back(slice());
      slices |= indices.back()->kind == Expr::Kind::kSlice;
    }
    take();
    if (indices.size() == 1)
      return node_of(Expr::Kind::kItem, token.line, "", std::move(object), std::move(indices[0]));
    if (slices) throw TemplateError{"a slice among several subscripts is not supported", token.line};
    auto result = node(Expr::Kind::kTuple, token.line);
    result->args = std::move(indices);
    return node_of(Expr::Kind::kItem, token.line, "", std::move(object), finish(std::move(result)));
  }

  ExprPtr slice() {
    const int line = now().line;
    ExprPtr start = is_op(":") ? nullptr : expression();
    if (!skip_op(":")) return start;
    const auto part = [&] { return is_op(":") || is_op("]") || is_op(",") ? nullptr : expression(); };
    ExprPtr stop = part();
    ExprPtr step = skip_op(":") ? part() : nullptr;
    return node_of(Expr::Kind::kSlice, line, "", std::move(start), std::move(stop), std::move(step));
  }

  // Reads "(…)" into the arguments of `result`.
  void arguments(Expr& result) {
    expect_op("(");
    bool first = true;
    while (!is_op(")")) {
      if (!std::exchange(first, false)) {
        expect_op(",");
        if (is_op(")")) break;
      }
      if (skip_op("*")) {
        if (result.star || result.double_star) error("a second '*' in a call");
        result.star = expression();
      } else if (skip_op("**")) {
        if (result.double_star) error("a second '**' in a call");
        result.double_star = expression();
      } else if (now().kind == Kind::kName && next().kind == Kind::kOperator && next().text == "=") {
        if (result.double_star) error("a named argument after '**'");
        std::string name = take().text;
        take();
        result.named.emplace_back(std::move(name), expression());
      } else {
        if (result.star || result.double_star || !result.named.empty())
          error("a positional argument after a named one");
        result.args.push_back(expression());
      }
    }
    expect_op(")");
  }

  ExprPtr call(ExprPtr callee) {
    auto result = open_node(Expr::Kind::kCall, now().line, "", std::move(callee));
    arguments(*result);
    return finish(std::move(result));
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += "." + expect_name();
    return name;
  }

  // One or more filters; `inline_start` when the first has no '|' before it.
  ExprPtr filters(ExprPtr input, bool inline_start) {
    while (inline_start || is_op("|")) {
      if (!std::exchange(inline_start, false)) take();
      const int line = now().line;
      auto filter = open_node(Expr::Kind::kFilter, line, dotted_name(), std::move(input));
      if (is_op("(")) arguments(*filter);
      input = finish(std::move(filter));
    }
    return input;
  }

  ExprPtr test(ExprPtr value) {
    const int line = take().line;
    const bool negated = skip_word("not");
    auto result = open_node(Expr::Kind::kTest, line, dotted_name(), std::move(value));
    const bool operand = now().kind == Kind::kName || now().kind == Kind::kString || now().kind == Kind::kInteger ||
                         now().kind == Kind::kFloat || is_op("[") || is_op("{");
    if (is_op("(")) {
      arguments(*result);
    } else if (operand && !is_word("else") && !is_word("or") && !is_word("and")) {
      if (is_word("is")) error("tests with 'is' can't be chained");
      ExprPtr argument = primary();
      while (is_op(".") || is_op("[") || is_op("(")) {
        argument = is_op("(") ? call(std::move(argument)) : subscript(std::move(argument));
      }
      result->args.push_back(std::move(argument));
    }
    ExprPtr checked = finish(std::move(result));
    if (!negated) return checked;
    return node_of(Expr::Kind::kUnary, line, "not", std::move(checked));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace sluice::jinja
