// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/usage.hpp"

#include <gtest/gtest.h>

#include <ctime>

#include <chrono>
#include <memory>
#include <thread>

#include <nlohmann/json.hpp>

namespace {

using paracel::usage;

double busy_for(double seconds) {
  const auto cpu = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = cpu();
  volatile double x = 1;
  while (cpu() - begin < seconds) x = x * 1.0000001;
  return x;
}

TEST(Usage, TimesAreThoseOfTheThreadThatMadeIt) {
  usage used;
  busy_for(0.1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::thread other([] { busy_for(0.1); });
  other.join();
  nlohmann::json told;
  std::thread asks([&] { told = used.report(); });  // as the heartbeat's thread does
  asks.join();
  EXPECT_GE(told["seconds"], 0.3);
  if (!told.contains("cpu")) GTEST_SKIP() << "this system keeps no account of threads";
  EXPECT_GE(told["cpu"], 0.09);
  EXPECT_LE(told["cpu"].get<double>() + told["delayed"].get<double>(), told["seconds"].get<double>() + 0.02);
  EXPECT_GE(told["background"], 0.09);
  EXPECT_GE(told["system"], 0.0);
  EXPECT_LE(told["system"], told["cpu"]);
  EXPECT_GT(told["peak_bytes"], 1 << 20);
}

TEST(Usage, MessagesAreAddedUp) {
  usage used;
  used.add({2, 300, 50});
  used.add({1, 7, 1});
  used.set_ahead(4);
  const auto told = used.report();
  EXPECT_EQ(told["requests"], 3);
  EXPECT_EQ(told["sent_bytes"], 307);
  EXPECT_EQ(told["received_bytes"], 51);
  EXPECT_EQ(told["ahead"], 4);
}

TEST(Usage, AThreadThatHasEndedIsLeftOut) {
  std::unique_ptr<usage> used;
  std::thread owner([&] { used = std::make_unique<usage>(); });
  owner.join();
  const auto told = used->report();
  EXPECT_FALSE(told.contains("cpu"));
  EXPECT_GE(told["seconds"], 0.0);
}

}  // namespace
