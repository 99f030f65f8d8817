// What Python's operators, str() and Jinja's attribute look-up do with values. All of them throw TemplateError.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/value.h"

namespace sluice::jinja {

bool truth(const Value& value);
bool equal(Budget& budget, const Value& a, const Value& b);
// a < b.
bool less(Budget& budget, const Value& a, const Value& b);
bool contains(Budget& budget, const Value& container, const Value& item);
// op: "==", "!=", "<", "<=", ">", ">=", "in", "not in".
bool compare(Budget& budget, std::string_view op, const Value& a, const Value& b);
// op: "+", "-", "*", "/", "//", "%", "**".
Value arithmetic(Budget& budget, std::string_view op, const Value& a, const Value& b);
Value negative(const Value& value);

// Booleans count as integers, as in Python.
std::optional<int64_t> as_integer(const Value& value);
std::optional<double> as_number(const Value& value);

// str() and repr().
std::string to_text(Budget& budget, const Value& value);
std::string repr(Budget& budget, const Value& value);
// Appends, within the limit for one text.
void append(Budget& budget, std::string& out, std::string_view piece);

std::vector<Value> iterate(Budget& budget, const Value& value);
int64_t length(const Value& value);

// object.name and object[subscript]: undefined when there is no such thing.
Value attribute(Budget& budget, const Value& object, const std::string& name);
Value item(Budget& budget, const Value& object, const Value& subscript);
// The bounds are integers or none.
Value slice(Budget& budget, const Value& object, const Value& start, const Value& stop, const Value& step);
// The method `name` of the object, bound to it, or undefined. Only methods that the sandbox allows exist.
Value method(const Value& object, const std::string& name);

// value % arguments, and value.format(arguments).
std::string percent_format(Budget& budget, std::string_view format, const Value& arguments);
std::string brace_format(Budget& budget, std::string_view format, const Arguments& arguments);

// json.dumps(value, ensure_ascii=False, indent=…, separators=…, sort_keys=…).
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

Value apply_filter(Budget& budget, std::string_view name, const Value& input, const Arguments& arguments);
bool apply_test(Budget& budget, std::string_view name, const Value& value, const Arguments& arguments);
std::string escape_html(Budget& budget, std::string_view text);

}  // namespace sluice::jinja
