// SPDX-License-Identifier: BSD-3-Clause
//
// Clients that increment a few counters, and a check that their replies are linearizable.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>

#include "client/server_group.hpp"
#include "net/protocol.hpp"
#include "test/support/linearizability.hpp"

namespace paracel::test {

/// Thread-safety: `step` may be called for different clients concurrently.
class number_history {
 public:
  number_history(std::vector<std::string> keys, std::size_t clients)
      : keys_(std::move(keys)), seen_(keys_.size(), of_one_key(clients)) {}

  /// One operation of client `me`, through `mine`, and its reply: two of three increment and return the sum, the third
  /// reads.
  void step(server_group& mine, std::size_t me, std::size_t i) {
    const auto time = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    const bool adds = i % 3 != 0;
    timed<operation> t{{adds, 0}, time(), 0};
    mine.wait(mine.request({.what = adds ? net::verb::bupdate : net::verb::pull}, keys_[i % keys_.size()],
                           adds ? one_.view() : value_view{}, [&](const kv_result& r) {
                             t.operation.value =
                                 r.ok() ? decode<std::int64_t>(r.value()) : 0;  // a missing key counts as 0
                           }));
    t.answered = time();
    seen_[i % keys_.size()][me].push_back(t);
  }

  void expect_linearizable() const {
    const auto fits = [](std::int64_t& state, const operation& o) {
      if (o.adds) ++state;
      return state == o.value;
    };
    for (std::size_t k = 0; k < keys_.size(); ++k)
      EXPECT_TRUE(is_linearizable(seen_[k], std::int64_t{0}, fits)) << keys_[k];
  }

 private:
  struct operation {
    bool adds;
    std::int64_t value;
  };
  using of_one_key = std::vector<std::vector<timed<operation>>>;  // by client

  const std::vector<std::string> keys_;
  const encoded<std::int64_t> one_{1};
  std::vector<of_one_key> seen_;
};

}  // namespace paracel::test
