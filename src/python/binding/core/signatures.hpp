// SPDX-License-Identifier: BSD-3-Clause
//
// Types in the signatures that help() and type checkers show, of arguments that the functions convert themselves.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace nb = nanobind;

namespace paracel::py {

template <std::size_t N>
struct type_text {
  char text[N];
  consteval type_text(const char (&from)[N]) { std::copy_n(from, N, text); }  // NOLINT: for literals
};

/// An argument of any type, borrowed for the call.
template <type_text Shown>
class argument : public nb::handle {
 public:
  static constexpr auto Name = nb::detail::const_name(Shown.text);
  using nb::handle::handle;
  argument(nb::handle from) : nb::handle(from) {}
  static bool check_(nb::handle) noexcept { return true; }
};

/// A result of any type.
template <type_text Shown>
class returned : public nb::object {
 public:
  static constexpr auto Name = nb::detail::const_name(Shown.text);
  returned(nb::object from) : nb::object(std::move(from)) {}
  static bool check_(nb::handle) noexcept { return true; }
};

using any_result = returned<"typing.Any">;
using array_result = returned<"numpy.typing.NDArray[typing.Any]">;
using any_dict = nb::typed<nb::dict, nb::str, any_result>;
using texts_result = nb::typed<nb::list, nb::str>;

using array_argument = argument<"numpy.typing.ArrayLike">;
using out_argument = argument<"numpy.typing.NDArray[typing.Any]">;
using dtype_argument = argument<"numpy.typing.DTypeLike">;
using function_argument = argument<"tuple[str, str] | tuple[str, str, dict[str, float]]">;
using after_argument = argument<"Future | collections.abc.Iterable[Future]">;
using files_argument = argument<"str | collections.abc.Iterable[str]">;
using init_argument = argument<"float | tuple[str, float, float, int]">;
using pairs_argument = argument<"collections.abc.Sequence[str] | dict[str, typing.Any]">;
using length_argument = argument<"int | collections.abc.Callable[[ComContext], int]">;
using fold_argument = argument<
    "str | collections.abc.Callable[[numpy.typing.NDArray[typing.Any], numpy.typing.NDArray[typing.Any]], "
    "numpy.typing.ArrayLike]">;

}  // namespace paracel::py
