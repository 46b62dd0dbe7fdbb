// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::net {

/// What the scheduler asked for in answer to a heartbeat, or what its silence means.
struct order {
  instruction what = instruction::go_on;
  int status = 0;      ///< exit status that fits the cause
  std::string cause;
};

/// The order in a reply of the scheduler; a failure is an abort, with the cause in the body as JSON or as text.
order order_of(const reply_view& reply);

struct heartbeat_options {
  std::string scheduler;  ///< address
  std::uint64_t job = 0;
  std::chrono::milliseconds interval{500};
  std::chrono::milliseconds limit{3000};  ///< a scheduler silent for longer is lost
};

/// A thread with a port of its own that tells the scheduler that this process lives, and hears of the job's end.
/// Thread-safety: `describe` and `obey` run on the heartbeat's thread. `obey` is called at most once.
class heartbeat {
 public:
  /// `describe` gives the JSON body of each beat.
  heartbeat(transport& over, heartbeat_options options, std::function<std::string()> describe,
            std::function<void(const order&)> obey);
  /// Stops and joins. Blocks: at most 50 ms, and what `obey` takes.
  ~heartbeat();
  heartbeat(const heartbeat&) = delete;
  heartbeat& operator=(const heartbeat&) = delete;

 private:
  void run(port& to_scheduler);

  heartbeat_options options_;
  std::function<std::string()> describe_;
  std::function<void(const order&)> obey_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // for wake_
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace paracel::net
