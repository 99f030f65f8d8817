// The methods of strings, dicts and lists that the sandbox of chat templates allows: those that change nothing.
#include <algorithm>
#include <map>

#include "model/jinja/operations.h"
#include "model/jinja/text.h"

namespace sluice::jinja {
namespace {

using Method = Value (*)(Budget&, const Value& self, const Arguments&);
using Methods = std::map<std::string_view, Method>;

constexpr auto kNone = std::string_view::npos;

bool given(const Value* value) { return value && !value->is_none(); }

template <bool left, bool right>
Value strip_method(Budget&, const Value& self, const Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"});
  if (!given(p[0])) return strip(*self.text(), nullptr, left, right);
  const std::string chars = p.text(0, "");
  const std::string_view view = chars;
  return strip(*self.text(), &view, left, right);
}

// The last occurrence; the search may compare every byte of the needle at every place, and pays for that beforehand.
size_t rfind_bytes(Budget& budget, std::string_view text, std::string_view needle) {
  budget.spend(text.size() / 64 * std::min<size_t>(needle.size(), 1 << 20));
  return text.rfind(needle);
}

Value text_list(std::vector<std::string> parts) {
  return Value::list(std::vector<Value>(std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end())));
}

// Words between white space; after `most` of them (if not negative) the rest is one.
std::vector<std::u32string> split_words(std::u32string_view text, int64_t most) {
  std::vector<std::u32string> words;
  size_t at = 0;
  const auto skip = [&] {
    while (at < text.size() && is_space(text[at])) ++at;
  };
  for (skip(); at < text.size(); skip()) {
    size_t end = at;
    const bool rest = most >= 0 && static_cast<int64_t>(words.size()) >= most;
    while (end < text.size() && (rest || !is_space(text[end]))) ++end;
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

template <bool from_right>
Value split_method(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("split", arguments, {"sep", "maxsplit"});
  const int64_t most = p.integer(1, -1);
  std::vector<std::string> parts;
  std::string_view rest = *self.text();
  if (!given(p[0])) {
    std::u32string points = decode(rest);
    if (from_right) std::reverse(points.begin(), points.end());
    for (auto& word : split_words(points, most)) {
      if (from_right) std::reverse(word.begin(), word.end());
      parts.push_back(encode(word));
    }
  } else {
    const std::string separator = p.text(0, "");
    if (separator.empty()) fail("empty separator");
    while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
      const size_t at = from_right ? rfind_bytes(budget, rest, separator) : find_bytes(rest, separator);
      if (at == kNone) break;
      const size_t after = at + separator.size();
      parts.emplace_back(from_right ? rest.substr(after) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(after);
    }
    parts.emplace_back(rest);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  budget.spend(parts.size() * 4);
  return text_list(std::move(parts));
}

Value splitlines(Budget& budget, const Value& self, const Arguments& arguments) {
  const bool keep = Parameters("splitlines", arguments, {"keepends"}).boolean(0, false);
  const std::u32string points = decode(*self.text());
  const auto ends_line = [](char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string> lines;
  for (size_t at = 0; at < points.size();) {
    size_t end = at;
    while (end < points.size() && !ends_line(points[end])) ++end;
    size_t after = std::min(end + 1, points.size());
    if (end + 1 < points.size() && points[end] == '\r' && points[end + 1] == '\n') ++after;
    lines.push_back(encode(std::u32string_view(points).substr(at, (keep ? after : end) - at)));
    at = after;
  }
  budget.spend(lines.size() * 4);
  return text_list(std::move(lines));
}

// The part of the text that the optional parameters `start` and `end` of a search leave, and where it begins.
struct Window {
  std::string text;
  int64_t begin = 0;
  bool valid = true;  // start is not beyond the end of the text
};
Window window(const Value& self, const Parameters& p) {
  if (!given(p[1]) && !given(p[2])) return {*self.text(), 0, true};
  const std::u32string points = decode(*self.text());
  const auto size = static_cast<int64_t>(points.size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t at = given(p[i]) ? p.integer(i, 0) : otherwise;
    return at < 0 ? std::max<int64_t>(at < -size ? 0 : at + size, 0) : at;
  };
  const int64_t begin = bound(1, 0), end = std::min(bound(2, size), size);
  if (begin > size || begin > end) return {"", begin, false};
  return {encode(std::u32string_view(points).substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin))),
          begin};
}

template <bool at_start>
Value affix_method(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p(at_start ? "startswith" : "endswith", arguments, {"affix", "start", "end"}, 1);
  const Window part = window(self, p);
  const Sequence* tuple = p[0]->sequence();
  if (!p[0]->text() && !(tuple && tuple->kind == Sequence::Kind::kTuple)) {
    fail("startswith and endswith need a string or a tuple of strings");
  }
  const std::vector<Value> affixes = tuple ? iterate(budget, *p[0]) : std::vector<Value>{*p[0]};
  return std::any_of(affixes.begin(), affixes.end(), [&](const Value& affix) {
    if (!affix.text()) fail("startswith and endswith need strings");
    return part.valid && (at_start ? part.text.starts_with(*affix.text()) : part.text.ends_with(*affix.text()));
  });
}

template <bool from_right, bool must_find>
Value find_method(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p(must_find ? "index" : "find", arguments, {"sub", "start", "end"}, 1);
  const std::string needle = p.text(0, "");
  const Window part = window(self, p);
  const size_t at = !part.valid  ? kNone
                    : from_right ? rfind_bytes(budget, part.text, needle)
                                 : find_bytes(part.text, needle);
  if (at == kNone && must_find) fail("substring not found");
  if (at == kNone) return int64_t{-1};
  return part.begin + static_cast<int64_t>(code_points(std::string_view(part.text).substr(0, at)));
}

Value count(Budget&, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"sub", "start", "end"}, 1);
  const std::string needle = p.text(0, "");
  const Window part = window(self, p);
  if (!part.valid) return int64_t{0};
  if (needle.empty()) return static_cast<int64_t>(code_points(part.text)) + 1;
  int64_t n = 0;
  for (size_t at = find_bytes(part.text, needle); at != kNone; at = find_bytes(part.text, needle, at + needle.size()))
    ++n;
  return n;
}

Value replace(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  return apply_filter(budget, "replace", Value(*self.text()),
                      {{Value(p.text(0, "")), Value(p.text(1, "")), Value(p.integer(2, -1))}, {}});
}

Value join(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& part : iterate(budget, *p[0])) {
    if (!part.text()) fail("join needs strings, not '" + type_name(part) + "'");
    if (!std::exchange(first, false)) append(budget, out, *self.text());
    append(budget, out, *part.text());
  }
  return out;
}

// Capital letters where a word begins, small ones elsewhere.
Value title(Budget&, const Value& self, const Arguments&) {
  std::u32string points = decode(*self.text());
  bool inside = false;
  for (char32_t& c : points) {
    const bool cased = is_upper(c) || is_lower(c);
    if (cased) c = inside ? to_lower(c) : to_upper(c);
    inside = cased;
  }
  return encode(points);
}

Value swapcase(Budget&, const Value& self, const Arguments&) {
  std::u32string points = decode(*self.text());
  for (char32_t& c : points) c = is_upper(c) ? to_lower(c) : to_upper(c);
  return encode(points);
}

template <bool (*accepts)(char32_t)>
Value all_method(Budget&, const Value& self, const Arguments&) {
  const std::u32string points = decode(*self.text());
  return !points.empty() && std::all_of(points.begin(), points.end(), accepts);
}
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_alnum(char32_t c) { return is_digit(c) || is_alpha(c); }

// All cased letters are of one case, and there is one.
template <bool (*accepts)(char32_t), bool (*rejects)(char32_t)>
Value case_method(Budget&, const Value& self, const Arguments&) {
  const std::u32string points = decode(*self.text());
  return std::any_of(points.begin(), points.end(), accepts) && std::none_of(points.begin(), points.end(), rejects);
}

// -1: the text goes left, 0: to the middle, 1: right.
template <int side>
Value justify_method(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("justify", arguments, {"width", "fillchar"}, 1);
  const auto size = static_cast<int64_t>(code_points(*self.text()));
  const std::string fill = p.text(1, " ");
  if (code_points(fill) != 1) fail("the fill character must be exactly one character long");
  const int64_t blanks = std::max<int64_t>(0, p.integer(0, 0) - size);
  budget.spend_text(static_cast<size_t>(blanks) * fill.size());
  const int64_t left = side < 0 ? 0 : side > 0 ? blanks : blanks / 2 + (blanks & p.integer(0, 0) & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += *self.text();
  for (int64_t i = left; i < blanks; ++i) out += fill;
  return out;
}

Value zfill(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("zfill", arguments, {"width"}, 1);
  const int64_t blanks = std::max<int64_t>(0, p.integer(0, 0) - static_cast<int64_t>(code_points(*self.text())));
  budget.spend_text(static_cast<size_t>(blanks));
  const bool sign = self.text()->starts_with('-') || self.text()->starts_with('+');
  return self.text()->substr(0, sign) + std::string(static_cast<size_t>(blanks), '0') + self.text()->substr(sign);
}

template <bool from_right>
Value partition_method(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("partition", arguments, {"sep"}, 1);
  const std::string separator = p.text(0, "");
  if (separator.empty()) fail("empty separator");
  const std::string& text = *self.text();
  const size_t at = from_right ? rfind_bytes(budget, text, separator) : find_bytes(text, separator);
  if (at == kNone && from_right) return Value::tuple({"", "", text});
  if (at == kNone) return Value::tuple({text, "", ""});
  return Value::tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

Value removeprefix(Budget&, const Value& self, const Arguments& arguments) {
  const std::string prefix = Parameters("removeprefix", arguments, {"prefix"}, 1).text(0, "");
  return self.text()->starts_with(prefix) ? self.text()->substr(prefix.size()) : *self.text();
}
Value removesuffix(Budget&, const Value& self, const Arguments& arguments) {
  const std::string suffix = Parameters("removesuffix", arguments, {"suffix"}, 1).text(0, "");
  return self.text()->ends_with(suffix) ? self.text()->substr(0, self.text()->size() - suffix.size()) : *self.text();
}

template <std::string (*convert)(std::string_view)>
Value case_change(Budget&, const Value& self, const Arguments& arguments) {
  const Parameters none("this method", arguments, {});
  return convert(*self.text());
}

const Methods& text_methods() {
  static const Methods kMethods = {
      {"strip", strip_method<true, true>},
      {"lstrip", strip_method<true, false>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"splitlines", splitlines},
      {"startswith", affix_method<true>},
      {"endswith", affix_method<false>},
      {"find", find_method<false, false>},
      {"rfind", find_method<true, false>},
      {"index", find_method<false, true>},
      {"rindex", find_method<true, true>},
      {"count", count},
      {"replace", replace},
      {"join", join},
      {"upper", case_change<upper>},
      {"lower", case_change<lower>},
      {"casefold", case_change<lower>},
      {"capitalize", case_change<capitalize>},
      {"title", title},
      {"swapcase", swapcase},
      {"isdigit", all_method<is_digit>},
      {"isdecimal", all_method<is_digit>},
      {"isnumeric", all_method<is_digit>},
      {"isalpha", all_method<is_alpha>},
      {"isalnum", all_method<is_alnum>},
      {"isspace", all_method<is_space>},
      {"isupper", case_method<is_upper, is_lower>},
      {"islower", case_method<is_lower, is_upper>},
      {"ljust", justify_method<-1>},
      {"center", justify_method<0>},
      {"rjust", justify_method<1>},
      {"zfill", zfill},
      {"partition", partition_method<false>},
      {"rpartition", partition_method<true>},
      {"removeprefix", removeprefix},
      {"removesuffix", removesuffix},
      {"format", [](Budget& budget, const Value& self,
                    const Arguments& arguments) { return Value(brace_format(budget, *self.text(), arguments)); }},
  };
  return kMethods;
}

enum class Part { kKeys, kValues, kItems };
template <Part part>
Value view_method(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters none("this method", arguments, {});
  auto view = std::make_shared<Sequence>();
  view->kind = Sequence::Kind::kView;
  view->name = part == Part::kKeys ? "dict_keys" : part == Part::kValues ? "dict_values" : "dict_items";
  for (const auto& [key, value] : self.dict()->items) {
    view->items.push_back(part == Part::kKeys ? key : part == Part::kValues ? value : Value::tuple({key, value}));
  }
  budget.spend(view->items.size());
  return view;
}

Value get(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("get", arguments, {"key", "default"}, 1);
  budget.spend(self.dict()->items.size() / 4 + 1);
  for (const auto& [key, value] : self.dict()->items) {
    if (same_key(key, *p[0])) return value;
  }
  same_key(*p[0], *p[0]);
  return p[1] ? *p[1] : Value(None{});
}

Value same(Budget&, const Value& self, const Arguments&) { return self; }

const Methods& dict_methods() {
  static const Methods kMethods = {{"keys", view_method<Part::kKeys>},
                                   {"values", view_method<Part::kValues>},
                                   {"items", view_method<Part::kItems>},
                                   {"get", get},
                                   {"copy", same}};
  return kMethods;
}

Value sequence_count(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"value"}, 1);
  const auto& items = self.sequence()->items;
  return int64_t{std::count_if(items.begin(), items.end(), [&](const Value& v) { return equal(budget, v, *p[0]); })};
}

Value sequence_index(Budget& budget, const Value& self, const Arguments& arguments) {
  const Parameters p("index", arguments, {"value"}, 1);
  const auto& items = self.sequence()->items;
  const auto at = std::find_if(items.begin(), items.end(), [&](const Value& v) { return equal(budget, v, *p[0]); });
  if (at == items.end()) fail("the value is not in the list");
  return int64_t{at - items.begin()};
}

const Methods& sequence_methods() {
  static const Methods kMethods = {{"count", sequence_count}, {"index", sequence_index}};
  return kMethods;
}

const Methods* methods_of(const Value& object) {
  if (object.text()) return &text_methods();
  if (object.dict()) return &dict_methods();
  const Sequence* s = object.sequence();
  return s && s->kind != Sequence::Kind::kGenerator && s->kind != Sequence::Kind::kView ? &sequence_methods() : nullptr;
}

}  // namespace

Value method(const Value& object, const std::string& name) {
  const Methods* methods = methods_of(object);
  const auto found = methods ? methods->find(name) : Methods::const_iterator();
  if (!methods || found == methods->end()) {
    return Value::undefined("'" + type_name(object) + "' has no usable attribute '" + name + "'");
  }
  auto bound = std::make_shared<Callable>();
  bound->name = name;
  bound->nesting = nesting(object) + 1;
  if (bound->nesting > Budget::kMaxNesting) fail("values nest too deeply");
  bound->call = [object, function = found->second](Budget& budget, const Arguments& arguments) {
    if (const std::string* text = object.text()) budget.spend(text->size() / 16 + 1);
    return function(budget, object, arguments);
  };
  return std::shared_ptr<const Callable>(std::move(bound));
}

}  // namespace sluice::jinja
