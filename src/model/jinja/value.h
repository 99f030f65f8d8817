// The values of a template: Python's, as far as templates meet them.
//
// Lists, tuples and dicts never change once made (the sandbox of chat templates forbids it), so values share them
// freely and no value can contain itself; only a namespace changes, and it belongs to the interpreter, not to the
// values that refer to it. How deep values nest is bounded, so that everything that walks them may recurse.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sluice::jinja {

// Thrown by everything in this folder and caught by ChatTemplate, which makes an error value of it. `line` is 0 until
// the parser or the interpreter has filled it in.
struct TemplateError {
  std::string message;
  int line = 0;
};
[[noreturn]] void fail(std::string message);

// What a template may cost. A unit is about one evaluated node, one list element or eight bytes of text.
class Budget {
 public:
  static constexpr size_t kMaxText = 16u << 20;   // bytes of one string, and of the output
  static constexpr size_t kMaxWork = 10'000'000;  // units
  static constexpr int kMaxNesting = 100;         // of values

  void spend(size_t units) {
    work_ += units;
    if (work_ > kMaxWork) fail("the template does too much work");
  }
  void spend_text(size_t bytes) {
    if (bytes > kMaxText) fail("a text of more than 16 MiB");
    spend(bytes / 8 + 1);
  }

 private:
  size_t work_ = 0;
};

class Value;
struct Sequence;
struct Dict;
struct Namespace;
struct Callable;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined"
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;  // UTF-8
  bool markup = false;                       // it came from `safe` or `escape`: `+` escapes what is joined to it
};

class Value {
 public:
  using Storage =
      std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<Sequence>, std::shared_ptr<const Dict>,
                   Namespace*, std::shared_ptr<const Callable>, std::shared_ptr<const Loop>>;
  Value() = default;  // undefined
  Value(None) : storage_(None{}) {}
  Value(bool b) : storage_(b) {}
  Value(int64_t i) : storage_(i) {}
  Value(double d) : storage_(d) {}
  Value(std::string s, bool markup = false)
      : storage_(Text{std::make_shared<const std::string>(std::move(s)), markup}) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(Namespace* n) : storage_(n) {}
  Value(std::shared_ptr<Sequence> s);
  Value(std::shared_ptr<const Dict> d);
  Value(std::shared_ptr<const Callable> c);
  Value(std::shared_ptr<const Loop> l);
  static Value undefined(std::string why);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value generator(std::vector<Value> items);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&storage_);
  }
  bool is_undefined() const { return get<Undefined>(); }
  bool is_none() const { return get<None>(); }
  const std::string* text() const { return get<Text>() ? get<Text>()->bytes.get() : nullptr; }
  Sequence* sequence() const;
  const Dict* dict() const;
  const Storage& storage() const { return storage_; }

 private:
  Storage storage_;
};

// Everything that is iterated in order and is neither a text nor a dict.
struct Sequence {
  enum class Kind { kList, kTuple, kRange, kView, kGenerator } kind = Kind::kList;
  std::vector<Value> items;
  std::string name;  // how a range, a view or a generator prints: "range(0, 3)", "dict_keys", "generator"
  int nesting = 1;
  // A generator can be walked once: this empties it.
  std::vector<Value> walk() { return kind == Kind::kGenerator ? std::exchange(items, {}) : items; }
};

// Keeps the order of insertion. Looking up is a walk: dicts of templates are small, and callers spend size() units.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int nesting = 1;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);  // while it is being made
};
bool same_key(const Value& a, const Value& b);  // fails for keys that Python can't hash

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  std::function<Value(Budget&, const Arguments&)> call;
  int nesting = 0;  // of the values that `call` holds
};

// The `loop` of one iteration.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index0 = 0;
  int nesting = 1;  // of the values in `items`
};

int nesting(const Value& value);
// "str", "list", …: Python's name of the value's type.
std::string type_name(const Value& value);

// The arguments of a call of a built-in, by parameter: null where not given. Refers to the arguments, which
// must outlive it. Fails when the call doesn't fit.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t required = 0);
  Parameters(std::string_view, Arguments&&, std::initializer_list<std::string_view>, size_t = 0) = delete;
  const Value* operator[](size_t parameter) const { return values_[parameter]; }
  // The parameter as a C++ value, or the default when it isn't given. Fails when it has another type.
  int64_t integer(size_t parameter, int64_t otherwise) const;
  bool boolean(size_t parameter, bool otherwise) const;
  std::string text(size_t parameter, std::string_view otherwise) const;

 private:
  std::string function_;
  std::vector<const Value*> values_;
};

}  // namespace sluice::jinja
