// SPDX-License-Identifier: BSD-3-Clause
//
// Random values of every type that servers store, deltas for them, and the effects of update functions.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <paracel/codec.hpp>

#include "net/protocol.hpp"

namespace paracel::test::differential {

/// How long a random test runs: PARACEL_DIFFERENTIAL_SECONDS.
inline std::chrono::duration<double> time_to_run() {
  const char* text = std::getenv("PARACEL_DIFFERENTIAL_SECONDS");
  return std::chrono::duration<double>(text != nullptr ? std::strtod(text, nullptr) : 2.0);
}

/// The seed of the first round: PARACEL_SEED.
inline unsigned first_seed() {
  const char* text = std::getenv("PARACEL_SEED");
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : std::random_device()();
}

template <class T>
using list_of = std::vector<T>;
using texts = std::vector<std::string>;
using nested = std::map<std::string, std::vector<std::pair<std::int64_t, std::vector<double>>>>;
using value = std::variant<std::int32_t, std::int64_t, float, double, list_of<std::int32_t>, list_of<std::int64_t>,
                           list_of<float>, list_of<double>, std::string, texts, nested>;
inline constexpr std::size_t types = std::variant_size_v<value>;

template <class T>
constexpr bool is_array = codec_detail::raw_list<T>;

/// Calls f<T>() with alternative first + which of `value`, one of [first, last).
template <std::size_t first, std::size_t last, class F>
void with_type(std::size_t which, const F& f) {
  if constexpr (first < last) {
    if (which == 0) f.template operator()<std::variant_alternative_t<first, value>>();
    else with_type<first + 1, last>(which - 1, f);
  }
}
// Numbers come first, then arrays of them.
inline constexpr std::size_t scalars = 4, arrays = 8;

template <class To, class From>
To sum(To a, From b) {
  if constexpr (std::is_integral_v<To>) {
    using bits = std::make_unsigned_t<To>;
    return static_cast<To>(static_cast<bits>(a) + static_cast<bits>(b));
  } else {
    return a + static_cast<To>(b);
  }
}

/// The effect of `paracel_add`. False: it must be rejected, and nothing has changed.
inline bool add(value& to, const value& delta) {
  return std::visit(
      []<class T, class D>(T& a, const D& b) {
        if constexpr (raw_number<T> && raw_number<D>) {
          if constexpr (codec_detail::widens<D, T>) {
            a = sum(a, b);
            return true;
          }
        } else if constexpr (is_array<T> && is_array<D>) {
          if constexpr (codec_detail::widens<typename D::value_type, typename T::value_type>) {
            if (a.size() != b.size()) return false;
            for (std::size_t i = 0; i < a.size(); ++i) a[i] = sum(a[i], b[i]);
            return true;
          }
        }
        return false;
      },
      to, delta);
}

inline bool is_number(const value& v) {
  return std::visit([]<class T>(const T&) { return raw_number<T> || is_array<T>; }, v);
}

/// An update function: its name on the servers, and its effect on the map. False: it must be rejected.
struct function {
  const char* file;
  const char* symbol;
  bool (*apply)(std::optional<value>&, const value& delta);
};
inline bool apply_add(std::optional<value>& v, const value& delta) {
  if (v) return add(*v, delta);
  if (!is_number(delta)) return false;
  v = delta;
  return true;
}
inline bool apply_assign(std::optional<value>& v, const value& delta) {
  v = delta;
  return true;
}
inline bool apply_join(std::optional<value>& v, const value& delta) {
  if (!v) {  // a delta is only checked against a value
    v = delta;
    return true;
  }
  const auto* more = std::get_if<std::string>(&delta);
  auto* text = std::get_if<std::string>(&*v);
  if (more == nullptr || text == nullptr) return false;
  *text += *more;
  return true;
}
inline constexpr std::array<function, 3> functions{{{"", "", apply_add},
                                                    {"libparacel_default.so", "paracel_assign", apply_assign},
                                                    {"server_updates", "join_update", apply_join}}};
inline constexpr std::size_t joins = 2;

class generator {
 public:
  explicit generator(std::uint64_t seed) : engine_(seed) {}

  /// A retried update gets its original reply again only if that was small (README of server/).
  static inline std::atomic<bool> makes_small_values{false};

  std::size_t number(std::size_t below) { return engine_() % below; }
  bool one_in(std::size_t n) { return number(n) == 0; }

  /// Number of elements of a vector: few, or about as many as require a separate frame, or many more.
  std::size_t length(std::size_t element_bytes) {
    constexpr std::array<std::size_t, 6> few{0, 1, 2, 3, 17, 100};
    if (!one_in(12) || makes_small_values) return few[number(few.size())];
    if (one_in(6)) return (200'000 + number(400'000)) / element_bytes;
    return net::tail_threshold_bytes / element_bytes + number(3) - 1;
  }

  template <class T>
  requires std::is_integral_v<T>
  void fill(T& x) { x = static_cast<T>(one_in(4) ? engine_() : engine_() % 2001 - 1000); }
  template <class T>
  requires std::is_floating_point_v<T>
  void fill(T& x) {
    // Eighths: sums are exact, whichever deltas were combined before they were sent.
    x = static_cast<T>(static_cast<double>(number(16'001)) / 8 - 1000);
  }
  void fill(std::string& x) {
    x.resize(length(1));
    for (auto& c : x) c = static_cast<char>(engine_());
  }
  template <class T>
  void fill(std::vector<T>& x) {
    x.resize(raw_number<T> ? length(sizeof(T)) : number(4));
    if (x.size() > 200) {  // individual random numbers would take most of the time
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(T{} + i % 1000);
    } else {
      for (auto& item : x) fill(item);
    }
  }
  void fill(texts& x) {
    x.resize(number(4));
    for (auto& item : x) fill(item);
  }
  void fill(std::vector<std::pair<std::int64_t, std::vector<double>>>& x) {
    x.resize(number(3));
    for (auto& [id, weights] : x) {
      fill(id);
      weights.resize(number(5));
      for (auto& w : weights) fill(w);
    }
  }
  void fill(nested& x) {
    x.clear();
    for (auto n = number(4); n > 0; --n) fill(x["n" + std::to_string(number(100))]);
  }
  value any() {
    value v;
    with_type<0, types>(number(types), [&]<class T>() {
      T x{};
      fill(x);
      v = std::move(x);
    });
    return v;
  }
  /// A delta that can be added to `v`: of the same shape, of its type or a narrower one.
  value delta_for(const value& v) {
    return std::visit(
        [&]<class T>(const T& x) -> value {
          if constexpr (is_array<T>) {
            using E = typename T::value_type;
            if constexpr (codec_detail::widens<std::int32_t, E>)
              if (one_in(5)) return list_of<std::int32_t>(x.size(), static_cast<std::int32_t>(number(100)));
            T delta(x.size());
            for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = static_cast<E>(i % 50);
            if (!delta.empty()) fill(delta[number(delta.size())]);
            return delta;
          } else {
            if constexpr (raw_number<T>) {
              if constexpr (codec_detail::widens<std::int32_t, T>)
                if (one_in(5)) return static_cast<std::int32_t>(number(100));
            }
            T delta{};
            fill(delta);
            return delta;
          }
        },
        v);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace paracel::test::differential
