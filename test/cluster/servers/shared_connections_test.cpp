// SPDX-License-Identifier: BSD-3-Clause
//
// Whole jobs over ZeroMQ whose shard threads share one connection to each client.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <paracel/paralg.hpp>

#include "net/lane_address.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/cluster.hpp"

namespace paracel {
namespace {

using test::cluster;

/// A folder for sockets.
class socket_folder {
 public:
  socket_folder() { path_ = ::mkdtemp(path_.data()); }
  ~socket_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string bind() const { return "ipc://" + path_ + "/"; }

 private:
  std::string path_ = "/tmp/prc-test-XXXXXX";
};

/// Every worker counts all keys up by one, so many times, with all forms of update.
void count(paralg& a, const std::vector<std::string>& keys, int times) {
  const std::vector<double> ones(keys.size(), 1.0);
  const auto set = a.paracel_prepare(keys);
  for (int i = 0; i < times; ++i) {
    if (i % 3 == 0) {
      for (const auto& k : keys) a.paracel_update(k, 1.0);
    } else if (i % 3 == 1) {
      a.paracel_update_multi(keys, ones);
    } else {
      a.paracel_update(set, ones);
    }
    a.paracel_wait();
  }
}

std::vector<std::string> key_names(std::size_t n) {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < n; ++i) keys.push_back("key" + std::to_string(i));
  return keys;
}

class SharedZmqConnections : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Threads, SharedZmqConnections, testing::Values(2, 5));

TEST_P(SharedZmqConnections, CountsAreExact) {
  const socket_folder folder;
  cluster c({.workers = 3,
             .servers = 2,
             .threads = GetParam(),
             .over = std::make_shared<net::zmq_transport>(),
             .bind = folder.bind()});
  for (const auto& s : c.members().servers) {
    for (const auto& address : s.shards) EXPECT_TRUE(net::lane_address::parse(address).is_shared) << address;
  }
  const auto keys = key_names(200);
  c.run([&](const Comm& comm) {
    paralg a("", comm);
    count(a, keys, 30);
    a.paracel_sync();
    for (const double v : a.paracel_read_multi<double>(keys)) EXPECT_EQ(v, 90);
  });
}

TEST_P(SharedZmqConnections, CountsAreExactWhenAServerIsLostAndReplaced) {
  const socket_folder folder;
  cluster c({.workers = 2,
             .servers = 3,
             .threads = GetParam(),
             .replicas = 2,
             .over = std::make_shared<net::zmq_transport>(),
             .bind = folder.bind()});
  const auto keys = key_names(60);
  c.run([&](const Comm& comm) {
    paralg a("", comm);
    count(a, keys, 30);
    if (comm.get_rank() == 0) {
      EXPECT_NE(c.lose(1), 0U);
      c.replace(1);
    }
    count(a, keys, 30);
    if (comm.get_rank() == 0) {
      EXPECT_TRUE(c.waits_for(1, server_state::up));
    }
    count(a, keys, 30);
    a.paracel_sync();
    for (const double v : a.paracel_read_multi<double>(keys)) EXPECT_EQ(v, 180);
  });
}

}  // namespace
}  // namespace paracel
