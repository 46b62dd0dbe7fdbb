// SPDX-License-Identifier: BSD-3-Clause
//
// Servers join and leave a job that counts continuously: nothing is lost and nothing counts twice, even when servers
// die at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <paracel/array.hpp>
#include <paracel/error.hpp>
#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "test/support/cluster.hpp"

namespace paracel {
namespace {

using std::chrono::milliseconds;
using test::cluster;

constexpr std::size_t workers = 3;

/// Three workers count with every kind of request until `disturb`, on its own thread, has finished. Counters of a
/// single worker are exact at every step, shared ones at the end.
void count(cluster& c, const std::function<void()>& disturb) {
  std::atomic<std::int64_t> in_all{0};
  std::atomic<bool> is_over{false};
  c.run([&](Comm comm) {
    std::optional<std::thread> disturbing;
    paralg a("", comm);
    const auto me = std::to_string(a.get_worker_id());
    std::vector<std::string> shared, own;
    std::vector<std::uint64_t> ids;
    for (int k = 0; k < 50; ++k) {
      shared.push_back("shared" + std::to_string(k));
      own.push_back("own" + me + "_" + std::to_string(k));
      ids.push_back(static_cast<std::uint64_t>(k) * 1'000'003);
    }
    table<double> rows(a, "rows", 2);
    array<double> places(a, "places", 4096);
    const auto set = a.paracel_prepare(own);
    const std::vector<std::int64_t> ones(shared.size(), 1);
    const std::vector<double> row_ones(ids.size() * 2, 1);
    for (int k = 0; k < 2000; ++k) a.paracel_write("ballast" + me + "_" + std::to_string(k), std::int64_t{k});
    a.paracel_sync();
    if (comm.get_rank() == 0) {
      disturbing.emplace([&] {
        disturb();
        is_over = true;
      });
    }
    std::int64_t mine = 0;
    int more = 1;
    for (; more != 0; ++mine) {
      a.paracel_update(set, ones);
      a.paracel_bupdate_multi(shared, ones);
      rows.update(ids, row_ones);
      places.update_at(std::vector<std::uint64_t>{7, 2000, 4095}, std::vector<double>{1, 1, 1});
      const auto which = static_cast<std::size_t>(mine) % own.size();
      EXPECT_EQ(a.paracel_read<std::int64_t>(own[which]), mine + 1);
      a.iter_commit();
      if (mine % 10 != 0) continue;
      more = is_over || testing::Test::HasFailure() ? 0 : 1;
      comm.bcast(more, 0);
    }
    if (disturbing) disturbing->join();
    in_all += mine;
    a.paracel_sync();
    const std::int64_t total = in_all;
    for (const auto& key : shared) EXPECT_EQ(a.paracel_read<std::int64_t>(key), total);
    std::vector<std::int64_t> values(own.size());
    a.paracel_read(set, values);
    for (const auto v : values) EXPECT_EQ(v, mine);
    std::vector<double> numbers(row_ones.size());
    rows.pull(ids, numbers);
    for (const auto v : numbers) EXPECT_EQ(v, static_cast<double>(total));
    for (const auto v : places.read_at(std::vector<std::uint64_t>{7, 2000, 4095}))
      EXPECT_EQ(v, static_cast<double>(total));
    for (int k = 0; k < 2000; ++k) EXPECT_EQ(a.paracel_read<std::int64_t>("ballast" + me + "_" + std::to_string(k)), k);
    a.paracel_sync();
  });
}

struct setting {
  std::uint32_t replicas;
  std::size_t servers;
  std::uint32_t threads;
};

class Resize : public testing::TestWithParam<setting> {};

void grow_and_shrink(cluster& c) {
  for (int move = 0; move < 12; ++move) {
    std::this_thread::sleep_for(milliseconds(20));
    ASSERT_GE(move % 4 < 2 ? c.grow() : c.shrink(), 0) << "move " << move;
  }
}

TEST_P(Resize, CountsAreExactWhileServersEnterAndLeave) {
  const auto [replicas, servers, threads] = GetParam();
  cluster c({.workers = workers, .servers = servers, .threads = threads, .replicas = replicas, .elastic = true});
  count(c, [&] { grow_and_shrink(c); });
}

TEST_P(Resize, WhatCannotWaitForAMembershipComesAgain) {
  const auto [replicas, servers, threads] = GetParam();
  cluster c({.workers = workers,
             .servers = servers,
             .threads = threads,
             .replicas = replicas,
             .elastic = true,
             .max_parked_bytes = 1});
  count(c, [&] { grow_and_shrink(c); });
}

std::string name_of_setting(const testing::TestParamInfo<setting>& i) {
  const auto& [replicas, servers, threads] = i.param;
  return std::to_string(replicas) + "replicas_" + std::to_string(servers) + "servers_" + std::to_string(threads) +
         "threads";
}

INSTANTIATE_TEST_SUITE_P(All, Resize,
                         testing::Values(setting{1, 1, 1}, setting{1, 3, 2}, setting{2, 2, 2}, setting{2, 3, 1}),
                         name_of_setting);

class ResizeAndLoss : public testing::TestWithParam<int> {
 protected:
  cluster c{{.workers = workers, .servers = 3, .threads = 2, .replicas = 2}};

  void lose_and_replace(std::size_t slot) {
    ASSERT_NE(c.lose(slot), 0U) << "the job has ended";
    c.replace(slot);
    ASSERT_TRUE(c.waits_for(slot, server_state::up)) << slot;
  }
  /// While s3 is joining. Afterwards it serves.
  void lose_while_it_enters(std::size_t slot, milliseconds after) {
    ASSERT_EQ(c.begin_growing(), 3);
    std::this_thread::sleep_for(after);
    if (slot != 3) return lose_and_replace(slot);
    const auto epoch = c.lose(3);
    ASSERT_NE(epoch, 0U) << "the job has ended";
    ASSERT_TRUE(c.reaches(epoch));
    if (c.newest().servers[3].state == server_state::down) {  // it was already serving
      c.replace(3);
      ASSERT_TRUE(c.waits_for(3, server_state::up));
    } else {
      ASSERT_EQ(c.newest().servers[3].state, server_state::gone);
      ASSERT_TRUE(c.waits_for(3, server_state::gone));
      ASSERT_EQ(c.grow(), 3);
    }
  }
  /// While s3 is leaving. Afterwards it has left.
  void lose_while_it_leaves(std::size_t slot, milliseconds after) {
    ASSERT_EQ(c.resize("-1"), 3);
    std::this_thread::sleep_for(after);
    if (slot != 3) {
      lose_and_replace(slot);
      ASSERT_TRUE(c.retire(3));
      return;
    }
    const auto epoch = c.lose(3);
    ASSERT_NE(epoch, 0U) << "the job has ended";
    ASSERT_TRUE(c.reaches(epoch));
    if (c.newest().servers[3].state == server_state::gone) return;  // it had left already
    ASSERT_EQ(c.newest().servers[3].state, server_state::down);
    c.replace(3);
    ASSERT_TRUE(c.waits_for(3, server_state::up));
    ASSERT_EQ(c.shrink(), 3);
  }
};

TEST_P(ResizeAndLoss, CountsAreExactWhenAServerDiesInTheMiddle) {
  count(c, [&] {
    for (const auto slot : {std::size_t{3}, std::size_t{0}, std::size_t{2}}) {
      lose_while_it_enters(slot, milliseconds(GetParam()));
      if (HasFatalFailure()) return;
      ASSERT_TRUE(c.waits_for(3, server_state::up));
      lose_while_it_leaves(slot, milliseconds(GetParam()));
      if (HasFatalFailure()) return;
      ASSERT_TRUE(c.waits_for(0, server_state::up));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(After, ResizeAndLoss, testing::Values(0, 2, 5, 10, 25),
                         [](const auto& i) { return std::to_string(i.param) + "ms"; });

TEST(ResizeOfACluster, KeysGoWhereTheRingPutsThemAndAwayFromWhereTheyWere) {
  cluster c({.workers = 1, .servers = 2, .elastic = true});
  c.run([&](const Comm& comm) {
    paralg a("", comm);
    constexpr int keys = 3000;
    for (int k = 0; k < keys; ++k) a.paracel_write(std::to_string(k), std::int64_t{k});
    ASSERT_EQ(c.grow(), 2);
    const auto has = [&](std::size_t i) {
      const auto stats = c.node(i).object().stats_json();
      return std::atoi(stats.c_str() + stats.find("\"keys\":") + 7);
    };
    EXPECT_GT(has(2), keys / 6);
    EXPECT_EQ(has(0) + has(1) + has(2), keys);
    ASSERT_EQ(c.shrink(), 2);
    EXPECT_EQ(has(0) + has(1), keys);
    ASSERT_EQ(c.shrink(), 1);
    EXPECT_EQ(has(0), keys);
    EXPECT_EQ(c.resize("-1"), -1) << "the last one";
    ASSERT_EQ(c.grow(), 1);
    for (int k = 0; k < keys; ++k) ASSERT_EQ(a.paracel_read<std::int64_t>(std::to_string(k)), k);
  });
}

}  // namespace
}  // namespace paracel
