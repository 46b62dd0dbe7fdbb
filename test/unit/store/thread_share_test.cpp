// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "server/store/key_store.hpp"

namespace paracel::srv {
namespace {

TEST(ThreadShare, AgreesWithADivisionForEveryPartitionAndNumberOfThreads) {
  for (std::uint32_t threads = 1; threads <= partition_count; threads += threads < 1100 ? 1 : 997) {
    const thread_share share(threads);
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      const auto partition = static_cast<std::uint16_t>(p);
      ASSERT_EQ(share.index_of(partition), p / threads) << p << ' ' << threads;
      ASSERT_EQ(share.thread_of(partition), p % threads) << p << ' ' << threads;
    }
  }
}

}  // namespace
}  // namespace paracel::srv
