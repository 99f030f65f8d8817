// Jinja's tests: what stands after `is`.
#include <map>

#include "model/jinja/operations.h"

namespace sluice::jinja {
namespace {

using Test = bool (*)(Budget&, const Value&, const Arguments&);

// The tests that take no argument.
using Plain = bool (*)(const Value&);
template <Plain accepts>
bool plain(Budget&, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty()) fail("this test takes no argument");
  return accepts(value);
}

template <class T>
bool is_a(const Value& value) {
  return value.get<T>();
}
bool defined(const Value& value) { return !value.is_undefined(); }
bool is_true(const Value& value) { return value.get<bool>() && *value.get<bool>(); }
bool is_false(const Value& value) { return value.get<bool>() && !*value.get<bool>(); }
bool number(const Value& value) { return as_number(value).has_value(); }
bool mapping(const Value& value) { return value.dict(); }
bool callable(const Value& value) { return value.get<std::shared_ptr<const Callable>>() || value.is_undefined(); }
bool escaped(const Value& value) { return value.text() && value.get<Text>()->markup; }

bool has_sequence_kind(const Value& value, bool views_too) {
  const Sequence* s = value.sequence();
  return s && (views_too || (s->kind != Sequence::Kind::kGenerator && s->kind != Sequence::Kind::kView));
}
bool iterable(const Value& value) {
  return value.text() || value.dict() || value.is_undefined() || has_sequence_kind(value, true);
}
bool sequence(const Value& value) {
  return value.text() || value.dict() || value.is_undefined() || has_sequence_kind(value, false);
}

const Value& only(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) fail("this test takes one argument");
  return arguments.positional[0];
}

bool divisible(Budget& budget, const Value& value, const Value& by) {
  return equal(budget, arithmetic(budget, "%", value, by), Value(int64_t{0}));
}
bool odd(Budget& budget, const Value& value, const Arguments&) {
  return equal(budget, arithmetic(budget, "%", value, int64_t{2}), Value(int64_t{1}));
}
bool even(Budget& budget, const Value& value, const Arguments&) { return divisible(budget, value, int64_t{2}); }
bool divisibleby(Budget& budget, const Value& value, const Arguments& arguments) {
  return divisible(budget, value, only(arguments));
}

// Identity: of the singletons none, true and false, and of shared objects.
bool sameas(Budget& budget, const Value& value, const Arguments& arguments) {
  const Value& other = only(arguments);
  if (value.storage().index() != other.storage().index()) return false;
  if (value.sequence()) return value.sequence() == other.sequence();
  if (value.dict()) return value.dict() == other.dict();
  return equal(budget, value, other);
}

template <const char* const& op>
bool comparison(Budget& budget, const Value& value, const Arguments& arguments) {
  return compare(budget, op, value, only(arguments));
}
constexpr const char *kEqual = "==", *kUnequal = "!=", *kLess = "<", *kLessEqual = "<=", *kGreater = ">",
                     *kGreaterEqual = ">=", *kIn = "in";

template <const char* const& name>
bool text_method(Budget& budget, const Value& value, const Arguments&) {
  const Value bound = method(to_text(budget, value), name);
  return truth((*bound.get<std::shared_ptr<const Callable>>())->call(budget, {}));
}
constexpr const char *kIsLower = "islower", *kIsUpper = "isupper";

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> kTests = {
      {"defined", plain<defined>},
      {"undefined", plain<is_a<Undefined>>},
      {"none", plain<is_a<None>>},
      {"boolean", plain<is_a<bool>>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"integer", plain<is_a<int64_t>>},
      {"float", plain<is_a<double>>},
      {"number", plain<number>},
      {"string", plain<is_a<Text>>},
      {"mapping", plain<mapping>},
      {"iterable", plain<iterable>},
      {"sequence", plain<sequence>},
      {"callable", plain<callable>},
      {"escaped", plain<escaped>},
      {"lower", text_method<kIsLower>},
      {"upper", text_method<kIsUpper>},
      {"odd", odd},
      {"even", even},
      {"divisibleby", divisibleby},
      {"sameas", sameas},
      {"in", comparison<kIn>},
      {"==", comparison<kEqual>},
      {"eq", comparison<kEqual>},
      {"equalto", comparison<kEqual>},
      {"!=", comparison<kUnequal>},
      {"ne", comparison<kUnequal>},
      {"<", comparison<kLess>},
      {"lt", comparison<kLess>},
      {"lessthan", comparison<kLess>},
      {"<=", comparison<kLessEqual>},
      {"le", comparison<kLessEqual>},
      {">", comparison<kGreater>},
      {"gt", comparison<kGreater>},
      {"greaterthan", comparison<kGreater>},
      {">=", comparison<kGreaterEqual>},
      {"ge", comparison<kGreaterEqual>},
  };
  return kTests;
}

}  // namespace

bool apply_test(Budget& budget, std::string_view name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) fail("no test named '" + std::string(name.substr(0, 40)) + "'");
  budget.spend(1);
  return found->second(budget, value, arguments);
}

}  // namespace sluice::jinja
