// SPDX-License-Identifier: BSD-3-Clause
//
// Random operations of the complete interface, several workers against several servers.
//
//   own keys      Each worker has keys that no other worker uses, and a std::map with their expected values. Every
//                 reply is compared with it, under asp, ssp (reads come from the cache) and bsp (updates take effect
//                 later).
//   shared keys   Integers and an array that all workers add to, in every possible way: the sums are exact.
//
// PARACEL_DIFFERENTIAL_SECONDS: how long each of them runs (2). PARACEL_SEED: of the first round; every failure message
// contains it. A new operation is a line in `operations` and a method.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/own_arrays.hpp"
#include "test/support/own_updates.hpp"
#include "test/support/paths.hpp"
#include "test/support/random_values.hpp"
#include "test/support/server_killer.hpp"

namespace paracel::test::differential {
namespace {

using steady = std::chrono::steady_clock;

/// A worker with all its operations.
class worker : public own_updates {
 public:
  worker(const Comm& comm, consistency_model model, std::uint64_t seed) : own_updates(comm, model, seed) {}

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
      arrays_.make();
      if (model_ != consistency_model::asp) commit_all_away();
    }
  }

 private:
  static constexpr std::size_t shared_keys = 6;

  struct operation {
    const char* name;
    unsigned weight;
    std::function<void(worker&)> run;
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
        {"array: read", 4, [](worker& w) { w.arrays_.read(); }},
        {"array: read_at", 3, [](worker& w) { w.arrays_.read_at(); }},
        {"array: write", 2, [](worker& w) { w.arrays_.write(); }},
        {"array: update", 4, [](worker& w) { w.arrays_.update(); }},
        {"array: update_at", 4, [](worker& w) { w.arrays_.update_at(); }},
        {"array: add to the shared one", 4, [](worker& w) { w.arrays_.add_shared(); }},
        {"read_ref", 6, &worker::read_ref},
        {"get_cache", 3, &worker::cache},
        {"read_async", 4, &worker::read_async},
        {"read_multi_async", 3, &worker::read_multi_async},
        {"set: read", 5, &worker::set_read},
        {"set: write", 3, &worker::set_write},
        {"set: update", 5, &worker::set_update},
        {"set: bupdate_get", 3, &worker::set_bupdate_get},
        {"keys, count", 2, &worker::scan},
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
          o.run(*this);
        } catch (const std::exception& e) {
          FAIL() << e.what();
        }
        return;
      }
      pick -= o.weight;
    }
  }

  void commit() {
    a_.iter_commit();
    ++clock_;
    arrays_.commit();
  }
  /// A cached read may be as old as the staleness allows: after this many commits no read returns an older value.
  void commit_all_away() {
    for (int i = 0; i < 5; ++i) commit();
    a_.paracel_sync();
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
      for (std::size_t i = 0; i < own_key_count; ++i) {
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
  void scan() {
    const auto prefix = "w" + std::to_string(comm_.get_rank()) + "_";
    texts want;
    for (std::size_t i = 0; i < own_key_count; ++i)
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
    arrays_.check();
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

  own_arrays arrays_{a_, comm_, random_, bsp()};
  bool cleared_ = false;
  std::array<std::int64_t, shared_keys> sums_{};  // added by this worker
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
             .plugin_folders = {plugin_folder()}});
  generator::makes_small_values = replicas > 1;
  c.run([&, model = model, servers = servers, replicas = replicas](Comm comm) {
    std::optional<server_killer> disasters;
    if (replicas > 1 && comm.get_rank() == 0) disasters.emplace(c, servers);
    SCOPED_TRACE("PARACEL_SEED=" + std::to_string(seed) + ", worker " + std::to_string(comm.get_rank()));
    worker w(comm, model, seed);
    for (int more = 1, round = 0; more != 0; ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      w.round(seed + static_cast<unsigned>(round));
      more = steady::now() < end && !testing::Test::HasFailure() ? 1 : 0;
      comm.bcast(more, 0);
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

}  // namespace
}  // namespace paracel::test::differential
