// The filters of Jinja, with transformers' tojson in the place of Jinja's own.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>

#include "model/jinja/operations.h"
#include "model/jinja/text.h"

namespace sluice::jinja {
namespace {

using Filter = Value (*)(Budget&, const Value& input, const Arguments&);

bool given(const Value* value) { return value && !value->is_none(); }

Value call_method(Budget& budget, const std::string& text, const char* name, const Arguments& arguments) {
  const Value bound = method(text, name);
  return (*bound.get<std::shared_ptr<const Callable>>())->call(budget, arguments);
}

// A string method as a filter: the input is made a string first.
template <const char* const& name>
Value as_method(Budget& budget, const Value& input, const Arguments& arguments) {
  return call_method(budget, to_text(budget, input), name, arguments);
}
constexpr const char *kUpper = "upper", *kLower = "lower", *kCapitalize = "capitalize", *kStrip = "strip";

// What `attribute="a.b.0"` picks of an item; the item itself without an attribute.
Value pick(Budget& budget, Value value, const Value* path, const Value* otherwise = nullptr) {
  if (!given(path)) return value;
  if (!path->text()) return item(budget, value, *path);
  std::string_view rest = *path->text();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string part(rest.substr(0, dot));
    const bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = item(budget, value, number ? Value(int64_t{std::stol(part)}) : Value(part));
    if (given(otherwise) && value.is_undefined()) value = *otherwise;
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value without_case(const Value& value) { return value.text() ? Value(lower(*value.text())) : value; }

// The keys by which items are ordered or told apart.
std::vector<std::pair<Value, Value>> keyed(Budget& budget, const std::vector<Value>& items, bool case_sensitive,
                                           const Value* path) {
  std::vector<std::pair<Value, Value>> result;
  for (const Value& v : items) {
    Value key = pick(budget, v, path);
    result.emplace_back(case_sensitive ? key : without_case(key), v);
  }
  return result;
}

std::vector<Value> ordered(Budget& budget, std::vector<std::pair<Value, Value>> entries, bool reverse) {
  // Insertion by binary search: it stays within bounds whatever the comparison says (NaN orders nothing), and is
  // stable.
  std::vector<std::pair<Value, Value>> sorted;
  for (auto& entry : entries) {
    const auto at = std::upper_bound(sorted.begin(), sorted.end(), entry, [&](const auto& a, const auto& b) {
      return reverse ? less(budget, b.first, a.first) : less(budget, a.first, b.first);
    });
    budget.spend(static_cast<size_t>(sorted.end() - at) / 4);
    sorted.insert(at, std::move(entry));
  }
  std::vector<Value> result;
  for (auto& [key, value] : sorted) result.push_back(std::move(value));
  return result;
}

Value sort(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const auto items = iterate(budget, input);
  return Value::list(ordered(budget, keyed(budget, items, p.boolean(1, false), p[2]), p.boolean(0, false)));
}

Value dictsort(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.dict()) fail("dictsort needs a dict, not '" + type_name(input) + "'");
  const std::string by = p.text(1, "key");
  if (by != "key" && by != "value") fail("dictsort orders by 'key' or 'value'");
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : input.dict()->items) {
    const Value& chosen = by == "key" ? key : value;
    entries.emplace_back(p.boolean(0, false) ? chosen : without_case(chosen), Value::tuple({key, value}));
  }
  return Value::list(ordered(budget, std::move(entries), p.boolean(2, false)));
}

Value unique(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> seen, result;
  for (auto& [key, value] : keyed(budget, iterate(budget, input), p.boolean(0, false), p[1])) {
    budget.spend(seen.size());
    same_key(key, key);
    if (std::any_of(seen.begin(), seen.end(), [&k = key](const Value& other) { return same_key(other, k); })) continue;
    seen.push_back(key);
    result.push_back(value);
  }
  return Value::generator(std::move(result));
}

template <bool largest>
Value extreme(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto entries = keyed(budget, iterate(budget, input), p.boolean(0, false), p[1]);
  if (entries.empty()) return Value::undefined("the sequence is empty");
  size_t best = 0;
  for (size_t i = 1; i < entries.size(); ++i) {
    const Value &a = entries[i].first, &b = entries[best].first;
    if (largest ? less(budget, b, a) : less(budget, a, b)) best = i;
  }
  return entries[best].second;
}

Value sum(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"});
  Value total = p[1] ? *p[1] : Value(int64_t{0});
  if (total.text()) fail("sum can't add strings: use join");
  for (const Value& v : iterate(budget, input)) total = arithmetic(budget, "+", total, pick(budget, v, p[0]));
  return total;
}

Value join(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("join", arguments, {"d", "attribute"});
  const std::string separator = p[0] ? to_text(budget, *p[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& v : iterate(budget, input)) {
    if (!std::exchange(first, false)) append(budget, out, separator);
    append(budget, out, to_text(budget, pick(budget, v, p[1])));
  }
  return out;
}

Value replace(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"s", "new", "count"}, 2);
  const std::string text = to_text(budget, input), old = to_text(budget, *p[0]), fresh = to_text(budget, *p[1]);
  int64_t left = given(p[2]) ? p.integer(2, -1) : -1;
  std::string out;
  size_t at = 0;
  while (left != 0) {
    size_t found = find_bytes(text, old, at);
    if (found == std::string::npos) break;
    if (old.empty() && found == text.size()) {
      append(budget, out, fresh);
      return out;
    }
    append(budget, out, std::string_view(text).substr(at, found - at));
    append(budget, out, fresh);
    at = found + old.size();
    if (old.empty()) {  // between all code points
      do out += text[at++];
      while (at < text.size() && (text[at] & 0xC0) == 0x80);
    }
    left -= left > 0;
  }
  append(budget, out, std::string_view(text).substr(at));
  return out;
}

Value default_value(Budget&, const Value& input, const Arguments& arguments) {
  const Parameters p("default", arguments, {"default_value", "boolean"});
  if (!input.is_undefined() && !(p.boolean(1, false) && !truth(input))) return input;
  return p[0] ? *p[0] : Value("");
}

Value title(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters none("title", arguments, {});
  std::u32string points = decode(to_text(budget, input));
  bool begins = true;
  for (char32_t& c : points) {
    const bool separator = is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
    if (!separator) c = begins ? to_upper(c) : to_lower(c);
    begins = separator;
  }
  return encode(points);
}

Value first(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters none("first", arguments, {});
  if (input.is_undefined()) return Value::undefined("the sequence is empty");
  if (Sequence* s = input.sequence(); s && s->kind == Sequence::Kind::kGenerator && !s->items.empty()) {
    Value front = s->items.front();
    s->items.erase(s->items.begin());
    return front;
  }
  const auto items = iterate(budget, input);
  return items.empty() ? Value::undefined("the sequence is empty") : items.front();
}

void require_reversible(const Value& input) {
  const Sequence* s = input.sequence();
  if (s ? s->kind == Sequence::Kind::kGenerator : !input.text() && !input.dict()) {
    fail("'" + type_name(input) + "' can't be walked backwards");
  }
}

Value last(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters none("last", arguments, {});
  require_reversible(input);
  const auto items = iterate(budget, input);
  return items.empty() ? Value::undefined("the sequence is empty") : items.back();
}

Value reverse(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters none("reverse", arguments, {});
  auto items = iterate(budget, input);
  std::reverse(items.begin(), items.end());
  if (input.text()) return join(budget, Value::list(std::move(items)), {});
  const Sequence* s = input.sequence();
  return s && s->kind == Sequence::Kind::kGenerator ? Value::list(std::move(items))
                                                    : Value::generator(std::move(items));
}

Value list(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters none("list", arguments, {});
  return Value::list(iterate(budget, input));
}

Value items(Budget&, const Value& input, const Arguments& arguments) {
  const Parameters none("items", arguments, {});
  if (input.is_undefined()) return Value::generator({});
  if (!input.dict()) fail("items needs a dict, not '" + type_name(input) + "'");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict()->items) pairs.push_back(Value::tuple({key, value}));
  return Value::generator(std::move(pairs));
}

Value batch(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = p.integer(0, 1);
  if (size < 1) fail("batch needs a positive size");
  std::vector<Value> rows, row;
  for (const Value& v : iterate(budget, input)) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(Value::list(std::exchange(row, {})));
    row.push_back(v);
  }
  if (!row.empty() && given(p[1])) {
    budget.spend(static_cast<size_t>(size));
    row.resize(static_cast<size_t>(size), *p[1]);
  }
  if (!row.empty()) rows.push_back(Value::list(std::move(row)));
  return Value::generator(std::move(rows));
}

// map("filter", …) and map(attribute="…", default=…).
Value map(Budget& budget, const Value& input, const Arguments& arguments) {
  const bool by_attribute = arguments.positional.empty();
  const Arguments none;
  const Parameters p("map", by_attribute ? arguments : none, {"attribute", "default"});
  if (by_attribute && !p[0]) fail("map needs a filter or an attribute");
  Arguments rest = arguments;
  std::string filter;
  if (!by_attribute) {
    filter = to_text(budget, arguments.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> result;
  for (const Value& v : iterate(budget, input)) {
    result.push_back(by_attribute ? pick(budget, v, p[0], p[1]) : apply_filter(budget, filter, v, rest));
  }
  return Value::generator(std::move(result));
}

// select(test, …), reject(test, …), selectattr(attribute, test, …), rejectattr(attribute, test, …).
template <bool by_attribute, bool keep>
Value choose(Budget& budget, const Value& input, const Arguments& arguments) {
  const size_t test_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < test_at) fail("selectattr and rejectattr need an attribute");
  const Value* path = by_attribute ? &arguments.positional[0] : nullptr;
  const bool tests = arguments.positional.size() > test_at;
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<int64_t>(test_at + tests));
  const std::string test = tests ? to_text(budget, arguments.positional[test_at]) : "";
  std::vector<Value> result;
  for (const Value& v : iterate(budget, input)) {
    const Value subject = pick(budget, v, path);
    if ((tests ? apply_test(budget, test, subject, rest) : truth(subject)) == keep) result.push_back(v);
  }
  return Value::generator(std::move(result));
}

std::optional<double> parse_float(std::string_view text) {
  std::string s = strip(text, nullptr, true, true);
  if (s.find("__") != std::string::npos || s.starts_with('_') || s.ends_with('_')) return std::nullopt;
  s.erase(std::remove(s.begin(), s.end(), '_'), s.end());
  const size_t sign = s.starts_with('+') || s.starts_with('-');
  const std::string name = lower(s.substr(sign));
  double value = 0;
  if (name == "inf" || name == "infinity") {
    value = INFINITY;
  } else if (name == "nan") {
    value = NAN;
  } else {
    const auto read = std::from_chars(s.data() + sign, s.data() + s.size(), value);
    if (read.ptr != s.data() + s.size() || sign == s.size() || s[sign] == '-' || s[sign] == 'n' || s[sign] == 'i') {
      return std::nullopt;
    }
    if (read.ec == std::errc::result_out_of_range) value = std::strtod(s.c_str() + sign, nullptr);
  }
  return s.starts_with('-') ? -value : value;
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  std::string s = lower(strip(text, nullptr, true, true));
  if (s.find("__") != std::string::npos || s.starts_with('_') || s.ends_with('_')) return std::nullopt;
  s.erase(std::remove(s.begin(), s.end(), '_'), s.end());
  const bool minus = s.starts_with('-');
  if (minus || s.starts_with('+')) s.erase(0, 1);
  const int64_t marked = s.starts_with("0x") ? 16 : s.starts_with("0o") ? 8 : s.starts_with("0b") ? 2 : 0;
  if (marked && (base == marked || base == 0)) {
    s.erase(0, 2);
    base = marked;
  } else if (base == 0) {
    base = 10;
  }
  if (base < 2 || base > 36) fail("int() needs a base from 2 to 36");
  int64_t value = 0;
  if (s.starts_with('-')) return std::nullopt;
  const auto read = std::from_chars(s.data(), s.data() + s.size(), value, static_cast<int>(base));
  if (s.empty() || read.ptr != s.data() + s.size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) fail("an integer of more than 64 bits");
  return minus ? -value : value;
}

std::optional<int64_t> truncated(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (d < -9.2e18 || d > 9.2e18) fail("an integer of more than 64 bits");
  return static_cast<int64_t>(d);
}

void reject_undefined(const Value& value) {
  if (const auto* undefined = value.get<Undefined>())
    fail(undefined->why ? *undefined->why : "an undefined value is used");
}

Value to_integer(Budget&, const Value& input, const Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  reject_undefined(input);
  std::optional<int64_t> result = as_integer(input);
  if (const std::string* text = input.text()) {
    result = parse_integer(*text, p.integer(1, 10));
    if (const auto d = parse_float(*text); !result && d) result = truncated(*d);
  } else if (!result && as_number(input)) {
    result = truncated(*as_number(input));
    if (!result && std::isinf(*as_number(input))) fail("cannot convert float infinity to integer");
  }
  return result ? Value(*result) : p[0] ? *p[0] : Value(int64_t{0});
}

Value to_float(Budget&, const Value& input, const Arguments& arguments) {
  const Parameters p("float", arguments, {"default"});
  reject_undefined(input);
  const std::optional<double> result = input.text() ? parse_float(*input.text()) : as_number(input);
  return result ? Value(*result) : p[0] ? *p[0] : Value(0.0);
}

Value absolute(Budget&, const Value& input, const Arguments& arguments) {
  const Parameters none("abs", arguments, {});
  reject_undefined(input);
  if (const auto i = as_integer(input)) return *i < 0 ? negative(*i) : Value(*i);
  if (const auto d = as_number(input)) return std::fabs(*d);
  fail("abs needs a number, not '" + type_name(input) + "'");
}

Value round(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  const std::string how = p.text(1, "common");
  const int64_t precision = p.integer(0, 0);
  reject_undefined(input);
  const auto d = as_number(input);
  if (!d) fail("round needs a number, not '" + type_name(input) + "'");
  if (precision < -20 || precision > 300) fail("round's precision is out of range");
  if (how == "common") {
    if (as_integer(input) && precision >= 0) return *as_integer(input);
    if (precision < 0) fail("round to tens is not supported");
    if (!std::isfinite(*d)) return *d;
    char buffer[700];  // printf rounds the exact binary value half to even, as Python does
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), *d);
    return std::strtod(buffer, nullptr);
  }
  if (how != "ceil" && how != "floor") fail("round's method must be common, ceil or floor");
  const Value power = arithmetic(budget, "**", int64_t{10}, precision);
  const double scaled = *as_number(arithmetic(budget, "*", input, power));
  return (how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / *as_number(power);
}

Value indent(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"});
  if (!input.text()) fail("indent needs a string, not '" + type_name(input) + "'");
  const int64_t width = p[0] && p[0]->text() ? 0 : std::clamp<int64_t>(p.integer(0, 4), 0, 10'000);
  const std::string margin = p[0] && p[0]->text() ? *p[0]->text() : std::string(static_cast<size_t>(width), ' ');
  const bool blank = p.boolean(2, false);
  std::string out = p.boolean(1, false) ? margin : "";
  const Value lines = call_method(budget, *input.text() + "\n", "splitlines", {});
  bool begun = false;
  for (const Value& line : lines.sequence()->items) {
    if (std::exchange(begun, true)) {
      append(budget, out, "\n");
      if (blank || !line.text()->empty()) append(budget, out, margin);
    }
    append(budget, out, *line.text());
  }
  return out;
}

Value wordcount(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters none("wordcount", arguments, {});
  int64_t words = 0;
  bool inside = false;
  for (const char32_t c : decode(to_text(budget, input))) {
    const bool word = is_alpha(c) || (c >= '0' && c <= '9') || c == '_';
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value truncate(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!input.text()) fail("truncate needs a string, not '" + type_name(input) + "'");
  const std::u32string points = decode(*input.text()), end = decode(p.text(2, "..."));
  const int64_t length = p.integer(0, 255), leeway = given(p[3]) ? p.integer(3, 5) : 5;
  const auto size = static_cast<int64_t>(points.size()), end_size = static_cast<int64_t>(end.size());
  if (length < end_size || leeway < 0)
    fail("truncate's length is less than that of its end, or its leeway is negative");
  if (size - leeway <= length) return input;
  std::u32string head = points.substr(0, static_cast<size_t>(length - end_size));
  const size_t blank = head.rfind(U' ');
  if (!p.boolean(1, false) && blank != std::u32string::npos) head.resize(blank);
  budget.spend(points.size() / 8);
  return encode(head + end);
}

Value format(Budget& budget, const Value& input, const Arguments& arguments) {
  if (arguments.named.empty())
    return percent_format(budget, to_text(budget, input), Value::tuple(arguments.positional));
  if (!arguments.positional.empty()) fail("format takes either positional or named arguments");
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : arguments.named) dict->set(Value(name), value);
  return percent_format(budget, to_text(budget, input), std::shared_ptr<const Dict>(std::move(dict)));
}

Value tojson(Budget& budget, const Value& input, const Arguments& arguments) {
  const Parameters p("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.boolean(0, false);
  style.sort_keys = p.boolean(3, false);
  if (given(p[1])) {
    const int64_t width = p[1]->text() ? 0 : std::clamp<int64_t>(p.integer(1, 0), 0, 10'000);
    style.indent = p[1]->text() ? *p[1]->text() : std::string(static_cast<size_t>(width), ' ');
    style.item_separator = ",";
  }
  if (given(p[2])) {
    const auto separators = iterate(budget, *p[2]);
    if (separators.size() != 2 || !separators[0].text() || !separators[1].text()) fail("separators are two strings");
    style.item_separator = *separators[0].text();
    style.key_separator = *separators[1].text();
  }
  return to_json(budget, input, style);
}

Value safe(Budget& budget, const Value& input, const Arguments&) { return Value(to_text(budget, input), true); }
Value escape(Budget& budget, const Value& input, const Arguments&) {
  if (input.text() && input.get<Text>()->markup) return input;
  return Value(escape_html(budget, to_text(budget, input)), true);
}
Value string(Budget& budget, const Value& input, const Arguments&) {
  return input.text() ? input : Value(to_text(budget, input));
}
Value length_of(Budget&, const Value& input, const Arguments&) { return length(input); }
Value center(Budget& budget, const Value& input, const Arguments& arguments) {
  const int64_t width = Parameters("center", arguments, {"width"}).integer(0, 80);
  return call_method(budget, to_text(budget, input), "center", {{Value(width)}, {}});
}
Value attr(Budget& budget, const Value& input, const Arguments& arguments) {
  const std::string name = Parameters("attr", arguments, {"name"}, 1).text(0, "");
  return input.dict() || input.is_undefined() ? method(input, name) : attribute(budget, input, name);
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> kFilters = {
      {"abs", absolute},
      {"attr", attr},
      {"batch", batch},
      {"capitalize", as_method<kCapitalize>},
      {"center", center},
      {"count", length_of},
      {"d", default_value},
      {"default", default_value},
      {"dictsort", dictsort},
      {"e", escape},
      {"escape", escape},
      {"first", first},
      {"float", to_float},
      {"format", format},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length_of},
      {"list", list},
      {"lower", as_method<kLower>},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", choose<false, false>},
      {"rejectattr", choose<true, false>},
      {"replace", replace},
      {"reverse", reverse},
      {"round", round},
      {"safe", safe},
      {"select", choose<false, true>},
      {"selectattr", choose<true, true>},
      {"sort", sort},
      {"string", string},
      {"sum", sum},
      {"title", title},
      {"tojson", tojson},
      {"trim", as_method<kStrip>},
      {"truncate", truncate},
      {"unique", unique},
      {"upper", as_method<kUpper>},
      {"wordcount", wordcount},
  };
  return kFilters;
}

}  // namespace

std::string escape_html(Budget& budget, std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  budget.spend_text(out.size());
  return out;
}

Value apply_filter(Budget& budget, std::string_view name, const Value& input, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) fail("no filter named '" + std::string(name.substr(0, 40)) + "'");
  budget.spend(input.text() ? input.text()->size() / 16 + 1 : 1);
  return found->second(budget, input, arguments);
}

}  // namespace sluice::jinja
