#include "model/jinja/operations.h"

#include <algorithm>
#include <cmath>

#include "model/jinja/text.h"

namespace sluice::jinja {
namespace {

[[noreturn]] void unsupported(std::string_view op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    if (const auto* undefined = v->get<Undefined>())
      fail(undefined->why ? *undefined->why : "an undefined value is used");
  }
  fail("'" + std::string(op) + "' does not work on '" + type_name(a) + "' and '" + type_name(b) + "'");
}

[[noreturn]] void integer_overflow() { fail("an integer of more than 64 bits"); }

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 && __builtin_mul_overflow(result, base, &result)) integer_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) integer_overflow();
  }
  return result;
}

Value integer_arithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+"   ? __builtin_add_overflow(a, b, &result)
      : op == "-" ? __builtin_sub_overflow(a, b, &result)
                  : op == "*" && __builtin_mul_overflow(a, b, &result)) {
    integer_overflow();
  }
  if (op == "+" || op == "-" || op == "*") return result;
  if (op == "**") {
    if (b >= 0) return integer_power(a, b);
    if (a == 0) fail("0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(a), static_cast<double>(b));
  }
  if (b == 0) fail("division by zero");
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == "%" ? Value(int64_t{0}) : integer_arithmetic("-", 0, a);
  return op == "//" ? floor_div(a, b) : a - floor_div(a, b) * b;
}

Value float_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    if (a < 0 && std::floor(b) != b && std::isfinite(a) && std::isfinite(b)) fail("complex numbers are not supported");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("the result of '**' is too large");
    return result;
  }
  if (b == 0) fail("float division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);  // as CPython: the rest takes the divisor's sign
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == "%") return rest;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value repeat(Budget& budget, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::clamp<int64_t>(times, 0, int64_t{1} << 31));
  if (const std::string* text = value.text()) {
    budget.spend_text(text->size() * count);
    std::string out;
    if (!text->empty()) {
      for (size_t i = 0; i < count; ++i) out += *text;
    }
    return Value(std::move(out), value.get<Text>()->markup);
  }
  const Sequence& sequence = *value.sequence();
  if (!sequence.items.empty()) budget.spend(std::min(sequence.items.size() * count, Budget::kMaxWork + 1));
  std::vector<Value> items;
  for (size_t i = 0; i < (sequence.items.empty() ? 0 : count); ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return sequence.kind == Sequence::Kind::kTuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

bool repeatable(const Value& value) {
  const Sequence* s = value.sequence();
  return value.text() || (s && (s->kind == Sequence::Kind::kList || s->kind == Sequence::Kind::kTuple));
}

Value join_texts(Budget& budget, const Value& a, const Value& b) {
  const bool markup = a.get<Text>()->markup || b.get<Text>()->markup;
  std::string out;
  for (const Value* v : {&a, &b}) {
    append(budget, out, markup && !v->get<Text>()->markup ? escape_html(budget, *v->text()) : *v->text());
  }
  return Value(std::move(out), markup);
}

bool both_sequences(const Value& a, const Value& b) {
  const Sequence *s = a.sequence(), *t = b.sequence();
  return s && t && s->kind == t->kind && (s->kind == Sequence::Kind::kList || s->kind == Sequence::Kind::kTuple);
}

void append_repr(Budget& budget, std::string& out, const Value& value, int depth);

void append_items(Budget& budget, std::string& out, const std::vector<Value>& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(budget, out, items[i], depth);
  }
}

void append_sequence(Budget& budget, std::string& out, const Sequence& sequence, int depth) {
  switch (sequence.kind) {
    case Sequence::Kind::kRange:
      return append(budget, out, sequence.name);
    case Sequence::Kind::kGenerator:
      return append(budget, out, "<" + sequence.name + " object>");
    case Sequence::Kind::kTuple:
      out += '(';
      append_items(budget, out, sequence.items, depth);
      out += sequence.items.size() == 1 ? ",)" : ")";
      return;
    default:
      if (sequence.kind == Sequence::Kind::kView) out += sequence.name + "(";
      out += '[';
      append_items(budget, out, sequence.items, depth);
      out += sequence.kind == Sequence::Kind::kView ? "])" : "]";
  }
}

// `depth` counts namespaces too, which alone can hold themselves.
void append_repr(Budget& budget, std::string& out, const Value& value, int depth) {
  budget.spend(1);
  if (depth > 2 * Budget::kMaxNesting) fail("values nest too deeply to be printed");
  if (const std::string* text = value.text()) {
    const std::string quoted = string_repr(*text);
    append(budget, out, value.get<Text>()->markup ? "Markup(" + quoted + ")" : quoted);
  } else if (const Sequence* sequence = value.sequence()) {
    append_sequence(budget, out, *sequence, depth + 1);
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(budget, out, dict->items[i].first, depth + 1);
      out += ": ";
      append_repr(budget, out, dict->items[i].second, depth + 1);
    }
    out += '}';
  } else if (const auto* space = value.get<Namespace*>()) {
    out += "<Namespace {";
    for (size_t i = 0; i < (*space)->attributes.size(); ++i) {
      out += (i > 0 ? ", " : "") + string_repr((*space)->attributes[i].first) + ": ";
      append_repr(budget, out, (*space)->attributes[i].second, depth + 1);
    }
    out += "}>";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    append(budget, out, to_text(budget, value));
  }
}

int64_t clamp_bound(const Value& bound, int64_t size, int64_t step, int64_t otherwise) {
  if (bound.is_none()) return otherwise;
  const auto given = as_integer(bound);
  if (!given) fail("slice indices must be integers or none");
  const int64_t i = *given < 0 ? std::max(*given, -size - 1) + size : *given;
  return step > 0 ? std::clamp<int64_t>(i, 0, size) : std::clamp<int64_t>(i, -1, size - 1);
}

// The positions that a slice picks from `size` items.
std::vector<size_t> slice_positions(Budget& budget, int64_t size, const Value& start, const Value& stop,
                                    const Value& step) {
  const int64_t by = step.is_none() ? 1 : as_integer(step).value_or(0);
  if (by == 0) fail("a slice's step must be an integer other than zero");
  int64_t at = clamp_bound(start, size, by, by > 0 ? 0 : size - 1);
  const int64_t end = clamp_bound(stop, size, by, by > 0 ? size : -1);
  std::vector<size_t> positions;
  while (by > 0 ? at < end : at > end) {
    positions.push_back(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  budget.spend(positions.size() / 4 + 1);
  return positions;
}

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto size = static_cast<int64_t>(loop.items->size()), index = static_cast<int64_t>(loop.index0);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == size - 1;
  if (name == "length") return size;
  if (name == "depth") return int64_t{1};  // of recursive loops, which there are none
  if (name == "depth0") return int64_t{0};
  if (name == "previtem")
    return index > 0 ? (*loop.items)[loop.index0 - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem") {
    return index + 1 < size ? (*loop.items)[loop.index0 + 1] : Value::undefined("there is no next item");
  }
  if (name != "cycle") return Value::undefined("'loop' has no attribute '" + name + "'");
  auto cycle = std::make_shared<Callable>();
  cycle->name = "cycle";
  cycle->call = [at = loop.index0](Budget&, const Arguments& arguments) {
    if (arguments.positional.empty()) fail("no items for cycling given");
    return arguments.positional[at % arguments.positional.size()];
  };
  return std::shared_ptr<const Callable>(std::move(cycle));
}

[[noreturn]] void undefined_used(const Value& value) {
  const auto* undefined = value.get<Undefined>();
  fail(undefined->why ? *undefined->why : "an undefined value is used");
}

}  // namespace

bool truth(const Value& value) {
  if (const auto* b = value.get<bool>()) return *b;
  if (const auto* i = value.get<int64_t>()) return *i != 0;
  if (const auto* d = value.get<double>()) return *d != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const Sequence* s = value.sequence()) return s->kind == Sequence::Kind::kGenerator || !s->items.empty();
  if (const Dict* d = value.dict()) return !d->items.empty();
  return !value.is_undefined() && !value.is_none();
}

std::optional<int64_t> as_integer(const Value& value) {
  if (const auto* i = value.get<int64_t>()) return *i;
  if (const auto* b = value.get<bool>()) return *b;
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (const auto* d = value.get<double>()) return *d;
  if (const auto i = as_integer(value)) return static_cast<double>(*i);
  return std::nullopt;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.spend(1);
  if (a.text() && b.text()) {
    budget.spend(a.text()->size() / 64);
    return *a.text() == *b.text();
  }
  if (as_integer(a) && as_integer(b)) return *as_integer(a) == *as_integer(b);
  if (as_number(a) && as_number(b)) return *as_number(a) == *as_number(b);
  if (const Sequence* s = a.sequence(), *t = b.sequence(); s && t) {
    const bool by_identity = s->kind == Sequence::Kind::kGenerator || s->kind == Sequence::Kind::kView;
    if (s == t || by_identity) return s == t;
    return s->kind == t->kind && std::equal(s->items.begin(), s->items.end(), t->items.begin(), t->items.end(),
                                            [&](const Value& x, const Value& y) { return equal(budget, x, y); });
  }
  if (const Dict* d = a.dict(), *e = b.dict(); d && e) {
    if (d->items.size() != e->items.size()) return false;
    return std::all_of(d->items.begin(), d->items.end(), [&](const auto& entry) {
      budget.spend(e->items.size());
      const auto other = std::find_if(e->items.begin(), e->items.end(),
                                      [&](const auto& candidate) { return same_key(candidate.first, entry.first); });
      return other != e->items.end() && equal(budget, entry.second, other->second);
    });
  }
  if (a.get<Namespace*>() && b.get<Namespace*>()) return *a.get<Namespace*>() == *b.get<Namespace*>();
  if (const auto* f = a.get<std::shared_ptr<const Callable>>(), *g = b.get<std::shared_ptr<const Callable>>(); f && g) {
    return *f == *g;
  }
  return a.storage().index() == b.storage().index() && (a.is_none() || a.is_undefined());
}

bool less(Budget& budget, const Value& a, const Value& b) {
  budget.spend(1);
  if (a.text() && b.text()) {
    budget.spend(a.text()->size() / 64);
    return *a.text() < *b.text();  // the order of UTF-8's bytes is that of code points
  }
  if (as_integer(a) && as_integer(b)) return *as_integer(a) < *as_integer(b);
  if (as_number(a) && as_number(b)) return *as_number(a) < *as_number(b);
  if (!both_sequences(a, b)) unsupported("<", a, b);
  const auto &s = a.sequence()->items, &t = b.sequence()->items;
  for (size_t i = 0; i < std::min(s.size(), t.size()); ++i) {
    if (!equal(budget, s[i], t[i])) return less(budget, s[i], t[i]);
  }
  return s.size() < t.size();
}

bool contains(Budget& budget, const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    if (!item.text()) unsupported("in", item, container);
    budget.spend(text->size() / 64 + 1);
    return find_bytes(*text, *item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    budget.spend(dict->items.size() / 4 + 1);
    same_key(item, item);
    return std::any_of(dict->items.begin(), dict->items.end(),
                       [&](const auto& entry) { return same_key(entry.first, item); });
  }
  if (container.get<Namespace*>()) unsupported("in", item, container);
  const std::vector<Value> items = iterate(budget, container);
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equal(budget, v, item); });
}

bool compare(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(budget, a, b);
  if (op == "!=") return !equal(budget, a, b);
  if (op == "in") return contains(budget, b, a);
  if (op == "not in") return !contains(budget, b, a);
  if (op == "<") return less(budget, a, b);
  if (op == ">") return less(budget, b, a);
  if (op == "<=") return less(budget, a, b) || equal(budget, a, b);
  return less(budget, b, a) || equal(budget, a, b);
}

Value arithmetic(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  if (as_integer(a) && as_integer(b)) return integer_arithmetic(op, *as_integer(a), *as_integer(b));
  if (as_number(a) && as_number(b)) return float_arithmetic(op, *as_number(a), *as_number(b));
  if (op == "+" && a.text() && b.text()) return join_texts(budget, a, b);
  if (op == "+" && both_sequences(a, b)) {
    std::vector<Value> items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    budget.spend(items.size());
    return a.sequence()->kind == Sequence::Kind::kTuple ? Value::tuple(std::move(items))
                                                        : Value::list(std::move(items));
  }
  if (op == "*" && repeatable(a) && as_integer(b)) return repeat(budget, a, *as_integer(b));
  if (op == "*" && as_integer(a) && repeatable(b)) return repeat(budget, b, *as_integer(a));
  if (op == "%" && a.text()) return percent_format(budget, *a.text(), b);
  unsupported(op, a, b);
}

Value negative(const Value& value) {
  if (const auto i = as_integer(value)) return integer_arithmetic("-", 0, *i);
  if (const auto d = as_number(value)) return -*d;
  unsupported("-", value, value);
}

void append(Budget& budget, std::string& out, std::string_view piece) {
  if (out.size() + piece.size() > Budget::kMaxText) fail("a text of more than 16 MiB");
  budget.spend(piece.size() / 8 + 1);
  out += piece;
}

std::string repr(Budget& budget, const Value& value) {
  std::string out;
  append_repr(budget, out, value, 0);
  return out;
}

std::string to_text(Budget& budget, const Value& value) {
  if (const std::string* text = value.text()) return *text;
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const auto* b = value.get<bool>()) return *b ? "True" : "False";
  if (const auto* i = value.get<int64_t>()) return std::to_string(*i);
  if (const auto* d = value.get<double>()) return float_repr(*d);
  if (const auto* c = value.get<std::shared_ptr<const Callable>>()) return "<function " + (*c)->name + ">";
  if (const auto* l = value.get<std::shared_ptr<const Loop>>()) {
    return "<LoopContext " + std::to_string((*l)->index0 + 1) + "/" + std::to_string((*l)->items->size()) + ">";
  }
  return repr(budget, value);
}

std::vector<Value> iterate(Budget& budget, const Value& value) {
  if (value.is_undefined()) return {};
  std::vector<Value> items;
  if (const std::string* text = value.text()) {
    budget.spend(text->size());
    for (const char32_t c : decode(*text)) items.push_back(encode(std::u32string_view(&c, 1)));
  } else if (const Dict* dict = value.dict()) {
    budget.spend(dict->items.size());
    for (const auto& [key, unused] : dict->items) items.push_back(key);
  } else if (Sequence* sequence = value.sequence()) {
    budget.spend(sequence->items.size());
    items = sequence->walk();
  } else {
    fail("'" + type_name(value) + "' is not iterable");
  }
  return items;
}

int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* text = value.text()) return static_cast<int64_t>(code_points(*text));
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->items.size());
  const Sequence* sequence = value.sequence();
  if (sequence && sequence->kind != Sequence::Kind::kGenerator) return static_cast<int64_t>(sequence->items.size());
  fail("'" + type_name(value) + "' has no length");
}

Value attribute(Budget& budget, const Value& object, const std::string& name) {
  if (object.is_undefined()) undefined_used(object);
  if (const auto* space = object.get<Namespace*>()) {
    for (const auto& [key, value] : (*space)->attributes) {
      if (key == name) return value;
    }
    return Value::undefined("the namespace has no attribute '" + name + "'");
  }
  if (const auto* loop = object.get<std::shared_ptr<const Loop>>()) return loop_attribute(**loop, name);
  Value found = method(object, name);
  if (!found.is_undefined() || !object.dict()) return found;
  budget.spend(object.dict()->items.size() / 4 + 1);
  const Value* entry = object.dict()->find(name);
  return entry ? *entry : Value::undefined("'dict object' has no attribute '" + name + "'");
}

Value item(Budget& budget, const Value& object, const Value& subscript) {
  if (object.is_undefined()) undefined_used(object);
  if (const Dict* dict = object.dict()) {
    budget.spend(dict->items.size() / 4 + 1);
    const Sequence* list = subscript.sequence();
    if (!subscript.dict() && !(list && list->kind == Sequence::Kind::kList)) {
      for (const auto& [key, value] : dict->items) {
        if (same_key(key, subscript)) return value;
      }
    }
  }
  if (const auto index = as_integer(subscript)) {
    const Sequence* s = object.sequence();
    const bool indexable = s && s->kind != Sequence::Kind::kGenerator && s->kind != Sequence::Kind::kView;
    const std::u32string points = object.text() ? decode(*object.text()) : std::u32string();
    if (object.text()) budget.spend(points.size() / 8);
    const auto size = static_cast<int64_t>(indexable ? s->items.size() : points.size());
    if (*index >= -size && *index < size) {
      const auto at = static_cast<size_t>(*index < 0 ? *index + size : *index);
      return indexable ? s->items[at] : Value(encode(std::u32string_view(points).substr(at, 1)));
    }
  }
  if (const std::string* name = subscript.text()) return attribute(budget, object, *name);
  return Value::undefined("'" + type_name(object) + "' has no item " + repr(budget, subscript));
}

Value slice(Budget& budget, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) undefined_used(object);
  if (const std::string* text = object.text()) {
    budget.spend(text->size() / 8 + 1);
    const std::u32string points = decode(*text);
    std::u32string out;
    for (const size_t i : slice_positions(budget, static_cast<int64_t>(points.size()), start, stop, step))
      out += points[i];
    return encode(out);
  }
  if (object.dict()) fail("a dict can't be sliced");
  const Sequence* sequence = object.sequence();
  if (!sequence || sequence->kind == Sequence::Kind::kGenerator || sequence->kind == Sequence::Kind::kView) {
    return Value::undefined("'" + type_name(object) + "' can't be sliced");
  }
  std::vector<Value> items;
  for (const size_t i : slice_positions(budget, static_cast<int64_t>(sequence->items.size()), start, stop, step)) {
    items.push_back(sequence->items[i]);
  }
  return sequence->kind == Sequence::Kind::kTuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace sluice::jinja
