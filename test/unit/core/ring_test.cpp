// SPDX-License-Identifier: BSD-3-Clause
#include "core/ring.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/error.hpp>

#include "core/hash.hpp"

namespace paracel {
namespace {

std::vector<std::uint32_t> owners(const ring& r) {
  std::vector<std::uint32_t> all(partition_count);
  for (std::uint32_t p = 0; p < partition_count; ++p) all[p] = r.owner(static_cast<std::uint16_t>(p));
  return all;
}

std::map<std::uint32_t, std::uint32_t> loads(const ring& r) {
  std::map<std::uint32_t, std::uint32_t> load;
  for (const auto slot : owners(r)) ++load[slot];
  return load;
}

ring of(std::uint32_t servers) {
  ring r;
  for (std::uint32_t s = 0; s < servers; ++s) r.add(s);
  return r;
}

// Computed independently, by a 20-line program in Python with libxxhash. If any of them changes, keys move.
TEST(Ring, HasTheseOwners) {
  struct {
    std::uint32_t servers;
    std::uint64_t checksum;           // XXH3-64 of the 16,384 owners as little-endian 32-bit numbers
    std::vector<std::uint32_t> some;  // of partitions 0, 1, 1685, 4096, 8191, 10216, 12345, 16383
  } const golden[] = {
      {1, 0x33b202d302b65caaU, {0, 0, 0, 0, 0, 0, 0, 0}}, {2, 0xcc92d6416b318a0cU, {0, 0, 0, 1, 0, 0, 0, 0}},
      {3, 0xb202e62720d10c94U, {2, 2, 2, 2, 2, 0, 2, 2}}, {4, 0x243d1cbf00b1a00eU, {2, 2, 3, 2, 2, 0, 2, 2}},
      {5, 0x5ebeb54d2a2c2ebcU, {2, 2, 3, 2, 2, 0, 2, 2}},
  };
  for (const auto& g : golden) {
    const auto table = owners(of(g.servers));
    EXPECT_EQ(hash_key({reinterpret_cast<const char*>(table.data()), table.size() * 4}), g.checksum) << g.servers;
    std::vector<std::uint32_t> some;
    for (const std::size_t p : {0, 1, 1685, 4096, 8191, 10216, 12345, 16383}) some.push_back(table[p]);
    EXPECT_EQ(some, g.some) << g.servers;
  }
}

TEST(Ring, NoServerIsAboveItsBoundAndNoneIsIdle) {
  for (std::uint32_t n = 1; n <= 40; ++n) {
    const auto load = loads(of(n));
    ASSERT_EQ(load.size(), n);
    const double fair = double{partition_count} / n;
    for (const auto& [slot, partitions] : load) {
      EXPECT_LE(partitions, std::ceil(1.05 * fair)) << "server " << slot << " of " << n;
      EXPECT_GE(partitions, 0.85 * fair) << "server " << slot << " of " << n;
    }
  }
}

TEST(Ring, TheBoundHoldsForSlotsWithGapsToo) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 10; ++round) {
    ring r;
    std::set<std::uint32_t> slots;
    while (slots.size() < 12) slots.insert(static_cast<std::uint32_t>(random()));
    for (const auto s : slots) r.add(s);
    for (const auto& [slot, partitions] : loads(r)) EXPECT_LE(partitions, std::ceil(1.05 * partition_count / 12.0));
  }
}

TEST(Ring, AddingAServerMovesAboutItsShareAndAlmostNothingElse) {
  for (std::uint32_t n = 1; n <= 40; ++n) {
    auto r = of(n);
    const auto before = owners(r);
    r.add(n);
    const auto after = owners(r);
    std::uint32_t to_it = 0;
    std::uint32_t elsewhere = 0;
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      if (before[p] != after[p]) ++(after[p] == n ? to_it : elsewhere);
    }
    const double share = double{partition_count} / (n + 1);
    EXPECT_NEAR(to_it, share, 0.12 * share) << n;
    EXPECT_LE(elsewhere, 0.003 * partition_count) << n;
  }
}

TEST(Ring, TheFifthServerTakesAboutAFifth) {
  const auto before = owners(of(4));
  const auto after = owners(of(5));
  std::uint32_t moved = 0;
  for (std::uint32_t p = 0; p < partition_count; ++p) moved += before[p] != after[p];
  EXPECT_EQ(moved, 3171U);  // 19.35 %; modulo would move 80 %
}

TEST(Ring, RemovingAServerMovesItsPartitionsAndAlmostNoOther) {
  for (const std::uint32_t n : {2U, 3U, 5U, 10U, 20U, 40U}) {
    const auto before = owners(of(n));
    for (std::uint32_t gone = 0; gone < n; ++gone) {
      auto r = of(n);
      r.remove(gone);
      const auto after = owners(r);
      std::uint32_t others = 0;
      for (std::uint32_t p = 0; p < partition_count; ++p) {
        ASSERT_NE(after[p], gone);
        others += before[p] != after[p] && before[p] != gone;
      }
      EXPECT_LE(others, 0.008 * partition_count) << gone << " of " << n;
    }
  }
}

TEST(Ring, TheTableDependsOnTheSetOfMembersAlone) {
  std::mt19937 random(11);
  std::map<std::uint32_t, double> wanted;
  for (std::uint32_t s = 0; s < 9; ++s) wanted[s] = s == 3 ? 2.0 : 1.0;
  std::vector<ring_member> at_once;
  for (const auto& [slot, weight] : wanted) at_once.push_back({slot, weight});
  const auto expected = owners(ring(at_once));
  for (int round = 0; round < 20; ++round) {
    auto order = at_once;
    for (std::uint32_t extra = 100; extra < 103; ++extra) order.push_back({extra, 1.5});
    std::shuffle(order.begin(), order.end(), random);
    ring r;
    std::vector<std::uint32_t> extras;
    for (const auto& m : order) {
      r.add(m.slot, m.weight);
      if (m.slot >= 100) extras.push_back(m.slot);
      if (!extras.empty() && random() % 2 == 0) {
        r.remove(extras.back());
        extras.pop_back();
      }
    }
    for (const auto s : extras) r.remove(s);
    EXPECT_EQ(owners(r), expected) << "round " << round;
  }
}

TEST(Ring, AServerThatComesBackGetsItsPartitionsBack) {
  auto r = of(5);
  const auto before = owners(r);
  r.remove(2);
  EXPECT_NE(owners(r), before);
  r.add(2);
  EXPECT_EQ(owners(r), before);
}

TEST(Ring, LoadFollowsTheWeights) {
  ring r;
  const std::map<std::uint32_t, double> weights{{0, 1}, {1, 2}, {2, 0.5}, {3, 4}};
  for (const auto& [slot, weight] : weights) r.add(slot, weight);
  auto load = loads(r);
  for (const auto& [slot, weight] : weights) {
    const double fair = partition_count * weight / 7.5;
    EXPECT_LE(load[slot], std::ceil(1.05 * fair)) << slot;
    EXPECT_GE(load[slot], 0.85 * fair) << slot;
  }
}

/// The most partitions of any shard thread, relative to the mean.
double fullest_thread(const ring& r, std::uint32_t servers, std::uint32_t threads) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> load;
  for (std::uint32_t p = 0; p < partition_count; ++p) ++load[{r.owner(static_cast<std::uint16_t>(p)), p % threads}];
  std::uint32_t most = 0;
  for (const auto& [thread, partitions] : load) most = std::max(most, partitions);
  return most * static_cast<double>(servers * threads) / partition_count;
}

TEST(Ring, ThreadsOfAServerHaveTheBoundToo) {
  for (const auto& [servers, threads] :
       {std::pair{1U, 2U}, {2U, 2U}, {3U, 4U}, {3U, 7U}, {10U, 8U}, {40U, 4U}, {100U, 8U}}) {
    std::vector<ring_member> members;
    for (std::uint32_t s = 0; s < servers; ++s) members.push_back({s, 1.0, threads});
    EXPECT_LE(fullest_thread(ring(members), servers, threads), 1.15) << servers << " servers of " << threads;
  }
}

TEST(Ring, ThreadsCostFewMovesWhenAServerIsAdded) {
  for (const std::uint32_t threads : {2U, 8U}) {
    std::vector<ring_member> members;
    for (std::uint32_t s = 0; s < 10; ++s) members.push_back({s, 1.0, threads});
    const auto before = owners(ring(members));
    members.push_back({10, 1.0, threads});
    const auto after = owners(ring(members));
    std::uint32_t others = 0;
    for (std::uint32_t p = 0; p < partition_count; ++p) others += before[p] != after[p] && after[p] != 10;
    EXPECT_LE(others, 0.02 * partition_count) << threads;
  }
}

TEST(Ring, ServersWithDifferentThreadsKeepTheirBounds) {
  const std::map<std::uint32_t, std::uint32_t> threads{{0, 1}, {1, 2}, {2, 4}, {3, 3}, {4, 1024}};
  std::vector<ring_member> members;
  for (const auto& [slot, n] : threads) members.push_back({slot, 1.0, n});
  const ring r(members);
  for (const auto& [slot, partitions] : loads(r)) EXPECT_LE(partitions, std::ceil(1.05 * partition_count / 5)) << slot;
  ring empty;
  EXPECT_THROW(empty.add(0, 1.0, 0), error);
}

TEST(Ring, TheSmallestWeightBesideTheLargestStillWorks) {
  ring r;
  r.add(0, ring::greatest_weight);
  r.add(1, ring::least_weight);
  auto load = loads(r);
  EXPECT_LE(load[1], std::ceil(1.05 * partition_count / 4097.0));
  EXPECT_GE(load[0], partition_count - 5U);
}

TEST(Ring, FourThousandServersGetTheirBoundToo) {
  std::vector<ring_member> members;
  for (std::uint32_t s = 0; s < ring::most_members; ++s) members.push_back({s, 1.0});
  ring r(members);
  for (const auto& [slot, partitions] : loads(r)) EXPECT_LE(partitions, 5U) << slot;
  EXPECT_THROW(r.add(ring::most_members), error);
}

TEST(Ring, ReplicasBeginWithTheOwnerAndAreDistinct) {
  const auto r = of(6);
  for (std::uint32_t i = 0; i < partition_count; i += 7) {
    const auto p = static_cast<std::uint16_t>(i);
    const auto chain = r.replicas(p, 3);
    ASSERT_EQ(chain.size(), 3U);
    EXPECT_EQ(chain[0], r.owner(p));
    EXPECT_EQ(std::set<std::uint32_t>(chain.begin(), chain.end()).size(), 3U);
    EXPECT_EQ(r.replicas(p, 2), std::vector<std::uint32_t>(chain.begin(), chain.begin() + 2));
  }
}

TEST(Ring, ReplicasAreAllMembersWhenMoreAreAskedFor) {
  auto r = of(3);
  auto chain = r.replicas(77, 10);
  std::sort(chain.begin(), chain.end());
  EXPECT_EQ(chain, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_TRUE(r.replicas(77, 0).empty());
}

TEST(Ring, ADeadServersPartitionsMostlyGoToTheirNextReplica) {
  auto r = of(5);
  std::vector<std::vector<std::uint32_t>> chains;
  for (std::uint32_t p = 0; p < partition_count; ++p) chains.push_back(r.replicas(static_cast<std::uint16_t>(p), 2));
  r.remove(4);
  std::uint32_t its = 0;
  std::uint32_t to_next = 0;
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    if (chains[p][0] != 4) continue;
    ++its;
    to_next += r.owner(static_cast<std::uint16_t>(p)) == chains[p][1];
  }
  EXPECT_GT(to_next, 0.98 * its);  // the bound moves the rest further on
}

TEST(Ring, ListsItsSlotsInOrder) {
  ring r;
  r.add(9);
  r.add(2);
  r.add(5);
  EXPECT_EQ(r.slots(), (std::vector<std::uint32_t>{2, 5, 9}));
}

TEST(Ring, WithoutMembersThereIsNoOwner) {
  ring r;
  EXPECT_THROW((void)r.owner(0), error);
  EXPECT_THROW((void)r.replicas(0, 1), error);
  r.add(1);
  EXPECT_EQ(r.owner(0), 1U);
  r.remove(1);
  EXPECT_THROW((void)r.owner(0), error);
}

TEST(Ring, APartitionBeyondTheLastIsAnError) {
  const auto r = of(2);
  EXPECT_NO_THROW((void)r.owner(partition_count - 1));
  EXPECT_THROW((void)r.owner(partition_count), error);
  EXPECT_THROW((void)r.owner(0xffff), error);
}

TEST(Ring, ARefusedChangeLeavesTheTableAlone) {
  auto r = of(3);
  const auto before = owners(r);
  EXPECT_THROW(r.add(1), error);
  EXPECT_THROW(r.remove(7), error);
  for (const double w :
       {0.0, -1.0, 0.001, 65.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(r.add(8, w), error) << w;
  }
  EXPECT_EQ(owners(r), before);
  EXPECT_EQ(r.slots().size(), 3U);
}

TEST(Ring, TheWeightsTogetherAreLimited) {
  std::vector<ring_member> members;
  for (std::uint32_t s = 0; s < 129; ++s) members.push_back({s, 64});
  EXPECT_THROW(ring{members}, error);
}

}  // namespace
}  // namespace paracel
