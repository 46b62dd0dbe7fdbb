// SPDX-License-Identifier: BSD-3-Clause
//
// All ways in which a worker of differential_test.cpp updates its keys.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/own_keys.hpp"

namespace paracel::test::differential {

class own_updates : public own_keys {
 protected:
  using own_keys::own_keys;

  void update() {
    const auto key = any_key();
    const auto [f, delta] = good_update(key);
    async_functor_type done;
    std::visit([&, f = f](const auto& d) { done = send_update(key, d, *f); }, delta);
    updated(key, [f = f, delta = delta](std::optional<value>& v) { EXPECT_TRUE(f->apply(v, delta)); });
    if (random_.one_in(3)) {
      ASSERT_TRUE(done.get());
    }
  }
  /// Immediate even under bsp: a staged update is rejected only when it is folded.
  void refused_update() {
    const auto key = any_key();
    if (!may_act_at_once(key)) return;
    const auto& f = functions[random_.one_in(2) ? 0 : joins];
    const auto delta = random_.any();
    auto after = at(key).now;
    if (f.apply(after, delta)) return;
    std::visit(
        [&](const auto& d) {
          if (f.file[0] == '\0') {
            ASSERT_THROW(a_.paracel_bupdate(key, d), error);
          } else {
            ASSERT_THROW(a_.paracel_bupdate(key, d, f.file, f.symbol), error);
          }
          if (bsp()) return;
          auto done = send_update(key, d, f);
          ASSERT_THROW((void)done.get(), error);
        },
        delta);
    compare(key, [&](const std::string& k, auto& out) { return a_.paracel_read(k, out); });
  }
  void update_multi() {
    with_type<0, scalars>(random_.number(scalars), [&]<class T>() {  // one number each, of one type
      texts keys;
      std::vector<T> deltas;
      dict_type<std::string, T> once;
      for (auto n = random_.number(20); n > 0; --n) {
        auto key = any_key();
        const auto v = in_the_end(key);
        if (v && !std::holds_alternative<T>(*v)) continue;
        T delta{};
        random_.fill(delta);
        once[key] = delta;
        keys.push_back(std::move(key));
        deltas.push_back(delta);
      }
      if (random_.one_in(2)) {
        a_.paracel_update_multi(keys, deltas);
        for (std::size_t i = 0; i < keys.size(); ++i) added(keys[i], deltas[i]);
      } else {
        a_.paracel_update_multi(once);
        for (const auto& [key, delta] : once) added(key, delta);
      }
    });
  }
  void update_default() {
    const auto key = any_key();
    const auto [f, delta] = good_update(key);
    const auto initial = random_.any();
    async_functor_type done;
    std::visit(
        [&, f = f](const auto& i, const auto& d) {
          done = f->file[0] == '\0' ? a_.paracel_update_default(key, i, d)
                                    : a_.paracel_update_default(key, i, d, f->file, f->symbol);
        },
        initial, delta);
    defaulted(key, initial, delta, *f);
    if (random_.one_in(3)) {
      ASSERT_TRUE(done.get());
    }
  }
  void update_default_multi() {
    with_type<0, scalars>(random_.number(scalars), [&]<class T>() {
      texts keys;
      std::vector<T> initials, deltas;
      dict_type<std::string, T> once;
      for (auto n = random_.number(20); n > 0; --n) {
        auto key = any_key();
        const auto v = in_the_end(key);
        if (v && !std::holds_alternative<T>(*v)) continue;
        random_.fill(initials.emplace_back());
        random_.fill(deltas.emplace_back());
        once[key] = deltas.back();
        keys.push_back(std::move(key));
      }
      if (random_.one_in(2)) {
        a_.paracel_update_default_multi(keys, initials, deltas);
        for (std::size_t i = 0; i < keys.size(); ++i) defaulted(keys[i], initials[i], deltas[i], functions[0]);
      } else {
        T initial{};
        random_.fill(initial);
        a_.paracel_update_default_multi(initial, once);
        for (const auto& [key, delta] : once) defaulted(key, initial, delta, functions[0]);
      }
    });
  }
  void bupdate() {
    const auto key = any_key();
    if (!may_act_at_once(key)) return;
    const auto [f, delta] = good_update(key);
    std::visit(
        [&, f = f](const auto& d) {
          if (f->file[0] == '\0') a_.paracel_bupdate(key, d);
          else a_.paracel_bupdate(key, d, f->file, f->symbol);
        },
        delta);
    ASSERT_TRUE(f->apply(at(key).now, delta));
  }
  void bupdate_get() {
    const auto both = key_to_add();
    if (!both) return;
    const auto& key = both->first;
    const auto& delta = both->second;
    auto& v = at(key).now;
    ASSERT_TRUE(apply_add(v, delta));
    std::visit(
        [&]<class T>(const T&, const auto& d) {
          T got{};
          a_.paracel_bupdate_get(key, d, got);
          expect_same(got, *v, key);
        },
        *v, delta);
  }
  void incr() {
    const auto both = key_to_add();
    if (!both) return;
    const auto& key = both->first;
    const auto& delta = both->second;
    auto& v = at(key).now;
    if (v && v->index() != delta.index()) return;  // the reply has the delta's type
    ASSERT_TRUE(apply_add(v, delta));
    std::visit([&](const auto& d) { expect_same(a_.paracel_incr(key, d), *v, key); }, delta);
  }
  void bupdate_multi_get() {
    with_type<scalars, arrays>(random_.number(arrays - scalars), [&]<class T>() {  // arrays of one type
      texts keys;
      std::vector<T> deltas, want;
      for (auto n = random_.number(8); n > 0; --n) {
        auto key = any_key();
        if (!may_act_at_once(key)) continue;
        auto& v = at(key).now;
        if (v && !std::holds_alternative<T>(*v)) continue;
        T delta(v ? std::get<T>(*v).size() : random_.number(50));
        for (auto& x : delta) random_.fill(x);
        ASSERT_TRUE(apply_add(v, delta));
        want.push_back(std::get<T>(*v));
        keys.push_back(std::move(key));
        deltas.push_back(std::move(delta));
      }
      const auto got = a_.paracel_bupdate_multi_get(keys, deltas);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], want[i], keys[i]);
    });
  }

  /// Records that an addition was sent.
  void added(const std::string& key, const value& delta) {
    updated(key, [delta](std::optional<value>& v) { EXPECT_TRUE(apply_add(v, delta)); });
  }

 private:
  struct chosen {
    const function* f;
    value delta;
  };
  /// A function and a delta that it must accept.
  chosen good_update(const std::string& key) {
    const auto v = in_the_end(key);
    const bool text = v && std::holds_alternative<std::string>(*v);
    if (random_.one_in(6)) return {&functions[1], random_.any()};
    if (text || (!v && random_.one_in(4))) {
      std::string more;
      if (text && std::get<std::string>(*v).size() > 400'000) return {&functions[1], std::string()};  // large enough
      random_.fill(more);
      return {&functions[joins], more};
    }
    if (v && !is_number(*v)) return {&functions[1], random_.any()};
    if (v) return {functions.data(), random_.delta_for(*v)};
    auto delta = random_.any();
    while (!is_number(delta)) delta = random_.any();
    return {functions.data(), delta};
  }
  template <class T>
  async_functor_type send_update(const std::string& key, const T& delta, const function& f) {
    return f.file[0] == '\0' ? a_.paracel_update(key, delta) : a_.paracel_update(key, delta, f.file, f.symbol);
  }
  void defaulted(const std::string& key, const value& initial, const value& delta, const function& f) {
    updated(key, [&f, initial, delta](std::optional<value>& v) {
      if (v) EXPECT_TRUE(f.apply(v, delta));
      else v = initial;
    });
  }
  /// A key that allows an immediate update, and a delta to add.
  std::optional<std::pair<std::string, value>> key_to_add() {
    auto key = any_key();
    if (!may_act_at_once(key)) return std::nullopt;
    const auto& v = at(key).now;
    if (v && !is_number(*v)) return std::nullopt;
    auto delta = v ? random_.delta_for(*v) : random_.any();
    if (!is_number(delta)) return std::nullopt;
    return std::pair(std::move(key), std::move(delta));
  }
};

}  // namespace paracel::test::differential
