// Python's two ways of formatting: "%d %s" % values, and "{} {name}".format(values), without format specifications.
#include <algorithm>
#include <cstdio>

#include "model/jinja/operations.h"
#include "model/jinja/text.h"

namespace sluice::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;

// %[(name)][flags][width][.precision]type
struct Specification {
  std::string name, flags;
  bool named = false;
  int64_t width = 0, precision = -1;
  char type = 's';
};

class Percent {
 public:
  Percent(Budget& budget, std::string_view format, const Value& arguments)
      : budget_(budget), format_(format), arguments_(arguments) {
    const Sequence* tuple = arguments.sequence();
    if (tuple && tuple->kind == Sequence::Kind::kTuple) {
      positional_ = tuple->items;
    } else {
      positional_ = {arguments};
    }
  }

  std::string run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      append(budget_, out_, format_.substr(at_, percent - at_));
      at_ = percent + 1;
      if (percent < format_.size()) conversion();
    }
    const bool single = !(arguments_.sequence() && arguments_.sequence()->kind == Sequence::Kind::kTuple);
    const bool spare = single && (arguments_.dict() || arguments_.sequence());
    if (used_ < positional_.size() && !spare) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char now() const { return at_ < format_.size() ? format_[at_] : '\0'; }

  int64_t number() {
    if (now() == '*') {
      ++at_;
      const auto n = as_integer(argument());
      if (!n) fail("* wants an integer");
      return *n;
    }
    int64_t n = 0;
    for (; now() >= '0' && now() <= '9' && n <= kMaxWidth; ++at_) n = n * 10 + (now() - '0');
    return n;
  }

  const Value& argument() {
    if (used_ >= positional_.size()) fail("not enough arguments for format string");
    return positional_[used_++];
  }

  Specification specification() {
    Specification spec;
    if (now() == '(') {
      const size_t end = format_.find(')', at_);
      if (end == std::string_view::npos) fail("incomplete format key");
      spec.name = format_.substr(at_ + 1, end - at_ - 1);
      spec.named = true;
      at_ = end + 1;
    }
    while (now() && std::string_view("-+ 0#").find(now()) != std::string_view::npos) spec.flags += format_[at_++];
    spec.width = number();
    if (now() == '.') {
      ++at_;
      spec.precision = number();
    }
    if (std::max(spec.width, spec.precision) > kMaxWidth) fail("a format's width is too large");
    if (at_ >= format_.size()) fail("incomplete format");
    spec.type = format_[at_++];
    return spec;
  }

  void conversion() {
    const Specification spec = specification();
    if (spec.type == '%') return append(budget_, out_, "%");
    if (spec.named && !arguments_.dict()) fail("format requires a mapping");
    const Value* entry = spec.named ? arguments_.dict()->find(spec.name) : nullptr;
    if (spec.named && !entry) fail("the format's key '" + spec.name + "' is missing");
    if (spec.named) used_ = positional_.size();
    convert(spec, spec.named ? *entry : argument());
  }

  void convert(const Specification& spec, const Value& value) {
    switch (spec.type) {
      case 's':
        return text(spec, to_text(budget_, value));
      case 'r':
        return text(spec, repr(budget_, value));
      case 'd':
      case 'i':
      case 'x':
      case 'X':
      case 'o':
        return integer(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return real(spec, value);
      default:
        fail(std::string("unsupported format character '") + spec.type + "'");
    }
  }

  void text(const Specification& spec, const std::string& text) {
    std::u32string points = decode(text);
    if (spec.precision >= 0 && points.size() > static_cast<size_t>(spec.precision)) points.resize(spec.precision);
    const std::u32string blanks(static_cast<size_t>(std::max<int64_t>(0, spec.width - int64_t(points.size()))), U' ');
    append(budget_, out_, encode(spec.flags.find('-') != std::string::npos ? points + blanks : blanks + points));
  }

  template <class T>
  void print(const Specification& spec, const char* length, char type, T value) {
    const std::string format = "%" + spec.flags + "*" + (spec.precision >= 0 ? ".*" : "") + length + type;
    std::string buffer(static_cast<size_t>(spec.width + std::max<int64_t>(spec.precision, 0) + 400), '\0');
    const int width = static_cast<int>(spec.width), precision = static_cast<int>(spec.precision);
    const int size = spec.precision >= 0
                         ? std::snprintf(buffer.data(), buffer.size(), format.c_str(), width, precision, value)
                         : std::snprintf(buffer.data(), buffer.size(), format.c_str(), width, value);
    append(budget_, out_, std::string_view(buffer).substr(0, static_cast<size_t>(size)));
  }

  void integer(const Specification& spec, const Value& value) {
    const bool decimal = spec.type == 'd' || spec.type == 'i';
    const auto* d = value.get<double>();
    if (d && decimal && !(*d > -9e18 && *d < 9e18)) fail("a float too large for an integer format");
    if (!as_integer(value) && !(d && decimal))
      fail(std::string("%") + spec.type + " needs a number, not '" + type_name(value) + "'");
    const long long n = d ? static_cast<long long>(*d) : *as_integer(value);
    if (!decimal && n < 0) fail("hexadecimal and octal formats of negative numbers are not supported");
    print(spec, "ll", decimal ? 'd' : spec.type, n);
  }

  void real(const Specification& spec, const Value& value) {
    const auto d = as_number(value);
    if (!d) fail(std::string("%") + spec.type + " needs a number, not '" + type_name(value) + "'");
    print(spec, "", spec.type, *d);
  }

  Budget& budget_;
  std::string_view format_;
  const Value& arguments_;
  std::vector<Value> positional_;
  size_t used_ = 0, at_ = 0;
  std::string out_;
};

// The field between the braces: a number, a name, or nothing for the next argument; then perhaps !r or !s.
Value field(Budget& budget, std::string_view field, size_t& next, const Arguments& arguments) {
  std::string_view conversion;
  if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
    conversion = field.substr(mark + 1);
    field = field.substr(0, mark);
  }
  if (field.find_first_of(":.[") != std::string_view::npos ||
      (!conversion.empty() && conversion != "r" && conversion != "s")) {
    fail("format() supports only {}, {0} and {name}, with !r or !s");
  }
  const Value* value = nullptr;
  if (field.find_first_not_of("0123456789") == std::string_view::npos) {
    const size_t index = field.empty()      ? next++
                         : field.size() < 6 ? std::stoul(std::string(field))
                                            : arguments.positional.size();
    if (index < arguments.positional.size()) value = &arguments.positional[index];
  } else {
    for (const auto& [name, argument] : arguments.named) {
      if (name == field) value = &argument;
    }
  }
  if (!value) fail("format() has no argument for {" + std::string(field.substr(0, 40)) + "}");
  return conversion == "r" ? repr(budget, *value) : to_text(budget, *value);
}

}  // namespace

std::string percent_format(Budget& budget, std::string_view format, const Value& arguments) {
  return Percent(budget, format, arguments).run();
}

std::string brace_format(Budget& budget, std::string_view format, const Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool doubled = i + 1 < format.size() && format[i + 1] == c;
    if ((c != '{' && c != '}') || doubled) {
      append(budget, out, format.substr(i, 1));
      i += c == '{' || c == '}';
      continue;
    }
    const size_t end = format.find('}', i);
    if (c == '}' || end == std::string_view::npos) fail("a single brace in a format string");
    append(budget, out, *field(budget, format.substr(i + 1, end - i - 1), next, arguments).text());
    i = end;
  }
  return out;
}

}  // namespace sluice::jinja
