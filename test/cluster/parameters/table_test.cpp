// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/table.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>

#include "core/hash.hpp"
#include "net/row_codec.hpp"
#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "test/support/server_killer.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::HasSubstr;
using ids = std::vector<std::uint64_t>;
using floats = std::vector<float>;

template <class F>
std::string refusal(const F& f) {
  try {
    f();
    return "nothing was refused";
  } catch (const error& e) {
    return e.what();
  }
}

std::map<std::uint64_t, floats> all_rows(table<float>& t) {
  std::map<std::uint64_t, floats> rows;
  t.for_each([&](std::uint64_t id, std::span<const float> row) {
    EXPECT_TRUE(rows.emplace(id, floats(row.begin(), row.end())).second) << "row " << id << " was met twice";
  });
  return rows;
}

TEST(Table, ARowIsMadeOnFirstTouchTheSameWhoeverTouchesIt) {
  const auto init = row_init::normal(0, 0.5, 99);
  for (const std::size_t servers : {1UL, 3UL}) {
    cluster c({.workers = 2, .servers = servers, .threads = 2});
    c.run([&](Comm comm) {
      paralg a("", comm);
      table<float> t(a, "emb", 5, init);
      ids mine;
      for (std::uint64_t i = 0; i < 500; ++i) mine.push_back(i * (a.get_worker_id() + 1));
      floats out(mine.size() * 5);
      t.pull(mine, out);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        floats want(5);
        init.fill(mine[i], std::span(want));
        const auto got = std::span(out).subspan(i * 5, 5);
        ASSERT_EQ(floats(got.begin(), got.end()), want) << "row " << mine[i] << " of worker " << a.get_worker_id();
      }
      a.paracel_sync();
      EXPECT_EQ(t.size(), 750U);
      EXPECT_EQ(all_rows(t).size(), 750U);
    });
  }
}

/// Until `end`, and at least `least` of them.
void random_operations(cluster& c, unsigned seed, int least, std::chrono::steady_clock::time_point end = {}) {
  c.run([&](Comm comm) {
    std::optional<test::server_killer> disasters;
    if (c.members().replicas > 1) disasters.emplace(c, c.members().servers.size());
    paralg a("", comm);
    constexpr std::size_t width = 3;
    const auto init = row_init::uniform(-8, 8, seed);
    table<double> t(a, "t", width, init);
    std::mt19937_64 random(seed);
    std::map<std::string, std::vector<double>> model;  // "7": row 7; "n7": the row named n7
    const auto begin = [&](const std::string& key) {
      std::vector<double> row(width);
      init.fill(key[0] == 'n' ? hash_key(key) : std::stoull(key), std::span(row));
      return row;
    };
    const auto touch = [&](const std::string& key) -> std::vector<double>& {
      const auto at = model.find(key);
      return at != model.end() ? at->second : model.emplace(key, begin(key)).first->second;
    };
    for (int step = 0; step < least || std::chrono::steady_clock::now() < end; ++step) {
      const bool named = random() % 2 == 0;
      ids rows;
      std::vector<std::string> names, keys;
      std::vector<double> values;
      for (std::size_t i = 0, n = random() % 60; i < n; ++i) {
        rows.push_back(random() % 80);
        names.push_back("n" + std::to_string(rows.back()));
        keys.push_back(named ? names.back() : std::to_string(rows.back()));
        for (std::size_t j = 0; j < width; ++j) values.push_back(static_cast<double>(random() % 1000));
      }
      const auto row_of = [&](std::size_t i) {
        return std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(i * width),
                                   values.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
      };
      switch (random() % 5) {
        case 0: {
          std::vector<double> out(keys.size() * width);
          if (random() % 2 == 0) {
            if (named) t.pull(names, out);
            else t.pull(rows, out);
          } else {
            auto f = named ? t.pull_async(names, out) : t.pull_async(rows, out);
            ASSERT_TRUE(f.get());
          }
          for (std::size_t i = 0; i < keys.size(); ++i)
            for (std::size_t j = 0; j < width; ++j) ASSERT_EQ(out[i * width + j], touch(keys[i])[j]) << keys[i];
          break;
        }
        case 1:
          if (named) t.push(names, values);
          else t.push(rows, values);
          for (std::size_t i = 0; i < keys.size(); ++i) touch(keys[i]) = row_of(i);
          break;
        case 2: {
          if (named) t.update(names, values);
          else t.bupdate(rows, values);
          std::map<std::string, std::vector<double>> sums;  // the result depends on the order of additions
          for (std::size_t i = 0; i < keys.size(); ++i) {
            auto& s = sums[keys[i]];
            if (s.empty()) s.resize(width);
            for (std::size_t j = 0; j < width; ++j) s[j] += row_of(i)[j];
          }
          for (const auto& [key, s] : sums)
            for (std::size_t j = 0; j < width; ++j) touch(key)[j] += s[j];
          break;
        }
        case 3: {
          std::uint64_t there = 0;
          for (const auto& k : keys) there += model.erase(k);
          ASSERT_EQ(named ? t.remove(names) : t.remove(rows), there);
          break;
        }
        default: {
          std::map<std::string, std::vector<double>> got;
          t.for_each([&](std::uint64_t id, std::span<const double> r) {
            ASSERT_TRUE(got.try_emplace(std::to_string(id), r.begin(), r.end()).second) << id << " was met twice";
          });
          t.for_each_named([&](std::string_view n, std::span<const double> r) {
            ASSERT_TRUE(got.try_emplace(std::string(n), r.begin(), r.end()).second) << n << " was met twice";
          });
          ASSERT_EQ(got, model);
          ASSERT_EQ(t.size(), model.size());
        }
      }
    }
    a.paracel_clear();
    EXPECT_EQ(t.size(), 0U);
    std::vector<double> out(width);
    t.pull(ids{5}, out);
    EXPECT_EQ(out, begin("5")) << "the definition is still there";
    if (disasters) {
      EXPECT_GT(disasters->stop(), 0);
    }
  });
}

TEST(Table, RandomOperationsAgreeWithAMap) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    cluster c({.workers = 1, .servers = 1 + seed % 3, .threads = 2});
    random_operations(c, seed, 200);
  }
}

TEST(Table, RandomOperationsAgreeWithAMapWhileServersAreLost) {
  cluster c({.workers = 1, .servers = 3, .threads = 2, .replicas = 2});
  random_operations(c, 4, 20, std::chrono::steady_clock::now() + std::chrono::seconds(2));
}

TEST(Table, ConcurrentAddsOfEightWorkersSumExactly) {
  static constexpr std::size_t workers = 8, rows = 300;
  static constexpr int rounds = 20;
  cluster c({.workers = workers, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    table<float> t(a, "sums", 4);
    std::mt19937 random(static_cast<unsigned>(a.get_worker_id()));
    for (int i = 0; i < rounds; ++i) {
      ids batch;
      for (std::size_t k = 0; k < rows; ++k) batch.push_back(k);
      batch.push_back(random() % rows);  // one of them twice
      batch.push_back(batch.back());
      floats deltas(batch.size() * 4, 1);
      std::fill(deltas.end() - 8, deltas.end() - 4, 2.0F);
      std::fill(deltas.end() - 4, deltas.end(), -2.0F);
      t.update(batch, deltas);
    }
    a.iter_commit();
    a.paracel_sync();
    for (const auto& [id, row] : all_rows(t)) {
      ASSERT_LT(id, rows);
      ASSERT_EQ(row, floats(4, static_cast<float>(workers) * rounds));
    }
    EXPECT_EQ(t.size(), rows);
  });
}

TEST(Table, WorkersAndServersDoNotChangeTheRows) {
  std::map<std::uint64_t, floats> first;
  for (const std::size_t workers : {1UL, 2UL, 4UL}) {
    for (const std::size_t servers : {1UL, 3UL}) {
      cluster c({.workers = workers, .servers = servers, .threads = 2});
      c.run([&](Comm comm) {
        paralg a("", comm);
        table<float> t(a, "emb", 8, row_init::constant(0.5));
        // Integers and halves: the sums are exact in any order. Each worker has its share of the work.
        for (std::uint64_t task = a.get_worker_id(); task < 40; task += workers) {
          std::mt19937 random(static_cast<unsigned>(task));
          ids batch;
          floats deltas;
          for (int k = 0; k < 100; ++k) {
            batch.push_back(random() % 400);
            for (int j = 0; j < 8; ++j) deltas.push_back(static_cast<float>(random() % 9) - 4);
          }
          t.update(batch, deltas);
        }
        a.iter_commit();
        a.paracel_sync();
        if (a.get_worker_id() == 0) {
          const auto rows = all_rows(t);
          if (first.empty()) first = rows;
          EXPECT_EQ(rows, first) << workers << " workers, " << servers << " servers";
        }
        a.paracel_sync();
      });
    }
  }
}

// Sums and an optimizer whose results depend on the order: under BSP that is (iteration, rank, order of the calls).
TEST(Table, UnderBspTheBitsDoNotDependOnTheServers) {
  std::vector<std::map<std::uint64_t, floats>> runs;
  for (const std::size_t servers : {1UL, 1UL, 3UL}) {
    cluster c({.workers = 3, .servers = servers, .threads = 2});
    std::map<std::uint64_t, floats> rows;
    c.run([&](Comm comm) {
      paralg a("", comm, "", 5, 0, true);
      a.set_consistency(consistency_model::bsp);
      table<float> sums(a, "sums", 4, row_init::uniform(-1, 1, 3));
      table<float> steps(a, "steps", 4, row_init::uniform(-1, 1, 4),
                         {"libparacel_default.so", "paracel_adam", {{"lr", 0.1}}});
      std::mt19937 random(static_cast<unsigned>(a.get_worker_id()) + 10);
      ids all;
      for (std::uint64_t i = 0; i < 50; ++i) all.push_back(i);
      floats before(200), after(200);
      for (int round = 0; round < 5; ++round) {
        sums.pull(all, before);
        for (int call = 0; call < 3; ++call) {
          ids batch;
          floats deltas;
          for (int k = 0; k < 20; ++k) {
            batch.push_back(random() % 50);
            for (int j = 0; j < 4; ++j) deltas.push_back(static_cast<float>(random() % 1000) * 0.001F);
          }
          sums.update(batch, deltas);
          steps.update(batch, deltas);
        }
        sums.pull(all, after);
        EXPECT_EQ(before, after) << "what was sent in an iteration is not seen in it";
        a.iter_commit();
      }
      const auto s = all_rows(sums);
      const auto o = all_rows(steps);
      if (a.get_worker_id() == 0) {
        rows = s;
        for (const auto& [id, row] : o) rows[id + 1000] = row;
      }
      a.paracel_sync();
    });
    EXPECT_EQ(rows.size(), 100U);
    runs.push_back(std::move(rows));
  }
  EXPECT_EQ(runs[0], runs[1]) << "from run to run";
  EXPECT_EQ(runs[0], runs[2]) << "whatever the number of servers";
}

TEST(Table, UnderSspAWorkerSeesItsOwnUpdatesAndThoseOfFinishedIterations) {
  cluster c({.workers = 4, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 20, 2, true);
    table<double> t(a, "t", 2);
    const ids own{100 + a.get_worker_id()}, shared{7};
    const std::vector<double> one{1, 1};
    std::vector<double> out(2);
    for (int round = 0; round < 20; ++round) {
      t.update(own, one);
      t.update(shared, one);
      t.pull(own, out);
      ASSERT_EQ(out[0], round + 1);
      t.pull(shared, out);
      ASSERT_GE(out[0], 4 * std::max(0, round - 2) + 1) << "what the staleness does not hide";
      a.iter_commit();
    }
  });
}

TEST(Table, OptimizersStepRowsWithTheirState) {
  cluster c({.workers = 1, .servers = 2, .threads = 2, .plugin_folders = {test::plugin_folder()}});
  c.run([](Comm comm) {
    paralg a("", comm);
    table<double> adagrad(a, "adagrad", 2, row_init::constant(1),
                          {"libparacel_default.so", "paracel_adagrad", {{"lr", 1}, {"eps", 0}}});
    std::vector<double> out(2);
    adagrad.bupdate(ids{4}, std::vector<double>{3, -6});
    adagrad.bupdate(ids{4}, std::vector<double>{4, 8});
    adagrad.pull(ids{4}, out);
    EXPECT_DOUBLE_EQ(out[0], 1 - 1 - 4.0 / 5);
    EXPECT_DOUBLE_EQ(out[1], 1 + 1 - 8.0 / 10);
    // An id that occurs twice in a batch gets a single step with the sum.
    adagrad.bupdate(ids{5, 5}, std::vector<double>{1, 1, 1, 1});
    adagrad.pull(ids{5}, out);
    EXPECT_DOUBLE_EQ(out[0], 0);
    // A push resets the state.
    adagrad.push(ids{4}, std::vector<double>{0, 0});
    adagrad.bupdate(ids{4}, std::vector<double>{5, 5});
    adagrad.pull(ids{4}, out);
    EXPECT_DOUBLE_EQ(out[0], -1);

    table<float> counted(a, "counted", 1, row_init::zeros(), {"own_optimizers.so", "count_steps", {{"unit", 10}}});
    floats now(1);
    const std::vector<std::string> name{"row"};
    for (int i = 1; i <= 3; ++i) {
      counted.update(name, floats{1});
      counted.pull(name, now);
      EXPECT_EQ(now[0], 10.0F * static_cast<float>(i));
    }
    EXPECT_EQ(counted.remove(name), 1U);
    counted.update(name, floats{1});
    counted.pull(name, now);
    EXPECT_EQ(now[0], 10) << "a removed row counts from the beginning";

    table<std::int64_t> most(a, "most", 2, row_init::zeros(), {"libparacel_default.so", "paracel_max", {}});
    std::vector<std::int64_t> whole(2);
    most.bupdate(ids{1}, std::vector<std::int64_t>{5, -5});
    most.pull(ids{1}, whole);
    EXPECT_EQ(whole, (std::vector<std::int64_t>{5, 0}));
  });
}

TEST(Table, AFailingOptimizerLeavesTheRowAndIsToldAtTheCommit) {
  cluster c({.workers = 1, .servers = 1, .plugin_folders = {test::plugin_folder()}});
  c.run([](Comm comm) {
    paralg a("", comm);
    table<float> t(a, "t", 2, row_init::zeros(), {"own_optimizers.so", "touchy_steps", {}});
    t.bupdate(ids{1}, floats{1, 1});
    EXPECT_THAT(refusal([&] { t.bupdate(ids{1}, floats{1, -1}); }), HasSubstr("row 1"));
    t.update(ids{1}, floats{5, -1});
    EXPECT_THAT(refusal([&] { a.iter_commit(); }), HasSubstr("a negative gradient"));
    a.iter_commit();  // it was reported once
    floats out(2);
    t.pull(ids{1}, out);
    EXPECT_EQ(out, (floats{1, 1}));
    t.bupdate(ids{1}, floats{1, 1});
    t.pull(ids{1}, out);
    EXPECT_EQ(out, (floats{3, 3})) << "its second step";
  });
}

TEST(Table, AnotherDefinitionUnderTheSameNameIsRefusedWithTheDifference) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    const row_optimizer adagrad{"libparacel_default.so", "paracel_adagrad", {{"lr", 0.5}}};
    table<float> t(a, "t", 4, row_init::uniform(0, 1, 5), adagrad);
    table<float> again(a, "t", 4, row_init::uniform(0, 1, 5), adagrad);
    EXPECT_THAT(refusal([&] { table<double> o(a, "t", 4, row_init::uniform(0, 1, 5), adagrad); }),
                HasSubstr("elements f32; the request has f64"));
    EXPECT_THAT(refusal([&] { table<float> o(a, "t", 5, row_init::uniform(0, 1, 5), adagrad); }), HasSubstr("width 4"));
    EXPECT_THAT(refusal([&] { table<float> o(a, "t", 4, row_init::uniform(0, 1, 6), adagrad); }), HasSubstr("seed 5"));
    EXPECT_THAT(refusal([&] { table<float> o(a, "t", 4, row_init::uniform(0, 1, 5)); }),
                HasSubstr("the request has add"));
    EXPECT_THAT(refusal([&] {
                  table<float> o(a, "t", 4, row_init::uniform(0, 1, 5),
                                 {"libparacel_default.so", "paracel_adagrad", {{"lr", 0.25}}});
                }),
                HasSubstr("other hyper-parameters"));
    EXPECT_THAT(refusal([&] {
                  table<float> o(a, "o", 4, row_init::zeros(), {"libparacel_default.so", "paracel_no", {}});
                }),
                HasSubstr("paracel_no"));
    EXPECT_THAT(refusal([&] {
                  table<float> o(a, "o", 4, row_init::zeros(), {"libparacel_default.so", "paracel_sgd", {{"rate", 1}}});
                }),
                HasSubstr("it has lr, weight_decay"));
    EXPECT_THAT(refusal([&] {
                  table<int> o(a, "o", 4, row_init::zeros(), {"libparacel_default.so", "paracel_sgd", {}});
                }),
                HasSubstr("does not take rows of i32"));
    EXPECT_THROW((table<int>(a, "o", 4, row_init::zeros(), {"libparacel_default.so", "paracel_sgd", {}})), plugin_error)
        << "exit status 5";
    EXPECT_THAT(refusal([&] { table<int> o(a, "o", 4, row_init::uniform(0, 1, 1)); }), HasSubstr("rows of integers"));
    EXPECT_THAT(refusal([&] { table<int> o(a, "", 4); }), HasSubstr("name"));
    EXPECT_THAT(refusal([&] { table<int> o(a, "o", 0); }), HasSubstr("width of 0"));
    floats small(3);
    EXPECT_THAT(refusal([&] { t.pull(ids{1}, small); }), HasSubstr("want 4"));
  });
}

// Two names with the same id, found by search, so that the collision is real.
TEST(Table, TwoNamesWithOneIdAreToldApart) {
  std::map<std::uint32_t, std::string> seen;
  std::string one, other;
  for (int i = 0; one.empty(); ++i) {
    const auto name = "t" + std::to_string(i);
    const auto [at, fresh] = seen.emplace(net::table_id(name), name);
    if (!fresh) {
      one = at->second;
      other = name;
    }
  }
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm);
    table<float> t(a, one, 2);
    EXPECT_THAT(refusal([&] { table<float> o(a, other, 2); }), HasSubstr("the same hash"));
  });
}

TEST(Table, LargeBatchesAreCutAndComeBackInOrder) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    constexpr std::size_t rows = 60'000, width = 256;  // 61 MB: several requests a shard
    table<float> t(a, "wide", width);
    ids all(rows);
    for (std::size_t i = 0; i < rows; ++i) all[i] = i * i;
    floats values(rows * width);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1'000'003);
    t.push(all, values);
    floats out(values.size());
    auto f = t.pull_async(all, out);
    EXPECT_TRUE(f.get());
    EXPECT_TRUE(out == values);
    EXPECT_EQ(t.size(), rows);
    t.pull(ids{}, std::span<float>());
    t.update(ids{}, std::span<const float>());
    EXPECT_EQ(t.remove(all), rows);
  });
}

TEST(Keys, OptimizersStepKeysInEveryForm) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 10, 0, true);
    using list = std::vector<double>;
    EXPECT_THAT(refusal([&] {
                  a.paracel_register_update("libparacel_default.so", "paracel_adagrad", {{"rate", 1}});
                }),
                HasSubstr("it has lr, eps"));
    EXPECT_THAT(refusal([&] {
                  a.paracel_register_update("libparacel_default.so", "paracel_adagrad", {{"lr", NAN}});
                }),
                HasSubstr("finite"));
    a.paracel_register_update("libparacel_default.so", "paracel_adagrad", {{"lr", 1}, {"eps", 0}});
    a.paracel_register_bupdate("libparacel_default.so", "paracel_sgd", {{"lr", 0.5}});
    a.paracel_update("k", list{3, -3});
    EXPECT_EQ(a.paracel_read<list>("k"), (list{-1, 1}));
    a.paracel_update("k", list{4, 0});
    EXPECT_EQ(a.paracel_read<list>("k"), (list{-1.8, 1})) << "a cached copy was not added to";
    a.paracel_bupdate("k", list{2, 2});
    EXPECT_EQ(a.paracel_read<list>("k"), (list{-2.8, 0}));
    a.paracel_update_multi(std::vector<std::string>{"a", "b", "a"}, std::vector<list>{{3}, {1}, {4}});
    EXPECT_EQ(a.paracel_read<list>("a"), (list{-1.8}));
    EXPECT_EQ(a.paracel_read<list>("b"), (list{-1}));
    EXPECT_EQ(a.paracel_bupdate_multi_get(std::vector<std::string>{"a"}, std::vector<list>{{0.4}})[0][0], -2.0);
    a.paracel_update("one", 2.0, {"libparacel_default.so", "paracel_sgd", {{"lr", 0.25}}}).get();
    EXPECT_EQ(a.paracel_read<double>("one"), -0.5);
    const std::vector<float> ones(40'000, 1.0F);  // in a separate frame
    for (int i = 0; i < 2; ++i)
      a.paracel_update("large", ones, {"libparacel_default.so", "paracel_sgd", {{"lr", 0.25}}});
    EXPECT_EQ(a.paracel_read<std::vector<float>>("large"), std::vector<float>(40'000, -0.5F));
    a.paracel_write("a", list{0});
    a.paracel_update("a", list{4});
    EXPECT_EQ(a.paracel_read<list>("a"), (list{-1})) << "a write begins the state again";
    a.paracel_write("text", std::string("no number"));
    auto f = a.paracel_update("text", 1.0);
    EXPECT_THROW((void)f.get(), type_error);
    EXPECT_EQ(a.paracel_read<std::string>("text"), "no number");
  });
}

TEST(Keys, StagedOptimizerStepsAreFoldedInRankOrder) {
  std::vector<double> results;
  for (const std::size_t servers : {1UL, 2UL}) {
    cluster c({.workers = 3, .servers = servers});
    c.run([&](Comm comm) {
      paralg a("", comm, "", 4, 0, true);
      a.set_consistency(consistency_model::bsp);
      a.paracel_register_update("libparacel_default.so", "paracel_adam", {{"lr", 0.1}});
      for (int round = 0; round < 4; ++round) {
        a.paracel_update("k", std::vector<double>{0.1 * static_cast<double>(a.get_worker_id() + 1) - 0.15 * round});
        a.iter_commit();
      }
      const auto v = a.paracel_read<std::vector<double>>("k");
      // The same, step by step.
      double w = 0, m = 0, s = 0;
      int t = 0;
      for (int round = 0; round < 4; ++round) {
        for (int rank = 0; rank < 3; ++rank) {
          const double g = 0.1 * (rank + 1) - 0.15 * round;
          m = 0.9 * m + 0.1 * g;
          s = 0.999 * s + 0.001 * g * g;
          ++t;
          w -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(s / (1 - std::pow(0.999, t))) + 1e-8);
        }
      }
      EXPECT_NEAR(v[0], w, 1e-12);
      if (a.get_worker_id() == 0) results.push_back(v[0]);
      a.paracel_sync();
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Table, AStepThatFailsLeavesTheStateOfTheOptimizerBefore) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    const std::vector<float> gradient(4, 0.5F);
    const std::vector<float> wrong(2, 0.5F);
    for (const auto* key : {"disturbed", "left alone"}) {
      a.paracel_register_bupdate("libparacel_default.so", "paracel_adam", {{"lr", 0.1}});
      a.paracel_bupdate(key, gradient);
      if (key[0] == 'd') {
        EXPECT_THROW(a.paracel_bupdate(key, wrong), error);
        a.paracel_register_bupdate("libparacel_default.so", "paracel_adagrad", {{"lr", 0.1}});
        EXPECT_THROW(a.paracel_bupdate(key, wrong), error);
        a.paracel_register_bupdate("libparacel_default.so", "paracel_adam", {{"lr", 0.1}});
      }
      a.paracel_bupdate(key, std::vector<float>{1, 2, 3, 4});
    }
    EXPECT_EQ(a.paracel_read<std::vector<float>>("disturbed"), a.paracel_read<std::vector<float>>("left alone"));
  });
}

}  // namespace
}  // namespace paracel
