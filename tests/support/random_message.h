// Messages of random contents, and whether two are the same: of every field, those included that nobody has thought of.
#pragma once

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "wire/fields.h"
#include "wire/message.h"

namespace sluice::test {

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  // Of the kind with this number.
  Message of_kind(size_t kind) {
    Message message;
    choose(message, kind);
    std::visit([this](auto& contents) { this->fill(contents); }, message);
    return message;
  }
  uint64_t below(uint64_t n) { return random_() % n; }

 private:
  template <class... Held>
  void choose(std::variant<Held...>& x, size_t held) {
    size_t i = 0;
    (static_cast<void>(i++ == held && (x = Held(), true)), ...);
  }

  // Any bits for numbers: among the floats are infinities and NaNs.
  template <class T>
  requires std::is_arithmetic_v<T>
  void fill(T& x) {
    const uint64_t bits = random_();
    std::memcpy(&x, &bits, sizeof x);
  }
  void fill(bool& x) { x = below(2) == 1; }
  void fill(Rule& x) { x = static_cast<Rule>(below(4)); }
  void fill(GrammarTrigger::Kind& x) { x = static_cast<GrammarTrigger::Kind>(below(3)); }
  void fill(Row::Kind& x) { x = static_cast<Row::Kind>(below(2)); }
  void fill(KvType& x) { x = static_cast<KvType>(below(2)); }
  void fill(StageRecipe::Kind& x) { x = static_cast<StageRecipe::Kind>(below(4)); }
  void fill(Hello::Role& x) { x = static_cast<Hello::Role>(below(5)); }
  void fill(ErrorKind& x) {
    constexpr ErrorKind kKinds[] = {ErrorKind::kRuntime, ErrorKind::kInput, ErrorKind::kInterrupted};
    x = kKinds[below(3)];
  }
  template <class Tag, class Number>
  void fill(Id<Tag, Number>& x) {
    fill(x.value);
  }
  template <class A, class B>
  void fill(std::pair<A, B>& x) {
    fill(x.first);
    fill(x.second);
  }
  template <class T, size_t n>
  void fill(std::array<T, n>& x) {
    for (T& element : x) fill(element);
  }
  template <class T>
  void fill(std::vector<T>& x) {
    x.resize(below(5));
    for (T& element : x) fill(element);
  }
  void fill(std::string& x) {
    x.resize(below(20));
    for (char& c : x) fill(c);
  }
  template <class... Held>
  void fill(std::variant<Held...>& x) {
    choose(x, below(sizeof...(Held)));
    std::visit([this](auto& held) { this->fill(held); }, x);
  }
  template <class T>
  requires std::is_aggregate_v<T>
  void fill(T& x) {
    for_each_field(x, [this](auto& field) { this->fill(field); });
  }

  std::mt19937_64 random_;
};

// All numbers of a message in order, with the lengths of its lists and the alternatives that its variants hold: two
// messages are the same if these are.
class Flat {
 public:
  explicit Flat(const Message& message) { add(message); }
  bool operator==(const Flat&) const = default;

 private:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void add(const T& x) {
    uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    numbers_.push_back(bits);
  }
  template <class Tag, class Number>
  void add(const Id<Tag, Number>& x) {
    add(x.value);
  }
  template <class A, class B>
  void add(const std::pair<A, B>& x) {
    add(x.first);
    add(x.second);
  }
  template <class T, size_t n>
  void add(const std::array<T, n>& x) {
    for (const T& element : x) add(element);
  }
  template <class T>
  void add(const std::vector<T>& x) {
    add(x.size());
    for (const T& element : x) add(element);
  }
  void add(const std::string& x) {
    add(x.size());
    for (const char c : x) add(c);
  }
  template <class... Held>
  void add(const std::variant<Held...>& x) {
    add(x.index());
    std::visit([this](const auto& held) { this->add(held); }, x);
  }
  template <class T>
  requires std::is_aggregate_v<T>
  void add(const T& x) {
    for_each_field(x, [this](const auto& field) { this->add(field); });
  }

  std::vector<uint64_t> numbers_;
};

}  // namespace sluice::test
