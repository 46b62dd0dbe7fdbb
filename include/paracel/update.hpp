// SPDX-License-Identifier: BSD-3-Clause
//
// What a plug-in exports: functions that run in the servers. A plug-in is one .cpp file, built as a shared library:
//
//   #include <paracel/update.hpp>
//   std::vector<double> local_update(std::vector<double> value, std::vector<double> delta) { ...; return value; }
//   extern "C" { extern paracel::update_result lr_theta_update; }
//   paracel::update_result lr_theta_update = paracel::update_proxy(local_update);
//
// `paracel_update("theta", delta, "liblr_update.so", "lr_theta_update")` then runs it in the server that holds "theta".
// A missing key takes the delta as its value, unless the function defines an initial value (`initialised_by`).
//
// An optimizer (SGD, AdaGrad, ...) has hyper-parameters, and state per element of the value, which the servers keep
// next to it:
//
//   struct adagrad {
//     template <class T>
//     void operator()(const paracel::optimizer_step<T>& s) const noexcept {
//       ... s.value[i], s.gradient[i], s.state(0)[i], s.hyper[0] ...
//     }
//   };
//   extern "C" { extern paracel::optimizer_result my_adagrad; }
//   paracel::optimizer_result my_adagrad = paracel::optimizer_proxy({{"lr", 0.01}, {"eps", 1e-8}}, 1, adagrad());
//
// `paracel_register_update("libmy.so", "my_adagrad", {{"lr", 0.1}})` makes it the function of paracel_update. A
// missing key starts as zeros of the gradient's shape and is then stepped.
//
// A function is called from several server threads concurrently (but never for the same key), so it must not modify
// state shared with other calls. It may throw: the text reaches the worker and the value is unchanged.
//
// Only C types cross the boundary between library and server. Each function pointer below is noexcept; exceptions are
// caught in the wrapper made by update_proxy and friends and returned as a status and a text.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <paracel/codec.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>

namespace paracel {

struct update_result;
struct filter_result;
struct optimizer_result;

/// The ABI between a plug-in and the server. Layout and meaning change only together with `version`.
namespace abi {

inline constexpr std::uint32_t update_magic = 0x55435250;     // "PRCU"
inline constexpr std::uint32_t filter_magic = 0x46435250;     // "PRCF"
inline constexpr std::uint32_t optimizer_magic = 0x4f435250;  // "PRCO"
inline constexpr std::uint16_t version = 1;

/// update_result::flags
inline constexpr std::uint32_t additive = 1;  ///< value + delta: a worker may add to its cached copy at once
inline constexpr std::uint32_t no_throw = 2;  ///< in_place never fails: the server needs no backup copy of the value
/// filter_result::flags
inline constexpr std::uint32_t takes_value = 1;
/// optimizer_result::flags
inline constexpr std::uint32_t counts_steps = 1;   ///< it needs the number of steps of the value
inline constexpr std::uint32_t step_no_throw = 2;  ///< step never fails: the server needs no backup copy of the value
inline constexpr std::uint32_t steps_float = 4;    ///< it accepts float
inline constexpr std::uint32_t steps_double = 8;   ///< it accepts double

inline constexpr std::size_t most_hyper_parameters = 16;
inline constexpr std::size_t hyper_name_bytes = 24;  ///< including the terminating zero
inline constexpr std::uint32_t most_states = 16;

enum outcome : std::int32_t {
  ok = 0,
  type_mismatch = 1,  ///< value or delta has a type that the function does not accept
  failed = 2,         ///< the function threw
};

/// Bytes of a value, owned by the caller and unaligned unless stated otherwise.
struct value {
  const std::byte* data;
  std::uint64_t bytes;
  std::uint8_t tag;  ///< value_tag
  std::uint8_t zero[7];
};

/// Where a function places its result. `place` returns memory for `bytes` bytes, aligned to 16, or null when out of
/// memory; the last call counts.
struct sink {
  void* context;
  std::byte* (*place)(void* context, std::uint8_t tag, std::uint64_t bytes) noexcept;
};

/// A buffer for an error text, zero-terminated, truncated when too long.
struct error_text {
  char* data;
  std::uint64_t capacity;
};

}  // namespace abi

/// An update function as a plug-in exports it. Made by update_proxy, update_in_place or update_in_place_any.
struct update_result {
  std::uint32_t magic = 0;
  std::uint16_t abi_version = 0;
  std::uint16_t struct_bytes = 0;
  std::uint32_t flags = 0;
  std::uint8_t value_tag = 0;  ///< general form: the type it returns; in place: the element; none = any number
  std::uint8_t delta_tag = 0;
  std::uint8_t zero[2] = {};
  char value_type[48] = {};  ///< for error texts
  char delta_type[48] = {};
  const void* context = nullptr;  ///< the user's function
  /// General form: (current value, delta) to a new value of any size. Null: only the in-place form exists.
  std::int32_t (*apply)(const update_result* self, const abi::value* current, const abi::value* delta,
                        const abi::sink* out, abi::error_text* error) noexcept = nullptr;
  /// In place, on `count` numbers of element type `tag`, value and delta aligned and of the same count. Null: none.
  std::int32_t (*in_place)(const update_result* self, std::uint8_t tag, std::byte* value, const std::byte* delta,
                           std::uint64_t count, abi::error_text* error) noexcept = nullptr;
  /// The initial value of a missing key; the update follows. Null: the delta becomes the value.
  std::int32_t (*initialise)(const update_result* self, const abi::value* delta, const abi::sink* out,
                             abi::error_text* error) noexcept = nullptr;
  const void* initialise_context = nullptr;
};
static_assert(std::is_standard_layout_v<update_result> && std::is_trivially_copyable_v<update_result>);
static_assert(sizeof(update_result) == 152, "the layout is part of the plug-in ABI");

/// A filter as a plug-in exports it. Made by filter_proxy.
struct filter_result {
  std::uint32_t magic = 0;
  std::uint16_t abi_version = 0;
  std::uint16_t struct_bytes = 0;
  std::uint32_t flags = 0;
  std::uint8_t value_tag = 0;
  std::uint8_t zero[3] = {};
  char value_type[48] = {};
  const void* context = nullptr;
  /// Sets `keep` to 0 or 1. `value` may be null if the flags do not say takes_value.
  std::int32_t (*test)(const filter_result* self, const char* key, std::uint64_t key_bytes, const abi::value* value,
                       std::uint8_t* keep, abi::error_text* error) noexcept = nullptr;
};
static_assert(std::is_standard_layout_v<filter_result> && std::is_trivially_copyable_v<filter_result>);
static_assert(sizeof(filter_result) == 80, "the layout is part of the plug-in ABI");

/// An optimizer as a plug-in exports it. Made by optimizer_proxy.
struct optimizer_result {
  std::uint32_t magic = 0;
  std::uint16_t abi_version = 0;
  std::uint16_t struct_bytes = 0;
  std::uint32_t flags = 0;
  std::uint32_t states = 0;  ///< numbers of state per element of the value
  std::uint32_t hyper_count = 0;
  std::uint32_t zero = 0;
  char hyper_names[abi::most_hyper_parameters][abi::hyper_name_bytes] = {};
  double hyper_defaults[abi::most_hyper_parameters] = {};
  const void* context = nullptr;  ///< the user's function
  /// One step on `count` numbers of element type `tag` (f32 or f64). `state` is `states` arrays of `count` numbers,
  /// zero before the first step; all are aligned to their element. `number` is 1 at the first step, or 0 when steps are
  /// not counted.
  std::int32_t (*step)(const optimizer_result* self, const double* hyper, std::uint8_t tag, std::byte* value,
                       std::byte* state, const std::byte* gradient, std::uint64_t count, std::uint64_t number,
                       abi::error_text* error) noexcept = nullptr;
};
static_assert(std::is_standard_layout_v<optimizer_result> && std::is_trivially_copyable_v<optimizer_result>);
static_assert(sizeof(optimizer_result) == 552, "the layout is part of the plug-in ABI");

/// The arguments of an optimizer written in C++. The spans are aligned, do not overlap, and have the size of the value.
template <class T>
struct optimizer_step {
  std::span<const double> hyper;  ///< in the order in which optimizer_proxy named them
  std::span<T> value;
  std::span<const T> gradient;
  std::uint64_t number;  ///< 1 at the first step of this value; 0 unless counting_steps
  T* states;

  /// The k-th state number of each element; zero before the first step.
  [[nodiscard]] std::span<T> state(std::size_t k) const noexcept { return {states + k * value.size(), value.size()}; }
};

/// A hyper-parameter and its default.
struct hyper_default {
  std::string_view name;
  double value;
};

namespace update_detail {

inline void write_text(abi::error_text* error, std::string_view text) noexcept {
  if (error == nullptr || error->capacity == 0) return;
  const auto n = text.size() < error->capacity ? text.size() : static_cast<std::size_t>(error->capacity) - 1;
  if (n != 0) std::memcpy(error->data, text.data(), n);
  error->data[n] = '\0';
}

inline value_view view_of(const abi::value& v) noexcept {
  return {static_cast<value_tag>(v.tag), {v.data, static_cast<std::size_t>(v.bytes)}};
}

/// Runs `f` and turns an exception into an outcome and a text.
template <class F>
std::int32_t guarded(abi::error_text* error, F&& f) noexcept {
  try {
    f();
    return abi::ok;
  } catch (const type_error& e) {
    write_text(error, e.what());
    return abi::type_mismatch;
  } catch (const std::exception& e) {
    write_text(error, e.what());
  } catch (...) {
    write_text(error, "threw something that is not a std::exception");
  }
  return abi::failed;
}

template <class T>
void place(const abi::sink& out, const T& object) {
  const encoded<T> result(object);
  const value_view v = result.view();
  std::byte* memory = out.place(out.context, static_cast<std::uint8_t>(v.tag), v.bytes.size());
  if (memory == nullptr) throw error("no memory for a result of " + std::to_string(v.bytes.size()) + " bytes");
  if (!v.bytes.empty()) std::memcpy(memory, v.bytes.data(), v.bytes.size());
}

template <class T>
constexpr value_tag static_tag() noexcept {
  if constexpr (raw_number<T>) return tag_of<T>();
  else if constexpr (codec_detail::raw_list<T>) return array_tag_of<typename codec_detail::list_traits<T>::element>();
  else return value_tag::packed;
}

template <std::size_t N>
void copy_text(char (&out)[N], const std::string& text) {
  std::memcpy(out, text.data(), text.size() < N ? text.size() : N - 1);
}

inline update_result blank_update(const std::string& value_type, const std::string& delta_type) {
  update_result u;
  u.magic = abi::update_magic;
  u.abi_version = abi::version;
  u.struct_bytes = sizeof(update_result);
  copy_text(u.value_type, value_type);
  copy_text(u.delta_type, delta_type);
  return u;
}

/// The user's functions live forever, because a plug-in is never unloaded. The chain keeps them reachable for leak
/// checkers.
struct kept_base {
  const kept_base* next = nullptr;
};
template <class F>
struct kept : kept_base {
  template <class G>
  explicit kept(G&& g) : function(std::forward<G>(g)) {}
  F function;
};
inline std::atomic<const kept_base*> kept_functions{nullptr};

template <class F>
const std::decay_t<F>* keep(F&& f) {
  auto* k = new kept<std::decay_t<F>>(std::forward<F>(f));
  k->next = kept_functions.load();
  while (!kept_functions.compare_exchange_weak(k->next, k)) {
  }
  return &k->function;
}

/// Says which of the two arguments did not match.
template <class D>
D decode_delta(const abi::value& delta) {
  try {
    return decode<D>(view_of(delta));
  } catch (const type_error& e) {
    throw type_error(std::string("the delta: ") + e.what());
  }
}

template <class F, class V, class D, class ValueArg, class DeltaArg>
std::int32_t run_general(const update_result* self, const abi::value* current, const abi::value* delta,
                         const abi::sink* out, abi::error_text* error) noexcept {
  return guarded(error, [&] {
    const F& f = *static_cast<const F*>(self->context);
    V value = decode<V>(view_of(*current));
    D change = decode_delta<D>(*delta);
    if constexpr (std::is_void_v<std::invoke_result_t<const F&, ValueArg, DeltaArg>>) {
      f(static_cast<ValueArg&&>(value), static_cast<DeltaArg&&>(change));
      place(*out, value);
    } else {
      const V& result = f(static_cast<ValueArg&&>(value), static_cast<DeltaArg&&>(change));
      place(*out, result);
    }
  });
}

template <class V, class D, class ValueArg, class DeltaArg, class F>
update_result make_general(F&& f) {
  using function = std::decay_t<F>;
  static_assert(std::is_invocable_v<const function&, ValueArg, DeltaArg>,
                "an update function is shared by threads: its call operator must be const");
  using returned = std::invoke_result_t<const function&, ValueArg, DeltaArg>;
  static_assert(std::is_same_v<std::remove_cvref_t<returned>, V> ||
                    (std::is_void_v<returned> && std::is_lvalue_reference_v<ValueArg>),
                "an update function returns a value of the type of its first parameter");
  update_result u = blank_update(codec_detail::type_text<V>::get(), codec_detail::type_text<D>::get());
  u.value_tag = static_cast<std::uint8_t>(static_tag<V>());
  u.delta_tag = static_cast<std::uint8_t>(static_tag<D>());
  u.context = keep(std::forward<F>(f));
  u.apply = run_general<function, V, D, ValueArg, DeltaArg>;
  return u;
}

template <class Signature>
struct from_signature;
template <class R, class A, class B>
struct from_signature<std::function<R(A, B)>> {
  template <class F>
  static update_result update(F&& f) {
    return make_general<std::remove_cvref_t<A>, std::remove_cvref_t<B>, A, B>(std::forward<F>(f));
  }
};

template <class F, class T>
std::int32_t run_in_place(const update_result* self, std::uint8_t, std::byte* value, const std::byte* delta,
                          std::uint64_t count, abi::error_text* error) noexcept {
  const F& f = *static_cast<const F*>(self->context);
  const std::span<T> values(reinterpret_cast<T*>(value), static_cast<std::size_t>(count));
  const std::span<const T> deltas(reinterpret_cast<const T*>(delta), static_cast<std::size_t>(count));
  if constexpr (noexcept(f(values, deltas))) {
    f(values, deltas);
    return abi::ok;
  } else {
    return guarded(error, [&] { f(values, deltas); });
  }
}

template <class F, class T>
inline constexpr bool never_throws = noexcept(std::declval<const F&>()(std::declval<std::span<T>>(),
                                                                       std::declval<std::span<const T>>()));

template <class F>
std::int32_t run_in_place_any(const update_result* self, std::uint8_t tag, std::byte* value, const std::byte* delta,
                              std::uint64_t count, abi::error_text* error) noexcept {
  switch (static_cast<value_tag>(tag)) {
    case value_tag::i32:
      return run_in_place<F, std::int32_t>(self, tag, value, delta, count, error);
    case value_tag::i64:
      return run_in_place<F, std::int64_t>(self, tag, value, delta, count, error);
    case value_tag::f32:
      return run_in_place<F, float>(self, tag, value, delta, count, error);
    case value_tag::f64:
      return run_in_place<F, double>(self, tag, value, delta, count, error);
    default:
      write_text(error, "not a number");
      return abi::type_mismatch;
  }
}

template <class F, class T>
std::int32_t run_step(const optimizer_result* self, const double* hyper, std::byte* value, std::byte* state,
                      const std::byte* gradient, std::uint64_t count, std::uint64_t number,
                      abi::error_text* error) noexcept {
  const F& f = *static_cast<const F*>(self->context);
  const auto n = static_cast<std::size_t>(count);
  const optimizer_step<T> step{{hyper, self->hyper_count},
                               {reinterpret_cast<T*>(value), n},
                               {reinterpret_cast<const T*>(gradient), n},
                               number,
                               reinterpret_cast<T*>(state)};
  if constexpr (noexcept(f(step))) {
    f(step);
    return abi::ok;
  } else {
    return guarded(error, [&] { f(step); });
  }
}

template <class F>
std::int32_t run_step_any(const optimizer_result* self, const double* hyper, std::uint8_t tag, std::byte* value,
                          std::byte* state, const std::byte* gradient, std::uint64_t count, std::uint64_t number,
                          abi::error_text* error) noexcept {
  if constexpr (std::is_invocable_v<const F&, const optimizer_step<float>&>) {
    if (static_cast<value_tag>(tag) == value_tag::f32)
      return run_step<F, float>(self, hyper, value, state, gradient, count, number, error);
  }
  if constexpr (std::is_invocable_v<const F&, const optimizer_step<double>&>) {
    if (static_cast<value_tag>(tag) == value_tag::f64)
      return run_step<F, double>(self, hyper, value, state, gradient, count, number, error);
  }
  write_text(error, "the optimizer does not accept this type");
  return abi::type_mismatch;
}

template <class F, class T>
constexpr bool step_cannot_throw() noexcept {
  if constexpr (std::is_invocable_v<const F&, const optimizer_step<T>&>)
    return noexcept(std::declval<const F&>()(std::declval<const optimizer_step<T>&>()));
  else return true;
}

template <class F, class D, class DeltaArg>
std::int32_t run_initialise(const update_result* self, const abi::value* delta, const abi::sink* out,
                            abi::error_text* error) noexcept {
  return guarded(error, [&] {
    const F& f = *static_cast<const F*>(self->initialise_context);
    D change = decode_delta<D>(*delta);
    place(*out, f(static_cast<DeltaArg&&>(change)));
  });
}

template <class Signature>
struct from_initialiser;
template <class R, class A>
struct from_initialiser<std::function<R(A)>> {
  using delta = std::remove_cvref_t<A>;
  using argument = A;
};

template <class Signature>
struct from_filter;
template <class R, class K>
struct from_filter<std::function<R(K)>> {
  using key = K;
  using value = void;
};
template <class R, class K, class V>
struct from_filter<std::function<R(K, V)>> {
  using key = K;
  using value = V;
};

template <class F, class K, class V>
std::int32_t run_filter(const filter_result* self, const char* key, std::uint64_t key_bytes, const abi::value* value,
                        std::uint8_t* keep_it, abi::error_text* error) noexcept {
  return guarded(error, [&] {
    const F& f = *static_cast<const F*>(self->context);
    std::remove_cvref_t<K> name(key, static_cast<std::size_t>(key_bytes));
    if constexpr (std::is_void_v<V>) {
      *keep_it = f(static_cast<K&&>(name)) ? 1 : 0;
    } else {
      auto object = decode<std::remove_cvref_t<V>>(view_of(*value));
      *keep_it = f(static_cast<K&&>(name), static_cast<V&&>(object)) ? 1 : 0;
    }
  });
}

}  // namespace update_detail

/// An update function from `f`: a function, lambda or functor `(V value, D delta) -> V`. V and D are types that
/// codec.hpp can write, by value or by reference; `void f(V& value, D delta)` is accepted too. Value and delta are
/// decoded and the result is encoded at each call; for large arrays of numbers update_in_place avoids both.
template <class F>
requires requires(F&& f) { std::function(std::forward<F>(f)); }
[[nodiscard]] update_result update_proxy(F&& f) {
  return update_detail::from_signature<decltype(std::function(std::forward<F>(f)))>::update(std::forward<F>(f));
}

/// The same with explicit types, for generic lambdas: `update_proxy<double>([](auto a, auto b) { return a + b; })`.
template <class V, class D = V, class F>
[[nodiscard]] update_result update_proxy(F&& f) {
  return update_detail::make_general<V, D, V, D>(std::forward<F>(f));
}

/// An update function from `void f(std::span<T> value, std::span<const T> delta)`, which changes the numbers in
/// place in the table. One number is a span of 1. The spans are aligned, never overlap and have the same size: a delta
/// of another size is rejected beforehand, one of a narrower type is widened. Declare it `noexcept` if it is: the
/// server then keeps no backup copy of the value.
template <raw_number T, class F>
[[nodiscard]] update_result update_in_place(F&& f) {
  using function = std::decay_t<F>;
  static_assert(std::is_invocable_v<const function&, std::span<T>, std::span<const T>>,
                "an in-place update is void f(std::span<T> value, std::span<const T> delta), const if it is a functor");
  using element =
      std::conditional_t<std::is_integral_v<T>, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>, T>;
  const std::string name = name_of(tag_of<element>());
  update_result u = update_detail::blank_update(name, name);
  u.value_tag = u.delta_tag = static_cast<std::uint8_t>(tag_of<element>());
  u.context = update_detail::keep(std::forward<F>(f));
  u.in_place = update_detail::run_in_place<function, T>;
  if (update_detail::never_throws<function, T>) u.flags |= abi::no_throw;
  return u;
}

/// As update_in_place for every number type at once: `f` is callable with spans of int32, int64, float and double.
template <class F>
[[nodiscard]] update_result update_in_place_any(F&& f) {
  using function = std::decay_t<F>;
  update_result u = update_detail::blank_update("any number", "any number");
  u.context = update_detail::keep(std::forward<F>(f));
  u.in_place = update_detail::run_in_place_any<function>;
  if (update_detail::never_throws<function, std::int32_t> && update_detail::never_throws<function, std::int64_t> &&
      update_detail::never_throws<function, float> && update_detail::never_throws<function, double>)
    u.flags |= abi::no_throw;
  return u;
}

/// `u`, declared to be `value + delta` on numbers, element by element. A worker then adds its own deltas to the copies
/// in its cache at once and sees them in its next read (read-my-writes) instead of invalidating the copy and fetching
/// it again. Wrong for any function that is not that sum: the worker would compute with numbers that no server holds.
[[nodiscard]] inline update_result additive(update_result u) noexcept {
  u.flags |= abi::additive;
  return u;
}

/// `u`, which initialises a missing key with `g(delta)` and then updates it, instead of taking the delta as the value.
template <class G>
requires requires(G&& g) { std::function(std::forward<G>(g)); }
[[nodiscard]] update_result initialised_by(update_result u, G&& g) {
  using traits = update_detail::from_initialiser<decltype(std::function(std::forward<G>(g)))>;
  u.initialise_context = update_detail::keep(std::forward<G>(g));
  u.initialise = update_detail::run_initialise<std::decay_t<G>, typename traits::delta, typename traits::argument>;
  return u;
}

/// An optimizer from `f`, callable with `optimizer_step<float>`, `optimizer_step<double>` or both, which changes the
/// value and its `states` numbers of state per element in place. `hyper` names its hyper-parameters and their
/// defaults. Declare it `noexcept` if it is: the server then keeps no backup copy. Throws: error for more than
/// 16 hyper-parameters, a name of more than 23 characters, more than 16 states.
template <class F>
[[nodiscard]] optimizer_result optimizer_proxy(std::initializer_list<hyper_default> hyper, std::uint32_t states,
                                               F&& f) {
  using function = std::decay_t<F>;
  constexpr bool with_float = std::is_invocable_v<const function&, const optimizer_step<float>&>;
  constexpr bool with_double = std::is_invocable_v<const function&, const optimizer_step<double>&>;
  static_assert(with_float || with_double,
                "an optimizer is void f(const paracel::optimizer_step<T>&), T float or double, const if a functor");
  if (hyper.size() > abi::most_hyper_parameters || states > abi::most_states)
    throw error("an optimizer has at most 16 hyper-parameters and 16 numbers of state per element");
  optimizer_result o;
  o.magic = abi::optimizer_magic;
  o.abi_version = abi::version;
  o.struct_bytes = sizeof(optimizer_result);
  o.states = states;
  for (const auto& [name, value] : hyper) {
    if (name.empty() || name.size() >= abi::hyper_name_bytes)
      throw error("the name of a hyper-parameter must have 1 to 23 characters");
    std::memcpy(o.hyper_names[o.hyper_count], name.data(), name.size());
    o.hyper_defaults[o.hyper_count++] = value;
  }
  o.flags = (with_float ? abi::steps_float : 0U) | (with_double ? abi::steps_double : 0U);
  if (update_detail::step_cannot_throw<function, float>() && update_detail::step_cannot_throw<function, double>())
    o.flags |= abi::step_no_throw;
  o.context = update_detail::keep(std::forward<F>(f));
  o.step = update_detail::run_step_any<function>;
  return o;
}

/// `o`, which is told the step number of a value (bias correction, schedules); costs 4 to 8 bytes a row or key.
[[nodiscard]] inline optimizer_result counting_steps(optimizer_result o) noexcept {
  o.flags |= abi::counts_steps;
  return o;
}

/// A filter from `f`: `(key) -> bool` or `(key, value) -> bool`; the key is a std::string or std::string_view.
template <class F>
requires requires(F&& f) { std::function(std::forward<F>(f)); }
[[nodiscard]] filter_result filter_proxy(F&& f) {
  using traits = update_detail::from_filter<decltype(std::function(std::forward<F>(f)))>;
  using value = typename traits::value;
  filter_result r;
  r.magic = abi::filter_magic;
  r.abi_version = abi::version;
  r.struct_bytes = sizeof(filter_result);
  if constexpr (!std::is_void_v<value>) {
    using stored = std::remove_cvref_t<value>;
    r.flags |= abi::takes_value;
    r.value_tag = static_cast<std::uint8_t>(update_detail::static_tag<stored>());
    update_detail::copy_text(r.value_type, codec_detail::type_text<stored>::get());
  }
  r.context = update_detail::keep(std::forward<F>(f));
  r.test = update_detail::run_filter<std::decay_t<F>, typename traits::key, value>;
  return r;
}

}  // namespace paracel
