// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace paracel {

template <class Signature, std::size_t Room = 48>
class inplace_function;

/// A callable, move-only, stored without an allocation if it needs at most `Room` bytes.
/// std::function has room for 16 on this platform, so that nearly every reply handler would cost a malloc.
///
/// Cost: moving one whose captures are trivial is a copy of `Room` bytes.
template <class R, class... A, std::size_t Room>
class inplace_function<R(A...), Room> {
 public:
  inplace_function() noexcept = default;
  inplace_function(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor): as std::function
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, inplace_function> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, A...>)
      inplace_function(F&& f) {  // NOLINT(google-explicit-constructor): as std::function
    using function = std::decay_t<F>;
    if constexpr (std::is_pointer_v<std::remove_cvref_t<F>> ||
                  requires { f.target_type(); }) {  // a std::function may be empty
      if (!f) return;
    }
    if constexpr (fits<function>) {
      new (room_) function(std::forward<F>(f));
      ops_ = &here<function>;
    } else {
      auto* made = new function(std::forward<F>(f));
      std::memcpy(room_, &made, sizeof made);
      ops_ = &away<function>;
    }
  }
  inplace_function(inplace_function&& other) noexcept { take(other); }
  inplace_function& operator=(inplace_function&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~inplace_function() { reset(); }

  explicit operator bool() const noexcept { return ops_ != nullptr; }
  R operator()(A... a) const { return ops_->call(room_, std::forward<A>(a)...); }

 private:
  struct operations {
    R (*call)(std::byte*, A&&...);
    void (*move)(std::byte* from, std::byte* to) noexcept;  // and destroys `from`; null: trivially copyable
    void (*destroy)(std::byte*) noexcept;                   // null: trivial
  };

  template <class F>
  static constexpr bool fits = sizeof(F) <= Room &&
                               alignof(F) <= alignof(void*) && std::is_nothrow_move_constructible_v<F>;
  template <class F>
  static F* at(std::byte* room) noexcept {
    return std::launder(reinterpret_cast<F*>(room));
  }
  template <class F>
  static F* pointed(std::byte* room) noexcept {
    F* f = nullptr;
    std::memcpy(&f, room, sizeof f);
    return f;
  }
  template <class F>
  static constexpr operations here{
      [](std::byte* room, A&&... a) -> R { return (*at<F>(room))(std::forward<A>(a)...); },
      std::is_trivially_copyable_v<F> ? nullptr : +[](std::byte* from, std::byte* to) noexcept {
        new (to) F(std::move(*at<F>(from)));
        at<F>(from)->~F();
      },
      std::is_trivially_destructible_v<F> ? nullptr : +[](std::byte* room) noexcept { at<F>(room)->~F(); }};
  template <class F>
  static constexpr operations away{
      [](std::byte* room, A&&... a) -> R { return (*pointed<F>(room))(std::forward<A>(a)...); }, nullptr,
      [](std::byte* room) noexcept { delete pointed<F>(room); }};

  void take(inplace_function& other) noexcept {
    ops_ = std::exchange(other.ops_, nullptr);
    if (ops_ == nullptr) return;
    if (ops_->move == nullptr) std::memcpy(room_, other.room_, Room);
    else ops_->move(other.room_, room_);
  }
  void reset() noexcept {
    const auto* ops = std::exchange(ops_, nullptr);
    if (ops != nullptr && ops->destroy != nullptr) ops->destroy(room_);
  }

  alignas(void*) mutable std::byte room_[Room];
  const operations* ops_ = nullptr;
};

}  // namespace paracel
