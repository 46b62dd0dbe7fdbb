// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/usable_cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "test/support/temporary_folder.hpp"

using namespace paracel::srv;
using paracel::test::temporary_folder;

TEST(UsableCores, AreThoseOfTheAffinityMask) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_LE(usable_cores(), static_cast<unsigned>(CPU_COUNT(&all)));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // of this thread only
    EXPECT_EQ(usable_cores(), 1U);
  }).join();
}

TEST(UsableCores, AreNoMoreThanTheQuotaOfAnyControlGroupAbove) {
  const temporary_folder root;
  const auto inner = root / "jobs/mine";
  std::filesystem::create_directories(inner);
  const auto quota = [&](const std::filesystem::path& group, const char* text) {
    std::ofstream(group / "cpu.max") << text;
  };
  const auto cores = [&] { return cores_of_quota(root.path(), "jobs/mine"); };
  EXPECT_EQ(cores(), std::numeric_limits<unsigned>::max());
  quota(inner, "max 100000\n");
  EXPECT_EQ(cores(), std::numeric_limits<unsigned>::max());
  quota(inner, "450000 100000\n");
  EXPECT_EQ(cores(), 4U);
  quota(root / "jobs", "200000 100000\n");
  EXPECT_EQ(cores(), 2U);
  quota(root.path(), "50000 100000\n");
  EXPECT_EQ(cores(), 1U);
}
