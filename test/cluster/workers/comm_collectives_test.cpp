// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives of Comm, in shared memory, over messages and by the scheduler's log: the same bits, the same errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/comm.hpp>

#include "test/support/cluster.hpp"
#include "test/support/same_texts.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::cluster;
using test::expect_one_text;
using testing::AllOf;
using testing::HasSubstr;
using numbers = std::vector<double>;

enum class road { memory, messages, log };  // log: dead workers are replaced

std::string name_of(road w) { return w == road::memory ? "Memory" : w == road::messages ? "Messages" : "Log"; }

test::cluster_options job_of(road w, std::size_t workers) {
  static std::deque<test::temporary_folder> folders;  // one for each job
  test::cluster_options o{.workers = workers, .servers = 1, .shares_memory = w == road::memory};
  if (w == road::log) o.state_folder = folders.emplace_back().path();
  return o;
}

class CommCollectives : public testing::TestWithParam<road> {
 protected:
  static auto texts_of(std::size_t workers, const std::function<void(Comm)>& work) {
    return test::texts_of(workers, work, job_of(GetParam(), workers));
  }
};
INSTANTIATE_TEST_SUITE_P(By, CommCollectives, testing::Values(road::memory, road::messages, road::log),
                         [](const auto& p) { return name_of(p.param); });

/// Sums of these are inexact, so the order of a fold matters.
numbers vector_of(std::uint64_t turn, std::size_t rank, std::size_t length) {
  numbers v(length);
  for (std::size_t i = 0; i < length; ++i) v[i] = 0.1 * static_cast<double>((turn * 7 + rank * 13 + i) % 101 + 1) - 4;
  return v;
}

numbers fold_in_rank_order(std::uint64_t turn, std::size_t ranks, std::size_t length, reduce_op op) {
  auto all = vector_of(turn, 0, length);
  for (std::size_t r = 1; r < ranks; ++r) {
    const auto v = vector_of(turn, r, length);
    for (std::size_t i = 0; i < length; ++i)
      all[i] = op == reduce_op::sum   ? all[i] + v[i]
               : op == reduce_op::max ? std::max(all[i], v[i])
                                      : std::min(all[i], v[i]);
  }
  return all;
}

void operations(Comm comm, std::uint64_t turn, std::size_t length) {
  const auto me = comm.get_rank();
  const auto p = comm.get_size();
  const auto where = [&] {
    return "rank " + std::to_string(me) + " of " + std::to_string(p) + ", length " + std::to_string(length);
  };
  for (const auto op : {reduce_op::sum, reduce_op::max, reduce_op::min}) {
    auto v = vector_of(turn, me, length);
    comm.allreduce(v, op);
    ASSERT_EQ(v, fold_in_rank_order(turn, p, length, op)) << "allreduce, " << where();
  }
  auto x = vector_of(turn, me, 1)[0];
  comm.allreduce(x);
  ASSERT_EQ(x, fold_in_rank_order(turn, p, 1, reduce_op::sum)[0]) << where();
  std::vector<std::uint8_t> small(length, static_cast<std::uint8_t>(me + 1));
  comm.allreduce(small);
  ASSERT_EQ(small, std::vector<std::uint8_t>(length, static_cast<std::uint8_t>(p * (p + 1) / 2))) << where();

  const auto root = turn % p;
  auto v = me == root ? vector_of(turn, root, length) : numbers(turn % 3);
  comm.bcast(v, root);
  ASSERT_EQ(v, vector_of(turn, root, length)) << "bcast, " << where();

  const auto all = comm.allgather(std::map<std::string, numbers>{{"v", vector_of(turn, me, length + me)}});
  std::vector<numbers> out, in;
  for (std::size_t r = 0; r < p; ++r) {
    ASSERT_EQ(all[r].at("v"), vector_of(turn, r, length + r)) << "allgather, " << where();
    out.push_back(vector_of(turn + r, me, (length + 3 * me + 5 * r) % (length + 2)));
  }
  comm.alltoall(out, in);
  for (std::size_t r = 0; r < p; ++r)
    ASSERT_EQ(in[r], vector_of(turn + me, r, (length + 3 * r + 5 * me) % (length + 2))) << "alltoall, " << where();

  const auto fold = comm.treereduce(
      x, [](double from, double& into) { into = into / 2 + from; }, root);
  auto expected = x;
  for (std::size_t r = 1; r < p; ++r) expected = expected / 2 + x;
  ASSERT_EQ(fold, me == root ? expected : 0) << "treereduce, " << where();
  comm.synchronize();
}

TEST_P(CommCollectives, EqualASerialFoldInRankOrder) {
  for (const std::size_t p : {1U, 2U, 3U, 5U}) {
    cluster c(job_of(GetParam(), p));
    c.run([&](Comm comm) {
      std::uint64_t turn = p;
      for (const std::size_t length : {0U, 1U, 7U, 3000U, 50'000U}) operations(comm, ++turn, length);
      std::mt19937 own(static_cast<unsigned>(comm.get_rank()));
      for (int i = 0; i < 5; ++i) {  // some are late
        std::this_thread::sleep_for(milliseconds{own() % 5});
        operations(comm, ++turn, 40);
      }
    });
  }
}

/// Where messages have a limit: in a log a vector of more than 8 MiB goes in blocks.
TEST_P(CommCollectives, OfVectorsLongerThanABlockOfTheLogEqualASerialFold) {
  constexpr std::size_t length = (std::size_t{20} << 20U) / sizeof(double);
  auto o = job_of(GetParam(), 2);
  o.max_message_bytes = std::size_t{9} << 20U;
  cluster c(o);
  c.run([](Comm comm) {
    auto v = vector_of(3, comm.get_rank(), length);
    comm.allreduce(v);
    EXPECT_EQ(v, fold_in_rank_order(3, 2, length, reduce_op::sum));
    v.resize(length + comm.get_rank());
    EXPECT_THROW(comm.allreduce(v), error) << "a length that differs in its last block only";
  });
}

TEST_P(CommCollectives, TakeTurnsWithOtherOperationsAndMessagesOnTheSameCommunicator) {
  cluster c(job_of(GetParam(), 3));
  c.run([](Comm comm) {
    collectives all(comm);
    const auto me = static_cast<int>(comm.get_rank());
    for (int turn = 0; turn < 20; ++turn) {
      all.send((all.rank() + 1) % 3, turn);
      operations(comm, static_cast<std::uint64_t>(turn), 10);
      EXPECT_EQ(all.receive<int>((all.rank() + 2) % 3), turn);
      if (GetParam() != road::log) {  // where workers are replaced they exchange no messages of their own
        comm.send(turn, (me + 1) % 3, 0);
        numbers one{1};
        all.all_reduce(std::span(one));
        EXPECT_EQ(one[0], 3);
        int got = -1;
        comm.recv(got, (me + 2) % 3, 0);
        EXPECT_EQ(got, turn);
      }
    }
  });
}

TEST_P(CommCollectives, CallsThatDifferAreTheSameErrorAtEveryRank) {
  using call = std::function<void(Comm&)>;
  const auto sum_of = [](std::size_t length, reduce_op op = reduce_op::sum) {
    return call([=](Comm& comm) {
      numbers v(length, 1);
      comm.allreduce(v, op);
    });
  };
  const auto from = [](std::size_t root) {
    return call([=](Comm& comm) {
      numbers v{1, 2};
      comm.bcast(v, root);
    });
  };
  const call barrier = [](Comm& comm) { comm.synchronize(); };
  const call gather = [](Comm& comm) { (void)comm.allgather(1); };
  const call exchange = [](Comm& comm) {
    std::vector<int> out(comm.get_size()), in;
    comm.alltoall(out, in);
  };
  const call sum_of_floats = [](Comm& comm) {
    std::vector<float> v(10);
    comm.allreduce(v);
  };
  struct given {
    call of_most, of_one;
    std::string most, one;  // what they are called among peers
  };
  const std::string sum = "all_reduce of 10 f64, sum";
  for (const auto& g :
       {given{sum_of(10), sum_of(11), sum, "all_reduce of 11 f64, sum"},
        given{sum_of(10), sum_of(100'000), sum, "all_reduce of 100000 f64, sum"},
        given{sum_of(10), sum_of(10, reduce_op::max), sum, "all_reduce of 10 f64, max"},
        given{sum_of(10), sum_of_floats, sum, "all_reduce of 10 f32, sum"}, given{sum_of(10), barrier, sum, "barrier"},
        given{barrier, from(0), "barrier", "broadcast of root 0"},
        given{from(0), from(1), "broadcast of root 0", "broadcast of root 1"},
        given{from(1), gather, "broadcast of root 1", "all_gather of "},
        given{gather, exchange, "all_gather of ", "all_to_all of "}}) {
    for (const std::size_t p : {2U, 3U, 5U}) {
      for (const bool is_first : {true, false}) {  // whether nothing has been called before
        const auto odd = p - 1;
        const auto texts = texts_of(p, [&](Comm comm) {
          if (!is_first) comm.synchronize();
          (comm.get_rank() == odd ? g.of_one : g.of_most)(comm);
        });
        if (GetParam() == road::log) expect_one_text(texts, HasSubstr("the ranks disagree"));
        else expect_one_text(texts, AllOf(HasSubstr("the tasks differ"), HasSubstr(g.most), HasSubstr(g.one)));
      }
    }
  }
}

TEST_P(CommCollectives, AfterAnErrorTheyCanBeUsedAgain) {
  cluster c(job_of(GetParam(), 3));
  c.run([](Comm comm) {
    for (std::size_t i = 0; i < 5; ++i) {
      numbers v(comm.get_rank() == i % 3 ? 30'000 : 20, 1);
      EXPECT_THROW(comm.allreduce(v), error);
      operations(comm, i, 30'000);
    }
  });
}

TEST_P(CommCollectives, AWorkerThatHasLeftIsNamed) {
  cluster c(job_of(GetParam(), 3));
  c.run([](Comm comm) {
    comm.synchronize();
    if (comm.get_rank() == 2) return;
    std::string text = "nothing was thrown";
    const auto begin = steady_clock::now();
    try {
      double x = 1;
      comm.allreduce(x);
    } catch (const error& e) {
      text = e.what();
    }
    EXPECT_LT(steady_clock::now() - begin, milliseconds(1500)) << "it leaves early in the wait of the others";
    EXPECT_THAT(text, AllOf(HasSubstr("worker 2"), HasSubstr("left the job")));
  });
}

/// A worker that waits in a collective does not learn of a death from its heartbeat, which may be a long time away.
TEST_P(CommCollectives, ADeathThatEndsTheJobEndsTheWaitOfTheOthersAtOnce) {
  if (GetParam() == road::log) GTEST_SKIP() << "the others wait for a replacement";
  for (const bool is_first : {true, false}) {
    auto o = job_of(GetParam(), 3);
    o.heartbeat_limit = std::chrono::seconds(200);  // a heartbeat every 20 s
    cluster c(o);
    std::atomic<steady_clock::time_point> died{};
    std::mutex mutex;
    std::vector<std::string> texts;
    c.run([&](Comm comm) {
      if (!is_first) comm.synchronize();
      if (comm.get_rank() == 1) {
        std::this_thread::sleep_for(milliseconds(300));  // the others wait
        died = steady_clock::now();
        c.lose_worker(1);
        const auto& ended = *comm.job()->ended();
        while (!ended.raised() && steady_clock::now() - died.load() < std::chrono::seconds(8))
          std::this_thread::sleep_for(milliseconds(1));
        EXPECT_TRUE(ended.raised()) << "who does not ask is told too";
        return;
      }
      try {
        comm.synchronize();
      } catch (const job_error& e) {
        EXPECT_EQ(e.status(), exit_status::worker_lost);
        EXPECT_LT(steady_clock::now() - died.load(), std::chrono::seconds(4));
        const std::lock_guard lock(mutex);
        texts.emplace_back(e.what());
      }
    });
    EXPECT_EQ(texts.size(), 2U);
    for (const auto& text : texts) EXPECT_THAT(text, AllOf(HasSubstr("worker 1"), HasSubstr("killed")));
  }
}

}  // namespace
}  // namespace paracel
