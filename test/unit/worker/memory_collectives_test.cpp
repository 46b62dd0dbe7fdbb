// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives in shared memory, with threads as ranks: random operations compared with a serial fold, and ranks that
// fail, are late, or die anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "core/reduction.hpp"
#include "test/support/file_size_limit.hpp"
#include "worker/comm/memory_collectives.hpp"
#include "worker/comm/rank_memory.hpp"

namespace paracel {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using numbers = std::vector<double>;

/// Thrown by a rank whose process is killed.
struct killed {};

/// The ranks of one host, and which of them are dead.
struct ranks {
  explicit ranks(std::size_t count) : dead(count) {
    constexpr std::align_val_t page{4096};
    const auto bytes = rank_memory::bytes_for(count);
    memory = {static_cast<std::byte*>(::operator new(bytes, page)), [](std::byte* at) { ::operator delete(at, page); }};
    std::fill_n(memory.get(), bytes, std::byte{});
  }
  std::shared_ptr<std::byte> memory;
  std::vector<std::atomic<bool>> dead;
};

class one_rank final : public comm_backend {
 public:
  one_rank(ranks& all, std::size_t rank) : all_(all), memory_(all.memory, rank, all.dead.size()) {}

  void attend(std::size_t rank, bool) override {
    if (all_.dead[rank]) throw network_error("worker " + std::to_string(rank) + " is dead", false);
  }
  [[nodiscard]] std::size_t rank() const override { return memory_.rank(); }
  [[nodiscard]] std::size_t size() const override { return memory_.ranks(); }

  [[nodiscard]] std::size_t me() const { return memory_.rank(); }
  [[nodiscard]] std::size_t count() const { return memory_.ranks(); }

  memory_collectives all() { return {memory_, *this, limit, waited_}; }
  static peer_call call(peer_operation what, std::size_t length = 0, std::size_t root = 0) {
    return {.what = what,
            .element = value_tag::f64,
            .length = length,
            .root = static_cast<std::uint32_t>(root),
            .name = "v"};
  }
  void sum(numbers& v) {
    all().all_reduce(call(peer_operation::all_reduce, v.size()), {}, std::as_writable_bytes(std::span(v)));
  }
  /// Dies within the fold.
  void sum_and_die(numbers& v) {
    const collectives::fold_rule last{value_tag::f64, reduce_op::sum, [](auto, auto) { throw killed(); }};
    all().all_reduce(call(peer_operation::all_reduce, v.size()), last, std::as_writable_bytes(std::span(v)));
  }

  comm_backend::patience limit;

 private:
  ranks& all_;
  rank_memory memory_;
  std::chrono::nanoseconds waited_{};
};

void on_each(std::size_t count, const std::function<void(one_rank&)>& be) {
  ranks all(count);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      one_rank mine(all, r);
      try {
        be(mine);
      } catch (const killed&) {
        all.dead[r] = true;
      } catch (const peer_failure& f) {
        ADD_FAILURE() << "rank " << r << ": " << f.text;
      }
    });
  }
  for (auto& t : threads) t.join();
}

std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const peer_failure& failure) {
    return failure.text;
  }
  return "nothing was thrown";
}

/// Sums of these numbers are inexact, so the order matters.
numbers vector_of(std::uint64_t turn, std::size_t rank, std::size_t length) {
  numbers v(length);
  for (std::size_t i = 0; i < length; ++i) v[i] = 0.1 * static_cast<double>((turn * 7 + rank * 13 + i) % 101 + 1);
  return v;
}

numbers sum_of(std::uint64_t turn, std::size_t count, std::size_t length) {
  auto sum = vector_of(turn, 0, length);
  for (std::size_t r = 1; r < count; ++r) {
    const auto v = vector_of(turn, r, length);
    for (std::size_t i = 0; i < length; ++i) sum[i] += v[i];
  }
  return sum;
}

/// One operation, chosen by `dice`, which is the same on each rank.
void some_operation(one_rank& mine, std::uint64_t turn, std::mt19937& dice, std::size_t longest) {
  const auto p = mine.count();
  const auto me = mine.me();
  const auto length = dice() % 3 == 0 ? dice() % longest : dice() % 40;
  const auto root = dice() % p;
  auto v = vector_of(turn, me, length);
  switch (dice() % 6) {
    case 0:
      mine.sum(v);
      ASSERT_EQ(v, sum_of(turn, p, length));
      return;
    case 1:
      mine.all().reduce(one_rank::call(peer_operation::reduce, length, root), {}, std::as_writable_bytes(std::span(v)));
      ASSERT_TRUE(me != root || v == sum_of(turn, p, length));
      return;
    case 2: {
      mine.all().reduce_scatter(one_rank::call(peer_operation::reduce_scatter, length), {},
                                std::as_writable_bytes(std::span(v)));
      const auto own = owned_range_of(length, p, me);
      const auto sum = sum_of(turn, p, length);
      ASSERT_TRUE(std::equal(v.begin() + static_cast<std::ptrdiff_t>(own.begin),
                             v.begin() + static_cast<std::ptrdiff_t>(own.end),
                             sum.begin() + static_cast<std::ptrdiff_t>(own.begin)));
      return;
    }
    case 3: {
      std::vector<numbers> got(p);
      v.resize(length / (me + 1));
      mine.all().all_gather(one_rank::call(peer_operation::all_gather, v.size()), std::as_bytes(std::span(v)),
                            [&](const std::vector<std::size_t>& bytes) {
                              std::vector<std::span<std::byte>> to;
                              for (std::size_t r = 0; r < p; ++r) {
                                got[r].resize(bytes[r] / sizeof(double));
                                to.push_back(std::as_writable_bytes(std::span(got[r])));
                              }
                              return to;
                            });
      for (std::size_t r = 0; r < p; ++r) {
        auto wanted = vector_of(turn, r, length);
        wanted.resize(length / (r + 1));
        ASSERT_EQ(got[r], wanted);
      }
      return;
    }
    case 4: {
      numbers got = me == root ? v : numbers{};
      mine.all().broadcast(one_rank::call(peer_operation::broadcast, me == root ? length : 0, root),
                           std::as_bytes(std::span(v)).first(me == root ? v.size() * sizeof(double) : 0),
                           [&](std::size_t bytes) {
                             got.resize(bytes / sizeof(double));
                             return std::as_writable_bytes(std::span(got));
                           });
      ASSERT_EQ(got, vector_of(turn, root, length));
      return;
    }
    default: {
      std::vector<numbers> out(p), in(p);
      std::vector<std::span<const std::byte>> blocks;
      const auto part = [&](std::size_t from, std::size_t to) { return length / (1 + (from + 2 * to) % 5); };
      for (std::size_t r = 0; r < p; ++r) {
        out[r] = vector_of(turn + r, me, part(me, r));
        blocks.push_back(std::as_bytes(std::span(out[r])));
      }
      mine.all().all_to_all(one_rank::call(peer_operation::all_to_all), blocks, [&](std::size_t r, std::size_t bytes) {
        in[r].resize(bytes / sizeof(double));
        return std::as_writable_bytes(std::span(in[r]));
      });
      for (std::size_t r = 0; r < p; ++r) ASSERT_TRUE(r == me || in[r] == vector_of(turn + me, r, part(r, me)));
    }
  }
}

TEST(MemoryCollectives, AtRandomEqualASerialFold) {
  for (const std::size_t p : {2, 3, 5, 8}) {
    on_each(p, [p](one_rank& mine) {
      std::mt19937 dice(static_cast<unsigned>(p)), own(static_cast<unsigned>(mine.me()));
      for (std::uint64_t turn = 0; turn < 100; ++turn) {
        if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds{own() % 1000});
        some_operation(mine, turn, dice, turn % 10 == 0 ? 300'000 : 10'000);
      }
    });
  }
}

TEST(MemoryCollectives, RanksThatFailAnywhereAreHeardByAllAndTheNextOperationsAreRight) {
  for (const std::size_t p : {2, 3, 6}) {
    on_each(p, [p](one_rank& mine) {
      std::mt19937 dice(static_cast<unsigned>(p) + 70);
      for (std::uint64_t turn = 0; turn < 30; ++turn) {
        const std::array failing{dice() % p, dice() % p};
        const auto length = turn % 2 == 0 ? 10 : 100'000;
        const bool differs = turn % 3 == 0;
        auto v = vector_of(turn, mine.me(), length);
        const auto text = text_of([&] {
          if (mine.me() != failing[0] && mine.me() != failing[1]) return mine.sum(v);
          if (!differs) mine.all().fail({static_cast<std::uint32_t>(mine.me()), 5, "row " + std::to_string(mine.me())});
          v.push_back(1);
          mine.sum(v);
        });
        const bool alike = p == 2 && failing[0] != failing[1];
        const auto wanted = !differs ? "row " + std::to_string(std::min(failing[0], failing[1]))
                            : alike  ? "nothing was thrown"
                                     : "the tasks differ: task 0 calls all_reduce";
        EXPECT_THAT(text, HasSubstr(wanted));
        v = vector_of(turn, mine.me(), length);
        mine.sum(v);
        ASSERT_EQ(v, sum_of(turn, p, length));
      }
    });
  }
}

TEST(MemoryCollectives, AFailureAmongThePiecesOfAVectorIsHeardInItsNextPiece) {
  on_each(3, [](one_rank& mine) {
    for (int turn = 0; turn < 5; ++turn) {
      numbers v(300'000, 1);
      const auto text = text_of([&] {
        if (mine.me() != 1) return mine.sum(v);
        try {
          mine.sum_and_die(v);
        } catch (const killed&) {
          mine.all().fail({1, 1, "its fold failed"});
        }
      });
      EXPECT_EQ(text, "its fold failed");
      numbers w(10, 1);
      mine.sum(w);
      ASSERT_EQ(w, numbers(10, 3));
    }
  });
}

TEST(MemoryCollectives, ARankThatDiesAnywhereIsNamedByAllOthers) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const std::size_t p = 2 + seed % 4;
    std::mt19937 fates(seed);
    const auto victim = fates() % p;
    const auto end = fates() % 30;
    const bool within = fates() % 2 == 0;
    on_each(p, [&](one_rank& mine) {
      std::mt19937 dice(seed);
      for (std::uint64_t turn = 0; turn < end; ++turn) some_operation(mine, turn, dice, 100'000);
      numbers v(seed % 2 == 0 ? 10 : 250'000, 1);
      if (mine.me() == victim && !within) throw killed();
      if (mine.me() == victim) mine.sum_and_die(v);
      std::string text;
      for (int i = 0; i < 2 && text.empty(); ++i) {  // a rank that dies in the fold of short vectors has contributed
        try {
          mine.sum(v);
        } catch (const peer_failure& f) {
          text = f.text;
        }
      }
      EXPECT_THAT(text, HasSubstr("worker " + std::to_string(victim) + " is dead"));
    });
  }
}

TEST(MemoryCollectives, WhoIsLateBeyondTheDeadlineFindsItsOperationAndThenTheFailure) {
  std::atomic<int> gave_up{0};
  on_each(3, [&](one_rank& mine) {
    numbers v(10, static_cast<double>(mine.me()));
    if (mine.me() != 2) {
      mine.limit = milliseconds{30};
      EXPECT_THAT(text_of([&] { mine.sum(v); }), HasSubstr("no message from task"));
      ++gave_up;
      return;
    }
    while (gave_up != 2) std::this_thread::sleep_for(milliseconds{1});
    mine.sum(v);
    EXPECT_EQ(v, numbers(10, 3));
    EXPECT_THAT(text_of([&] { mine.sum(v); }), HasSubstr("no message from task"));
  });
}

TEST(MemoryCollectives, AfterADeadlineTheyCanBeUsedAgain) {
  std::atomic<int> gave_up{0};
  on_each(3, [&](one_rank& mine) {
    for (int turn = 0; turn < 4; ++turn) {
      const bool late = mine.me() == static_cast<std::size_t>(turn % 3);
      while (late && gave_up != 2 * turn + 2) std::this_thread::sleep_for(milliseconds{1});
      if (!late) mine.limit = milliseconds{40};
      numbers v(200'000, 1);
      EXPECT_THAT(text_of([&] { mine.sum(v); }), HasSubstr("no message from task"));
      mine.limit = {};
      if (!late) ++gave_up;
      v = vector_of(static_cast<std::uint64_t>(turn), mine.me(), 200'000);
      mine.sum(v);
      ASSERT_EQ(v, sum_of(static_cast<std::uint64_t>(turn), 3, 200'000));
    }
  });
}

TEST(MemoryCollectives, WhoStillReadsAStepFindsItThereWhenTheOthersHaveGivenUpTheNext) {
  on_each(3, [](one_rank& mine) {
    bool slow = mine.me() == 2;
    const collectives::fold_rule add{value_tag::f64, reduce_op::sum, [&](auto into, auto from) {
                                       // Longer than a rank that knows of a failure waits for the others.
                                       if (std::exchange(slow, false)) std::this_thread::sleep_for(milliseconds{2600});
                                       fold(value_tag::f64, into, from, reduce_op::sum);
                                     }};
    numbers v(10, static_cast<double>(mine.me()));
    mine.all().all_reduce(one_rank::call(peer_operation::all_reduce, 10), add, std::as_writable_bytes(std::span(v)));
    EXPECT_EQ(v, numbers(10, 3));
    v.assign(10, 7);
    EXPECT_EQ(text_of([&] {
                if (mine.me() == 0) mine.all().fail({0, 1, "on purpose"});
                mine.sum(v);
              }),
              "on purpose");
    v.assign(10, 7);
    mine.sum(v);
    EXPECT_EQ(v, numbers(10, 21));
  });
}

TEST(MemoryCollectives, FoundByItsOfferIsTheSameMemory) {
  auto offer = memory_offer::of_this_process();
  ASSERT_NE(offer.host, 0U);
  auto file = rank_memory::make(2, offer);
  ASSERT_NE(file, nullptr);
  const auto one = rank_memory::open(offer, 0, 2);
  const auto two = rank_memory::open(offer, 1, 2);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  one->block(0, 1)[7] = std::byte{42};
  EXPECT_EQ(two->block(0, 1)[7], std::byte{42});
  auto another = offer;
  ++another.inode;
  EXPECT_EQ(rank_memory::open(another, 1, 2), nullptr);
  EXPECT_EQ(rank_memory::open(offer, 1, 3), nullptr);
  file.reset();
  EXPECT_EQ(rank_memory::open(offer, 1, 2), nullptr);
}

TEST(MemoryCollectives, TheMemoryIsReservedWhenItIsMadeOrNotMade) {
  auto offer = memory_offer::of_this_process();
  {
    const auto file = rank_memory::make(4, offer);
    ASSERT_NE(file, nullptr);
    struct stat about {};
    ASSERT_EQ(::stat(("/proc/self/fd/" + std::to_string(offer.descriptor)).c_str(), &about), 0);
    EXPECT_GE(static_cast<std::size_t>(about.st_blocks) * 512, rank_memory::bytes_for(4));
  }
  const test::file_size_limit full(std::size_t{1} << 20U);
  auto none = memory_offer::of_this_process();
  EXPECT_EQ(rank_memory::make(4, none), nullptr);
  EXPECT_LT(none.descriptor, 0);
}

}  // namespace
}  // namespace paracel
