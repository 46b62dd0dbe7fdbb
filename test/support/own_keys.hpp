// SPDX-License-Identifier: BSD-3-Clause
//
// The expected state of one worker's keys in differential_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/random_values.hpp"

namespace paracel::test::differential {

/// Keys that only one worker uses, and a map with their expected values. Every reply is compared with it, so an
/// incorrect operation is detected immediately.
class own_keys {
 protected:
  static constexpr std::size_t own_key_count = 40;

  /// The expected contents: the value and, under bsp, the updates that take effect when the clock advances.
  struct entry {
    std::optional<value> now;
    std::vector<std::pair<std::uint32_t, std::function<void(std::optional<value>&)>>> staged;
  };

  own_keys(const Comm& comm, consistency_model model, std::uint64_t seed)
      : comm_(comm), model_(model), random_(seed * 1000 + comm.get_rank()), a_("", comm, "", 1, 3, true) {
    a_.set_consistency(model);
    a_.set_total_iters(1 << 30);
  }

  [[nodiscard]] bool bsp() const { return model_ == consistency_model::bsp; }
  std::string any_key() {
    return "w" + std::to_string(comm_.get_rank()) + "_" + std::to_string(random_.number(own_key_count));
  }
  /// A key's entry, after folding everything that a read would fold.
  entry& at(const std::string& key) {
    auto& e = map_[key];
    fold(e, clock_);
    return e;
  }
  static void fold(entry& e, std::uint32_t before) {
    while (!e.staged.empty() && e.staged.front().first < before) {
      e.staged.front().second(e.now);
      e.staged.erase(e.staged.begin());
    }
  }
  /// The value after all updates have taken effect.
  std::optional<value> in_the_end(const std::string& key) {
    auto e = at(key);
    fold(e, UINT32_MAX);
    return e.now;
  }
  /// Under bsp a write between an update and its fold may make the update impossible, so immediate operations are not
  /// used on a key with pending updates. Due updates are folded here first, because bupdate and remove do not require
  /// that.
  bool may_act_at_once(const std::string& key) {
    if (!bsp()) return true;
    if (!at(key).staged.empty()) return false;
    (void)a_.paracel_contains(key);
    return true;
  }
  /// An update took effect, or will when the clock advances.
  template <class F>
  void updated(const std::string& key, const F& change) {
    auto& e = at(key);
    if (bsp()) e.staged.emplace_back(clock_, change);
    else change(e.now);
  }

  template <class T>
  static void expect_same(const T& got, const value& want, const std::string& key) {
    const auto* w = std::get_if<T>(&want);
    ASSERT_NE(w, nullptr) << key << " is of another type than the map says";
    if constexpr (is_array<T>) {
      ASSERT_EQ(got.size(), w->size()) << key;
      if (!got.empty()) {
        ASSERT_EQ(std::memcmp(got.data(), w->data(), got.size() * sizeof got[0]), 0) << key << " differs";
      }
    } else if constexpr (raw_number<T>) {
      ASSERT_EQ(got, *w) << key;
    } else {
      ASSERT_TRUE(got == *w) << key << " differs";
    }
  }
  /// Reads with `get(key, T&) -> bool` and compares.
  template <class F>
  void compare(const std::string& key, const F& get) {
    const auto& want = at(key).now;
    if (!want) {
      double unchanged = 7;
      ASSERT_FALSE(get(key, unchanged)) << key << " is there";
      ASSERT_EQ(unchanged, 7);
      return;
    }
    std::visit(
        [&]<class T>(const T&) {
          T got{};
          ASSERT_TRUE(get(key, got)) << key << " is not there";
          expect_same(got, *want, key);
        },
        *want);
  }

  void check_all() {
    for (std::size_t i = 0; i < own_key_count; ++i) {
      const auto key = "w" + std::to_string(comm_.get_rank()) + "_" + std::to_string(i);
      compare(key, [&](const std::string& k, auto& out) { return a_.paracel_read(k, out); });
    }
  }

  // -- choosing operations and keys

  /// Keys that hold a T or do not exist; some of them twice.
  template <class T>
  texts keys_of(std::size_t most) {
    texts keys;
    for (auto n = random_.number(most); n > 0; --n) {
      auto key = any_key();
      if (const auto& v = at(key).now; !v || std::holds_alternative<T>(*v)) keys.push_back(std::move(key));
    }
    return keys;
  }
  bool all_there(const texts& keys) {
    return std::ranges::all_of(keys, [&](const auto& key) { return at(key).now.has_value(); });
  }

  Comm comm_;
  consistency_model model_;
  generator random_;
  paralg a_;
  std::uint32_t clock_ = 0;
  std::map<std::string, entry> map_;
};

}  // namespace paracel::test::differential
