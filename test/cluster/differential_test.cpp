// SPDX-License-Identifier: BSD-3-Clause
//
// Random operations of the complete interface, several workers against several servers.
//
//   own keys      Each worker has keys that no other worker uses, and a std::map with their expected values. Every
//                 reply is compared with it, under asp, ssp (reads come from the cache) and bsp (updates take effect
//                 later).
//   shared keys   Integers and an array that all workers add to, in every possible way: the sums are exact.
//   histories     Clients with several requests in flight on a few keys; their observations must be linearizable, key
//                 by key.
//
// PARACEL_DIFFERENTIAL_SECONDS: how long each of them runs (2). PARACEL_SEED: of the first round; every failure message
// contains it. A new operation is a line in `operations` and a method.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <paracel/array.hpp>
#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/linearizability.hpp"
#include "test/support/paths.hpp"
#include "test/support/server_killer.hpp"

namespace paracel {
namespace {

using test::cluster;
using steady = std::chrono::steady_clock;

std::chrono::duration<double> time_to_run() {
  const char* text = std::getenv("PARACEL_DIFFERENTIAL_SECONDS");
  return std::chrono::duration<double>(text != nullptr ? std::strtod(text, nullptr) : 2.0);
}

unsigned first_seed() {
  const char* text = std::getenv("PARACEL_SEED");
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : std::random_device()();
}

// ---- values --------------------------------------------------------------------------------------------------------

template <class T>
using list_of = std::vector<T>;
using texts = std::vector<std::string>;
using nested = std::map<std::string, std::vector<std::pair<std::int64_t, std::vector<double>>>>;
using value = std::variant<std::int32_t, std::int64_t, float, double, list_of<std::int32_t>, list_of<std::int64_t>,
                           list_of<float>, list_of<double>, std::string, texts, nested>;
constexpr std::size_t types = std::variant_size_v<value>;

template <class T>
constexpr bool is_array = codec_detail::raw_list<T>;

/// Calls f<T>() with the type of number first + which, of the types [first, last) of `value`.
template <std::size_t first, std::size_t last, class F>
void with_type(std::size_t which, const F& f) {
  if constexpr (first < last) {
    if (which == 0) f.template operator()<std::variant_alternative_t<first, value>>();
    else with_type<first + 1, last>(which - 1, f);
  }
}
// Numbers come first, then arrays of them.
constexpr std::size_t scalars = 4, arrays = 8;

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
bool add(value& to, const value& delta) {
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

bool is_number(const value& v) {
  return std::visit([]<class T>(const T&) { return raw_number<T> || is_array<T>; }, v);
}

/// An update function: its name on the servers, and its effect on the map. False: it must be rejected.
struct function {
  const char* file;
  const char* symbol;
  bool (*apply)(std::optional<value>&, const value& delta);
};
bool apply_add(std::optional<value>& v, const value& delta) {
  if (v) return add(*v, delta);
  if (!is_number(delta)) return false;
  v = delta;
  return true;
}
bool apply_assign(std::optional<value>& v, const value& delta) {
  v = delta;
  return true;
}
bool apply_join(std::optional<value>& v, const value& delta) {
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
constexpr std::array<function, 3> functions{{{"", "", apply_add},
                                             {"libparacel_default.so", "paracel_assign", apply_assign},
                                             {"server_updates", "join_update", apply_join}}};
constexpr std::size_t joins = 2;

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

// ---- own keys ------------------------------------------------------------------------------------------------------

class worker {
 public:
  static constexpr std::size_t own_keys = 40;
  static constexpr std::size_t shared_keys = 6;
  static constexpr std::size_t array_size = 3000;

  worker(Comm comm, consistency_model model, std::uint64_t seed)
      : comm_(comm), model_(model), random_(seed * 1000 + comm.get_rank()), a_("", comm, "", 1, 3, true) {
    a_.set_consistency(model);
    a_.set_total_iters(1 << 30);
    make_arrays();
  }

  /// A round of random operations and checks; all workers run the same number of rounds.
  void round(std::uint64_t seed) {
    generator together(seed);  // the same on every worker
    const auto steps = 40 + random_.number(20);
    for (std::size_t i = 0; i < steps; ++i) {
      if (!testing::Test::HasFailure()) one_operation();  // the others still wait for our commits
      // Two commits for each round and worker, so that workers are never farther apart than the staleness allows when
      // one waits at the end.
      if (i == steps / 3 || i == 2 * steps / 3) commit();
    }
    commit();
    a_.paracel_sync();
    check_sums();
    check_all();
    a_.paracel_sync();
    if (together.one_in(5)) {
      if (comm_.get_rank() == together.number(comm_.get_size())) a_.paracel_clear();
      a_.paracel_sync();
      cleared_ = true;
      map_.clear();
      sums_ = {};
      make_arrays();
      if (model_ != consistency_model::asp) commit_all_away();
    }
  }

 private:
  /// The expected contents: the value and, under bsp, the updates that take effect when the clock advances.
  struct entry {
    std::optional<value> now;
    std::vector<std::pair<std::uint32_t, std::function<void(std::optional<value>&)>>> staged;
  };

  struct operation {
    const char* name;
    unsigned weight;
    void (worker::*run)();
  };
  static const std::vector<operation>& operations() {
    static const std::vector<operation> all{
        {"read", 12, &worker::read},
        {"read as another type", 2, &worker::read_as_another_type},
        {"read_version", 4, &worker::read_version},
        {"read_multi", 5, &worker::read_multi},
        {"contains", 5, &worker::contains},
        {"write", 10, &worker::write},
        {"write_multi", 4, &worker::write_multi},
        {"cas", 6, &worker::cas},
        {"remove", 3, &worker::remove},
        {"remove_multi", 2, &worker::remove_multi},
        {"update", 14, &worker::update},
        {"update that is refused", 3, &worker::refused_update},
        {"update_multi", 5, &worker::update_multi},
        {"update_default", 6, &worker::update_default},
        {"update_default_multi", 3, &worker::update_default_multi},
        {"bupdate", 6, &worker::bupdate},
        {"bupdate_get", 4, &worker::bupdate_get},
        {"bupdate_multi_get", 3, &worker::bupdate_multi_get},
        {"incr", 4, &worker::incr},
        {"add to a shared key", 8, &worker::add_shared},
        {"array: read", 4, &worker::array_read},
        {"array: read_at", 3, &worker::array_read_at},
        {"array: write", 2, &worker::array_write},
        {"array: update", 4, &worker::array_update},
        {"array: update_at", 4, &worker::array_update_at},
        {"array: add to the shared one", 4, &worker::array_add_shared},
        {"read_ref", 6, &worker::read_ref},
        {"get_cache", 3, &worker::cache},
        {"read_async", 4, &worker::read_async},
        {"read_multi_async", 3, &worker::read_multi_async},
        {"set: read", 5, &worker::set_read},
        {"set: write", 3, &worker::set_write},
        {"set: update", 5, &worker::set_update},
        {"set: bupdate_get", 3, &worker::set_bupdate_get},
        {"keys, count", 2, &worker::walk},
    };
    return all;
  }

  void one_operation() {
    unsigned total = 0;
    for (const auto& o : operations()) total += o.weight;
    auto pick = random_.number(total);
    for (const auto& o : operations()) {
      if (pick < o.weight) {
        SCOPED_TRACE(o.name);
        try {
          (this->*o.run)();
        } catch (const std::exception& e) {
          FAIL() << e.what();
        }
        return;
      }
      pick -= o.weight;
    }
  }

  [[nodiscard]] bool bsp() const { return model_ == consistency_model::bsp; }
  std::string any_key() {
    return "w" + std::to_string(comm_.get_rank()) + "_" + std::to_string(random_.number(own_keys));
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
  void commit() {
    a_.iter_commit();
    ++clock_;
    for (std::size_t i = 0; i < array_size; ++i) array_now_[i] = sum(array_now_[i], std::exchange(array_staged_[i], 0));
  }
  /// A cached read may be as old as the staleness allows: after this many commits no read returns an older value.
  void commit_all_away() {
    for (int i = 0; i < 5; ++i) commit();
    a_.paracel_sync();
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

  // -- reads

  void read() {
    compare(any_key(), [&](const std::string& key, auto& out) { return a_.paracel_read(key, out); });
  }
  void read_version() {
    compare(any_key(), [&](const std::string& key, auto& out) { return a_.paracel_read_version(key, out) != 0; });
  }
  void contains() {
    const auto key = any_key();
    ASSERT_EQ(a_.paracel_contains(key), at(key).now.has_value()) << key;
  }
  void read_as_another_type() {
    const auto key = any_key();
    const auto& want = at(key).now;
    if (!want) return;
    std::visit(
        [&]<class T>(const T& x) {
          if constexpr (std::is_same_v<T, std::int32_t> || std::is_same_v<T, float>) {
            ASSERT_EQ(a_.paracel_read<double>(key), static_cast<double>(x));
          } else if constexpr (std::is_same_v<T, list_of<std::int32_t>>) {
            ASSERT_EQ(a_.paracel_read<list_of<std::int64_t>>(key), list_of<std::int64_t>(x.begin(), x.end()));
          } else if constexpr (std::is_same_v<T, std::string>) {
            ASSERT_THROW((void)a_.paracel_read<nested>(key), type_error);
          } else {
            ASSERT_THROW((void)a_.paracel_read<std::string>(key), type_error);
          }
        },
        *want);
  }
  void read_multi() {
    with_type<0, types>(random_.number(types), [&]<class T>() {
      texts keys;
      bool all = true;
      for (std::size_t i = 0; i < own_keys; ++i) {
        auto key = any_key();
        const auto& v = at(key).now;
        if (v && !std::holds_alternative<T>(*v)) continue;
        all = all && v.has_value();
        keys.push_back(std::move(key));  // some of them twice
      }
      dict_type<std::string, T> got;
      a_.paracel_read_multi(keys, got);
      for (const auto& key : keys) {
        const auto& v = at(key).now;
        ASSERT_EQ(got.contains(key), v.has_value()) << key;
        if (v) expect_same(got[key], *v, key);
      }
      if (!all) {
        ASSERT_THROW((void)a_.paracel_read_multi<T>(keys), key_error);
        return;
      }
      const auto list = a_.paracel_read_multi<T>(keys);
      ASSERT_EQ(list.size(), keys.size());
      for (std::size_t i = 0; i < keys.size(); ++i) expect_same(T(list[i]), *at(keys[i]).now, keys[i]);
    });
  }

  // -- writes

  void write() {
    const auto key = any_key();
    if (!may_act_at_once(key)) return;
    const auto v = random_.any();
    std::visit([&](const auto& x) { a_.paracel_write(key, x); }, v);
    at(key).now = v;
  }
  void write_multi() {
    with_type<0, types>(random_.number(types), [&]<class T>() {
      dict_type<std::string, T> values;
      for (auto n = random_.number(12); n > 0; --n)
        if (auto key = any_key(); may_act_at_once(key)) random_.fill(values[key]);
      a_.paracel_write_multi(values);
      for (const auto& [key, v] : values) at(key).now = v;
    });
  }
  void cas() {
    const auto key = any_key();
    if (!may_act_at_once(key)) return;
    const auto v = random_.any();
    std::uint64_t is = 0;
    compare(key, [&](const std::string& k, auto& out) { return (is = a_.paracel_read_version(k, out)) != 0; });
    const auto version_of = [&](std::uint64_t guess) {
      auto version = guess;
      bool swapped = false;
      std::visit([&](const auto& x) { swapped = a_.paracel_cas(key, version, x); }, v);
      EXPECT_EQ(swapped, guess == is) << key;
      if (swapped) {
        EXPECT_GT(version, is) << key;
        at(key).now = v;
      } else {
        EXPECT_EQ(version, is) << key << ": the version that is there";
      }
    };
    if (random_.one_in(3)) version_of(is + 1);
    else if (is != 0 && random_.one_in(3)) version_of(0);
    else version_of(is);
  }
  void remove() {
    const auto key = any_key();
    if (!may_act_at_once(key)) return;
    ASSERT_EQ(a_.paracel_remove(key), at(key).now.has_value()) << key;
    at(key).now.reset();
  }
  void remove_multi() {
    texts keys;
    bool all = true;
    for (auto n = random_.number(4); n > 0; --n) {
      auto key = any_key();
      if (!may_act_at_once(key)) continue;
      all = all && at(key).now.has_value();
      at(key).now.reset();  // a repeated one exists only once
      keys.push_back(std::move(key));
    }
    ASSERT_EQ(a_.paracel_remove_multi(keys), all);
  }

  // -- updates

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
  void added(const std::string& key, const value& delta) {
    updated(key, [delta](std::optional<value>& v) { EXPECT_TRUE(apply_add(v, delta)); });
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
  void defaulted(const std::string& key, const value& initial, const value& delta, const function& f) {
    updated(key, [&f, initial, delta](std::optional<value>& v) {
      if (v) EXPECT_TRUE(f.apply(v, delta));
      else v = initial;
    });
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

  // -- without waiting

  void read_async() {
    with_type<0, types>(random_.number(types), [&]<class T>() {
      const auto keys = keys_of<T>(20);
      std::vector<T> got(keys.size());
      std::vector<async_functor_type> futures;
      for (std::size_t i = 0; i < keys.size(); ++i) futures.push_back(a_.paracel_read_async(keys[i], got[i]));
      if (random_.one_in(2)) a_.paracel_wait();
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto& v = at(keys[i]).now;
        ASSERT_EQ(futures[i].get(), v.has_value()) << keys[i];
        if (v) expect_same(got[i], *v, keys[i]);
      }
    });
  }
  void read_multi_async() {
    with_type<0, types>(random_.number(types), [&]<class T>() {
      const auto keys = keys_of<T>(20);
      std::vector<T> got;
      auto done = a_.paracel_read_multi_async(keys, got);
      if (!all_there(keys)) {
        ASSERT_THROW((void)done.get(), key_error);
        return;
      }
      ASSERT_TRUE(done.get());
      for (std::size_t i = 0; i < keys.size(); ++i) expect_same(got[i], *at(keys[i]).now, keys[i]);
    });
  }

  // -- prepared key sets, scans

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
  void set_read() {
    with_type<0, scalars>(random_.number(scalars), [&]<class T>() {
      const auto keys = keys_of<T>(30);
      const auto set = a_.paracel_prepare(keys);
      std::vector<T> got;
      if (!all_there(keys)) {
        ASSERT_THROW(a_.paracel_read(set, got), key_error);
        return;
      }
      a_.paracel_read(set, got);
      ASSERT_EQ(got.size(), keys.size());
      for (std::size_t i = 0; i < keys.size(); ++i) expect_same(T(got[i]), *at(keys[i]).now, keys[i]);
    });
  }
  void set_write() {
    with_type<0, scalars>(random_.number(scalars), [&]<class T>() {
      texts keys;
      std::vector<T> values;
      for (auto n = random_.number(12); n > 0; --n) {
        auto key = any_key();
        if (!may_act_at_once(key)) continue;
        random_.fill(values.emplace_back());
        keys.push_back(std::move(key));
      }
      a_.paracel_write(a_.paracel_prepare(keys), values);
      for (std::size_t i = 0; i < keys.size(); ++i) at(keys[i]).now = values[i];
    });
  }
  void set_update() {
    with_type<0, scalars>(random_.number(scalars), [&]<class T>() {
      texts keys;
      std::vector<T> deltas;
      for (auto n = random_.number(20); n > 0; --n) {
        auto key = any_key();
        if (const auto v = in_the_end(key); v && !std::holds_alternative<T>(*v)) continue;
        random_.fill(deltas.emplace_back());
        keys.push_back(std::move(key));
      }
      auto done = a_.paracel_update(a_.paracel_prepare(keys), deltas);
      for (std::size_t i = 0; i < keys.size(); ++i) added(keys[i], deltas[i]);
      if (random_.one_in(3)) {
        ASSERT_TRUE(done.get());
      }
    });
  }
  void set_bupdate_get() {
    with_type<0, scalars>(random_.number(scalars), [&]<class T>() {
      texts keys;
      std::vector<T> deltas, want, got;
      for (auto n = random_.number(12); n > 0; --n) {
        auto key = any_key();
        if (!may_act_at_once(key)) continue;
        auto& v = at(key).now;
        if (v && !std::holds_alternative<T>(*v)) continue;
        random_.fill(deltas.emplace_back());
        ASSERT_TRUE(apply_add(v, deltas.back()));
        want.push_back(std::get<T>(*v));
        keys.push_back(std::move(key));
      }
      a_.paracel_bupdate_get(a_.paracel_prepare(keys), deltas, got);
      ASSERT_EQ(got, want);
    });
  }
  void walk() {
    const auto prefix = "w" + std::to_string(comm_.get_rank()) + "_";
    texts want;
    for (std::size_t i = 0; i < own_keys; ++i)
      if (const auto key = prefix + std::to_string(i); at(key).now) want.push_back(key);
    auto got = a_.paracel_keys(prefix);
    std::ranges::sort(got);
    std::ranges::sort(want);
    ASSERT_EQ(got, want);
    ASSERT_EQ(a_.paracel_count(prefix), want.size());
  }

  // -- shared keys

  void add_shared() {
    const auto k = random_.number(shared_keys);
    const auto key = "sum" + std::to_string(k);
    std::int64_t n = 0;
    random_.fill(n);
    sums_[k] = sum(sums_[k], n);
    switch (random_.number(6)) {
      case 0:
        a_.paracel_update(key, n);
        break;
      case 1:
        a_.paracel_bupdate(key, n);
        break;
      case 2:
        a_.paracel_incr(key, n);
        break;
      case 3:
        a_.paracel_update_default(key, n, n);
        break;
      case 4:
        a_.paracel_update_multi(texts{key, key}, std::vector<std::int64_t>{n, 0});
        break;
      default: {  // by hand
        std::int64_t is = 0;
        auto version = a_.paracel_read_version(key, is);
        while (!a_.paracel_cas(key, version, sum(is, n))) {
          is = 0;
          version = a_.paracel_read_version(key, is);
        }
      }
    }
  }
  void check_sums() {
    std::vector<std::int64_t> all(sums_.begin(), sums_.end());
    comm_.allreduce(all);
    for (std::size_t k = 0; k < shared_keys; ++k) {
      std::int64_t n = 0;
      (void)a_.paracel_read_version("sum" + std::to_string(k), n);
      EXPECT_EQ(n, all[k]) << "sum" << k;
    }
    auto elements = array_sums_;
    comm_.allreduce(elements);
    EXPECT_EQ(shared_array_->read(), elements) << "the shared array";
    EXPECT_EQ(own_array_->read(), array_now_) << "one's own array";
  }

  // -- arrays: an own one, of which every element is known, and one to which all workers add

  void make_arrays() {
    own_array_.reset();
    shared_array_.reset();
    array_options small;
    small.piece_bytes = 4096;
    own_array_.emplace(a_, "array" + std::to_string(comm_.get_rank()), array_size, 1, small);
    shared_array_.emplace(a_, "array", array_size, 0, small);
    array_now_.assign(array_size, 1);
    array_staged_.assign(array_size, 0);
    array_sums_.assign(array_size, 0);
  }
  std::pair<std::size_t, std::size_t> any_range() {
    if (random_.one_in(3)) return {0, array_size};
    const auto first = random_.number(array_size);
    return {first, random_.number(std::min<std::size_t>(array_size - first, 1200) + 1)};
  }
  std::vector<std::uint64_t> any_indices() {
    std::vector<std::uint64_t> indices(random_.number(30));
    for (auto& i : indices) i = random_.number(random_.one_in(4) ? 3 : array_size);  // some of them twice
    return indices;
  }
  std::vector<std::int64_t> any_numbers(std::size_t n) {
    std::vector<std::int64_t> all(n);
    for (auto& x : all) random_.fill(x);
    return all;
  }
  void array_read() {
    const auto [first, n] = any_range();
    std::vector<std::int64_t> got(n);
    own_array_->read(first, got);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], array_now_[first + i]) << first + i;
  }
  void array_read_at() {
    const auto indices = any_indices();
    const auto got = own_array_->read_at(indices);
    ASSERT_EQ(got.size(), indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) ASSERT_EQ(got[i], array_now_[indices[i]]) << indices[i];
  }
  void array_write() {
    const auto [first, n] = any_range();
    const auto values = any_numbers(n);
    own_array_->write(first, values);
    std::copy(values.begin(), values.end(), array_now_.begin() + static_cast<std::ptrdiff_t>(first));
  }
  void array_update() {
    const auto [first, n] = any_range();
    const auto deltas = any_numbers(n);
    const bool at_once = random_.one_in(4);
    if (at_once) own_array_->bupdate(first, deltas);
    else (void)own_array_->update(first, deltas);
    auto& to = bsp() && !at_once ? array_staged_ : array_now_;
    for (std::size_t i = 0; i < n; ++i) to[first + i] = sum(to[first + i], deltas[i]);
  }
  void array_update_at() {
    const auto indices = any_indices();
    const auto deltas = any_numbers(indices.size());
    const bool at_once = random_.one_in(4);
    if (at_once) own_array_->bupdate_at(indices, deltas);
    else (void)own_array_->update_at(indices, deltas);
    auto& to = bsp() && !at_once ? array_staged_ : array_now_;
    for (std::size_t i = 0; i < indices.size(); ++i) to[indices[i]] = sum(to[indices[i]], deltas[i]);
  }
  void array_add_shared() {
    if (random_.one_in(2)) {
      const auto [first, n] = any_range();
      const auto deltas = any_numbers(n);
      (void)shared_array_->update(first, deltas);
      for (std::size_t i = 0; i < n; ++i) array_sums_[first + i] = sum(array_sums_[first + i], deltas[i]);
    } else {
      const auto indices = any_indices();
      const auto deltas = any_numbers(indices.size());
      (void)shared_array_->update_at(indices, deltas);
      for (std::size_t i = 0; i < indices.size(); ++i)
        array_sums_[indices[i]] = sum(array_sums_[indices[i]], deltas[i]);
    }
  }

  // -- the cache

  void read_ref() {
    compare(any_key(), [&]<class T>(const std::string& key, T& out) {
      try {
        const auto& got = a_.paracel_read_ref<T>(key);
        if constexpr (is_array<T>) out.assign(got.begin(), got.end());
        else out = got;
        return true;
      } catch (const key_error&) {
        return false;
      }
    });
  }
  /// Under ssp the cached value of an own key is its current value, however old; until a worker clears everything.
  void cache() {
    const auto key = any_key();
    if (model_ != consistency_model::ssp || cleared_ || !a_.is_cached(key)) return;
    const auto& want = at(key).now;
    ASSERT_TRUE(want) << key << " is cached and not there";
    std::visit([&]<class T>(const T&) { expect_same(a_.get_cache<T>(key), *want, key); }, *want);
  }

  void check_all() {
    for (std::size_t i = 0; i < own_keys; ++i) {
      const auto key = "w" + std::to_string(comm_.get_rank()) + "_" + std::to_string(i);
      compare(key, [&](const std::string& k, auto& out) { return a_.paracel_read(k, out); });
    }
  }

  Comm comm_;
  consistency_model model_;
  generator random_;
  paralg a_;
  std::uint32_t clock_ = 0;
  bool cleared_ = false;
  std::map<std::string, entry> map_;
  std::array<std::int64_t, shared_keys> sums_{};  // added by this worker
  std::optional<array<std::int64_t>> own_array_, shared_array_;
  std::vector<std::int64_t> array_now_, array_staged_;  // of the own one: as read, and pending until the commit
  std::vector<std::int64_t> array_sums_;                // of the shared one: added by this worker
};

struct setting {
  consistency_model model;
  std::size_t workers, servers;
  std::uint32_t threads;
  std::uint32_t replicas = 1;  ///< above 1 servers are continuously lost and replaced
};

class Differential : public testing::TestWithParam<setting> {};

TEST_P(Differential, EveryAnswerIsThatOfAMap) {
  const auto& [model, workers, servers, threads, replicas] = GetParam();
  const auto seed = first_seed();
  const auto end = steady::now() + time_to_run();
  cluster c({.workers = workers,
             .servers = servers,
             .threads = threads,
             .replicas = replicas,
             .plugin_folders = {test::plugin_folder()}});
  generator::makes_small_values = replicas > 1;
  c.run([&, model = model, servers = servers, replicas = replicas](Comm comm) {
    std::optional<test::server_killer> disasters;
    if (replicas > 1 && comm.get_rank() == 0) disasters.emplace(c, servers);
    SCOPED_TRACE("PARACEL_SEED=" + std::to_string(seed) + ", worker " + std::to_string(comm.get_rank()));
    worker w(comm, model, seed);
    for (int go_on = 1, round = 0; go_on != 0; ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      w.round(seed + static_cast<unsigned>(round));
      go_on = steady::now() < end && !testing::Test::HasFailure() ? 1 : 0;
      comm.bcast(go_on, 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Settings, Differential,
                         testing::Values(setting{consistency_model::asp, 4, 3, 2},
                                         setting{consistency_model::asp, 2, 1, 1},
                                         setting{consistency_model::ssp, 4, 2, 2},
                                         setting{consistency_model::bsp, 3, 2, 1}));
INSTANTIATE_TEST_SUITE_P(ServersAreLost, Differential,
                         testing::Values(setting{consistency_model::asp, 3, 3, 2, 2},
                                         setting{consistency_model::ssp, 3, 3, 2, 2},
                                         setting{consistency_model::bsp, 3, 3, 2, 2},
                                         setting{consistency_model::asp, 2, 4, 1, 3}));

// ---- histories -----------------------------------------------------------------------------------------------------

/// An operation on an integer key as observed by a client.
struct seen {
  net::verb what = net::verb::none;
  std::int64_t argument = 0;
  std::int64_t initial = 0;    ///< of update_default
  std::uint64_t expected = 0;  ///< of cas
  net::status result = net::status::ok;
  std::uint64_t version = 0;  ///< of the reply
  std::int64_t answer = 0;
};

struct integer {
  bool there = false;
  std::int64_t n = 0;
  std::uint64_t version = 0;  ///< 0 if the key does not exist
  std::uint64_t last = 0;     ///< the greatest version so far
  auto operator<=>(const integer&) const = default;
};

bool explains(integer& i, const seen& s) {
  const auto set = [&](std::int64_t n) {
    if (s.result != net::status::ok || s.version <= i.last) return false;
    i = {true, n, s.version, s.version};
    return true;
  };
  switch (s.what) {
    case net::verb::pull:
      if (s.result == net::status::not_found) return !i.there;
      return s.result == net::status::ok && i.there && s.answer == i.n && s.version == i.version;
    case net::verb::contains:
      if (s.result == net::status::not_found) return !i.there;
      return s.result == net::status::ok && i.there && s.version == i.version;
    case net::verb::push:
      return set(s.argument);
    case net::verb::update:
      return set(sum(i.there ? i.n : 0, s.argument));
    case net::verb::bupdate:
      return set(sum(i.there ? i.n : 0, s.argument)) && s.answer == i.n;
    case net::verb::update_default:
      return set(i.there ? sum(i.n, s.argument) : s.initial);
    case net::verb::cas:
      if (s.result == net::status::conflict) return s.version == i.version && s.version != s.expected;
      return i.version == s.expected && set(s.argument);
    case net::verb::remove:
      if (s.result == net::status::not_found) return !i.there;
      if (s.result != net::status::ok || !i.there) return false;
      i = {false, 0, 0, i.last};
      return true;
    default:
      return false;
  }
}

using history = std::vector<test::timed<seen>>;

/// A client that sends random requests on `keys`, up to `in_flight` of them at once. A value is a list of `width` equal
/// elements, so that a mixture of old and new is detected.
class prober {
 public:
  prober(std::unique_ptr<server_group> client, std::uint64_t seed, std::vector<std::string> keys, std::size_t width)
      : client_(std::move(client)), random_(seed), keys_(std::move(keys)), width_(width), histories_(keys_.size()) {}

  void run(std::size_t requests, std::size_t in_flight) {
    for (auto& h : histories_) h.reserve(requests);  // handlers refer to their elements
    std::vector<std::uint64_t> version(keys_.size(), 0);
    for (std::size_t i = 0; i < requests; ++i) {
      const auto k = random_.number(keys_.size());
      auto& h = histories_[k];
      auto& t = h.emplace_back();
      auto& s = t.operation;
      constexpr std::array verbs{net::verb::pull,     net::verb::pull,           net::verb::push, net::verb::update,
                                 net::verb::bupdate,  net::verb::update_default, net::verb::cas,  net::verb::cas,
                                 net::verb::contains, net::verb::remove};
      s.what = verbs[random_.number(verbs.size())];
      random_.fill(s.argument);
      random_.fill(s.initial);
      s.expected = random_.one_in(8) ? 0 : version[k];
      const std::vector<std::int64_t> argument(width_, s.argument), initial(width_, s.initial);
      const encoded<std::vector<std::int64_t>> a(argument), first(initial);
      kvclt::call c{.what = s.what};
      value_view payload;
      std::vector<std::byte> both;
      if (s.what == net::verb::update_default) {
        net::append_item(both, {}, first.view());
        net::append_item(both, {}, a.view());
        c.prefix = both;
      } else if (s.what != net::verb::pull && s.what != net::verb::contains && s.what != net::verb::remove) {
        payload = a.view();
        if (s.what == net::verb::cas) c.prefix = std::as_bytes(std::span(&s.expected, 1));
      }
      t.sent = now();
      client_->request(c, keys_[k], payload, [this, &t, &known = version[k]](const kv_result& r) {
        t.answered = now();
        auto& o = t.operation;
        o.result = r.header.result;
        o.version = r.header.value_version;
        if (o.version != 0) known = o.version;
        if (!r.ok() || r.header.tag == value_tag::none) return;
        const auto got = decode<std::vector<std::int64_t>>(r.value());
        if (got.size() != width_) return complain("a value of another width");
        o.answer = got.front();
        for (const auto n : got)
          if (n != o.answer) return complain("a value that is half old and half new");
      });
      while (client_->in_flight() >= in_flight) (void)client_->wait_all();
    }
    client_->wait_all();
  }

  [[nodiscard]] const history& of(std::size_t key) const { return histories_[key]; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  static std::int64_t now() { return steady::now().time_since_epoch().count(); }
  void complain(const char* what) { complaint_ = what; }

  std::unique_ptr<server_group> client_;
  generator random_;
  std::vector<std::string> keys_;
  std::size_t width_;
  std::vector<history> histories_;
  std::string complaint_;
};

/// `one_by_one`: each client waits for its replies, which are small. Otherwise, of two requests in flight when a server
/// is lost, a read may be executed after a later update; and large replies are not remembered, so a retried update
/// returns the current value.
void check_histories(cluster& c, bool one_by_one) {
  constexpr std::size_t clients = 4, keys = 5;
  const auto seed = first_seed();
  const auto end = steady::now() + time_to_run();
  std::size_t checked = 0;
  for (unsigned round = 0; round == 0 || steady::now() < end; ++round) {
    SCOPED_TRACE("PARACEL_SEED=" + std::to_string(seed) + ", round " + std::to_string(round));
    generator random(seed + round);
    const std::size_t width = random.one_in(4) && !one_by_one ? 9000 : 1;  // 72 kB: in a separate frame
    const auto in_flight = one_by_one ? 1 : 1 + random.number(6);
    std::vector<std::string> names;
    for (std::size_t k = 0; k < keys; ++k) names.push_back("r" + std::to_string(round) + "_" + std::to_string(k));
    std::vector<std::unique_ptr<prober>> probers;
    for (std::size_t p = 0; p < clients; ++p)
      probers.push_back(std::make_unique<prober>(c.client(), (seed + round) * clients + p, names, width));
    std::vector<std::thread> threads;
    for (auto& p : probers) threads.emplace_back([&] { p->run(width == 1 ? 300 : 60, in_flight); });
    for (auto& t : threads) t.join();
    for (const auto& p : probers) ASSERT_EQ(p->complaint(), "");
    for (std::size_t k = 0; k < keys; ++k) {
      std::vector<history> histories;
      for (const auto& p : probers) histories.push_back(p->of(k));
      ASSERT_TRUE(test::is_linearizable(histories, integer{}, explains)) << names[k];
      for (const auto& h : histories) checked += h.size();
    }
    const auto cleaner = c.client();
    cleaner->many().multi({.what = net::verb::remove_multi}, names, {}, [](std::size_t, const net::reply_item&) {});
  }
  EXPECT_GT(checked, 100U);
}

TEST(Differential, HistoriesOfSharedKeysAreLinearizable) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  check_histories(c, false);
}

TEST(Differential, HistoriesAreLinearizableWhileServersAreLost) {
  cluster c({.workers = 1, .servers = 3, .threads = 2, .replicas = 2});
  c.run([&](const Comm&) {
    test::server_killer disasters(c, 3);
    check_histories(c, true);
    EXPECT_GT(disasters.stop(), 0);
  });
}

}  // namespace
}  // namespace paracel
