#include "model/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/jinja/operations.h"
#include "model/jinja/text.h"

namespace sluice::jinja {
namespace {

void append_string(Budget& budget, std::string& out, const std::string& text, bool ensure_ascii) {
  std::string quoted = "\"";
  const auto escape = [&](unsigned unit) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "\\u%04x", unit);
    quoted += buffer;
  };
  for (const char32_t c : decode(text)) {
    static constexpr std::u32string_view kSpecial = U"\"\\\n\r\t\b\f";
    if (const size_t special = kSpecial.find(c); special != std::u32string_view::npos) {
      quoted += '\\';
      quoted += "\"\\nrtbf"[special];
    } else if (c < 0x20 || (ensure_ascii && c > 0x7E && c < 0x10000)) {
      escape(c);
    } else if (ensure_ascii && c >= 0x10000) {
      escape(0xD800 + ((c - 0x10000) >> 10));
      escape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      append_code_point(quoted, c);
    }
  }
  append(budget, out, quoted += '"');
}

std::string number(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return float_repr(d);
}

class Writer {
 public:
  Writer(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}
  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, int depth) {
    budget_.spend(1);
    if (const std::string* text = value.text()) return append_string(budget_, out_, *text, style_.ensure_ascii);
    if (const Dict* dict = value.dict()) return object(*dict, depth);
    const Sequence* s = value.sequence();
    if (s && (s->kind == Sequence::Kind::kList || s->kind == Sequence::Kind::kTuple)) return array(s->items, depth);
    append(budget_, out_, scalar(value));
  }

  std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const auto* b = value.get<bool>()) return *b ? "true" : "false";
    if (const auto* i = value.get<int64_t>()) return std::to_string(*i);
    if (const auto* d = value.get<double>()) return number(*d);
    fail("a value of type " + type_name(value) + " is not JSON serializable");
  }

  void line(int depth) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) append(budget_, out_, *style_.indent);
  }

  void array(const std::vector<Value>& items, int depth) {
    if (items.empty()) return append(budget_, out_, "[]");
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) append(budget_, out_, style_.item_separator);
      line(depth + 1);
      write(items[i], depth + 1);
    }
    line(depth);
    out_ += ']';
  }

  void object(const Dict& dict, int depth) {
    if (dict.items.empty()) return append(budget_, out_, "{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.items) entries.push_back(&entry);
    if (style_.sort_keys) {
      budget_.spend(entries.size() * 16);
      std::stable_sort(entries.begin(), entries.end(),
                       [&](auto* a, auto* b) { return less(budget_, a->first, b->first); });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) append(budget_, out_, style_.item_separator);
      line(depth + 1);
      const Value& key = entries[i]->first;
      append_string(budget_, out_, key.text() ? *key.text() : scalar(key), style_.ensure_ascii);
      append(budget_, out_, style_.key_separator);
      write(entries[i]->second, depth + 1);
    }
    line(depth);
    out_ += '}';
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  return Writer(budget, style).run(value);
}

Value from_json(const nlohmann::ordered_json& json, int depth) {
  if (depth >= Budget::kMaxNesting) fail("the JSON nests too deeply");
  if (json.is_string()) return json.get<std::string>();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& element : json) items.push_back(from_json(element, depth + 1));
    return Value::list(std::move(items));
  }
  if (json.is_object()) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [key, value] : json.items()) {  // keys are unique already
      dict->items.emplace_back(Value(key), from_json(value, depth + 1));
      dict->nesting = std::max(dict->nesting, nesting(dict->items.back().second) + 1);
    }
    return std::shared_ptr<const Dict>(std::move(dict));
  }
  return None{};
}

}  // namespace sluice::jinja
