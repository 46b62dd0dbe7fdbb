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

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>

#include "core/number_parsing.hpp"

namespace paracel::srv {

/// Notices NaN in what update functions have stored, which usually means that a computation diverges, and which nothing
/// else reports: a NaN stays in a value whatever is added to it. A sample is checked: of one update in eight some
/// elements, of an array others each time. Infinity is not noticed: it is a legitimate value, such as a distance.
///
/// Thread-safety: `saw` by the shard thread, the rest by any.
/// Cost: a counter; of one update in eight at most 16 elements. Beside an addition in a loop it cannot be measured.
class nan_watch {
 public:
  /// An update has stored this value. `key()`: names it in a log; called only if it is NaN.
  template <class Key>
  void saw(const std::string& function, value_tag tag, std::span<const std::byte> value, const Key& key) noexcept {
    if (is_due()) [[unlikely]]
      look(function, tag, value, key);
  }
  /// For many values at once: counts an update, and returns whether to `look` at one of them.
  [[nodiscard]] bool is_due() noexcept {
    if (--left_ != 0) return false;
    // At irregular distances, since updates may come in a rhythm (Knuth, MMIX).
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    left_ = 1 + static_cast<std::uint32_t>((random_ >> 33U) % (2 * one_of - 1));
    ++turn_;
    return true;
  }
  /// A number that is another one each time.
  [[nodiscard]] std::uint64_t turn() const noexcept { return turn_; }
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
  /// What was found for each function that has stored NaN.
  [[nodiscard]] std::map<std::string, found> all() const {
    const std::lock_guard lock(mutex_);
    return found_;
  }

 private:
  static constexpr std::uint32_t one_of = 8;  // on average
  static constexpr std::size_t most_elements = 16;

  template <class T>
  [[nodiscard]] bool has_nan(std::span<const std::byte> value) const noexcept {
    const auto count = value.size() / sizeof(T);
    if (count == 0) return false;
    const auto checked = std::min(count, most_elements);
    auto next = static_cast<std::size_t>(turn_ * most_elements % count);
    bool any = false;
    for (std::size_t i = 0; i < checked; ++i) {
      any |= std::isnan(load_field<T>(value.data() + next * sizeof(T)));
      if (++next == count) next = 0;
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

  std::uint32_t left_ = one_of;  // updates until the next check
  std::uint64_t random_ = 1;
  std::uint64_t turn_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, found> found_;
};

}  // namespace paracel::srv
