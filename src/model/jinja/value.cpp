#include "model/jinja/value.h"

#include <algorithm>

#include "model/jinja/operations.h"

namespace sluice::jinja {
namespace {

int checked_nesting(int inner) {
  if (inner >= Budget::kMaxNesting) fail("values nest too deeply");
  return inner + 1;
}

Value make_sequence(Sequence::Kind kind, std::vector<Value> items, std::string name = {}) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  sequence->items = std::move(items);
  sequence->name = std::move(name);
  return sequence;
}

}  // namespace

void fail(std::string message) { throw TemplateError{std::move(message)}; }

Value::Value(std::shared_ptr<Sequence> s) {
  int inner = 0;
  for (const Value& item : s->items) inner = std::max(inner, nesting(item));
  s->nesting = checked_nesting(inner);
  storage_ = std::move(s);
}
Value::Value(std::shared_ptr<const Dict> d) : storage_(std::move(d)) {}
Value::Value(std::shared_ptr<const Callable> c) : storage_(std::move(c)) {}
Value::Value(std::shared_ptr<const Loop> l) : storage_(std::move(l)) {}

Value Value::undefined(std::string why) {
  Value value;
  value.storage_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}
Value Value::list(std::vector<Value> items) { return make_sequence(Sequence::Kind::kList, std::move(items)); }
Value Value::tuple(std::vector<Value> items) { return make_sequence(Sequence::Kind::kTuple, std::move(items)); }
Value Value::generator(std::vector<Value> items) {
  return make_sequence(Sequence::Kind::kGenerator, std::move(items), "generator");
}

Sequence* Value::sequence() const {
  const auto* s = get<std::shared_ptr<Sequence>>();
  return s ? s->get() : nullptr;
}
const Dict* Value::dict() const {
  const auto* d = get<std::shared_ptr<const Dict>>();
  return d ? d->get() : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, value] : items) {
    if (const std::string* text = k.text(); text && *text == key) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  nesting = std::max(nesting, checked_nesting(std::max(jinja::nesting(key), jinja::nesting(value))));
  for (auto& [k, v] : items) {
    if (same_key(k, key)) {
      v = std::move(value);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

bool same_key(const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    const Sequence* s = v->sequence();
    if (v->dict() || (s && s->kind == Sequence::Kind::kList)) fail("unhashable type: '" + type_name(*v) + "'");
  }
  if (a.text() && b.text()) return *a.text() == *b.text();
  Budget small;  // keys are scalars or short tuples
  return equal(small, a, b);
}

int nesting(const Value& value) {
  if (const Sequence* s = value.sequence()) return s->nesting;
  if (const Dict* d = value.dict()) return d->nesting;
  if (const auto* c = value.get<std::shared_ptr<const Callable>>()) return (*c)->nesting;
  if (const auto* l = value.get<std::shared_ptr<const Loop>>()) return (*l)->nesting;
  return 0;
}

std::string type_name(const Value& value) {
  if (const Sequence* s = value.sequence()) {
    switch (s->kind) {
      case Sequence::Kind::kList:
        return "list";
      case Sequence::Kind::kTuple:
        return "tuple";
      case Sequence::Kind::kRange:
        return "range";
      default:
        return s->name;
    }
  }
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",      "int",      "float",      "str",
                                           "list",      "dict",     "Namespace", "function", "LoopContext"};
  return kNames[value.storage().index()];
}

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    fail(function_ + " takes at most " + std::to_string(names.size()) + " arguments");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) fail(function_ + " has no parameter '" + name + "'");
    const Value*& slot = values_[static_cast<size_t>(at - names.begin())];
    if (slot) fail(function_ + " got '" + name + "' twice");
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) fail(function_ + " needs its parameter '" + std::string(names.begin()[i]) + "'");
  }
}

int64_t Parameters::integer(size_t parameter, int64_t otherwise) const {
  if (!values_[parameter]) return otherwise;
  if (const auto i = as_integer(*values_[parameter])) return *i;
  fail(function_ + " needs an integer, not '" + type_name(*values_[parameter]) + "'");
}

bool Parameters::boolean(size_t parameter, bool otherwise) const {
  return values_[parameter] ? truth(*values_[parameter]) : otherwise;
}

std::string Parameters::text(size_t parameter, std::string_view otherwise) const {
  if (!values_[parameter]) return std::string(otherwise);
  if (const std::string* s = values_[parameter]->text()) return *s;
  fail(function_ + " needs a string, not '" + type_name(*values_[parameter]) + "'");
}

}  // namespace sluice::jinja
