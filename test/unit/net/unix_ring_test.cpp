// SPDX-License-Identifier: BSD-3-Clause
//
// Both ends of a ring. unix_transport_test.cpp has what connections do with them.
#include "net/unix_ring.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/sanitized.hpp"
#include "test/support/small_files.hpp"
#include "test/support/transports.hpp"

#ifdef PARACEL_UNDER_TSAN
// Tests of rings fork a process that has threads, whose copy starts some.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace paracel::net {
namespace {

using test::filled_buffer;
using test::is_filled_buffer;
using test::small_files;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

struct both_ends {
  both_ends() : file(::fcntl(reader->file(), F_DUPFD_CLOEXEC, 0)) {
    writer = ring_writer::open(owned_fd(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0)));
    reader->close_file();
  }
  [[nodiscard]] std::size_t used() const {
    struct stat s {};
    EXPECT_EQ(::fstat(file.get(), &s), 0);
    return static_cast<std::size_t>(s.st_blocks) * 512;
  }
  std::unique_ptr<ring_reader> reader = ring_reader::make();
  owned_fd file;
  std::unique_ptr<ring_writer> writer;
};

TEST(UnixRing, BlocksOfAllSizesArriveInOrderThroughRoomThatIsUsedAgain) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    both_ends ring;
    std::mt19937 random(seed);
    struct sent {
      std::uint64_t offset;
      std::size_t bytes;
      unsigned number;
    };
    std::deque<sent> on_the_way;
    std::size_t unread = 0;
    unsigned wraps = 0;
    unsigned refused = 0;
    const auto source = filled_buffer(2 * mebibyte + 256, 0);
    for (unsigned i = 0; i < 600; ++i) {
      const std::size_t bytes = 1 + random() % (i % 7 == 0 ? 2 * mebibyte : 300'000);
      const std::size_t cut = random() % (bytes + 1);
      const auto all = source.bytes().subspan(i % 256, bytes);
      if (const auto at = ring.writer->put(all.first(cut), all.subspan(cut))) {
        if (!on_the_way.empty() && *at < on_the_way.back().offset) ++wraps;
        on_the_way.push_back({*at, bytes, i});
        unread += bytes;
      } else {
        ++refused;
        ASSERT_FALSE(on_the_way.empty());
      }
      ASSERT_EQ(ring.writer->unread(), unread);
      while (!on_the_way.empty() && random() % 100 < (i % 150 < 100 ? 45U : 90U)) {
        const auto b = on_the_way.front();
        on_the_way.pop_front();
        shared_buffer out;
        ASSERT_TRUE(ring.reader->take(b.offset, b.bytes, out));
        ASSERT_EQ(out.size(), b.bytes);
        ASSERT_EQ(std::memcmp(out.data(), source.data() + b.number % 256, b.bytes), 0) << b.number;
        unread -= b.bytes;
      }
    }
    EXPECT_GT(wraps, 3U) << seed;
    EXPECT_GT(refused, 0U) << seed;
  }
}

TEST(UnixRing, WhatHasNoRoomIsRefusedUntilABlockIsTaken) {
  both_ends ring;
  const auto block = filled_buffer(mebibyte, 1);
  shared_buffer out;
  EXPECT_FALSE(ring.writer->put({}));
  EXPECT_FALSE(ring.writer->put(filled_buffer(ring_capacity + 1, 1).bytes()));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(ring.writer->put(block.bytes()), i * mebibyte);
  EXPECT_FALSE(ring.writer->put(block.bytes().first(1)));
  ASSERT_TRUE(ring.reader->take(0, mebibyte, out));
  EXPECT_EQ(ring.writer->put(block.bytes().first(least_ring_frame)), 0U);
  EXPECT_FALSE(ring.writer->put(block.bytes()));
  for (std::size_t i = 1; i < 8; ++i) ASSERT_TRUE(ring.reader->take(i * mebibyte, mebibyte, out));
  ASSERT_TRUE(ring.reader->take(0, least_ring_frame, out));
  EXPECT_EQ(ring.writer->unread(), 0U);
  const auto whole = filled_buffer(ring_capacity, 7);
  EXPECT_EQ(ring.writer->put(whole.bytes()), 0U);
  ASSERT_TRUE(ring.reader->take(0, ring_capacity, out));
  EXPECT_TRUE(is_filled_buffer(out, ring_capacity, 7));
  // As many blocks as there can be; then no more, however small.
  for (std::size_t i = 0; i < ring_capacity / least_ring_frame; ++i)
    ASSERT_TRUE(ring.writer->put(block.bytes().first(1)));
  EXPECT_FALSE(ring.writer->put(block.bytes().first(1)));
}

TEST(UnixRing, WhatIsLentIsFreeOnceItAndAllBeforeItAreDropped) {
  both_ends ring;
  std::array<shared_buffer, 3> lent;
  shared_buffer copy;
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_TRUE(ring.writer->put(filled_buffer(mebibyte, i).bytes()));
    ASSERT_TRUE(ring.reader->lend(i * mebibyte, mebibyte, lent[i]));
  }
  ASSERT_TRUE(ring.writer->put(filled_buffer(mebibyte, 3).bytes()));
  ASSERT_TRUE(ring.reader->take(3 * mebibyte, mebibyte, copy));
  EXPECT_EQ(ring.writer->unread(), 4 * mebibyte);
  lent[1] = {};
  EXPECT_EQ(ring.writer->unread(), 4 * mebibyte);
  const auto again = lent[0];
  lent[0] = {};
  EXPECT_EQ(ring.writer->unread(), 4 * mebibyte);
  EXPECT_TRUE(is_filled_buffer(again, mebibyte, 0));
  std::thread([last = again]() mutable { last = {}; }).join();
  std::thread([last = std::move(const_cast<shared_buffer&>(again))]() mutable { last = {}; }).join();
  EXPECT_EQ(ring.writer->unread(), 2 * mebibyte);
  // They outlive the ring's ends.
  ring.reader.reset();
  EXPECT_TRUE(is_filled_buffer(lent[2], mebibyte, 2));
  lent[2] = {};
  EXPECT_EQ(ring.writer->unread(), 0U);
  EXPECT_TRUE(is_filled_buffer(copy, mebibyte, 3));
  EXPECT_FALSE(both_ends().reader->lend(ring_capacity, 1, copy));
}

TEST(UnixRing, ManyThreadsDropWhatWasLentWhileMoreIs) {
  both_ends ring;
  std::mutex access;
  std::deque<std::pair<shared_buffer, unsigned>> lent;
  std::atomic<bool> over{false};
  std::atomic<unsigned> wrong{0};
  std::vector<std::thread> droppers;
  for (unsigned t = 0; t < 3; ++t) {
    droppers.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!over) {
        std::this_thread::yield();
        std::pair<shared_buffer, unsigned> one;
        {
          const std::lock_guard lock(access);
          if (lent.empty()) continue;
          const auto at = random() % lent.size();
          one = std::move(lent[at]);
          lent.erase(lent.begin() + static_cast<std::ptrdiff_t>(at));
        }
        if (!is_filled_buffer(one.first, 1000, one.second)) ++wrong;
      }
    });
  }
  for (unsigned i = 0; i < 5'000;) {
    const auto at = ring.writer->put(filled_buffer(1000, i).bytes());
    if (!at) {
      std::this_thread::yield();
      continue;
    }
    shared_buffer b;
    ASSERT_TRUE(ring.reader->lend(*at, 1000, b));
    const std::lock_guard lock(access);
    lent.emplace_back(std::move(b), i++);
  }
  over = true;
  for (auto& t : droppers) t.join();
  EXPECT_EQ(wrong, 0U);
  lent.clear();
  EXPECT_EQ(ring.writer->unread(), 0U);
}

TEST(UnixRing, MemoryIsUsedAsFarAsItHasBeenFilled) {
  both_ends ring;
  EXPECT_EQ(ring.used(), ring_memory::front_bytes);
  const auto block = filled_buffer(mebibyte, 1);
  shared_buffer out;
  for (unsigned i = 0; i < 100; ++i) {
    ASSERT_EQ(ring.writer->put(block.bytes()), 0U);
    ASSERT_TRUE(ring.reader->take(0, mebibyte, out));
  }
  EXPECT_EQ(ring.used(), ring_memory::front_bytes + mebibyte);
}

TEST(UnixRing, ABlockThatIsNotInTheRingIsRefused) {
  both_ends ring;
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  shared_buffer out;
  for (const auto& [offset, bytes] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 0},
                                                            {0, ring_capacity + 1},
                                                            {1, ring_capacity},
                                                            {ring_capacity, 1},
                                                            {ring_capacity - 1, 2},
                                                            {most, 1},
                                                            {most, most},
                                                            {1, most},
                                                            {most - 9, 10},
                                                            {std::uint64_t{1} << 63U, std::uint64_t{1} << 63U}}) {
    EXPECT_FALSE(ring.reader->take(offset, bytes, out)) << offset << " " << bytes;
    EXPECT_EQ(out.size(), 0U);
  }
  EXPECT_TRUE(ring.reader->take(ring_capacity - 1, 1, out));
}

TEST(UnixRing, AReceiverThatSaysItTookWhatItWasNotSentGetsNoMore) {
  for (const auto said : {std::uint64_t{3}, std::uint64_t{0} - 1, std::uint64_t{1} << 40U}) {
    both_ends ring;
    const ring_memory hostile(ring.file.get());
    const auto block = filled_buffer(mebibyte, 1);
    ASSERT_TRUE(ring.writer->put(block.bytes()));
    ASSERT_TRUE(ring.writer->put(block.bytes()));
    hostile.taken() = said;
    EXPECT_FALSE(ring.writer->put(block.bytes()));
    EXPECT_EQ(ring.writer->unread(), 2 * mebibyte);
    hostile.taken() = 2;
    EXPECT_FALSE(ring.writer->put(block.bytes()));
  }
  // Back again: what was taken once is free.
  both_ends ring;
  const ring_memory hostile(ring.file.get());
  const auto block = filled_buffer(mebibyte, 1);
  ASSERT_TRUE(ring.writer->put(block.bytes()));
  hostile.taken() = 1;
  ASSERT_EQ(ring.writer->unread(), 0U);
  hostile.taken() = 0;
  EXPECT_FALSE(ring.writer->put(block.bytes()));
}

TEST(UnixRing, OnlyAFileInMemoryWhoseSizeIsSealedIsMapped) {
  const auto file = [](unsigned flags, std::size_t bytes, int seals) {
    owned_fd f(::memfd_create("test", flags | MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (f.get() >= 0) {
      EXPECT_EQ(::ftruncate(f.get(), static_cast<off_t>(bytes)), 0);
      EXPECT_EQ(::fcntl(f.get(), F_ADD_SEALS, seals), 0);
    }
    return f;
  };
  constexpr auto whole = ring_memory::file_bytes;
  constexpr int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_TRUE(ring_writer::open(file(0, whole, sealed)));
  EXPECT_FALSE(ring_writer::open(owned_fd()));
  EXPECT_FALSE(ring_writer::open(file(0, whole, 0)));
  EXPECT_FALSE(ring_writer::open(file(0, whole, F_SEAL_GROW)));
  EXPECT_FALSE(ring_writer::open(file(0, whole, F_SEAL_SHRINK)));
  EXPECT_FALSE(ring_writer::open(file(0, whole, sealed | F_SEAL_WRITE)));
  EXPECT_FALSE(ring_writer::open(file(0, 0, sealed)));
  EXPECT_FALSE(ring_writer::open(file(0, whole - 1, sealed)));
  EXPECT_FALSE(ring_writer::open(file(0, 2 * whole, sealed)));
  // Of huge pages, as far as the system has any.
  EXPECT_FALSE(ring_writer::open(file(MFD_HUGETLB, 10 * mebibyte, sealed)));
  std::string path = "/tmp/prc-test-XXXXXX";
  owned_fd plain(::mkstemp(path.data()));
  ::unlink(path.c_str());
  ASSERT_EQ(::ftruncate(plain.get(), whole), 0);
  EXPECT_FALSE(ring_writer::open(std::move(plain)));
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  EXPECT_FALSE(ring_writer::open(owned_fd(pipe[0])));
  EXPECT_FALSE(ring_writer::open(owned_fd(pipe[1])));
}

TEST(UnixRing, NoneIsMadeWithoutMemoryNorMoreThanAProcessMayHave) {
  {
    const small_files limit(ring_memory::file_bytes - 1);
    EXPECT_FALSE(ring_reader::make());
  }
  std::vector<std::unique_ptr<ring_reader>> all;
  for (std::size_t i = 0; i < most_rings; ++i) {
    all.push_back(ring_reader::make());
    ASSERT_TRUE(all.back()) << i;
  }
  EXPECT_FALSE(ring_reader::make());
  all.pop_back();
  EXPECT_TRUE(ring_reader::make());
}

TEST(UnixRing, TheOtherEndIsAnotherProcessWhichMayDie) {
  both_ends ring;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto block = filled_buffer(mebibyte, 5);
    for (;;) {
      const auto at = ring.writer->put(block.bytes());
      if (!at) continue;
      if (::send(ends[1], &*at, sizeof *at, MSG_NOSIGNAL) != sizeof *at) ::_exit(1);
    }
  }
  ::close(ends[1]);
  shared_buffer out;
  unsigned taken = 0;
  for (std::uint64_t at = 0; ::recv(ends[0], &at, sizeof at, MSG_WAITALL) == sizeof at; ++taken) {
    ASSERT_TRUE(ring.reader->take(at, mebibyte, out));
    ASSERT_TRUE(is_filled_buffer(out, mebibyte, 5)) << taken;
    if (taken == 50) ::kill(child, SIGKILL);
  }
  EXPECT_GE(taken, 51U);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(ring.reader->take(0, mebibyte, out));
  ::close(ends[0]);
}

}  // namespace
}  // namespace paracel::net
