// The tree of a parsed template. Immutable once parsed, so that one template may be rendered by several threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/value.h"

namespace sluice::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Expr {
  // What `args` and `name` hold is said for each kind; the calls also use `named`, `star` and `double_star`.
  enum class Kind {
    kConstant,         // constant
    kName,             // name
    kList,             // args: items
    kTuple,            // args: items
    kDict,             // args: key, value, key, value, …
    kUnary,            // name: "-", "+" or "not"; args: operand
    kBinary,           // name: the operator; args: left, right
    kAnd,              // args: left, right
    kOr,               // args: left, right
    kConcat,           // args: operands of ~
    kCompare,          // ops: the operators; args: one more than ops
    kConditional,      // args: condition, then, else (null if there is none)
    kAttribute,        // args: object; name
    kItem,             // args: object, subscript
    kSlice,            // args: start, stop, step, each may be null; only as a subscript
    kCall,             // args: callee, then positional arguments
    kFilter,           // name; args: input (null at the head of a filter block), then positional arguments
    kTest,             // name; args: value, then positional arguments
    kNamespaceTarget,  // name of the namespace, constant: name of the attribute; only as an assignment's target
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // of the tree below, leaves have 1
  Value constant;
  std::string name;
  std::vector<ExprPtr> args;
  std::vector<std::string> ops;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

struct Statement {
  enum class Kind {
    kText,         // text
    kPrint,        // expr
    kSet,          // target = expr
    kSetBlock,     // target = the output of body, through filter expr if not null
    kFor,          // target, expr: what is iterated, condition, body, otherwise
    kIf,           // branches: condition and body; otherwise
    kMacro,        // text: name, parameters, body
    kCallBlock,    // expr: a call, parameters, body
    kFilterBlock,  // expr: filters, body
    kWith,         // parameters, body
    kScope,        // body: {% generation %}
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  ExprPtr target, expr, condition;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // a name, and its default or null
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body body, otherwise;
  // kMacro, kCallBlock: whether the body mentions these names, which decides which surplus arguments are welcome.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

}  // namespace sluice::jinja
