// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include <gtest/gtest.h>

#include "test/support/cluster.hpp"

namespace paracel::test {

/// Repeatedly kills a server of a running job, starts a replacement, and waits until that serves.
class server_killer {
 public:
  server_killer(cluster& c, std::size_t servers, std::chrono::milliseconds pause = std::chrono::milliseconds(60))
      : cluster_(c), thread_([this, servers, pause] { run(servers, pause); }) {}
  ~server_killer() { stop(); }
  server_killer(const server_killer&) = delete;
  server_killer& operator=(const server_killer&) = delete;

  /// Returns: how many servers were killed. Blocks: until the last one is replaced.
  int stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return lost_;
  }

 private:
  void run(std::size_t servers, std::chrono::milliseconds pause) {
    for (std::size_t slot = 0; !stop_; slot = (slot + 1) % servers) {
      std::this_thread::sleep_for(pause);
      if (stop_) return;
      const auto epoch = cluster_.lose(slot);
      ASSERT_NE(epoch, 0U) << "the job has ended";
      cluster_.replace(slot);
      // one epoch for the loss, one for the replacement, one when all its replicas are complete
      ASSERT_TRUE(cluster_.reaches(epoch + 2)) << "s" << slot << " does not get to serve";
      ++lost_;
    }
  }

  cluster& cluster_;
  std::atomic<bool> stop_{false};
  int lost_ = 0;
  std::thread thread_;
};

}  // namespace paracel::test
