// SPDX-License-Identifier: BSD-3-Clause
//
// Direct connections between workers: real sockets, two workers of this process, beside ZeroMQ and beside the transport
// inside a process, which ThreadSanitizer sees.
#include "worker/job/direct_links.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "net/direct_link.hpp"
#include "net/inproc_transport.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/filled_bytes.hpp"
#include "worker/job/peer_channels.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::owned_fd;
using std::chrono::steady_clock;
using test::filled;

constexpr auto at_most = 20s;  // only failures take this long

constexpr net::curve_secret members_key{1, 2, 3, 4};

std::uint16_t port_of(int fd, decltype(&::getsockname) name) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  return name(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.sin_family == AF_INET
             ? ntohs(address.sin_port)
             : std::uint16_t{0};
}

/// A port inside the process that can wait beside sockets, as ZeroMQ's: it looks at them every millisecond.
class port_beside_sockets final : public net::port {
 public:
  explicit port_beside_sockets(std::unique_ptr<net::port> p) : port_(std::move(p)) {}
  std::string bind(const std::string& address) override { return port_->bind(address); }
  int connect(const std::string& address) override { return port_->connect(address); }
  void disconnect(int channel) override { port_->disconnect(channel); }
  void send(int channel, const net::outgoing& message) override { port_->send(channel, message); }
  void reply(const net::peer& to, const net::outgoing& message) override { port_->reply(to, message); }
  bool receive(net::incoming& out, std::chrono::milliseconds timeout) override { return port_->receive(out, timeout); }
  bool receive_beside(net::incoming& out, std::chrono::milliseconds timeout, std::span<const pollfd> others) override {
    std::vector<pollfd> all(others.begin(), others.end());
    for (const auto end = steady_clock::now() + timeout; steady_clock::now() < end;) {
      if (port_->receive(out, 0ms)) return true;
      if (::poll(all.data(), all.size(), 1) > 0) return false;
    }
    return false;
  }
  [[nodiscard]] bool waits_beside() const noexcept override { return true; }

 private:
  std::unique_ptr<net::port> port_;
};

struct way {
  bool is_encrypted = false;
  bool uses_zeromq = false;
};

class TwoWorkers : public testing::TestWithParam<way> {
 protected:
  TwoWorkers() {
    const auto secret = GetParam().is_encrypted ? std::optional(members_key) : std::nullopt;
    zmq_.emplace(net::transport_limits{}, std::function<void(std::string_view)>{},
                 GetParam().uses_zeromq ? secret : std::nullopt);
    open_ports();
  }

  void open_ports() {
    for (std::uint32_t r = 0; r < 2; ++r) {
      if (!GetParam().uses_zeromq) {
        ports_[r] = std::make_unique<port_beside_sockets>(inproc_.open());
        addresses_[r] = ports_[r]->bind("inproc://worker*");
        continue;
      }
      ports_[r] = zmq_->open();
      addresses_[r] = ports_[r]->bind("tcp://127.0.0.1:*");
      zmq_ports_.insert(static_cast<std::uint16_t>(std::stoi(addresses_[r].substr(addresses_[r].rfind(':') + 1))));
    }
  }

  std::unique_ptr<peer_channels> worker(std::uint32_t rank) {
    peer_channels::options o;
    o.job = 7;
    o.rank = rank;
    o.size = 2;
    o.client = 100 + rank;
    o.find = [this](std::uint32_t of) { return worker_place{.address = addresses_[of]}; };
    o.check = [] {};
    o.doubt = 200ms;
    o.link_host = link_host_;
    o.encrypts = GetParam().is_encrypted;
    return std::make_unique<peer_channels>(std::move(o), std::move(ports_[rank]));
  }

  /// Both exchange messages, in lockstep or as fast as they can.
  void exchange(peer_channels& all, std::uint32_t rank, std::uint32_t messages, std::size_t most_bytes, bool waits) {
    const auto other = static_cast<int>(1 - rank);
    const auto size = [&](std::uint32_t i) { return i * 7919U % 13 == 0 ? most_bytes : i * 31U % 200; };
    const auto receive = [&](std::uint32_t i) {
      const auto m = all.take(all.post({other, 3, 1}), std::chrono::milliseconds(at_most));
      ASSERT_TRUE(m.has_value()) << i;
      ASSERT_EQ(m->bytes, filled(size(i), i)) << i;
    };
    for (std::uint32_t i = 0; i < messages; ++i, ++done_) {
      all.send({other, 3, 1}, shared_buffer::holding(filled(size(i), i)), waits);
      if (waits) receive(i);
    }
    for (std::uint32_t i = 0; i < messages && !waits; ++i, ++done_) receive(i);
  }

  /// The two decide together.
  void exchange_until_linked(peer_channels& all, std::uint32_t rank) {
    const auto other = static_cast<int>(1 - rank);
    for (const auto end = steady_clock::now() + at_most; steady_clock::now() < end;) {
      const auto mine = std::byte{all.is_linked(1 - rank)};
      all.send({other, 4, 1}, shared_buffer::holding(byte_vector(1, mine)), false);
      const auto m = all.take(all.post({other, 4, 1}), std::chrono::milliseconds(at_most));
      ASSERT_TRUE(m.has_value());
      if (m->bytes.front() == std::byte{1} && mine == std::byte{1}) return;
    }
    ADD_FAILURE() << "not linked";
  }

  void both(const std::function<void(peer_channels&, std::uint32_t rank)>& run) {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        mine_[rank] = worker(rank);
        run(*mine_[rank], rank);
        if (mine_[rank] != nullptr) {
          EXPECT_TRUE(mine_[rank]->flush(5s));
        }
        mine_[rank].reset();
      });
    }
    for (auto& t : threads) t.join();
  }

  /// The sockets of this process that are not ZeroMQ's.
  std::vector<int> sockets_of_links(bool listening) const {
    std::vector<int> found;
    for (int fd = 3; fd < 500; ++fd) {
      int listens = 0;
      socklen_t size = sizeof listens;
      if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || (listens != 0) != listening) continue;
      const auto own = port_of(fd, &::getsockname);
      if (own != 0 && !zmq_ports_.contains(own) && !zmq_ports_.contains(port_of(fd, &::getpeername)))
        found.push_back(fd);
    }
    return found;
  }

  std::optional<net::zmq_transport> zmq_;
  net::inproc_transport inproc_;
  std::string link_host_ = "127.0.0.1";
  std::array<std::unique_ptr<net::port>, 2> ports_;
  std::array<std::string, 2> addresses_;
  std::set<std::uint16_t> zmq_ports_;
  std::array<std::unique_ptr<peer_channels>, 2> mine_;
  std::atomic<std::uint32_t> done_{0};
};

TEST_P(TwoWorkers, ConnectDirectlyAfterAFewMessages) {
  both([this](peer_channels& all, std::uint32_t rank) {
    EXPECT_FALSE(all.is_linked(1 - rank));
    exchange_until_linked(all, rank);
    exchange(all, rank, 300, 300'000, true);
    exchange(all, rank, 300, 300'000, false);
    EXPECT_TRUE(all.is_linked(1 - rank));
  });
}

TEST_P(TwoWorkers, ConnectByIPv6) {
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const owned_fd tried(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(tried.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) != 0)
    GTEST_SKIP() << "no IPv6 here";
  link_host_ = "::1";
  both([this](peer_channels& all, std::uint32_t rank) {
    exchange_until_linked(all, rank);
    exchange(all, rank, 30, 100'000, true);
    EXPECT_TRUE(all.is_linked(1 - rank));
  });
}

TEST_P(TwoWorkers, AConnectionThatBreaksLosesAndRepeatsNothing) {
  for (const bool waits : {true, false}) {
    done_ = 0;
    std::atomic<bool> over{false};
    std::thread breaks([&] {
      while (done_ < 150 && !over) std::this_thread::yield();
      for (const int fd : sockets_of_links(false)) ::shutdown(fd, SHUT_RDWR);
    });
    if (!waits) open_ports();
    both([&](peer_channels& all, std::uint32_t rank) {
      exchange_until_linked(all, rank);
      exchange(all, rank, 400, 300'000, waits);
      exchange(all, rank, 100, 1000, true);
      EXPECT_FALSE(all.is_linked(1 - rank));
    });
    over = true;
    breaks.join();
  }
}

TEST_P(TwoWorkers, AStrangerWhoConnectsIsIgnored) {
  both([this](peer_channels& all, std::uint32_t rank) {
    const auto other = static_cast<int>(1 - rank);
    if (rank == 0) {
      for (std::uint32_t i = 0; i < 6; ++i) all.send({other, 1, 1}, shared_buffer::holding(filled(10, i)), false);
      while (done_ == 0) (void)all.take(all.post({other, 2, 1}), 1ms);
    } else {
      // Worker 0 has offered a connection, and this one does not know it yet.
      std::vector<int> listeners;
      for (const auto end = steady_clock::now() + at_most; listeners.empty() && steady_clock::now() < end;)
        listeners = sockets_of_links(true);
      ASSERT_EQ(listeners.size(), 1U);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(port_of(listeners.front(), &::getsockname));
      std::vector<owned_fd> strangers;
      for (std::uint32_t i = 0; i < 200; ++i) {
        owned_fd s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::connect(s.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
        byte_vector lie;
        put_fields(lie, std::uint32_t{i % 3});
        lie.resize(i % 2 == 0 ? 100 : 10);
        EXPECT_EQ(::send(s.get(), lie.data(), lie.size(), MSG_NOSIGNAL), static_cast<ssize_t>(lie.size()));
        strangers.push_back(std::move(s));
      }
      for (std::uint32_t i = 0; i < 6; ++i) {
        const auto m = all.take(all.post({other, 1, 1}), std::chrono::milliseconds(at_most));
        ASSERT_TRUE(m.has_value());
        EXPECT_EQ(m->bytes, filled(10, i));
      }
      done_ = 1;
    }
    exchange_until_linked(all, rank);
    exchange(all, rank, 100, 100'000, true);
  });
}

/// What a program computes meanwhile does not keep another one waiting.
TEST_P(TwoWorkers, AWorkerThatComputesHasSentItsMessage) {
  constexpr std::size_t much = std::size_t{30} << 20U;
  std::atomic<bool> computes{false};
  std::atomic<bool> has_it{false};
  both([&](peer_channels& all, std::uint32_t rank) {
    const auto other = static_cast<int>(1 - rank);
    exchange_until_linked(all, rank);
    if (rank == 0) {
      all.send({other, 8, 1}, shared_buffer::holding(filled(much, 8)), false);
      computes = true;
      for (const auto end = steady_clock::now() + at_most; !has_it && steady_clock::now() < end;)
        std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(has_it);
    } else {
      while (!computes) std::this_thread::yield();
      const auto m = all.take(all.post({other, 8, 1}), std::chrono::milliseconds(at_most));
      ASSERT_TRUE(m.has_value());
      has_it = true;
      EXPECT_EQ(m->bytes, filled(much, 8));
    }
    exchange(all, rank, 10, 1000, true);
  });
}

/// Its host is told that the bytes have arrived, so it may leave; this one reads them, and acknowledges some, later.
TEST_P(TwoWorkers, WhatAWorkerSentBeforeItLeftIsReceived) {
  constexpr std::uint32_t messages = 600;
  std::atomic<bool> has_left{false};
  both([&](peer_channels& all, std::uint32_t rank) {
    const auto other = static_cast<int>(1 - rank);
    exchange_until_linked(all, rank);
    if (rank == 1) {
      while (!has_left) std::this_thread::sleep_for(1ms);
      for (std::uint32_t i = 0; i < messages; ++i) {
        const auto m = all.take(all.post({other, 5, 1}), std::chrono::milliseconds(at_most));
        ASSERT_TRUE(m.has_value()) << i;
        ASSERT_EQ(m->bytes, filled(8, i));
      }
      return;
    }
    for (std::uint32_t i = 0; i < messages; ++i) all.send({other, 5, 1}, shared_buffer::holding(filled(8, i)), false);
    EXPECT_TRUE(all.flush(std::chrono::milliseconds(at_most)));
    EXPECT_TRUE(all.is_linked(1));
    auto leaves = std::move(mine_[rank]);
    leaves.reset();
    has_left = true;
  });
}

/// More than its host takes while it computes.
TEST_P(TwoWorkers, ALargeLastMessageToAWorkerThatComputesIsReceived) {
  constexpr std::size_t bytes = 20'000'000;
  std::atomic<bool> has_left{false};
  both([&](peer_channels& all, std::uint32_t rank) {
    const auto other = static_cast<int>(1 - rank);
    exchange_until_linked(all, rank);
    if (rank == 1) {
      while (!has_left) std::this_thread::sleep_for(1ms);
      const auto m = all.take(all.post({other, 5, 1}), std::chrono::milliseconds(at_most));
      ASSERT_TRUE(m.has_value());
      ASSERT_EQ(m->bytes, filled(bytes, 3));
      // What this one sent last was acknowledged behind that message, and so not in time.
      auto leaves = std::move(mine_[rank]);
      leaves.reset();
      return;
    }
    all.send({other, 5, 1}, shared_buffer::holding(filled(bytes, 3)), false);
    EXPECT_TRUE(all.is_linked(1));
    EXPECT_FALSE(all.flush(2s));
    EXPECT_FALSE(all.is_linked(1));
    auto leaves = std::move(mine_[rank]);
    leaves.reset();
    has_left = true;
  });
}

/// Its host has accepted the connection, and acknowledges what is sent over it.
TEST_P(TwoWorkers, AConnectionThatTheOtherWorkerHasNotTakenIsNotTrusted) {
  std::atomic<bool> has_flushed{false};
  std::atomic<bool> is_acknowledged{false};
  both([&](peer_channels& all, std::uint32_t rank) {
    const auto other = static_cast<int>(1 - rank);
    const auto receive = [&] {
      const auto m = all.take(all.post({other, 5, 1}), std::chrono::milliseconds(at_most));
      ASSERT_TRUE(m.has_value());
      ASSERT_EQ(m->bytes, filled(8, 0));
    };
    const auto send = [&] { all.send({other, 5, 1}, shared_buffer::holding(filled(8, 0)), false); };
    if (rank == 0) {
      for (int i = 0; i < 4; ++i) send();
      while (!has_flushed) std::this_thread::sleep_for(1ms);
      receive();
      while (!is_acknowledged) all.check_links();
      return;
    }
    for (int i = 0; i < 4; ++i) receive();
    for (const auto end = steady_clock::now() + 300ms; steady_clock::now() < end;) all.check_links();
    send();
    EXPECT_TRUE(all.is_linked(0));
    EXPECT_FALSE(all.flush(400ms));
    has_flushed = true;
    EXPECT_TRUE(all.flush(std::chrono::milliseconds(at_most)));
    is_acknowledged = true;
  });
}

/// Nothing but its own sending makes it read what comes back.
TEST_P(TwoWorkers, AWorkerThatOnlySendsReadsAcknowledgements) {
  both([&](peer_channels& all, std::uint32_t rank) {
    const auto other = static_cast<int>(1 - rank);
    const auto last = filled(8, 1);
    exchange_until_linked(all, rank);
    if (rank == 1) {
      for (byte_vector got; got != last;) {
        const auto m = all.take(all.post({other, 5, 1}), std::chrono::milliseconds(at_most));
        ASSERT_TRUE(m.has_value());
        got = m->bytes;
      }
      return;
    }
    const auto send = [&](unsigned seed) {
      all.send({other, 5, 1}, shared_buffer::holding(filled(8, seed)), false);
      return all.unacknowledged_bytes(1);
    };
    bool is_read = false;
    std::size_t before = 0;
    for (const auto end = steady_clock::now() + at_most; !is_read && steady_clock::now() < end;) {
      const auto now = send(0);
      is_read = now < before;
      before = now;
    }
    EXPECT_TRUE(is_read);
    EXPECT_TRUE(all.is_linked(1));
    (void)send(1);
  });
}

std::pair<owned_fd, owned_fd> connected_by_tcp() {
  const owned_fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  owned_fd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof here;
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  EXPECT_EQ(::bind(listener.get(), address, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), address, &size), 0);
  EXPECT_EQ(::connect(one.get(), address, size), 0);
  return {std::move(one), owned_fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

/// One in between acknowledges all bytes and keeps them.
TEST_P(TwoWorkers, WhatSomebodyElseTakesIsSentAgain) {
  std::atomic<int> ready{0};
  std::atomic<bool> taken{false};
  std::vector<owned_fd> open;
  both([&](peer_channels& all, std::uint32_t rank) {
    exchange_until_linked(all, rank);
    exchange(all, rank, 10, 1000, true);
    ASSERT_TRUE(all.is_linked(1 - rank));
    ++ready;
    if (rank == 1) {
      while (!taken) std::this_thread::sleep_for(1ms);
    } else {
      while (ready != 2) std::this_thread::sleep_for(1ms);
      const auto ends = sockets_of_links(false);
      EXPECT_EQ(ends.size(), 2U);
      for (const int fd : ends) {
        auto [in_its_place, other] = connected_by_tcp();
        open.emplace_back(::dup(fd));
        EXPECT_EQ(::dup3(in_its_place.get(), fd, O_CLOEXEC), fd);
        open.push_back(std::move(other));
      }
      taken = true;
    }
    exchange(all, rank, 10, 1000, true);
    EXPECT_FALSE(all.is_linked(1 - rank));
  });
}

INSTANTIATE_TEST_SUITE_P(Each, TwoWorkers,
                         testing::Values(way{false, false}, way{true, false}, way{false, true}, way{true, true}),
                         [](const auto& p) {
                           return std::string(p.param.is_encrypted ? "Encrypted" : "InClear") +
                                  (p.param.uses_zeromq ? "BesideZeroMQ" : "InAProcess");
                         });

}  // namespace
}  // namespace paracel
