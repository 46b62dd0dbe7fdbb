// SPDX-License-Identifier: BSD-3-Clause
//
// Lists of keys and of row ids that recur are prepared automatically: compared with a map, while keys and rows are
// removed or change their type, servers forget the lists, and servers are lost.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "net/row_codec.hpp"
#include "test/support/cluster.hpp"
#include "test/support/four_workers.hpp"
#include "test/support/paths.hpp"
#include "test/support/server_killer.hpp"

namespace paracel {
namespace {

using test::cluster;
using moment = std::chrono::steady_clock::time_point;

/// Some lists, one of them with an element twice, and one that changes a little whenever it is drawn.
template <class T>
class list_pool {
 public:
  list_pool(std::mt19937& random, const std::vector<T>& all) : random_(random), all_(all) {
    for (const std::size_t n : {40UL, 64UL, 100UL, 150UL}) {
      std::vector<T> list = all;
      std::shuffle(list.begin(), list.end(), random);
      list.resize(n);
      lists_.push_back(list);
      list.push_back(list[n / 2]);
      list.push_back(list[3]);
      lists_.push_back(list);
    }
    std::sort(lists_[2].begin(), lists_[2].end());
  }
  const std::vector<T>& draw() {
    auto& list = lists_[random_() % lists_.size()];
    if (&list == &lists_.back()) list[random_() % list.size()] = all_[random_() % all_.size()];
    return list;
  }

 private:
  std::mt19937& random_;
  const std::vector<T>& all_;
  std::vector<std::vector<T>> lists_;
};

std::vector<std::string> two_hundred_names() {
  std::vector<std::string> all;
  for (int i = 0; i < 200; ++i) all.push_back((i % 3 == 0 ? "k" : "a_longer_name_") + std::to_string(i));
  return all;
}

/// Until `end`, and at least `least` of them.
void random_calls_on_keys(cluster& c, unsigned seed, int least, moment end) {
  c.run([&](Comm comm) {
    std::optional<test::server_killer> disasters;
    if (c.members().replicas > 1) disasters.emplace(c, c.members().servers.size());
    paralg a("", comm);
    std::mt19937 random(seed);
    const auto all = two_hundred_names();
    list_pool<std::string> pool(random, all);
    std::map<std::string, double> model;
    for (int step = 0; step < least || std::chrono::steady_clock::now() < end; ++step) {
      const auto& keys = pool.draw();
      std::vector<double> deltas(keys.size());
      for (auto& d : deltas) d = static_cast<double>(random() % 100);
      const auto add = [&] {
        std::vector<double> after;
        for (std::size_t i = 0; i < keys.size(); ++i) after.push_back(model[keys[i]] += deltas[i]);
        return after;
      };
      switch (random() % 9) {
        case 0:
          if (random() % 4 == 0) {
            const auto& key = all[random() % all.size()];
            a.paracel_remove(key);
            model.erase(key);
          } else if (random() % 40 == 0) {
            a.paracel_clear();
            model.clear();
          }
          break;
        case 1: {  // another type: then the first one again
          const auto& key = keys[random() % keys.size()];
          a.paracel_write(key, "text");
          EXPECT_THROW((void)a.paracel_read_multi<double>(keys), error);
          EXPECT_THROW(a.paracel_update_multi(keys, std::vector<double>(keys.size(), 0)), error);
          for (const auto& k : keys) model[k] += 0;  // the others were updated
          a.paracel_write(key, model[key] = 0.5);
          break;
        }
        case 2:
        case 3:
          a.paracel_update_multi(keys, deltas);
          add();
          break;
        case 4: {
          auto first = a.paracel_update_multi_async(keys, deltas);
          add();
          auto second = a.paracel_update_multi_async(keys, deltas);
          add();
          std::vector<double> out;
          auto read = a.paracel_read_multi_async(keys, out);
          ASSERT_TRUE(first.get() && second.get() && read.get());
          for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(out[i], model[keys[i]]) << keys[i];
          break;
        }
        case 5:
          ASSERT_EQ(a.paracel_bupdate_multi_get(keys, deltas), add());
          break;
        case 6: {
          std::unordered_map<std::string, double> out;
          a.paracel_read_multi(keys, out);
          for (const auto& k : keys) {
            ASSERT_EQ(out.contains(k), model.contains(k)) << k;
            if (model.contains(k)) {
              ASSERT_EQ(out[k], model[k]) << k;
            }
          }
          break;
        }
        default: {
          if (!std::ranges::all_of(keys, [&](const auto& k) { return model.contains(k); })) {
            EXPECT_THROW((void)a.paracel_read_multi<double>(keys), key_error);
            break;
          }
          const auto out = a.paracel_read_multi<double>(keys);
          for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(out[i], model[keys[i]]) << keys[i];
        }
      }
    }
    a.paracel_wait();
    if (disasters) {
      EXPECT_GT(disasters->stop(), 0);
    }
  });
}

/// Until `end`, and at least `least` of them.
void random_calls_on_rows(cluster& c, unsigned seed, int least, moment end) {
  c.run([&](Comm comm) {
    std::optional<test::server_killer> disasters;
    if (c.members().replicas > 1) disasters.emplace(c, c.members().servers.size());
    paralg a("", comm);
    std::mt19937 random(seed);
    const std::size_t width = 1 + seed % 3;
    const auto init = row_init::constant(0.5);
    table<double> t(a, "t", width, init);
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < 200; ++i) all.push_back(i * i * 7919);
    list_pool<std::uint64_t> pool(random, all);
    std::map<std::uint64_t, std::vector<double>> model;
    const auto row = [&](std::uint64_t id) -> std::vector<double>& {
      return model.try_emplace(id, std::vector<double>(width, 0.5)).first->second;
    };
    for (int step = 0; step < least || std::chrono::steady_clock::now() < end; ++step) {
      const auto& ids = pool.draw();
      std::vector<double> values(ids.size() * width);
      for (auto& v : values) v = static_cast<double>(random() % 100);
      const auto check = [&](const std::vector<double>& out) {
        for (std::size_t i = 0; i < out.size(); ++i)
          ASSERT_EQ(out[i], row(ids[i / width])[i % width]) << ids[i / width];
      };
      const auto add = [&] {
        for (std::size_t i = 0; i < values.size(); ++i) row(ids[i / width])[i % width] += values[i];
      };
      std::vector<double> out(values.size());
      switch (random() % 7) {
        case 0:
          if (random() % 3 == 0) {
            std::uint64_t there = 0;
            for (const auto id : ids) there += model.erase(id);
            ASSERT_EQ(t.remove(ids), there);
          } else if (random() % 30 == 0) {
            a.paracel_clear();
            model.clear();
          }
          break;
        case 1:
          t.push(ids, values);
          for (std::size_t i = 0; i < values.size(); ++i) row(ids[i / width])[i % width] = values[i];
          break;
        case 2:
          t.bupdate(ids, values);
          add();
          break;
        case 3: {
          t.update(ids, values);
          add();
          t.update(ids, values);
          add();
          auto read = t.pull_async(ids, out);
          ASSERT_TRUE(read.get());
          check(out);
          break;
        }
        case 4:
          ASSERT_EQ(t.size(), model.size());
          break;
        default:
          t.pull(ids, out);
          check(out);
      }
    }
    a.paracel_sync();
    ASSERT_EQ(t.size(), model.size());
    if (disasters) {
      EXPECT_GT(disasters->stop(), 0);
    }
  });
}

struct random_calls {
  const char* on;
  void (*make)(cluster& c, unsigned seed, int least, moment end);
};
class RandomCallsOnLists : public testing::TestWithParam<random_calls> {};

TEST_P(RandomCallsOnLists, AgreeWithAMap) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    cluster c({.workers = 1, .servers = seed, .threads = seed == 1 ? 1U : 2U});
    GetParam().make(c, seed, 300, {});
  }
}

TEST_P(RandomCallsOnLists, AgreeWithAMapThoughTheServersForgetTheLists) {
  for (const unsigned seed : {4U, 5U}) {
    cluster c({.workers = 1, .servers = 2, .threads = 2, .max_set_bytes = 3000});
    GetParam().make(c, seed, 300, {});
  }
}

TEST_P(RandomCallsOnLists, AgreeWithAMapWhileServersAreLost) {
  for (const std::size_t bytes : {std::size_t{3000}, srv::server_options().max_set_bytes}) {
    cluster c({.workers = 1, .servers = 3, .threads = 2, .replicas = 2, .max_set_bytes = bytes});
    GetParam().make(c, 6, 20, std::chrono::steady_clock::now() + std::chrono::seconds(2));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, RandomCallsOnLists,
                         testing::Values(random_calls{"Keys", random_calls_on_keys},
                                         random_calls{"Rows", random_calls_on_rows}),
                         [](const auto& calls) { return calls.param.on; });

class RepeatedListsModels : public testing::TestWithParam<consistency_model> {};

TEST_P(RepeatedListsModels, WhatFourWorkersAddByTheSameListsIsThere) {
  constexpr std::size_t workers = 4;
  constexpr int rounds = 20;
  auto requests = test::run_four_workers(GetParam(), rounds, [](paralg& a) {
    table<float> t(a, "t", 2);
    const auto all = two_hundred_names();
    const std::vector<std::string> keys(all.begin(), all.begin() + 150);
    std::vector<std::uint64_t> ids;
    for (std::uint64_t i = 0; i < 150; ++i) ids.push_back(i * 1000);
    if (a.get_worker_id() == 0) {
      std::unordered_map<std::string, std::int64_t> zeros;
      for (const auto& k : keys) zeros[k] = 0;
      a.paracel_write_multi(zeros);
    }
    a.paracel_sync();
    std::vector<float> rows(300);
    for (int i = 0; i < rounds; ++i) {
      const auto seen = a.paracel_read_multi<std::int64_t>(keys);
      t.pull(ids, rows);
      if (GetParam() == consistency_model::bsp) {
        for (const auto v : seen) ASSERT_EQ(v, i * static_cast<int>(workers));
        for (const auto v : rows) ASSERT_EQ(v, static_cast<float>(i * static_cast<int>(workers)));
      }
      a.paracel_update_multi(keys, std::vector<std::int64_t>(keys.size(), 1));
      t.update(ids, std::vector<float>(300, 1));
      a.iter_commit();
    }
    a.paracel_sync();
    for (const auto v : a.paracel_read_multi<std::int64_t>(keys)) ASSERT_EQ(v, rounds * static_cast<int>(workers));
    t.pull(ids, rows);
    for (const auto v : rows) ASSERT_EQ(v, static_cast<float>(rounds * static_cast<int>(workers)));
  });
  constexpr std::int64_t shards = 4;
  EXPECT_GE(requests["set_pull"], (rounds - 1) * shards) << "the list was read by name";
  EXPECT_LE(requests["pull_multi"], 3 * static_cast<std::int64_t>(workers) * shards);
}

INSTANTIATE_TEST_SUITE_P(Models, RepeatedListsModels,
                         testing::Values(consistency_model::asp, consistency_model::ssp, consistency_model::bsp));

TEST(RepeatedListCalls, UnderSspTheCacheHasWhatAListHasReadAndOwnChanges) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 1000, 3, true);
    a.set_consistency(consistency_model::ssp);
    std::mt19937 random(11);
    const auto keys = two_hundred_names();
    std::unordered_map<std::string, double> model;
    for (const auto& k : keys) model[k] = 1;
    a.paracel_write_multi(model);
    std::vector<double> out;
    const auto check = [&](const std::vector<double>& values) {
      for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(values[i], model[keys[i]]) << keys[i];
    };
    for (int step = 0; step < 600; ++step) {
      const auto& key = keys[random() % keys.size()];
      switch (random() % 8) {
        case 0:
          a.paracel_update_multi(keys, std::vector<double>(keys.size(), 2));
          for (auto& [k, v] : model) v += 2;
          break;
        case 1:
          a.paracel_write(key, static_cast<double>(step));
          model[key] = step;
          break;
        case 2:
          a.paracel_update(key, 3.0);
          model[key] += 3;
          break;
        case 3:
          a.iter_commit();
          break;
        case 4: {
          auto read = a.paracel_read_multi_async(keys, out);
          a.paracel_update(key, 5.0);  // it may not be in this reply, which is not cached then
          model[key] += 5;
          ASSERT_TRUE(read.get());
          ASSERT_EQ(a.paracel_read<double>(key), model[key]);
          break;
        }
        case 5:
          ASSERT_EQ(a.paracel_read<double>(key), model[key]);
          break;
        default:
          check(a.paracel_read_multi<double>(keys));
      }
    }
  });
  auto requests = test::requests_at(c);
  EXPECT_GT(requests["set_pull"], 40);
  EXPECT_LE(requests["pull_multi"], 8);
}

TEST(RepeatedListCalls, AnErrorNamesTheKeyAsBefore) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    const auto all = two_hundred_names();
    for (int i = 0; i < 4; ++i) {
      a.paracel_update_multi(all, std::vector<double>(all.size(), 1));
      a.paracel_write("a_longer_name_100", "text");
      try {
        a.paracel_update_multi(all, std::vector<double>(all.size(), 1));
        FAIL() << "a text was added to";
      } catch (const type_error& e) {
        EXPECT_NE(std::string(e.what()).find("\"a_longer_name_100\""), std::string::npos) << e.what();
      }
      a.paracel_remove("a_longer_name_100");
      try {
        (void)a.paracel_read_multi<double>(all);
        FAIL() << "a key that is not there was read";
      } catch (const key_error& e) {
        EXPECT_EQ(std::string(e.what()), "key \"a_longer_name_100\" does not exist");
      }
    }
  });
}

}  // namespace
}  // namespace paracel
