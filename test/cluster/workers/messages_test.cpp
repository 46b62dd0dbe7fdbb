// SPDX-License-Identifier: BSD-3-Clause
//
// Messages between workers: local processes' channels, over both transports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <paracel/comm.hpp>

#include "test/support/cluster.hpp"
#include "test/support/flaky_transport.hpp"
#include "worker/comm/single_comm.hpp"
#include "worker/job/peer_channels.hpp"

namespace paracel {
namespace {

using std::chrono::milliseconds;
using test::cluster;
using testing::ElementsAre;
using testing::HasSubstr;

template <class E>
std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Messages, ArriveInOrderByRankAndTagWithTheirTypes) {
  cluster c({.workers = 3, .servers = 1});
  c.run([](Comm comm) {
    const auto rank = static_cast<int>(comm.get_rank());
    if (rank == 0) {
      comm.send(7, 1, 10);
      comm.send(std::vector<double>{1.5, 2.5, 3.5}, 1, 11);
      comm.send(std::vector<double>{9, 8, 7}, 2, 1, 12);  // the first two
      comm.send(std::map<std::string, double>{{"a", 0.5}}, 1, 10);
      comm.send(std::tuple<std::string, std::string, double>("u", "v", 2), 1, 10);
    } else if (rank == 1) {
      std::vector<double> v;
      const auto status = comm.recv(v, any_source, 11);
      EXPECT_EQ(comm.get_source(status), 0);
      EXPECT_THAT(v, ElementsAre(1.5, 2.5, 3.5));
      std::vector<double> two(3, -1);
      comm.recv(two, 2, 0, 12);
      EXPECT_THAT(two, ElementsAre(9, 8, -1));
      int n = 0;
      EXPECT_EQ(comm.recv(n, 0, any_tag).MPI_TAG, 10);
      EXPECT_EQ(n, 7);
      std::map<std::string, double> m;
      comm.recv(m, 0, 10);
      EXPECT_EQ(m.at("a"), 0.5);
      std::tuple<std::string, std::string, double> t;
      comm.recv(t, 0, 10);
      EXPECT_EQ(std::get<1>(t), "v");
    }
    comm.sync();
  });
}

TEST(Messages, AnotherTypeOrLengthIsAnErrorThatNamesTheSender) {
  cluster c({.workers = 2, .servers = 1});
  c.run([](Comm comm) {
    if (comm.get_rank() == 0) {
      comm.send(std::string("text"), 1, 3);
      comm.send(std::vector<int>{1, 2, 3}, 1, 4);
    } else {
      std::vector<double> v;
      EXPECT_THAT(text_of<type_error>([&] { comm.recv(v, 0, 3); }), HasSubstr("from worker 0 with tag 3"));
      std::vector<int> w;
      EXPECT_THAT(text_of<error>([&] { comm.recv(w, 2, 0, 4); }),
                  HasSubstr("from worker 0 with tag 4 has 3 elements, want 2"));
      EXPECT_THAT(text_of<error>([&] { comm.send(1, 2, 0); }), HasSubstr("rank 2: want one from 0 to 1"));
      EXPECT_THAT(text_of<error>([&] { comm.send(1, 0, -1); }), HasSubstr("tag -1"));
      EXPECT_THAT(text_of<error>([&] { comm.send(std::vector<int>{1}, 2, 0, 0); }), HasSubstr("2 elements of 1"));
    }
    comm.sync();
  });
}

TEST(Messages, ReceivesBegunEarlierAreServedFirst) {
  cluster c({.workers = 2, .servers = 1});
  c.run([](Comm comm) {
    int a = 0, b = 0, last = 0;
    if (comm.get_rank() == 1) {
      vrequest both = comm.irecv(a, 0, 1);
      both.append(comm.irecv(b, 0, 1));
      EXPECT_EQ(both.size(), 2);
      EXPECT_EQ(both.test(), 0);
      { const auto dropped = comm.irecv(last, 0, 1); }  // consumes no message
      comm.sync();
      comm.recv(last, 0, 1);
      comm.wait(both);
      EXPECT_EQ(both.test(), 1);
      EXPECT_THAT((std::vector<int>{a, b, last}), ElementsAre(10, 20, 30));
    } else {
      comm.sync();
      vrequest sent = comm.isend(10, 1, 1);
      sent.append(comm.isend(20, 1, 1));
      sent.append(comm.isend(30, 1, 1));
      comm.wait(sent);
      EXPECT_EQ(sent.test(), 1);
    }
    comm.sync();
  });
}

TEST(Messages, LargeOnesBothWaysAtOnceDoNotDeadlock) {
  cluster c({.workers = 2, .servers = 1});
  c.run([](Comm comm) {
    const auto other = 1 - static_cast<int>(comm.get_rank());
    std::vector<double> mine(3'000'000), theirs;
    std::iota(mine.begin(), mine.end(), other);
    comm.sendrecv(mine, theirs, other, 0, other, 0);
    ASSERT_EQ(theirs.size(), mine.size());
    EXPECT_EQ(theirs.back(), 3000000.0 - other);
    comm.send(mine, other, 1);  // fits into the window
    comm.recv(theirs, other, 1);
    EXPECT_EQ(theirs.front(), 1 - other);
  });
}

TEST(Messages, RingsVisitTheOwnPartAndThenTheOthersInOrder) {
  cluster c({.workers = 4, .servers = 1});
  c.run([](Comm comm) {
    const auto n = comm.get_size();
    const auto rank = comm.get_rank();
    std::vector<std::size_t> seen;
    auto note = [&](const std::vector<std::size_t>& v) { seen.push_back(v.at(0)); };
    comm.bcastring(std::vector<std::size_t>{rank}, note);
    EXPECT_THAT(seen, ElementsAre(rank, (rank + 1) % n, (rank + 2) % n, (rank + 3) % n));
    std::vector<std::vector<std::size_t>> blocks(n), none;
    for (std::size_t r = 0; r < n; ++r) blocks[r] = {10 * rank + r};
    seen.clear();
    comm.alltoallring(blocks, none, note);
    EXPECT_THAT(seen, ElementsAre(11 * rank, 10 * ((rank + 1) % n) + rank, 10 * ((rank + 2) % n) + rank,
                                  10 * ((rank + 3) % n) + rank));
    EXPECT_EQ(none.size(), n);
    comm.sync();
  });
}

TEST(Messages, ASplitCommunicatorHasItsOwnRanksCollectivesAndMessages) {
  cluster c({.workers = 5, .servers = 1});
  c.run([](Comm comm) {
    const auto rank = comm.get_rank();
    const Comm all = comm;
    Comm half = comm.split(static_cast<int>(rank % 2));
    ASSERT_EQ(half.get_size(), rank % 2 == 0 ? 3U : 2U);
    EXPECT_EQ(half.get_rank(), rank / 2);
    std::vector<double> sum{1.0 * static_cast<double>(rank), 1};
    half.allreduce(sum);
    EXPECT_THAT(sum, rank % 2 == 0 ? ElementsAre(6.0, 3.0) : ElementsAre(4.0, 2.0));
    int least = -static_cast<int>(rank);
    half.allreduce(least, reduce_op::min);
    EXPECT_EQ(least, rank % 2 == 0 ? -4 : -3);
    EXPECT_EQ(half.allgather(rank).back(), rank % 2 == 0 ? 4U : 3U);
    std::string word = half.get_rank() == 1 ? "root " + std::to_string(rank) : "";
    half.bcast(word, 1);
    EXPECT_EQ(word, rank % 2 == 0 ? "root 2" : "root 3");
    std::vector<std::size_t> to(half.get_size(), rank), from;
    half.alltoall(to, from);
    EXPECT_EQ(from.front(), rank % 2);

    // The same ranks and tags in two communicators.
    if (rank == 0) {
      comm.send(1, 2, 5);
      half.send(2, 1, 5);
    } else if (rank == 2) {
      int a = 0, b = 0;
      half.recv(a, any_source, any_tag);
      EXPECT_EQ(comm.get_source(comm.recv(b, any_source, any_tag)), 0);
      EXPECT_THAT((std::vector<int>{a, b}), ElementsAre(2, 1));
    }
    Comm quarter = half.split(half.get_rank() == 0 ? 0 : 1);
    int n = 1;
    quarter.allreduce(n);
    EXPECT_EQ(static_cast<std::size_t>(n), quarter.get_size());
    EXPECT_EQ(quarter.get_size(), half.get_rank() == 0 ? 1U : half.get_size() - 1);
    EXPECT_THROW((void)half.get_comm(), error);
    EXPECT_THROW((void)half.split(-1), error);
    comm.sync();
  });
}

TEST(Messages, ADeadlineIsAnErrorThatSaysWhatDidNotCome) {
  cluster c({.workers = 2, .servers = 1});
  c.run([](Comm comm) {
    if (comm.get_rank() == 0) {
      int n = 0;
      comm.set_deadline(milliseconds{50});
      EXPECT_THAT(text_of<network_error>([&] { comm.recv(n, 1, 3); }),
                  HasSubstr("no message from worker 1 with tag 3 for 50 ms"));
      comm.set_deadline({});
      comm.sync();
      comm.recv(n, 1, 3);  // the receive that timed out does not consume it
      EXPECT_EQ(n, 4);
    } else {
      comm.sync();
      comm.send(4, 0, 3);
    }
  });
}

TEST(Messages, ReceivingFromAWorkerThatHasLeftIsAnErrorThatNamesIt) {
  cluster c({.workers = 2, .servers = 1});
  c.run([](Comm comm) {
    if (comm.get_rank() == 1) return comm.send(5, 0, 0);
    int n = 0;
    comm.recv(n, 1, 0);  // what it sent before is received
    EXPECT_EQ(n, 5);
    EXPECT_THAT(text_of<network_error>([&] { comm.recv(n, 1, 0); }),
                HasSubstr("nothing more can arrive from worker 1: it has left the job"));
    EXPECT_THAT(text_of<network_error>([&] { comm.recv(n, any_source, 0); }), HasSubstr("any worker"));
    EXPECT_THAT(text_of<network_error>([&] { comm.send(n, 1, 0); }), HasSubstr("worker 1: it has left the job"));
  });
}

TEST(Messages, OneWorkerSendsToItself) {
  Comm comm(std::make_shared<single_comm>());
  int a = 0, b = 0;
  comm.sendrecv(3, a, 0, 1, 0, 1);
  EXPECT_EQ(a, 3);
  EXPECT_EQ(comm.split(4).get_size(), 1U);
  EXPECT_THAT(text_of<network_error>([&] { comm.recv(b, 0, 1); }), HasSubstr("only worker"));
}

/// The workers' ends of the channels, without a job.
struct ends {
  explicit ends(net::transport& over, std::size_t window = std::size_t{1} << 20U,
                milliseconds patience = milliseconds{5}) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      auto port = over.open();
      address[rank] = port->bind("inproc://end-" + std::to_string(rank));
      peer_channels::options o{.job = 3, .rank = rank, .size = 3, .client = rank + 1, .find = {}, .check = [] {}};
      o.find = [this](std::uint32_t of) { return worker_place{.address = address[of], .turn = 0, .gone = gone[of]}; };
      o.patience = patience;
      o.doubt = milliseconds{20};
      o.window_bytes = window;
      end[rank] = std::make_unique<peer_channels>(std::move(o), std::move(port));
    }
  }
  void send(int number, bool waits = false) {
    end[0]->send({1, 0, 0}, shared_buffer::copy_of(std::as_bytes(std::span(&number, 1))), waits);
  }
  int receive() {
    const auto m = end[1]->take(end[1]->post({0, 0, 0}), milliseconds{20'000});
    return m ? load_field<int>(m->bytes.data()) : -1;
  }
  std::string address[3], gone[3];
  std::unique_ptr<peer_channels> end[3];
};

TEST(PeerChannels, AConnectionThatLosesMessagesChangesNothing) {
  test::flaky_transport over(7, true);
  over.set_breaks(true);
  ends t(over);
  constexpr int n = 300;
  std::thread receiver([&] {
    for (int i = 0; i < n; ++i) ASSERT_EQ(t.receive(), i);
    EXPECT_FALSE(t.end[1]->take(t.end[1]->post({0, 0, 0}), milliseconds{50}).has_value()) << "one came twice";
  });
  for (int i = 0; i < n; ++i) t.send(i);
  EXPECT_TRUE(t.end[0]->flush(milliseconds{20'000}));
  receiver.join();
  EXPECT_GT(over.broken(), 10U);
}

TEST(PeerChannels, ASenderWaitsBeyondItsWindowUntilTheReceiverIsThere) {
  net::inproc_transport over;
  ends t(over, 16);
  for (int i = 0; i < 20; ++i) t.send(i);  // without waiting, even beyond the window
  std::thread receiver([&] {
    std::this_thread::sleep_for(milliseconds{60});
    for (int i = 0; i < 21; ++i) ASSERT_EQ(t.receive(), i);
  });
  const auto begin = std::chrono::steady_clock::now();
  t.send(20, true);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds{40});
  receiver.join();
  EXPECT_TRUE(t.end[0]->flush(milliseconds{1000}));
}

TEST(PeerChannels, ASenderBeyondItsWindowLearnsThatTheReceiverIsGone) {
  net::inproc_transport over;
  ends t(over, 4);
  t.send(0);
  t.gone[1] = "it was killed";
  EXPECT_THAT(text_of<network_error>([&] { t.send(1, true); }), HasSubstr("cannot send to worker 1: it was killed"));
}

TEST(PeerChannels, AReceiverLearnsThatTheSenderIsGoneWhileOthersSend) {
  net::inproc_transport over;
  ends t(over, 1U << 20U, milliseconds{1000});  // messages of others arrive before it expires
  t.gone[0] = "it was killed";
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (int n = 0; !stop; ++n) {
      t.end[2]->send({1, 7, 0}, shared_buffer::copy_of(std::as_bytes(std::span(&n, 1))), false);
      std::this_thread::sleep_for(milliseconds{1});
    }
  });
  EXPECT_THAT(text_of<network_error>([&] { t.receive(); }),
              HasSubstr("nothing more can arrive from worker 0: it was killed"));
  stop = true;
  other.join();
}

}  // namespace
}  // namespace paracel
