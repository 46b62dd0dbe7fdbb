// SPDX-License-Identifier: BSD-3-Clause
//
// Tables whose rows travel as halves or as 8 bits, with error feedback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "net/row_values.hpp"
#include "test/support/cluster.hpp"
#include "test/support/server_killer.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::HasSubstr;
using row_ids = std::vector<std::uint64_t>;
using doubles = std::vector<double>;

constexpr std::array both_formats{wire_format::f16, wire_format::i8};

table_options sent_as(wire_format f) { return {.wire = f}; }

template <class F>
std::string said_by(const F& f) {
  try {
    f();
    return "nothing was refused";
  } catch (const error& e) {
    return e.what();
  }
}

/// Random updates in every form, by a worker of its own or beside others, and their exact sums.
class random_updates {
 public:
  static constexpr std::size_t width = 5, rows = 200;

  random_updates(table<double>& t, unsigned seed)
      : table_(t), random_(seed), sums_(rows * width), sums_by_name_(rows * width) {
    // Two lists that are repeated, and so known to the servers by digest: one of them has a row twice.
    for (auto& list : lists_)
      for (int i = 0; i < 80; ++i) list.push_back(random_() % (rows - 80) + static_cast<std::size_t>(i));
    lists_[1].push_back(lists_[1].front());
  }
  void step() {
    const auto form = random_() % 4;
    row_ids ids;
    if (form < 2) ids = lists_[form];
    else
      for (std::size_t i = 0, n = 1 + random_() % 100; i < n; ++i) ids.push_back(random_() % rows);
    doubles deltas(ids.size() * width);
    const bool named = form == 3;
    for (std::size_t k = 0; k < deltas.size(); ++k) {
      deltas[k] = normal_(random_) + 0.001 * static_cast<double>(k % width);
      (named ? sums_by_name_ : sums_)[ids[k / width] * width + k % width] += deltas[k];
      greatest_ = std::max(greatest_, std::abs(deltas[k]));
    }
    if (!named && random_() % 2 == 0) return table_.update(ids, deltas);
    if (!named) return table_.bupdate(ids, deltas);
    std::vector<std::string> names;
    for (const auto id : ids) names.push_back("row " + std::to_string(id));
    table_.update(names, deltas);
  }
  /// By id, then by name.
  [[nodiscard]] doubles sums() const {
    auto all = sums_;
    all.insert(all.end(), sums_by_name_.begin(), sums_by_name_.end());
    return all;
  }
  [[nodiscard]] double greatest() const { return greatest_; }

 private:
  table<double>& table_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::array<row_ids, 2> lists_;
  doubles sums_, sums_by_name_;
  double greatest_ = 0;
};

/// Of the same rows, in full precision.
doubles values_of(table<double>& t) {
  constexpr auto rows = random_updates::rows;
  constexpr auto width = random_updates::width;
  row_ids ids;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < rows; ++i) {
    ids.push_back(i);
    names.push_back("row " + std::to_string(i));
  }
  doubles out(2 * rows * width);
  t.pull(ids, std::span(out).first(rows * width));
  t.pull(names, std::span(out).last(rows * width));
  return out;
}

double greatest_difference(const doubles& a, const doubles& b) {
  double greatest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) greatest = std::max(greatest, std::abs(a[i] - b[i]));
  return greatest;
}

// Several workers with residuals of their own: the sum in the servers differs by at most one rounding for each of them,
// after the flush not at all.
void sums_are_kept(cluster& c, wire_format f, unsigned seed, std::chrono::milliseconds time = {}, int least = 60) {
  c.run([&](Comm comm) {
    std::optional<test::server_killer> killer;
    if (c.members().replicas > 1 && comm.get_rank() == 0) killer.emplace(c, c.members().servers.size());
    paralg a("", comm);
    table<double> t(a, "t", random_updates::width, row_init::zeros(), {}, sent_as(f));
    table<double> exact(a, "t", random_updates::width);
    random_updates updates(t, seed * 100 + static_cast<unsigned>(comm.get_rank()));
    const auto end = std::chrono::steady_clock::now() + time;
    for (int i = 0; i < least || std::chrono::steady_clock::now() < end; ++i) updates.step();
    if (killer) {
      EXPECT_GT(killer->stop(), 0);
    }
    EXPECT_GT(t.residual_bytes(), 0U);
    a.paracel_sync();
    auto want = updates.sums();
    comm.allreduce(want);
    doubles bound{updates.greatest()};
    comm.allreduce(bound, reduce_op::max);
    // Of an update with what is kept of the row: three deltas of one row at the most.
    const auto rounding =
        3 * bound[0] * (f == wire_format::f16 ? 0x1p-11 : 1.0 / 254) * static_cast<double>(comm.get_size());
    const auto off = greatest_difference(values_of(exact), want);
    EXPECT_LE(off, rounding);
    EXPECT_GT(off, 0) << "it was rounded";
    a.paracel_sync();
    t.flush();
    EXPECT_EQ(t.residual_bytes(), 0U);
    a.paracel_sync();
    EXPECT_LE(greatest_difference(values_of(exact), want), 1e-9);
    t.flush();  // there is nothing to be sent
  });
}

TEST(QuantisedTable, SumsAreExactAfterTheFlushAndWithinOneRoundingBefore) {
  for (const auto f : both_formats) {
    for (const unsigned seed : {1U, 2U, 3U}) {
      cluster c({.workers = seed, .servers = 1 + seed % 2, .threads = 2});
      sums_are_kept(c, f, seed);
    }
  }
}

TEST(QuantisedTable, NoUpdateIsLostOrAppliedTwiceWhileServersAreLost) {
  for (const auto f : both_formats) {
    cluster c({.workers = 2, .servers = 3, .threads = 2, .replicas = 2});
    sums_are_kept(c, f, 4, std::chrono::seconds(2), 20);
  }
}

TEST(QuantisedTable, WithoutRoomUpdatesAreSentInFull) {
  for (const auto f : both_formats) {
    cluster c({.workers = 1, .servers = 2});
    c.run([&](Comm comm) {
      paralg a("", comm);
      constexpr std::size_t most = 4000;
      table<double> t(a, "t", random_updates::width, row_init::zeros(), {}, {.wire = f, .most_residual_bytes = most});
      table<double> exact(a, "t", random_updates::width);
      random_updates updates(t, 5);
      bool kept_some = false;
      for (int i = 0; i < 200; ++i) {
        updates.step();
        ASSERT_LE(t.residual_bytes(), most);
        kept_some = kept_some || t.residual_bytes() != 0;
      }
      EXPECT_TRUE(kept_some);
      t.flush();
      a.paracel_sync();
      EXPECT_LE(greatest_difference(values_of(exact), updates.sums()), 1e-9);
    });
  }
}

TEST(QuantisedTable, PullsAreTheRoundedRowsAndTakeFewerBytes) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    constexpr std::size_t rows = 1000, width = 64;
    table<float> exact(a, "t", width, row_init::normal(0, 1, 3));
    row_ids ids(rows);
    for (std::size_t i = 0; i < rows; ++i) ids[i] = i * i;
    std::vector<float> want(rows * width), got(rows * width);
    auto& client = a.servers().client();
    const auto bytes_of = [&](const auto& call) {
      (void)client.take_traffic();
      call();
      const auto used = client.take_traffic();
      return std::pair(static_cast<double>(used.sent_bytes), static_cast<double>(used.received_bytes));
    };
    const auto full_pull = bytes_of([&] { exact.pull(ids, want); });
    const std::vector<float> zeros(want.size());
    const auto full_update = bytes_of([&] { exact.bupdate(ids, zeros); });
    for (const auto f : both_formats) {
      table<float> t(a, "t", width, row_init::normal(0, 1, 3), {}, sent_as(f));
      const auto pull = bytes_of([&] { t.pull(ids, got); });
      const auto update = bytes_of([&] { t.bupdate(ids, zeros); });
      const auto ratio = f == wire_format::f16 ? 2.0 : 4.0 * 64 / 68;
      EXPECT_NEAR(full_pull.second / pull.second, ratio, 0.02 * ratio);
      EXPECT_GT(full_update.first / update.first, 0.9 * ratio) << "ids travel, too";
      for (std::size_t i = 0; i < rows; ++i) {
        std::vector<float> rounded(width);
        std::vector<std::byte> wire(net::wire_bytes(f, value_tag::f32, width));
        net::quantise(f, value_tag::f32, reinterpret_cast<const std::byte*>(&want[i * width]), width, wire.data());
        net::dequantise(f, value_tag::f32, wire.data(), 1, width, reinterpret_cast<std::byte*>(rounded.data()));
        ASSERT_TRUE(std::equal(rounded.begin(), rounded.end(), &got[i * width])) << i;
      }
      // The second time the list is known, then as a future, by name and one row alone.
      std::vector<float> again(rows * width);
      for (int turn = 0; turn < 3; ++turn) {
        t.pull(ids, again);
        ASSERT_TRUE(again == got);
      }
      auto future = t.pull_async(ids, again);
      ASSERT_TRUE(future.get());
      ASSERT_TRUE(again == got);
      t.pull(row_ids{}, std::span<float>());
      t.update(row_ids{}, std::span<const float>());
      std::size_t seen = 0;
      t.for_each([&](std::uint64_t id, std::span<const float> row) {
        const auto i = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(id))));
        ASSERT_TRUE(std::equal(row.begin(), row.end(), &want[i * width])) << "a scan is exact";
        ++seen;
      });
      EXPECT_EQ(seen, rows);
    }
  });
}

TEST(QuantisedTable, APushIsExactAndDropsWhatIsKeptOfItsRows) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    table<double> t(a, "t", 2, row_init::zeros(), {}, sent_as(wire_format::i8));
    table<double> exact(a, "t", 2);
    const std::vector<std::string> name{"n"};
    const doubles odd{1, 0.3};
    doubles out(2);
    const auto row_is = [&](const doubles& want, const char* when) {
      exact.pull(row_ids{1}, out);
      EXPECT_EQ(out, want) << when;
      exact.pull(name, out);
      EXPECT_EQ(out, want) << when;
    };
    const auto update = [&] {
      t.update(row_ids{1}, odd);
      t.update(name, odd);
    };
    update();
    EXPECT_GT(t.residual_bytes(), 0U);
    t.push(row_ids{1}, odd);
    t.push(name, odd);
    row_is(odd, "pushed");
    EXPECT_EQ(t.residual_bytes(), 0U);
    t.flush();
    row_is(odd, "nothing is left of the update before");
    update();
    EXPECT_EQ(t.remove(row_ids{1}) + t.remove(name), 2U);
    t.flush();
    row_is({0, 0}, "removed");
    update();
    a.paracel_clear();
    t.flush();
    row_is({0, 0}, "cleared");
    EXPECT_EQ(t.residual_bytes(), 0U);
  });
}

TEST(QuantisedTable, WhatCannotBeSentSoIsRefusedWhenItIsOpened) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    EXPECT_THAT(said_by([&] { table<int> t(a, "i", 4, row_init::zeros(), {}, sent_as(wire_format::f16)); }),
                HasSubstr("rows of i32 cannot be sent as f16, want float or double"));
    EXPECT_THAT(said_by([&] {
                  table<float> t(a, "m", 4, row_init::zeros(), {"libparacel_default.so", "paracel_max", {}},
                                 sent_as(wire_format::i8));
                }),
                HasSubstr("paracel_max does not add"));
    table<float> full(a, "m", 4, row_init::zeros(), {"libparacel_default.so", "paracel_max", {}});
    full.bupdate(row_ids{1}, std::vector<float>{1, 2, 3, 4});
    table<float> adds(a, "a", 4, row_init::constant(1), {"libparacel_default.so", "paracel_add", {}},
                      sent_as(wire_format::f16));
    adds.bupdate(row_ids{1}, std::vector<float>{1, 2, 3, 4});
    std::vector<float> out(4);
    adds.pull(row_ids{1}, out);
    EXPECT_EQ(out, (std::vector<float>{2, 3, 4, 5}));
    std::vector<float> two(8);
    adds.push(row_ids{77}, std::vector<float>{1, 2, 1e6F, 3});
    EXPECT_THAT(said_by([&] { adds.pull(row_ids{1, 77}, two); }), HasSubstr("row 77: found 1e+06, want at most"));
  });
}

/// Least squares by SGD with momentum in the servers: the weights of the last iteration.
doubles fitted(std::optional<wire_format> f, unsigned seed, std::size_t workers, consistency_model model,
               int rounds = 250) {
  constexpr std::size_t width = 20, blocks = 4;
  doubles found;
  cluster c({.workers = workers, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", rounds, 0, true);
    a.set_consistency(model);
    table<double> w(a, "w", width, row_init::zeros(), {"libparacel_default.so", "paracel_sgd", {{"lr", 0.05}}},
                    f ? sent_as(*f) : table_options());
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    doubles truth(blocks * width);
    for (auto& x : truth) x = normal(random) * 3;
    std::mt19937_64 own(seed * 1000 + static_cast<unsigned>(comm.get_rank()));
    const row_ids ids{0, 1, 2, 3};
    doubles theta(truth.size()), gradient(truth.size());
    for (int round = 0; round < rounds; ++round) {
      w.pull(ids, theta);
      std::fill(gradient.begin(), gradient.end(), 0.0);
      constexpr int batch = 20;
      for (int i = 0; i < batch; ++i) {
        doubles x(truth.size());
        double residual = 0;
        for (std::size_t j = 0; j < x.size(); ++j) {
          x[j] = normal(own);
          residual += x[j] * (theta[j] - truth[j]);
        }
        for (std::size_t j = 0; j < x.size(); ++j)
          gradient[j] += x[j] * residual / (batch * static_cast<double>(comm.get_size()));
      }
      w.update(ids, gradient);
      a.iter_commit();
    }
    a.paracel_sync();
    table<double> exact(a, "w", width, row_init::zeros(), {"libparacel_default.so", "paracel_sgd", {{"lr", 0.05}}});
    exact.pull(ids, theta);
    double off = 0;
    for (std::size_t j = 0; j < truth.size(); ++j) off = std::max(off, std::abs(theta[j] - truth[j]));
    if (comm.get_rank() == 0) {
      found = theta;
      found.push_back(off);
    }
    a.paracel_sync();
  });
  return found;
}

// The labels have no noise, so full precision converges to the truth. Rounded pulls leave an error of the order of a
// rounding of the weights (up to 10: 0.005 for f16, 0.04 for i8).
TEST(QuantisedTable, ALinearModelConvergesAsInFullPrecision) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    EXPECT_LT(fitted({}, seed, 2, consistency_model::asp).back(), 1e-3);
    EXPECT_LT(fitted(wire_format::f16, seed, 2, consistency_model::asp).back(), 0.01);
    EXPECT_LT(fitted(wire_format::i8, seed, 2, consistency_model::asp).back(), 0.1);
  }
}

TEST(QuantisedTable, UnderBspRunsAreBitIdentical) {
  for (const auto f : both_formats)
    EXPECT_EQ(fitted(f, 7, 3, consistency_model::bsp, 60), fitted(f, 7, 3, consistency_model::bsp, 60));
}

}  // namespace
}  // namespace paracel
