// SPDX-License-Identifier: BSD-3-Clause
//
// Connections that break while both ends live, with and without replicas: what is lost is sent again, counts once, and
// stays in order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "test/support/cluster.hpp"
#include "test/support/flaky_transport.hpp"
#include "test/support/number_history.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using net::verb;
using test::cluster;
using test::flaky_transport;
using namespace std::chrono_literals;

std::vector<std::string> names(const std::string& prefix, std::size_t n) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(prefix + std::to_string(i));
  return all;
}

class Connections : public testing::TestWithParam<std::uint32_t> {
 protected:
  void run(std::size_t workers, unsigned one_in, const std::function<void(cluster&, const Comm&)>& work) {
    flaky_ = std::make_shared<flaky_transport>(one_in);
    cluster c({.workers = workers, .servers = 3, .threads = 2, .replicas = GetParam(), .over = flaky_});
    c.run([&](const Comm& comm) {
      flaky_->set_breaks(true);
      work(c, comm);
    });
    EXPECT_TRUE(broke_often());
  }
  [[nodiscard]] bool broke_often() const { return flaky_->broken() > 3; }

 private:
  std::shared_ptr<flaky_transport> flaky_;
};
INSTANTIATE_TEST_SUITE_P(Replicas, Connections, testing::Values(1, 2, 3));

TEST_P(Connections, CountsAreExactWhenTheyBreak) {
  run(3, 400, [](cluster&, const Comm& comm) {
    paralg a("", comm);
    const auto shared = names("shared", 8), in_set = names("set", 8);
    const auto set = a.paracel_prepare(in_set);
    table<double> rows(a, "rows", 2);
    const std::vector<std::uint64_t> ids{1, 1'000'003, 2'000'006, 77};
    const std::vector<std::int64_t> ones(shared.size(), 1);
    const std::vector<double> row_ones(ids.size() * 2, 1);
    const auto own = "own" + std::to_string(a.get_worker_id());
    constexpr std::int64_t rounds = 60;
    for (std::int64_t round = 1; round <= rounds; ++round) {
      ASSERT_EQ(a.paracel_incr(own, std::int64_t{1}), round);
      for (const auto& key : shared) a.paracel_update(key, std::int64_t{1});
      a.paracel_bupdate_multi(shared, ones);
      a.paracel_update(set, ones);
      rows.update(ids, row_ones);
      a.iter_commit();
    }
    a.paracel_sync();
    const auto all = rounds * static_cast<std::int64_t>(a.get_worker_size());
    for (const auto& key : shared) EXPECT_EQ(a.paracel_read<std::int64_t>(key), 2 * all);
    std::vector<std::int64_t> values(in_set.size());
    a.paracel_read(set, values);
    for (const auto v : values) EXPECT_EQ(v, all);
    std::vector<double> numbers(ids.size() * 2);
    rows.pull(ids, numbers);
    for (const auto v : numbers) EXPECT_EQ(v, static_cast<double>(all));
    a.paracel_sync();
  });
}

TEST_P(Connections, RequestsOfAClientStayInOrderWhenTheyBreak) {
  run(1, 300, [](cluster& c, const Comm&) {
    const auto client = c.client({.timeout = 0ms});
    const auto keys = names("k", 5);
    std::vector<std::int64_t> seen(keys.size(), 0);
    constexpr std::int64_t requests = 3000;
    for (std::int64_t i = 1; i <= requests; ++i) {
      const auto k = static_cast<std::size_t>(i) % keys.size();
      const encoded<std::int64_t> value(i);
      client->request({.what = verb::push}, keys[k], value.view(), nullptr);
      client->request({.what = verb::pull}, keys[k], {}, [&seen, k](const kv_result& r) {
        ASSERT_TRUE(r.ok()) << r.text();
        seen[k] = std::max(seen[k], decode<std::int64_t>(r.value()));
      });
      if (client->in_flight() > 60) client->wait_all();
    }
    client->wait_all();
    for (std::size_t k = 0; k < keys.size(); ++k) {
      std::int64_t last = 0;
      client->wait(client->request({.what = verb::pull}, keys[k], {},
                                   [&](const kv_result& r) { last = decode<std::int64_t>(r.value()); }));
      EXPECT_GT(last, requests - static_cast<std::int64_t>(keys.size())) << keys[k];
      EXPECT_EQ(last, seen[k]);
    }
  });
}

TEST_P(Connections, AWalkOverRowsMissesNoneAndMeetsNoneTwiceWhenTheyBreak) {
  run(1, GetParam() == 1 ? 4 : 8, [](cluster&, const Comm& comm) {
    paralg a("", comm);
    table<double> rows(a, "rows", 2);
    std::vector<std::uint64_t> ids;
    for (std::uint64_t i = 0; i < 2'000; ++i) ids.push_back(i * 1'000'003);
    rows.push(ids, std::vector<double>(ids.size() * 2, 3.0));
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<std::uint64_t> met;
      rows.for_each([&](std::uint64_t id, std::span<const double>) { met.push_back(id); });
      std::ranges::sort(met);
      ASSERT_TRUE(std::ranges::equal(met, ids)) << met.size() << " of " << ids.size() << " rows";
    }
  });
}

TEST_P(Connections, WhoeverOnlyPollsHasItsAnswersToo) {
  run(1, 15, [this](cluster& c, const Comm&) {
    const auto client = c.client({.timeout = 0ms});
    const encoded<std::int64_t> one(1);
    std::int64_t last = 0;
    constexpr std::int64_t additions = 30, most_additions = 1000;
    for (std::int64_t i = 1; i <= additions || (!broke_often() && i <= most_additions); ++i) {
      const auto s = client->request({.what = verb::bupdate}, "polled", one.view(), [&last](const kv_result& r) {
        last = r.ok() ? decode<std::int64_t>(r.value()) : -1;
      });
      const auto end = std::chrono::steady_clock::now() + 60s;
      while (!client->answered(s)) {
        client->poll();
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "nobody asks after addition " << i;
        std::this_thread::sleep_for(100us);
      }
      ASSERT_EQ(last, i);
    }
  });
}

TEST_P(Connections, ThatSwallowEverythingFromNowOnAreRenewedAndCountsAreExact) {
  const auto flaky = std::make_shared<flaky_transport>(1);
  cluster c({.workers = 2, .servers = 3, .threads = 2, .replicas = GetParam(), .over = flaky, .resend_after = 400ms});
  constexpr std::int64_t rounds = 60;
  c.run([&](const Comm& comm) {
    paralg a("", comm);
    const auto shared = names("shared", 8);
    table<double> rows(a, "rows", 2);
    const std::vector<std::uint64_t> ids{1, 1'000'003, 2'000'006, 77};
    const std::vector<std::int64_t> ones(shared.size(), 1);
    const std::vector<double> row_ones(ids.size() * 2, 1);
    const auto own = "own" + std::to_string(a.get_worker_id());
    std::vector<std::chrono::duration<double>> rounds_took;
    for (std::int64_t round = 1; round <= rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      // All connections of the job: those for heartbeats, replication, and notices of the clock, too.
      if (a.get_worker_id() == 0 && round % 20 == 0) flaky->swallow_all();
      ASSERT_EQ(a.paracel_incr(own, std::int64_t{1}), round);
      a.paracel_bupdate_multi(shared, ones);
      rows.update(ids, row_ones);
      a.iter_commit();
      rounds_took.emplace_back(std::chrono::steady_clock::now() - begin);
    }
    a.paracel_sync();
    const auto all = rounds * static_cast<std::int64_t>(a.get_worker_size());
    for (const auto& key : shared) EXPECT_EQ(a.paracel_read<std::int64_t>(key), all);
    std::vector<double> numbers(ids.size() * 2);
    rows.pull(ids, numbers);
    EXPECT_EQ(numbers, std::vector<double>(ids.size() * 2, static_cast<double>(all)));
    std::ranges::sort(rounds_took);
    const auto longest = rounds_took.back();
    RecordProperty("longest_ms", static_cast<int>(longest.count() * 1000));
    // Three links in a row, each of which takes less than a second; an ordinary round, some milliseconds, tells how
    // busy the machine is.
    EXPECT_LT(longest, 8s + 100 * rounds_took[rounds_took.size() / 2]);
    a.paracel_sync();
  });
}

TEST_P(Connections, OneThatFallsSilentIsFoundThoughTheOthersAnswer) {
  const auto flaky = std::make_shared<flaky_transport>(500);
  flaky->set_swallows(true);
  cluster c({.workers = 2,
             .servers = 2,
             .threads = 2,
             .replicas = std::min(GetParam(), 2U),
             .over = flaky,
             .resend_after = 200ms});
  c.run([&](const Comm& comm) {
    flaky->set_breaks(true);
    paralg a("", comm);
    const auto shared = names("shared", 16);
    const auto own = "own" + std::to_string(a.get_worker_id());
    for (std::int64_t round = 1; round <= 60; ++round) {
      ASSERT_EQ(a.paracel_incr(own, std::int64_t{1}), round);
      for (const auto& key : shared) a.paracel_update(key, std::int64_t{1});
      a.iter_commit();
    }
    flaky->set_breaks(false);
    a.paracel_sync();
    const auto all = 60 * static_cast<std::int64_t>(a.get_worker_size());
    for (const auto& key : shared) EXPECT_EQ(a.paracel_read<std::int64_t>(key), all);
    a.paracel_sync();
  });
  EXPECT_GT(flaky->broken(), 0U);
}

TEST(ConnectionsToTheOnlyCopy, AClientThatSendsNothingAgainReportsAConnectionThatHasFallenSilent) {
  const auto flaky = std::make_shared<flaky_transport>(1);
  cluster c({.workers = 1, .servers = 1, .threads = 1, .over = flaky});
  c.run([&](const Comm&) {
    const auto client = c.client({.timeout = 0ms, .resends = false, .resend_after = 200ms});
    const encoded<std::int64_t> one(1);
    const auto add = [&] { client->wait(client->request({.what = verb::update}, "k", one.view(), nullptr)); };
    add();
    flaky->swallow_all();
    EXPECT_THROW(add(), network_error);
  });
}

TEST(ConnectionsToTheOnlyCopy, AClientThatSendsNothingAgainSaysWhatIsLostInsteadOfWaitingForEver) {
  const auto flaky = std::make_shared<flaky_transport>(40, true);
  cluster c({.workers = 1, .servers = 2, .threads = 2, .over = flaky});
  c.run([&](const Comm&) {
    const auto client = c.client({.timeout = 0ms, .resends = false});
    const auto keys = names("k", 8);
    const encoded<std::int64_t> one(1);
    const auto add = [&](int i) {
      client->wait(client->request({.what = verb::update}, keys[static_cast<std::size_t>(i) % keys.size()], one.view(),
                                   nullptr));
    };
    for (int i = 0; i < 16; ++i) add(i);
    flaky->set_breaks(true);
    try {
      for (int i = 0; i < 100'000; ++i) add(i);
      ADD_FAILURE() << "nothing broke";
    } catch (const network_error& e) {
      EXPECT_TRUE(e.may_have_been_applied());
      EXPECT_THAT(e.what(), testing::HasSubstr("broke, and the request in flight was lost"));
    }
    flaky->set_breaks(false);
  });
}

TEST(ConnectionsToTheScheduler, AWorkerWhoseLeavingIsNotAnsweredHasLeftWhenTheSchedulerIsGone) {
  const auto flaky = std::make_shared<flaky_transport>(1);
  std::promise<void> done;
  cluster c({.servers = 1,
             .heartbeat_limit = 3s,
             .events =
                 [&](std::string_view json, bool) {
                   if (json.find(R"("event":"done")") != std::string_view::npos) done.set_value();
                 },
             .over = flaky});
  std::jthread ends([&] {
    done.get_future().wait();
    c.end_scheduler();
  });
  c.run([&](const Comm&) { flaky->lose_answer_to(verb::leave); });
  ends.join();
  EXPECT_EQ(flaky->broken(), 1U);
}

TEST(ConnectionsToTheScheduler, AreKeptByWorkersThatWaitLongAndEachIsAnswered) {
  std::atomic<int> sums{0};
  const test::temporary_folder folder;
  // Where dead workers are replaced the scheduler carries out the collectives.
  cluster c({.workers = 3, .servers = 1, .state_folder = folder.path(), .resend_after = 10ms});
  c.run([&](Comm comm) {
    if (comm.get_rank() == 0) std::this_thread::sleep_for(3s);
    int one = 1;
    comm.allreduce(one);
    sums += one;
  });
  EXPECT_EQ(sums, 9);
}

TEST_P(Connections, ClientsSeeOneOrderOfEachKeyWhenTheyBreak) {
  run(1, 200, [](cluster& c, const Comm&) {
    constexpr std::size_t clients = 3, operations = 400;
    test::number_history history(names("k", 4), clients);
    std::vector<std::thread> threads;
    for (std::size_t me = 0; me < clients; ++me) {
      threads.emplace_back([&, me] {
        const auto mine = c.client({.timeout = 0ms});
        for (std::size_t i = me; i < operations + me; ++i) history.step(*mine, me, i);
      });
    }
    for (auto& t : threads) t.join();
    history.expect_linearizable();
  });
}

}  // namespace
}  // namespace paracel
