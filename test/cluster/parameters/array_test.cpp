// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/array.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> counting(std::size_t n, double first = 0) {
  std::vector<double> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}
template <class F>
std::string text_of_error(const F& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Array, BeginsWithItsFirstValueAndIsReadWholeInPartAndByIndex) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  c.run([&](Comm comm) {
    paralg a("", comm);
    array<double> theta(a, "theta", 1000, 0.5, {.piece_bytes = 512});
    EXPECT_EQ(theta.size(), 1000U);
    EXPECT_EQ(theta.pieces().size(), 16U);
    EXPECT_THAT(theta.read(), Each(0.5));
    theta.write(counting(1000));
    EXPECT_EQ(theta.read(), counting(1000));
    std::vector<double> part(130);
    theta.read(60, part);
    EXPECT_EQ(part, counting(130, 60));
    EXPECT_THAT(theta.read_at(std::vector<std::uint64_t>{999, 0, 64, 63, 0}), ElementsAre(999, 0, 64, 63, 0));
    theta.write(62, std::vector<double>{-1, -2, -3});
    EXPECT_THAT(theta.read_at(std::vector<std::uint64_t>{61, 62, 63, 64, 65}), ElementsAre(61, -1, -2, -3, 65));
    theta.fill(7);
    EXPECT_THAT(theta.read(), Each(7));
    theta.read(1000, std::span<double>());
    theta.update_at({}, {});
  });
}

TEST(Array, HoldsEveryTypeOfNumber) {
  cluster c({.workers = 1, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm);
    const auto go = [&]<class T>(T) {
      array<T> numbers(a, std::string("numbers") + name_of(tag_of<T>()), 100, T{3}, {.piece_bytes = 64});
      numbers.bupdate(10, std::vector<T>(50, T{2}));
      numbers.bupdate_at(std::vector<std::uint64_t>{0, 99, 0}, std::vector<T>{1, 1, 1});
      std::vector<T> expected(100, T{3});
      for (std::size_t i = 10; i < 60; ++i) expected[i] = T{5};
      expected[0] = T{5};
      expected[99] = T{4};
      EXPECT_EQ(numbers.read(), expected);
    };
    go(std::int32_t{});
    go(std::int64_t{});
    go(float{});
    go(double{});
  });
}

TEST(Array, LiesEvenlyOnAllShards) {
  for (const std::size_t servers : {1U, 2U, 3U}) {
    cluster c({.workers = 1, .servers = servers, .threads = 2});
    c.run([&](Comm comm) {
      paralg a("", comm);
      const array<double> large(a, "large", 1'000'000);
      std::map<std::pair<std::uint32_t, std::uint32_t>, int> pieces;
      for (const auto& key : large.pieces()) {
        const auto at = a.servers().client().locate(key);
        ++pieces[{at.server, at.shard}];
      }
      ASSERT_EQ(pieces.size(), servers * 2);
      for (const auto& [shard, n] : pieces) EXPECT_EQ(n, pieces.begin()->second);
      EXPECT_GT(large.piece_size() * sizeof(double), 65'536U) << "large pieces travel as tails";
      const array<double> medium(a, "medium", 20'000 * servers);
      EXPECT_EQ(medium.pieces().size(), servers * 2) << "one for each shard";
      const array<double> small(a, "small", 100);
      EXPECT_EQ(small.pieces().size(), 1U);
      const array<double> none(a, "none", 0);
      EXPECT_TRUE(none.read().empty());
    });
  }
}

TEST(Array, IsMadeOnceHoweverManyBegin) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    cluster c({.workers = 8, .servers = 2, .threads = 2});
    c.run([&](Comm comm) {
      paralg a("", comm);
      // The first worker determines the size of the pieces; updates made before the others arrive are not lost.
      array<std::int64_t> counts(a, "counts", 5000, 0, {.piece_bytes = 512 * (a.get_worker_id() + 1)});
      counts.update(std::vector<std::int64_t>(5000, 1));
      counts.update_at(std::vector<std::uint64_t>{4999, a.get_worker_id()}, std::vector<std::int64_t>{1, 100});
      a.paracel_sync();
      std::vector<std::int64_t> expected(5000, 8);
      expected[4999] += 8;
      for (std::size_t i = 0; i < 8; ++i) expected[i] += 100;
      EXPECT_EQ(counts.read(), expected);
      const auto seen = comm.allgather(str_type(std::to_string(counts.piece_size()) + counts.pieces().back()));
      EXPECT_THAT(seen, Each(seen[0]));
    });
  }
}

TEST(Array, SaysWhatIsThereWhenAnotherOneIsAskedFor) {
  cluster c({.workers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm);
    array<double> theta(a, "theta", 10);
    theta.write(counting(10));
    EXPECT_THAT(text_of_error([&] { array<double>(a, "theta", 11); }),
                HasSubstr("10 elements of type f64; asked for 11"));
    EXPECT_THAT(text_of_error([&] { array<float>(a, "theta", 10); }), HasSubstr("asked for 10 of type f32"));
    EXPECT_EQ(array<double>(a, "theta", 10, 3.0).read(), counting(10)) << "who comes later finds what is there";
    a.paracel_write("value", 1.0);
    EXPECT_THROW(array<double>(a, "value", 10), type_error);
    a.paracel_write("text", str_type("some"));
    EXPECT_THROW(array<double>(a, "text", 10), type_error);
    theta.remove();
    EXPECT_THROW((void)theta.read(), key_error);
    EXPECT_FALSE(a.paracel_contains("theta"));
    EXPECT_EQ(array<float>(a, "theta", 3).size(), 3U);
  });
}

TEST(Array, RefusesElementsBeyondItsEndAndListsOfUnequalLength) {
  cluster c({.workers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm);
    array<double> theta(a, "theta", 10);
    std::vector<double> two(2);
    EXPECT_THAT(text_of_error([&] { theta.read(9, two); }), HasSubstr("has 10 elements; asked for 2 from 9 on"));
    EXPECT_THROW((void)theta.read_at(std::vector<std::uint64_t>{10}), error);
    EXPECT_THROW(theta.update_at(std::vector<std::uint64_t>{1, ~std::uint64_t{0}}, two), error);
    EXPECT_THROW(theta.update_at(std::vector<std::uint64_t>{1}, two), error);
    EXPECT_THROW(theta.update(two), error);
    EXPECT_THROW(theta.write(two), error);
  });
}

TEST(Array, RunsNamedAndRegisteredFunctions) {
  cluster c({.workers = 1, .servers = 2, .plugin_folders = {test::plugin_folder()}});
  c.run([&](Comm comm) {
    paralg a("", comm);
    array<double> theta(a, "theta", 100, 5.0, {.piece_bytes = 256});
    theta.update(counting(100), {"libparacel_default.so", "paracel_max"}).get();
    auto expected = counting(100);
    for (auto& x : expected) x = std::max(x, 5.0);
    EXPECT_EQ(theta.read(), expected);
    a.paracel_register_update("element_updates", "positive_only_update");
    theta.update(std::vector<double>(100, 1.0)).get();
    for (auto& x : expected) x += 1;
    EXPECT_EQ(theta.read(), expected);
    auto bad = theta.update_at(std::vector<std::uint64_t>{3, 40}, std::vector<double>{-1, 1});
    EXPECT_THAT(text_of_error([&] { bad.get(); }), HasSubstr("a negative delta"));
  });
}

TEST(Array, AnUpdateThatFailsIsThrownByTheCommit) {
  cluster c({.workers = 1, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm);
    array<double> theta(a, "theta", 100, 0, {.piece_bytes = 256});
    a.paracel_write(theta.pieces()[1], str_type("no piece any more"));
    theta.update(counting(100));
    EXPECT_THROW(a.iter_commit(), error);
    a.iter_commit();
    EXPECT_THROW(theta.update(counting(100)).get(), error);
    EXPECT_THROW((void)theta.read(), type_error);
  });
}

TEST(Array, UnderSspAReadHoldsWhatTheRulePromises) {
  constexpr std::size_t workers = 4;
  for (const int s : {0, 1, 3}) {
    cluster c({.workers = workers, .servers = 2, .threads = 2});
    c.run([&](Comm comm) {
      paralg a("", comm, "", 200, s, true);
      const auto me = a.get_worker_id();
      array<std::int64_t> counts(a, "counts", workers, 0, {.piece_bytes = 64});
      std::mt19937 random(static_cast<unsigned>(me));
      a.paracel_sync();
      for (int i = 0; i < 200; ++i) {
        if (random() % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds{500});
        const auto seen = i % 2 == 0 ? counts.read() : counts.read_at(std::vector<std::uint64_t>{0, 1, 2, 3});
        for (std::size_t r = 0; r < workers; ++r) ASSERT_GE(seen[r], r == me ? i : i - s);
        if (i % 3 == 0) counts.update(me, std::vector<std::int64_t>{1});
        else counts.update_at(std::vector<std::uint64_t>{me}, std::vector<std::int64_t>{1});
        a.iter_commit();
      }
      a.paracel_sync();
      ASSERT_THAT(counts.read(), Each(200));
    });
  }
}

TEST(Array, UnderBspAReadSeesExactlyTheFinishedIterations) {
  constexpr std::size_t workers = 4;
  cluster c({.workers = workers, .servers = 2, .threads = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 50, 0, true);
    a.set_consistency(consistency_model::bsp);
    array<std::int64_t> counts(a, "counts", 40, 0, {.piece_bytes = 64});
    a.paracel_sync();
    for (int i = 0; i < 50; ++i) {
      ASSERT_THAT(counts.read(), Each(i * static_cast<std::int64_t>(workers)));
      counts.update(std::vector<std::int64_t>(40, 1));
      ASSERT_THAT(counts.read_at(std::vector<std::uint64_t>{0, 39}), Each(i * static_cast<std::int64_t>(workers)));
      a.iter_commit();
    }
    ASSERT_THAT(counts.read(), Each(50 * static_cast<std::int64_t>(workers)));
    a.paracel_sync();
    if (a.get_worker_id() == 0) counts.write(3, std::vector<std::int64_t>{-1});
    a.paracel_sync();
    EXPECT_EQ(counts.read_at(std::vector<std::uint64_t>{3})[0], -1);
  });
}

/// Random operations compared with a local vector.
TEST(Array, DoesWhatAVectorDoes) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    cluster c({.workers = 1, .servers = 1 + seed % 3, .threads = 2});
    c.run([&](Comm comm) {
      paralg a("", comm);
      std::mt19937 random(seed);
      const std::size_t n = 1 + random() % (seed == 4 ? 300'000 : 3'000);
      std::vector<double> model(n, 1.0);
      array<double> x(a, "x", n, 1.0, {.piece_bytes = seed == 4 ? 0 : 64 + random() % 4'000});
      for (int step = 0; step < 150; ++step) {
        const auto first = random() % n;
        const auto count = random() % (n - first + 1);
        std::vector<double> values(count);
        for (auto& v : values) v = static_cast<double>(random() % 100);
        std::vector<std::uint64_t> at(count);
        for (auto& i : at) i = random() % n;
        switch (random() % 8) {
          case 0: {
            ASSERT_EQ(x.read(), model);
            break;
          }
          case 1: {
            x.read(first, values);
            ASSERT_TRUE(std::equal(values.begin(), values.end(), model.begin() + static_cast<std::ptrdiff_t>(first)));
            break;
          }
          case 2: {
            x.read_at(at, values);
            for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], model[at[i]]);
            break;
          }
          case 3: {
            x.write(first, values);
            std::ranges::copy(values, model.begin() + static_cast<std::ptrdiff_t>(first));
            break;
          }
          case 4: {
            const auto f = x.update(first, values);
            for (std::size_t i = 0; i < count; ++i) model[first + i] += values[i];
            break;
          }
          case 5: {
            x.bupdate(first, values, {"libparacel_default.so", "paracel_max"});
            for (std::size_t i = 0; i < count; ++i) model[first + i] = std::max(model[first + i], values[i]);
            break;
          }
          case 6: {
            const auto f = x.update_at(at, values);
            for (std::size_t i = 0; i < count; ++i) model[at[i]] += values[i];
            break;
          }
          default: {
            x.bupdate_at(at, values, {"libparacel_default.so", "paracel_assign"});
            for (std::size_t i = 0; i < count; ++i) model[at[i]] = values[i];
          }
        }
      }
      ASSERT_EQ(x.read(), model) << "seed " << seed;
    });
  }
}

}  // namespace
}  // namespace paracel
