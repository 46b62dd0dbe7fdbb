// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives between workers, against a serial fold in rank order: random lengths, types, operations, groups, delays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <paracel/collectives.hpp>

#include "test/support/cluster.hpp"
#include "test/support/exchanging_backend.hpp"
#include "test/support/same_texts.hpp"
#include "test/support/sanitized.hpp"
#include "test/support/temporary_folder.hpp"
#include "worker/comm/peer_collectives.hpp"
#include "worker/comm/rank_memory.hpp"

namespace paracel {
namespace {

using std::chrono::milliseconds;
using test::cluster;
using test::expect_one_text;
using testing::AllOf;
using testing::HasSubstr;

// exchanges: messages of a communicator that has them; scheduler: where workers that die are replaced
enum class way { memory, messages, exchanges, scheduler };

class Collectives : public testing::TestWithParam<way> {
 protected:
  static bool shares() { return GetParam() == way::memory; }
  static test::cluster_options job_of(std::size_t workers) {
    static std::deque<test::temporary_folder> folders;  // one for each job
    test::cluster_options o{.workers = workers, .servers = 1, .shares_memory = shares()};
    if (GetParam() == way::scheduler) o.state_folder = folders.emplace_back().path();
    return o;
  }
  static Comm in_its_way(const Comm& comm, std::function<void()> before = nullptr) {
    if (GetParam() != way::exchanges) return comm;
    return Comm(std::make_shared<test::exchanging_backend>(comm.backend(), std::move(before)), comm.job());
  }
  static auto texts_of(std::size_t workers, const std::function<void(Comm)>& work) {
    return test::texts_of(
        workers, [&](const Comm& comm) { work(in_its_way(comm)); }, job_of(workers));
  }
  struct job {
    explicit job(std::size_t workers) : all(job_of(workers)) {}
    void run(const std::function<void(Comm)>& work) {
      all.run([&](const Comm& comm) { work(in_its_way(comm)); });
    }
    cluster all;
  };
};

INSTANTIATE_TEST_SUITE_P(By, Collectives, testing::Values(way::memory, way::messages, way::exchanges, way::scheduler),
                         [](const auto& p) {
                           return p.param == way::memory      ? "Memory"
                                  : p.param == way::messages  ? "Messages"
                                  : p.param == way::exchanges ? "Exchanges"
                                                              : "Scheduler";
                         });

/// What rank r contributes at index i in turn `turn`: for sums of floats the order of the fold matters.
template <class T>
T contribution(std::uint64_t turn, std::size_t rank, std::size_t i) {
  std::uint64_t x = turn * 1'000'003 + rank * 7919 + i * 104'729 + 12345;
  x ^= x >> 31U;
  x *= 0x9e3779b97f4a7c15ULL;
  x ^= x >> 29U;
  if constexpr (std::is_floating_point_v<T>) {
    const auto exponent = static_cast<int>(x % 40) - 20;
    return static_cast<T>(std::ldexp(static_cast<double>(x >> 11U) / 9e15 - 0.5, exponent));
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
std::vector<T> contribution_of(std::uint64_t turn, std::size_t rank, std::size_t length) {
  std::vector<T> v(length);
  for (std::size_t i = 0; i < length; ++i) v[i] = contribution<T>(turn, rank, i);
  return v;
}

enum class fold_kind { sum, max, min, own };

/// The user's fold: neither commutative nor associative, so that only one order gives its result.
template <class T>
T own_fold(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a * static_cast<T>(0.5) + b;
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) * 3U + static_cast<std::make_unsigned_t<T>>(b));
}

template <class T>
T folded(fold_kind how, T a, T b) {
  if (how == fold_kind::max) return std::max(a, b);
  if (how == fold_kind::min) return std::min(a, b);
  if (how == fold_kind::own) return own_fold(a, b);
  if constexpr (std::is_floating_point_v<T>) return a + b;
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
}

template <class T>
std::vector<T> serial_fold(fold_kind how, std::uint64_t turn, std::size_t tasks, std::size_t length) {
  auto all = contribution_of<T>(turn, 0, length);
  for (std::size_t r = 1; r < tasks; ++r)
    for (std::size_t i = 0; i < length; ++i) all[i] = folded(how, all[i], contribution<T>(turn, r, i));
  return all;
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

constexpr reduce_op op_of(fold_kind how) {
  return how == fold_kind::max ? reduce_op::max : how == fold_kind::min ? reduce_op::min : reduce_op::sum;
}

template <class T>
void own_spans(std::span<T> into, std::span<const T> from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = own_fold(into[i], from[i]);
}

/// Every operation once, with vectors of one length and type.
template <class T>
void all_operations(collectives& all, fold_kind how, std::uint64_t turn, std::size_t length) {
  const auto p = all.size();
  const auto me = all.rank();
  const auto expected = serial_fold<T>(how, turn, p, length);
  const auto where = [&] {
    return "rank " + std::to_string(me) + " of " + std::to_string(p) + ", length " + std::to_string(length) +
           ", operation " + std::to_string(static_cast<int>(how)) + ", width " + std::to_string(sizeof(T));
  };
  const auto begin = [&] { return contribution_of<T>(turn, me, length); };

  auto v = begin();
  if (how == fold_kind::own) all.all_reduce<T>(std::span(v), own_spans<T>, "v");
  else all.all_reduce(std::span(v), op_of(how), "v");
  ASSERT_TRUE(same_bits<T>(v, expected)) << "all_reduce, " << where();

  v = begin();
  const auto range = owned_range_of(length, p, me);
  const auto own = how == fold_kind::own ? all.reduce_scatter<T>(std::span(v), own_spans<T>)
                                         : all.reduce_scatter(std::span(v), op_of(how));
  ASSERT_TRUE(same_bits<T>(own, std::span(expected).subspan(range.begin, range.size())))
      << "reduce_scatter, " << where();
  ASSERT_TRUE(same_bits<T>(all.all_gather<T>(std::span<const T>(own)), expected)) << "all_gather, " << where();

  const auto root = turn % p;
  if (how != fold_kind::own) {
    v = begin();
    all.reduce(std::span(v), root, op_of(how));
    ASSERT_TRUE(me != root || same_bits<T>(v, expected)) << "reduce, " << where();
  }
  v = me == root ? begin() : std::vector<T>(turn % 7);
  all.broadcast(v, root);
  ASSERT_TRUE(same_bits<T>(v, contribution_of<T>(turn, root, length))) << "broadcast, " << where();

  const auto part = [&](std::size_t from, std::size_t to) {
    return (length + 3 * from + 5 * to + turn) % (length + 2);
  };
  std::vector<std::vector<T>> blocks;
  for (std::size_t r = 0; r < p; ++r) blocks.push_back(contribution_of<T>(turn + r, me, part(me, r)));
  const auto got = all.all_to_all(blocks);
  for (std::size_t r = 0; r < p; ++r)
    ASSERT_TRUE(same_bits<T>(got[r], contribution_of<T>(turn + me, r, part(r, me)))) << "all_to_all, " << where();
  all.barrier();
}

void some_operations(collectives& all, std::uint64_t turn, std::size_t length) {
  const auto how = static_cast<fold_kind>(turn % 4);
  switch (turn / 4 % 4) {
    case 0:
      return all_operations<double>(all, how, turn, length);
    case 1:
      return all_operations<float>(all, how, turn, length);
    case 2:
      return all_operations<std::int32_t>(all, how, turn, length);
    default:
      return all_operations<std::int64_t>(all, how, turn, length);
  }
}

TEST_P(Collectives, OfAllTypesAndLengthsEqualASerialFoldInRankOrder) {
  for (std::size_t p = 1; p <= 8; ++p) {
    job c(p);
    c.run([p](Comm comm) {
      collectives all(comm);
      std::uint64_t turn = p;
      for (const std::size_t length : {std::size_t{0}, std::size_t{1}, p - 1, p, p + 1, std::size_t{1000}})
        for (int i = 0; i < 8; ++i) some_operations(all, turn += 3, length);
      std::mt19937 random(static_cast<unsigned>(p));  // the same on every rank
      for (int i = 0; i < 4; ++i) some_operations(all, random(), random() % 30'000);
    });
  }
}

TEST_P(Collectives, OfLongVectorsInManyPiecesEqualASerialFold) {
  for (const std::size_t p : {2, 5}) {
    job c(p);
    c.run([](Comm comm) {
      collectives all(comm);
      all_operations<double>(all, fold_kind::sum, 1, 300'007);
      all_operations<float>(all, fold_kind::own, 2, 200'001);
    });
  }
}

/// Operations of a communicator itself have nothing to do with what `collectives` send.
void send_beside_own_operations(Comm comm) {
  collectives all(comm);
  const auto me = all.rank(), ranks = all.size(), before = (me + ranks - 1) % ranks;
  all.send((me + 1) % ranks, me);
  comm.sync();
  double sum = 1;
  comm.allreduce(sum);
  EXPECT_EQ(sum, static_cast<double>(ranks));
  EXPECT_EQ(all.receive<std::size_t>(before), before);
  all.barrier();
}

TEST_P(Collectives, OfGroupsEqualASerialFoldAlsoThroughComm) {
  job c(7);
  c.run([](Comm comm) {
    Comm group = comm.split(comm.get_rank() < 5 ? 0 : 1);
    send_beside_own_operations(group);  // before it is known whether they share memory
    collectives all(group), world(comm);
    for (std::uint64_t turn = 0; turn < 16; ++turn) {
      some_operations(all, turn, turn * 97 % 400);
      if (turn % 4 == 0) some_operations(world, turn, 50);
    }
    for (const std::size_t length : {3U, 100'000U}) {
      auto v = contribution_of<double>(length, group.get_rank(), length);
      group.allreduce(v);
      EXPECT_TRUE(same_bits<double>(v, serial_fold<double>(fold_kind::sum, length, group.get_size(), length)));
    }
    send_beside_own_operations(group);
    send_beside_own_operations(comm);
    Comm pair = group.split(static_cast<int>(group.get_rank() % 2));
    collectives few(pair);
    some_operations(few, 4, 30'000);
    comm.sync();
  });
}

TEST_P(Collectives, DoNotDependOnWhoIsLate) {
  for (const std::size_t p : {2, 4}) {
    job c(p);
    c.run([](Comm comm) {
      collectives all(comm);
      std::mt19937 own(static_cast<unsigned>(comm.get_rank()));
      for (std::uint64_t turn = 0; turn < 12; ++turn) {
        std::this_thread::sleep_for(milliseconds{own() % 8});
        some_operations(all, turn, turn % 3 == 0 ? 40'000 : 10);
      }
    });
  }
}

TEST_P(Collectives, NaNMakesAMaximumNaNForShortAndLongVectors) {
  job c(3);
  c.run([](Comm comm) {
    collectives all(comm);
    for (const std::size_t length : {4U, 50'000U}) {
      std::vector<double> v(length, static_cast<double>(comm.get_rank()));
      if (comm.get_rank() == 1) v[length - 2] = std::numeric_limits<double>::quiet_NaN();
      all.all_reduce(std::span(v), reduce_op::max);
      EXPECT_EQ(v[0], 2);
      EXPECT_TRUE(std::isnan(v[length - 2]));
    }
  });
}

TEST_P(Collectives, ObjectsAndMessagesKeepTheirTypesAndOrder) {
  job c(3);
  c.run([](Comm comm) {
    collectives all(comm);
    const auto me = all.rank();
    using object = std::map<std::string, std::vector<double>>;
    const auto many = all.all_gather_objects(object{{std::string(me * 9000, 'x'), {1.5, static_cast<double>(me)}}});
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(many[r].at(std::string(r * 9000, 'x'))[1], static_cast<double>(r));
    object one = me == 1 ? many[2] : object{};
    all.broadcast_object(one, 1);
    EXPECT_EQ(one, many[2]);
    for (int i = 0; i < 3; ++i) all.send((me + 1) % 3, std::vector<int>(static_cast<std::size_t>(i), i));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all.receive<std::vector<int>>((me + 2) % 3).size(), i);
    all.send(me, std::string("to itself"));
    EXPECT_EQ(all.receive<std::string>(me), "to itself");
    EXPECT_THROW(all.send(3, 1), error);
  });
}

TEST_P(Collectives, AnAllReduceOfALongVectorNeedsAtMostTwoChunksBesideIt) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's malloc does not count";
  if (GetParam() == way::scheduler) GTEST_SKIP() << "the scheduler, which is in this process too, keeps results";
  if (GetParam() == way::exchanges) GTEST_SKIP() << "those of this test copy what they send";
  constexpr std::size_t tasks = 4;
  constexpr std::size_t length = 6'000'000;  // 48 MB
  job c(tasks);
  std::atomic<std::size_t> at_rest{0}, most{0};
  c.run([&](Comm comm) {
    collectives all(comm);
    std::vector<float> v(length, 1);
    for (int i = 0; i < 2; ++i) {  // the first pass allocates the transport's buffers
      all.barrier();
      if (comm.get_rank() == 0) at_rest = mallinfo2().uordblks + mallinfo2().hblkhd;
      all.barrier();
      std::atomic<bool> done{false};
      std::thread watcher([&] {
        while (!done && comm.get_rank() == 0) {
          const auto now = mallinfo2();
          most = std::max(most.load(), now.uordblks + now.hblkhd);
          std::this_thread::sleep_for(std::chrono::microseconds{200});
        }
      });
      all.all_reduce(std::span(v));
      done = true;
      watcher.join();
      all.barrier();
    }
    EXPECT_EQ(v.back(), static_cast<float>(tasks * tasks));
  });
  const auto shared = shares() ? rank_memory::bytes_for(tasks) : 0;  // not from malloc
  const auto more = shared + (most > at_rest ? most - at_rest : 0);
  EXPECT_GT(more, 0U);
  EXPECT_LE(more, tasks * 2 * peer_collectives::chunk_bytes);  // all tasks are in this process
}

// ---- wrong use

TEST_P(Collectives, LengthsThatDifferAreTheSameErrorAtEveryTask) {
  for (const std::size_t p : {2, 3, 5})
    for (const std::size_t other : {std::size_t{11}, std::size_t{200'000}})
      expect_one_text(texts_of(p,
                               [p, other](Comm comm) {
                                 collectives all(comm);
                                 std::vector<double> v(comm.get_rank() == p - 1 ? other : 10);
                                 all.all_reduce(std::span(v), reduce_op::sum, "gradient");
                               }),
                      AllOf(HasSubstr("all_reduce(\"gradient\") of 10 f64, sum"),
                            HasSubstr("task " + std::to_string(p - 1) + " calls all_reduce(\"gradient\") of " +
                                      std::to_string(other) + " f64, sum")));
}

TEST_P(Collectives, OperationsTypesAndNamesThatDifferAreTheSameErrorAtEveryTask) {
  const auto run = [](const std::function<void(collectives&, std::vector<double>&)>& odd) {
    return texts_of(4, [&](Comm comm) {
      collectives all(comm);
      std::vector<double> v(10);
      if (comm.get_rank() == 2) odd(all, v);
      else all.all_reduce(std::span(v), reduce_op::sum, "v");
      all.barrier("end");  // the root of a broadcast receives nothing from the others
    });
  };
  const auto both = [](const std::string& text) {
    return AllOf(HasSubstr("all_reduce(\"v\") of 10 f64, sum"), HasSubstr(text));
  };
  expect_one_text(
      run([](collectives& all, std::vector<double>& v) { all.all_reduce(std::span(v), reduce_op::max, "v"); }),
      both("task 2 calls all_reduce(\"v\") of 10 f64, max"));
  expect_one_text(run([](collectives& all, std::vector<double>&) {
                    std::vector<float> w(10);
                    all.all_reduce(std::span(w), reduce_op::sum, "v");
                  }),
                  both("task 2 calls all_reduce(\"v\") of 10 f32, sum"));
  expect_one_text(
      run([](collectives& all, std::vector<double>& v) { all.all_reduce(std::span(v), reduce_op::sum, "w"); }),
      both("task 2 calls all_reduce(\"w\")"));
  expect_one_text(run([](collectives& all, std::vector<double>&) { all.barrier("early"); }),
                  both("task 2 calls barrier(\"early\")"));
  expect_one_text(run([](collectives& all, std::vector<double>& v) { all.broadcast(v, 2, "v"); }),
                  both("task 2 calls broadcast(\"v\") of root 2"));
}

TEST_P(Collectives, ATaskThatFailsEndsTheOthersWithItsError) {
  for (const std::size_t p : {2, 3, 6})
    for (const std::size_t length : {10U, 300'000U})
      expect_one_text(texts_of(p,
                               [p, length](Comm comm) {
                                 collectives all(comm);
                                 std::vector<double> v(length);
                                 all.all_reduce(std::span(v));
                                 if (comm.get_rank() == p / 2) all.fail("row 7 has no label", exit_status::data);
                                 all.all_reduce(std::span(v));
                               }),
                      testing::StrEq("row 7 has no label"));
}

TEST_P(Collectives, OfSeveralFailuresThatOfTheLowestTaskIsThrownByAll) {
  expect_one_text(texts_of(4,
                           [](Comm comm) {
                             collectives all(comm);
                             if (comm.get_rank() != 0) all.fail("task " + std::to_string(comm.get_rank()), 1);
                             all.barrier();
                           }),
                  testing::StrEq("task 1"));
}

TEST_P(Collectives, AfterAFailureTheyCanBeUsedAgain) {
  job c(3);
  c.run([](Comm comm) {
    collectives all(comm);
    for (int i = 0; i < 5; ++i) {
      std::vector<double> v(comm.get_rank() == static_cast<std::size_t>(i % 3) ? 100'000 : 20, 1);
      EXPECT_THROW(all.all_reduce(std::span(v)), error);
      v.assign(100'000, 1);
      all.all_reduce(std::span(v));
      EXPECT_EQ(v.back(), 3);
    }
  });
}

TEST_P(Collectives, ATaskThatIsSilentBeyondTheDeadlineIsNamed) {
  if (GetParam() == way::scheduler) GTEST_SKIP() << "it may be one that will be replaced";
  job c(2);
  c.run([](Comm comm) {
    if (comm.get_rank() == 1) {
      int go = 0;
      comm.recv(go, 0, 0);
      return;
    }
    Comm hasty = comm;
    hasty.set_deadline(milliseconds{50});
    collectives all(hasty);
    std::string text;
    try {
      all.barrier("start");
    } catch (const error& e) {
      text = e.what();
    }
    EXPECT_THAT(text, AllOf(HasSubstr("barrier(\"start\")"), HasSubstr("no message from task 1 for 50 ms")));
    comm.send(1, 1, 0);
  });
}

TEST_P(Collectives, ATaskThatStopsInTheMiddleOfAnExchangeIsNamed) {
  if (GetParam() != way::exchanges) GTEST_SKIP() << "there are none";
  for (const std::size_t stops_at : {1U, 2U, 3U}) {
    cluster c(job_of(2));
    c.run([&](Comm comm) {
      std::size_t exchanges = 0;
      Comm hasty = in_its_way(comm, [&] {
        if (++exchanges != stops_at || comm.get_rank() == 0) return;
        int go = 0;
        comm.recv(go, 0, 0);
        throw error("it goes on too late");
      });
      collectives(hasty).barrier();  // all have met
      hasty.set_deadline(milliseconds{500});
      collectives all(hasty);
      std::vector<double> v(100'000, 1);  // two pieces a task, then the ranges
      std::string text;
      try {
        all.all_reduce(std::span(v), reduce_op::sum, "g");
      } catch (const error& e) {
        text = e.what();
      }
      if (comm.get_rank() == 1) return;
      EXPECT_THAT(text, AllOf(HasSubstr("all_reduce(\"g\")"), HasSubstr("no data from task 1 for 500 ms")));
      comm.send(1, 1, 0);
    });
  }
}

TEST_P(Collectives, ATaskThatHasLeftIsNamed) {
  job c(3);
  c.run([](Comm comm) {
    if (comm.get_rank() == 2) return;
    collectives all(comm);
    std::string text;
    try {
      all.barrier();
    } catch (const error& e) {
      text = e.what();
    }
    EXPECT_THAT(text, AllOf(HasSubstr("worker 2"), HasSubstr("left the job")));
  });
}

TEST(OwnedRanges, AreContiguousInRankOrderAndAsEqualAsPossible) {
  for (const std::size_t tasks : {1U, 2U, 3U, 8U})
    for (const std::size_t length : {0U, 1U, 2U, 7U, 8U, 9U, 1000U}) {
      std::size_t at = 0;
      for (std::size_t t = 0; t < tasks; ++t) {
        const auto r = owned_range_of(length, tasks, t);
        EXPECT_EQ(r.begin, at);
        EXPECT_EQ(r.size(), length / tasks + (t < length % tasks ? 1 : 0));
        at = r.end;
      }
      EXPECT_EQ(at, length);
    }
}

}  // namespace
}  // namespace paracel
