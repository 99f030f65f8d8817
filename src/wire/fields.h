// The members of an aggregate, one after another, without naming them: who goes through them cannot forget one.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace sluice {

namespace fields {

struct Anything {
  template <class T>
  operator T() const;  // never called
};

template <class T, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Anything())...}; };
}

inline constexpr size_t kMost = 20;

// How many initialisers an aggregate takes at most: one a member.
template <class T, size_t N = kMost>
constexpr size_t count() {
  static_assert(std::is_aggregate_v<T> && N > 0, "an aggregate with 1 to 20 members");
  if constexpr (takes<T>(std::make_index_sequence<N>())) {
    return N;
  } else {
    return count<T, N - 1>();
  }
}

}  // namespace fields

// Calls use(member) for each member of an aggregate, in the order of declaration.
template <class T, class Use>
constexpr void for_each_field(T& x, Use&& use) {
  constexpr size_t n = fields::count<std::remove_const_t<T>>();
  const auto all = [&use](auto&... field) { (use(field), ...); };
  if constexpr (n == 1) {
    auto& [a] = x;
    all(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = x;
    all(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = x;
    all(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = x;
    all(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = x;
    all(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = x;
    all(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = x;
    all(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = x;
    all(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = x;
    all(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = x;
    all(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = x;
    all(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (n == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (n == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o);
  } else if constexpr (n == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p);
  } else if constexpr (n == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q);
  } else if constexpr (n == 17) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r);
  } else if constexpr (n == 18) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s);
  } else if constexpr (n == 19) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u);
  }
}

}  // namespace sluice
