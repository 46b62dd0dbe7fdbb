// SPDX-License-Identifier: BSD-3-Clause
//
// A job over Unix sockets whose frames are large enough for rings (net/unix_ring.hpp): everything is exact, also when
// messages are lost, doubled and delayed with their connections, and when servers have replicas.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "net/lossy_transport.hpp"
#include "net/unix_transport.hpp"
#include "test/support/cluster.hpp"
#include "test/support/transports.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;

bool has_rings() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:paracel_ring") != std::string::npos) return true;
  return false;
}

/// Two vectors of 1 MB, one of them of all workers, and rows of 512 kB.
void count(Comm& comm, std::size_t rounds) {
  constexpr std::size_t length = 131'072;
  constexpr std::size_t width = 16;
  paralg a("", comm);
  const std::vector<double> ones(length, 1);
  const auto own = "own" + std::to_string(comm.get_rank());
  std::vector<std::uint64_t> ids(4096);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i * 1'000'003;
  table<double> rows(a, "rows", width);
  const auto are = [](const std::vector<double>& v, std::size_t bytes, double x) {
    return v.size() == bytes && std::ranges::count(v, x) == static_cast<std::ptrdiff_t>(bytes);
  };
  for (std::size_t round = 1; round <= rounds; ++round) {
    a.paracel_update(own, ones);
    a.paracel_update("all", ones);
    rows.update(ids, std::vector<double>(ids.size() * width, 1));
    EXPECT_TRUE(are(a.paracel_read<std::vector<double>>(own), length, static_cast<double>(round))) << round;
  }
  a.paracel_sync();
  const auto all = static_cast<double>(rounds * comm.get_size());
  EXPECT_TRUE(are(a.paracel_read<std::vector<double>>("all"), length, all));
  std::vector<double> numbers(ids.size() * width);
  rows.pull(ids, numbers);
  EXPECT_TRUE(are(numbers, numbers.size(), all));
  EXPECT_TRUE(has_rings());
  a.paracel_sync();
}

TEST(Rings, LargeValuesAreExact) {
  for (const std::uint32_t replicas : {1U, 2U}) {
    for (const double percent : {0.0, 4.0}) {
      const test::folder_setting folder;
      std::shared_ptr<net::transport> over = std::make_shared<net::unix_transport>();
      if (percent != 0)
        over = std::make_shared<net::lossy_transport>(
            over, net::lossy_options{.percent = percent, .seed = replicas, .process = "all"});
      test::cluster c({.workers = 3,
                       .servers = 2,
                       .threads = 2,
                       .replicas = replicas,
                       .over = over,
                       .bind = "ipc://" + folder.folder + "/",
                       .shares_connections = false,
                       .resend_after = 50ms});
      c.run([&](Comm comm) { count(comm, 6); });
    }
  }
  EXPECT_FALSE(has_rings());
}

}  // namespace
}  // namespace paracel
