// Aggregates as bytes, in one encoding: numbers little-endian, lists behind their length, members in the order of their
// declaration. What decodes, encodes to the same bytes again.
//
// Bytes from a stranger do no harm: a Reader reads nothing beyond them, and takes no more memory for lists than four
// times their number and 64 MiB: some elements are many times as long as their bytes. Of each enum that travels there
// is an `is_known(value)` beside it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/half.h"
#include "base/ids.h"
#include "wire/fields.h"

namespace sluice::wire {

using Count = uint32_t;       // before the elements of a list
using Alternative = uint8_t;  // before what a variant holds

template <class T, template <class...> class Template>
inline constexpr bool is_a = false;
template <class... Arguments, template <class...> class Template>
inline constexpr bool is_a<Template<Arguments...>, Template> = true;
template <class T>
inline constexpr bool is_id = false;
template <class Tag, class Number>
inline constexpr bool is_id<Id<Tag, Number>> = true;
template <class T>
inline constexpr bool is_array = false;
template <class T, size_t n>
inline constexpr bool is_array<std::array<T, n>> = true;

template <class T>
inline constexpr bool is_scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;
// Every value of its bits is one: lists of them are copied as they are.
template <class T>
inline constexpr bool is_number = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, Half>;
template <class T>
inline constexpr bool is_list = is_a<T, std::vector> || std::is_same_v<T, std::string>;

// Goes through all of x, the same way in every direction: `way` takes scalars, the lengths of lists, blocks of numbers
// and which alternative a variant holds.
template <class Way, class X>
void travel(Way& way, X& x) {
  using T = std::remove_const_t<X>;
  if constexpr (is_scalar<T>) {
    way.scalar(x);
  } else if constexpr (is_id<T>) {
    way.scalar(x.value);
  } else if constexpr (is_list<T>) {
    way.length(x);
    if constexpr (is_number<typename T::value_type>)
      way.block(x.data(), x.size());
    else
      for (auto& element : x) travel(way, element);
  } else if constexpr (is_array<T>) {
    way.block(x.data(), x.size());
  } else if constexpr (is_a<T, std::pair>) {
    travel(way, x.first);
    travel(way, x.second);
  } else if constexpr (is_a<T, std::optional>) {
    way.presence(x);
    if (x) travel(way, *x);
  } else if constexpr (is_a<T, std::variant>) {
    way.alternative(x);
    std::visit([&way](auto& held) { travel(way, held); }, x);
  } else {
    for_each_field(x, [&way](auto& field) { travel(way, field); });
  }
}

// How many bytes there will be.
class Counter {
 public:
  template <class T>
  void scalar(const T&) {
    n_ += sizeof(T);
  }
  template <class List>
  void length(const List&) {
    n_ += sizeof(Count);
  }
  template <class T>
  void block(const T*, size_t n) {
    n_ += n * sizeof(T);
  }
  template <class Variant>
  void alternative(const Variant&) {
    n_ += sizeof(Alternative);
  }
  template <class Optional>
  void presence(const Optional&) {
    n_ += sizeof(bool);
  }
  size_t n() const { return n_; }

 private:
  size_t n_ = 0;
};

// n values of `size` bytes, between this machine's order of bytes and the wire's.
inline void copy_little_endian(void* to, const void* from, size_t n, size_t size) {
  if (n == 0) return;
  std::memcpy(to, from, n * size);
  if constexpr (std::endian::native == std::endian::big)
    for (auto* at = static_cast<std::byte*>(to); n > 0; --n, at += size) std::reverse(at, at + size);
}

// Writes to where a Counter has found room.
class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  template <class T>
  void scalar(const T& x) {
    block(&x, 1);
  }
  template <class List>
  void length(const List& list) {
    scalar(static_cast<Count>(list.size()));
  }
  template <class T>
  void block(const T* numbers, size_t n) {
    copy_little_endian(to_, numbers, n, sizeof(T));
    to_ += n * sizeof(T);
  }
  template <class Variant>
  void alternative(const Variant& x) {
    scalar(static_cast<Alternative>(x.index()));
  }
  template <class Optional>
  void presence(const Optional& x) {
    scalar(x.has_value());
  }

 private:
  std::byte* to_;
};

// The fewest bytes that a T takes.
template <class T>
size_t least_bytes() {
  static const size_t least = [] {
    if constexpr (is_a<T, std::variant>) {
      return []<class... Held>(std::type_identity<std::variant<Held...>>) {
        return sizeof(Alternative) + std::min({least_bytes<Held>()...});
      }(std::type_identity<T>());
    } else {
      Counter counter;
      const T empty{};
      travel(counter, empty);
      return counter.n();
    }
  }();
  return least;
}

// Once something is wrong it reads zeros and empty lists, so that what calls it comes to its end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : from_(from), room_(4 * from.size() + (size_t{64} << 20)) {}

  template <class T>
  void scalar(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t bit = 0;
      scalar(bit);
      if (bit > 1) fail("a truth value is neither 0 nor 1");
      x = bit == 1;
    } else {
      block(&x, 1);
      if constexpr (std::is_enum_v<T>)
        if (!is_known(x)) fail("an unknown rule or kind");
    }
  }
  template <class List>
  void length(List& list) {
    Count n = 0;
    scalar(n);
    if (n > from_.size() / least_bytes<typename List::value_type>()) {
      fail("a list is longer than the message");
      n = 0;
    }
    if (n > room_ / sizeof(typename List::value_type)) {
      fail("its lists take too much memory");
      n = 0;
    }
    room_ -= n * sizeof(typename List::value_type);
    list.resize(n);
  }
  template <class T>
  void block(T* numbers, size_t n) {
    if (n > from_.size() / sizeof(T)) return fail("it ends too early");
    copy_little_endian(numbers, from_.data(), n, sizeof(T));
    from_ = from_.subspan(n * sizeof(T));
  }
  template <class... Held>
  void alternative(std::variant<Held...>& x) {
    Alternative held = 0;
    scalar(held);
    if (held >= sizeof...(Held)) return fail("an unknown kind of contents");
    choose(x, held);
  }
  template <class Optional>
  void presence(Optional& x) {
    bool there = false;
    scalar(there);
    x.reset();
    if (there) x.emplace();
  }
  // Makes x hold its alternative of that number, empty.
  template <class... Held>
  static void choose(std::variant<Held...>& x, size_t held) {
    [&]<size_t... i>(std::index_sequence<i...>) {
      (static_cast<void>(held == i && (x.template emplace<i>(), true)), ...);
    }
    (std::index_sequence_for<Held...>());
  }

  // What is wrong, if anything is; all must have been read.
  const char* complaint() {
    if (!from_.empty()) fail("it goes on behind its end");
    return complaint_;
  }

 private:
  void fail(const char* why) {
    if (complaint_ == nullptr) complaint_ = why;
    from_ = {};
  }

  std::span<const std::byte> from_;
  size_t room_;  // bytes of memory
  const char* complaint_ = nullptr;
};

}  // namespace sluice::wire
