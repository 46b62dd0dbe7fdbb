// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include <paracel/bytes.hpp>
#include <paracel/value.hpp>

#include "core/number_parsing.hpp"

namespace paracel::srv {

/// Notices NaN in what update functions have stored, which usually means that a computation diverges, and which nothing
/// else reports: a NaN stays in a value whatever is added to it. A sample is checked: of every eighth update some
/// elements, of an array others each time. Infinity is not noticed: it is a legitimate value, such as a distance.
///
/// Thread-safety: `saw` by the shard thread, the rest by any.
/// Cost: a counter; of every eighth update at most 16 elements. Beside an addition in a loop it cannot be measured.
class nan_watch {
 public:
  /// An update has stored this value. `key()`: names it in a log; called only if it is NaN.
  template <class Key>
  void saw(const std::string& function, value_tag tag, std::span<const std::byte> value, const Key& key) noexcept {
    if (is_due()) [[unlikely]]
      look(function, tag, value, key);
  }
  /// For many values at once: counts an update, and returns whether to `look` at one of them.
  [[nodiscard]] bool is_due() noexcept { return ++updates_ % one_of == 0; }
  /// A number that is another one each time.
  [[nodiscard]] std::uint64_t turn() const noexcept { return updates_ / one_of; }
  template <class Key>
  void look(const std::string& function, value_tag tag, std::span<const std::byte> value, const Key& key) noexcept {
    const bool is_nan = element_of(tag) == value_tag::f64   ? has_nan<double>(value)
                        : element_of(tag) == value_tag::f32 ? has_nan<float>(value)
                                                            : false;
    if (is_nan) [[unlikely]]
      note(function, key);
  }

  struct found {
    std::uint64_t updates = 0;  ///< of those checked
    std::string first;          ///< the first key
  };
  /// Of each function that has stored NaN.
  [[nodiscard]] std::map<std::string, found> all() const {
    const std::lock_guard lock(mutex_);
    return found_;
  }

 private:
  static constexpr std::uint64_t one_of = 8;
  static constexpr std::size_t most_elements = 16;

  template <class T>
  bool has_nan(std::span<const std::byte> value) noexcept {
    const auto count = value.size() / sizeof(T);
    if (count == 0) return false;
    const auto checked = std::min(count, most_elements);
    next_ = next_ < count ? next_ : 0;
    bool any = false;
    for (std::size_t i = 0; i < checked; ++i) {
      any |= std::isnan(load_field<T>(value.data() + next_ * sizeof(T)));
      if (++next_ == count) next_ = 0;
    }
    return any;
  }
  template <class Key>
  void note(const std::string& function, const Key& key) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      auto& f = found_[function];
      if (++f.updates == 1) f.first = key();
    } catch (const std::bad_alloc&) {  // it is noticed again
    }
  }

  std::uint64_t updates_ = 0;
  std::size_t next_ = 0;  // where the next array is checked
  mutable std::mutex mutex_;
  std::map<std::string, found> found_;
};

}  // namespace paracel::srv
