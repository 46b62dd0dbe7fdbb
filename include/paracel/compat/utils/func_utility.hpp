// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace paracel {

/// The signature of a callable: result_type, arity, args<N>::type.
template <class F>
struct f_traits : f_traits<decltype(&std::remove_cvref_t<F>::operator())> {};

template <class R, class... Args>
struct f_traits<R(Args...)> {
  using result_type = R;
  static constexpr std::size_t arity = sizeof...(Args);
  template <std::size_t N>
  struct args {
    static_assert(N < arity, "the function has fewer parameters");
    using type = std::tuple_element_t<N, std::tuple<Args...>>;
  };
};
template <class R, class... Args>
struct f_traits<R (*)(Args...)> : f_traits<R(Args...)> {};
template <class R, class... Args>
struct f_traits<R (&)(Args...)> : f_traits<R(Args...)> {};
template <class C, class R, class... Args>
struct f_traits<R (C::*)(Args...)> : f_traits<R(Args...)> {};
template <class C, class R, class... Args>
struct f_traits<R (C::*)(Args...) const> : f_traits<R(Args...)> {};

}  // namespace paracel
