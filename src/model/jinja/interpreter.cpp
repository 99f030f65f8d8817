#include "model/jinja/interpreter.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "model/jinja/operations.h"

namespace sluice::jinja {
namespace {

// Variables of one loop iteration, macro call or block. Names are looked up outwards; `set` writes into the innermost.
struct Scope {
  Scope* outer = nullptr;
  std::unordered_map<std::string, Value> variables;
};

constexpr int kMaxDepth = 800;          // of nested evaluations, for the stack's sake
constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

enum class Flow { kNext, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(std::vector<std::pair<std::string, Value>> variables, std::time_t now) : now_(now) {
    Scope& globals = new_scope(nullptr);
    define_globals(globals);
    for (auto& [name, value] : variables) globals.variables[name] = std::move(value);
    scope_ = &globals;
  }

  std::string run(const Body& body) {
    try {
      execute(body);
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = line_;
      throw;
    }
    return std::move(out_);
  }

 private:
  struct Deeper {
    explicit Deeper(Interpreter& interpreter) : interpreter(interpreter) {
      if (++interpreter.depth_ > kMaxDepth) fail("the template recurses too deeply");
    }
    ~Deeper() { --interpreter.depth_; }
    Interpreter& interpreter;
  };

  // Enters a scope for the lifetime of this object.
  struct Within {
    Within(Interpreter& interpreter, Scope& scope) : interpreter(interpreter), before(interpreter.scope_) {
      interpreter.scope_ = &scope;
    }
    ~Within() { interpreter.scope_ = before; }
    Interpreter& interpreter;
    Scope* before;
  };

  // --- scopes and globals

  // Scopes and namespaces live as long as the interpreter: macros may refer to them, and they may refer to themselves.
  Scope& new_scope(Scope* outer) {
    budget_.spend(8);
    return scopes_.emplace_back(Scope{outer, {}});
  }

  Value lookup(const std::string& name) const {
    for (const Scope* scope = scope_; scope; scope = scope->outer) {
      if (const auto found = scope->variables.find(name); found != scope->variables.end()) return found->second;
    }
    return Value::undefined("'" + name + "' is undefined");
  }

  template <class F>
  static Value callable(std::string name, F function) {
    auto result = std::make_shared<Callable>();
    result->name = std::move(name);
    result->call = std::move(function);
    return std::shared_ptr<const Callable>(std::move(result));
  }

  void define_globals(Scope& globals) {
    globals.variables["range"] = callable("range", range);
    globals.variables["dict"] = callable("dict", dict);
    globals.variables["namespace"] = callable("namespace", [this](Budget& budget, const Arguments& arguments) {
      const Value initial = dict(budget, arguments);
      Namespace& result = namespaces_.emplace_back();
      for (const auto& [key, value] : initial.dict()->items)
        result.attributes.emplace_back(to_text(budget, key), value);
      return Value(&result);
    });
    globals.variables["raise_exception"] =
        callable("raise_exception", [](Budget& budget, const Arguments& arguments) -> Value {
          fail(to_text(budget, *Parameters("raise_exception", arguments, {"message"}, 1)[0]));
        });
    globals.variables["strftime_now"] = callable("strftime_now", [this](Budget&, const Arguments& arguments) -> Value {
      return time_text(Parameters("strftime_now", arguments, {"format"}, 1).text(0, ""));
    });
  }

  static Value range(Budget& budget, const Arguments& arguments) {
    const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
    const int64_t start = p[1] ? p.integer(0, 0) : 0, stop = p[1] ? p.integer(1, 0) : p.integer(0, 0),
                  step = p.integer(2, 1);
    if (step == 0) fail("range() needs a step other than zero");
    auto result = std::make_shared<Sequence>();
    result->kind = Sequence::Kind::kRange;
    result->name = "range(" + std::to_string(start) + ", " + std::to_string(stop);
    result->name += step == 1 ? ")" : ", " + std::to_string(step) + ")";
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
      if (static_cast<int64_t>(result->items.size()) == kMaxRange) fail("a range of more than 100000 items");
      result->items.push_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    budget.spend(result->items.size());
    return result;
  }

  // dict(other, key=value, …); the other may be pairs.
  static Value dict(Budget& budget, const Arguments& arguments) {
    auto result = std::make_shared<Dict>();
    if (arguments.positional.size() > 1) fail("dict takes at most one positional argument");
    for (const Value& other : arguments.positional) {
      if (other.dict()) {
        *result = *other.dict();
        continue;
      }
      for (const Value& entry : iterate(budget, other)) {
        std::vector<Value> pair = iterate(budget, entry);
        if (pair.size() != 2) fail("dict needs pairs");
        budget.spend(result->items.size());
        result->set(std::move(pair[0]), std::move(pair[1]));
      }
    }
    for (const auto& [name, value] : arguments.named) result->set(Value(name), value);
    return std::shared_ptr<const Dict>(std::move(result));
  }

  std::string time_text(const std::string& format) const {
    std::tm local{};
    localtime_r(&now_, &local);
    std::string buffer(format.size() * 8 + 256, '\0');
    buffer.resize(format.empty() ? 0 : std::strftime(buffer.data(), buffer.size(), format.c_str(), &local));
    return buffer;
  }

  // --- statements

  Flow execute(const Body& body) {
    for (const auto& statement : body) {
      if (const Flow flow = execute(*statement); flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow execute(const Statement& s) {
    const Deeper deeper(*this);
    budget_.spend(1);
    line_ = s.line;
    switch (s.kind) {
      case Statement::Kind::kText:
        append(budget_, out_, s.text);
        break;
      case Statement::Kind::kPrint:
        append(budget_, out_, to_text(budget_, evaluate(*s.expr)));
        break;
      case Statement::Kind::kSet:
        assign(*s.target, evaluate(*s.expr));
        break;
      case Statement::Kind::kSetBlock:
        set_block(s);
        break;
      case Statement::Kind::kFor:
        for_loop(s);
        break;
      case Statement::Kind::kIf:
        return if_else(s);
      case Statement::Kind::kMacro:
        scope_->variables[s.text] = macro(s);
        break;
      case Statement::Kind::kCallBlock:
        append(budget_, out_, to_text(budget_, call(*s.expr, macro(s))));
        break;
      case Statement::Kind::kFilterBlock:
        append(budget_, out_, to_text(budget_, filtered(*s.expr, captured(s))));
        break;
      case Statement::Kind::kWith:
        return with(s);
      case Statement::Kind::kScope: {
        const Within within(*this, new_scope(scope_));
        execute(s.body);
        break;
      }
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  // What the body writes, run in a scope of its own.
  std::string captured(const Statement& s) {
    const Within within(*this, new_scope(scope_));
    return captured(s.body);
  }
  std::string captured(const Body& body) {
    std::string outer = std::exchange(out_, {});
    execute(body);
    std::swap(outer, out_);
    return outer;
  }

  void set_block(const Statement& s) {
    Value text = captured(s);
    assign(*s.target, s.expr ? filtered(*s.expr, std::move(text)) : std::move(text));
  }

  Flow if_else(const Statement& s) {
    for (const auto& [condition, body] : s.branches) {
      if (truth(evaluate(*condition))) return execute(body);
    }
    return execute(s.otherwise);
  }

  Flow with(const Statement& s) {
    Scope& inner = new_scope(scope_);
    for (const auto& [name, value] : s.parameters) inner.variables[name] = evaluate(*value);
    const Within within(*this, inner);
    return execute(s.body);
  }

  void for_loop(const Statement& s) {
    std::vector<Value> items = iterate(budget_, evaluate(*s.expr));
    if (s.condition) items = accepted(s, std::move(items));
    const auto shared = std::make_shared<const std::vector<Value>>(std::move(items));
    int deepest = 0;
    for (const Value& item : *shared) deepest = std::max(deepest, nesting(item));
    if (deepest >= Budget::kMaxNesting) fail("values nest too deeply");
    for (size_t i = 0; i < shared->size(); ++i) {
      Scope& inner = new_scope(scope_);
      const Within within(*this, inner);
      assign(*s.target, (*shared)[i]);
      inner.variables["loop"] = Value(std::make_shared<const Loop>(Loop{shared, i, deepest + 1}));
      if (execute(s.body) == Flow::kBreak) break;
    }
    if (!shared->empty()) return;
    const Within within(*this, new_scope(scope_));
    execute(s.otherwise);
  }

  std::vector<Value> accepted(const Statement& s, std::vector<Value> items) {
    std::vector<Value> result;
    for (Value& item : items) {
      const Within within(*this, new_scope(scope_));
      assign(*s.target, item);
      if (truth(evaluate(*s.condition))) result.push_back(std::move(item));
    }
    return result;
  }

  void assign(const Expr& target, Value value) {
    if (target.kind == Expr::Kind::kName) {
      scope_->variables[target.name] = std::move(value);
    } else if (target.kind == Expr::Kind::kTuple) {
      std::vector<Value> parts = iterate(budget_, value);
      if (parts.size() != target.args.size()) {
        fail("can't unpack " + std::to_string(parts.size()) + " values into " + std::to_string(target.args.size()) +
             " names");
      }
      for (size_t i = 0; i < parts.size(); ++i) assign(*target.args[i], std::move(parts[i]));
    } else {
      set_attribute(target, std::move(value));
    }
  }

  void set_attribute(const Expr& target, Value value) {
    const Value object = lookup(target.name);
    auto* const* space = object.get<Namespace*>();
    if (!space) fail("can't assign an attribute of '" + target.name + "': it is no namespace");
    auto& attributes = (*space)->attributes;
    budget_.spend(attributes.size() / 4);
    const auto found = std::find_if(attributes.begin(), attributes.end(),
                                    [&](const auto& attribute) { return attribute.first == *target.constant.text(); });
    if (found != attributes.end()) {
      found->second = std::move(value);
    } else {
      attributes.emplace_back(*target.constant.text(), std::move(value));
    }
  }

  // --- macros

  // The macro of a {% macro %} or the caller of a {% call %}, which sees the scope in which it was made.
  Value macro(const Statement& s) {
    return callable(s.text, [this, &s, home = scope_](Budget&, const Arguments& arguments) {
      const Deeper deeper(*this);
      Scope& inner = new_scope(home);
      const Within within(*this, inner);
      bind(s, arguments, inner);
      return Value(captured(s.body));
    });
  }

  void bind(const Statement& s, const Arguments& arguments, Scope& inner) {
    const size_t count = std::min(arguments.positional.size(), s.parameters.size());
    for (size_t i = 0; i < count; ++i) inner.variables[s.parameters[i].first] = arguments.positional[i];
    auto surplus = std::make_shared<Dict>();
    for (const auto& [name, value] : arguments.named) {
      const bool known =
          std::any_of(s.parameters.begin(), s.parameters.end(), [&](const auto& p) { return p.first == name; });
      if (known || name == "caller") {
        if (!known && !s.uses_caller) fail("macro '" + s.text + "' was called with a block but has no use for it");
        if (!inner.variables.emplace(name, value).second) fail("macro '" + s.text + "' got '" + name + "' twice");
      } else {
        surplus->set(Value(name), value);
      }
    }
    if (!surplus->items.empty() && !s.uses_kwargs) {
      fail("macro '" + s.text + "' has no parameter " + repr(budget_, surplus->items[0].first));
    }
    if (arguments.positional.size() > count && !s.uses_varargs) {
      fail("macro '" + s.text + "' takes at most " + std::to_string(s.parameters.size()) + " arguments");
    }
    if (s.uses_kwargs) inner.variables["kwargs"] = std::shared_ptr<const Dict>(std::move(surplus));
    if (s.uses_varargs) {
      const auto rest = arguments.positional.begin() + static_cast<int64_t>(count);
      inner.variables["varargs"] = Value::tuple({rest, arguments.positional.end()});
    }
    if (s.uses_caller) inner.variables.emplace("caller", Value::undefined("no caller defined"));
    for (const auto& [name, otherwise] : s.parameters) {
      if (inner.variables.contains(name)) continue;
      inner.variables[name] =
          otherwise ? evaluate(*otherwise) : Value::undefined("parameter '" + name + "' was not provided");
    }
  }

  // --- expressions

  Value evaluate(const Expr& e) {
    const Deeper deeper(*this);
    budget_.spend(1);
    line_ = e.line;
    switch (e.kind) {
      case Expr::Kind::kConstant:
        return e.constant;
      case Expr::Kind::kName:
        return lookup(e.name);
      case Expr::Kind::kList:
        return Value::list(evaluate_all(e.args));
      case Expr::Kind::kTuple:
        return Value::tuple(evaluate_all(e.args));
      case Expr::Kind::kDict:
        return dict_literal(e);
      case Expr::Kind::kUnary:
        return unary(e);
      case Expr::Kind::kBinary:
        return binary(e);
      case Expr::Kind::kAnd: {
        Value left = evaluate(*e.args[0]);
        return truth(left) ? evaluate(*e.args[1]) : left;
      }
      case Expr::Kind::kOr: {
        Value left = evaluate(*e.args[0]);
        return truth(left) ? left : evaluate(*e.args[1]);
      }
      case Expr::Kind::kConcat:
        return concatenation(e);
      case Expr::Kind::kCompare:
        return comparison(e);
      case Expr::Kind::kConditional:
        if (truth(evaluate(*e.args[0]))) return evaluate(*e.args[1]);
        return e.args[2] ? evaluate(*e.args[2]) : Value::undefined("the condition is false and there is no else");
      case Expr::Kind::kAttribute:
        return attribute(budget_, evaluate(*e.args[0]), e.name);
      case Expr::Kind::kItem:
        return subscript(e);
      case Expr::Kind::kCall:
        return call(e, Value());
      case Expr::Kind::kFilter:
        return filtered(e, Value());
      case Expr::Kind::kTest:
        return test(e);
      case Expr::Kind::kSlice:
      case Expr::Kind::kNamespaceTarget:
        break;
    }
    fail("this expression has no value of its own");
  }

  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& exprs, size_t from = 0) {
    std::vector<Value> values;
    for (size_t i = from; i < exprs.size(); ++i) values.push_back(evaluate(*exprs[i]));
    return values;
  }

  Value dict_literal(const Expr& e) {
    auto result = std::make_shared<Dict>();
    for (size_t i = 0; i < e.args.size(); i += 2) {
      Value key = evaluate(*e.args[i]);
      budget_.spend(result->items.size() / 4 + 1);
      same_key(key, key);
      result->set(std::move(key), evaluate(*e.args[i + 1]));
    }
    return std::shared_ptr<const Dict>(std::move(result));
  }

  Value unary(const Expr& e) {
    const Value operand = evaluate(*e.args[0]);
    if (e.name == "not") return !truth(operand);
    const Value result = negative(operand);
    return e.name == "-" ? result : negative(result);
  }

  Value binary(const Expr& e) {
    const Value left = evaluate(*e.args[0]), right = evaluate(*e.args[1]);
    line_ = e.line;
    return arithmetic(budget_, e.name, left, right);
  }

  Value concatenation(const Expr& e) {
    std::string out;
    for (const auto& operand : e.args) append(budget_, out, to_text(budget_, evaluate(*operand)));
    return out;
  }

  Value comparison(const Expr& e) {
    Value left = evaluate(*e.args[0]);
    for (size_t i = 0; i < e.ops.size(); ++i) {
      Value right = evaluate(*e.args[i + 1]);
      if (!compare(budget_, e.ops[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  Value subscript(const Expr& e) {
    const Value object = evaluate(*e.args[0]);
    const Expr& index = *e.args[1];
    if (index.kind != Expr::Kind::kSlice) return item(budget_, object, evaluate(index));
    const auto bound = [&](size_t i) { return index.args[i] ? evaluate(*index.args[i]) : Value(None{}); };
    const Value start = bound(0), stop = bound(1), step = bound(2);
    return slice(budget_, object, start, stop, step);
  }

  // The arguments of a call, filter or test; args[0] is what they are applied to.
  Arguments arguments(const Expr& e) {
    Arguments result;
    result.positional = evaluate_all(e.args, 1);
    for (const auto& [name, value] : e.named) result.named.emplace_back(name, evaluate(*value));
    if (e.star) {
      for (Value& value : iterate(budget_, evaluate(*e.star))) result.positional.push_back(std::move(value));
    }
    if (e.double_star) {
      const Value more = evaluate(*e.double_star);
      if (!more.dict()) fail("'**' needs a dict");
      for (const auto& [name, value] : more.dict()->items) result.named.emplace_back(to_text(budget_, name), value);
    }
    return result;
  }

  Value call(const Expr& e, const Value& caller) {
    const Value callee = evaluate(*e.args[0]);
    Arguments given = arguments(e);
    if (!caller.is_undefined()) given.named.emplace_back("caller", caller);
    line_ = e.line;
    if (const auto* undefined = callee.get<Undefined>())
      fail(undefined->why ? *undefined->why : "an undefined value is called");
    const auto* function = callee.get<std::shared_ptr<const Callable>>();
    if (!function) fail("'" + type_name(callee) + "' can't be called");
    return (*function)->call(budget_, given);
  }

  // Applies a chain of filters; `head` is the input of the innermost when the tree has none.
  Value filtered(const Expr& e, Value head) {
    const Deeper deeper(*this);
    const bool inner_filter = e.args[0] && e.args[0]->kind == Expr::Kind::kFilter;
    const Value input = !e.args[0]     ? std::move(head)
                        : inner_filter ? filtered(*e.args[0], std::move(head))
                                       : evaluate(*e.args[0]);
    const Arguments given = arguments(e);
    line_ = e.line;
    return apply_filter(budget_, e.name, input, given);
  }

  Value test(const Expr& e) {
    const Value value = evaluate(*e.args[0]);
    const Arguments given = arguments(e);
    line_ = e.line;
    if (e.name == "filter" || e.name == "test") fail("the tests 'filter' and 'test' are not supported");
    return apply_test(budget_, e.name, value, given);
  }

  Budget budget_;
  std::deque<Scope> scopes_;
  std::deque<Namespace> namespaces_;
  Scope* scope_ = nullptr;
  std::string out_;
  std::time_t now_;
  int line_ = 0, depth_ = 0;
};

}  // namespace

std::string render(const Body& body, std::vector<std::pair<std::string, Value>> variables, std::time_t now) {
  return Interpreter(std::move(variables), now).run(body);
}

}  // namespace sluice::jinja
