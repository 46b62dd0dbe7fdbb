// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs whose messages are lost, duplicated and delayed on purpose (net/lossy_transport.hpp): their results are
// bit-identical to those of undisturbed ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "net/inproc_transport.hpp"
#include "net/lossy_transport.hpp"
#include "test/support/cluster.hpp"

namespace paracel {
namespace {

using net::lossy_transport;
using test::cluster;
using namespace std::chrono_literals;

class LossyMessages : public testing::TestWithParam<std::uint32_t> {
 protected:
  /// Runs `work` over messages of which `percent` are disturbed.
  void run(std::size_t workers, double percent, std::uint64_t seed, const std::function<void(Comm&)>& work) {
    std::shared_ptr<net::transport> over = std::make_shared<net::inproc_transport>();
    std::shared_ptr<lossy_transport> lossy;
    if (percent != 0)
      over = lossy = std::make_shared<lossy_transport>(
          over, net::lossy_options{.percent = percent, .seed = seed, .process = "all"});
    cluster c(
        {.workers = workers, .servers = 2, .threads = 2, .replicas = GetParam(), .over = over, .resend_after = 50ms});
    c.run([&](Comm comm) { work(comm); });
    if (lossy == nullptr) return;
    const auto& n = lossy->counts();
    EXPECT_GT(n.lost, 0U) << lossy->report();
    EXPECT_GT(n.doubled, 0U);
    EXPECT_GT(n.delayed, 0U);
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, LossyMessages, testing::Values(1, 2));

/// Keys, prepared sets, rows, messages and collectives in one BSP program. Returns: all bits of what it computes.
std::vector<std::uint64_t> compute(Comm& comm) {
  paralg a("", comm);
  a.set_consistency(consistency_model::bsp);
  const auto me = static_cast<double>(comm.get_rank());
  std::vector<std::string> keys;
  for (int i = 0; i < 20; ++i) keys.push_back("set" + std::to_string(i));
  const auto set = a.paracel_prepare(keys);
  table<double> rows(a, "rows", 2);
  const std::vector<std::uint64_t> ids{1, 1'000'003, 2'000'006, 77};
  std::vector<double> seen;
  double passed = me;
  for (int round = 1; round <= 12; ++round) {
    const double x = 1.0 / (3 * round + me);
    a.paracel_update("sum", x);
    a.paracel_update("vector", std::vector<double>(50, x));
    a.paracel_update(set, std::vector<double>(keys.size(), x));
    rows.update(ids, std::vector<double>(ids.size() * 2, x));
    // Around the ring: the previous rank's value plus ours.
    const auto n = comm.get_size();
    comm.send(passed, static_cast<int>((comm.get_rank() + 1) % n), 5);
    double before = 0;
    comm.recv(before, static_cast<int>((comm.get_rank() + n - 1) % n), 5);
    passed = before + x;
    double all = x;
    comm.allreduce(all);
    a.iter_commit();
    seen.push_back(a.paracel_read<double>("sum"));
    seen.push_back(a.paracel_read<std::vector<double>>("vector").at(49));
    std::vector<double> values(keys.size());
    a.paracel_read(set, values);
    seen.push_back(values.back());
    std::vector<double> numbers(ids.size() * 2);
    rows.pull(ids, numbers);
    seen.push_back(numbers.back());
    seen.push_back(passed);
    seen.push_back(all);
  }
  a.paracel_sync();
  std::vector<std::uint64_t> bits;
  for (const auto d : seen) bits.push_back(std::bit_cast<std::uint64_t>(d));
  return bits;
}

TEST_P(LossyMessages, ABspProgramComputesTheSameBits) {
  constexpr std::size_t workers = 3;
  const auto results = [&](double percent, std::uint64_t seed) {
    std::mutex mutex;
    std::vector<std::vector<std::uint64_t>> all(workers);
    run(workers, percent, seed, [&](Comm& comm) {
      auto mine = compute(comm);
      const std::lock_guard lock(mutex);
      all.at(comm.get_rank()) = std::move(mine);
    });
    return all;
  };
  const auto undisturbed = results(0, 0);
  ASSERT_FALSE(undisturbed[0].empty());
  for (const std::uint64_t seed : {1U, 2U}) EXPECT_EQ(results(2, seed), undisturbed) << seed;
}

TEST_P(LossyMessages, CountsAreExactAlsoWhereNothingWaitsForTheClock) {
  run(2, 4, 9, [](Comm& comm) {
    paralg a("", comm);
    const std::vector<std::string> keys{"a", "b", "c", "d"};
    constexpr std::int64_t rounds = 40;
    for (std::int64_t i = 1; i <= rounds; ++i) {
      for (const auto& key : keys) a.paracel_update(key, std::int64_t{1});
      ASSERT_EQ(a.paracel_incr("own" + std::to_string(comm.get_rank()), std::int64_t{1}), i);
      a.iter_commit();
    }
    a.paracel_sync();
    for (const auto& key : keys) EXPECT_EQ(a.paracel_read<std::int64_t>(key), 2 * rounds);
    a.paracel_sync();
  });
}

// The first worker's message is lost with its connection, and the worker then blocks where it neither sends nor
// receives messages: the message is resent nevertheless.
TEST(LossyMessagesBetweenWorkers, AreSentAgainWhileTheSenderWaitsForSomethingElse) {
  const auto lossy = std::make_shared<lossy_transport>(std::make_shared<net::inproc_transport>(),
                                                       net::lossy_options{.percent = 50, .process = "ring"});
  cluster c({.workers = 2, .servers = 1, .over = lossy, .resend_after = 30ms});
  c.run([&](Comm comm) {
    paralg a("", comm);
    a.set_consistency(consistency_model::bsp);
    for (int i = 0; i < 20; ++i) {
      if (comm.get_rank() == 0) {
        comm.send(i, 1, 0);
      } else {
        int got = -1;
        comm.recv(got, 0, 0);
        ASSERT_EQ(got, i);
      }
      a.iter_commit();
      double nothing = 0;
      EXPECT_FALSE(a.paracel_read("nothing", nothing));  // after waiting for the clock of the other
    }
  });
}

}  // namespace
}  // namespace paracel
