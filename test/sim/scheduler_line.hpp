// SPDX-License-Identifier: BSD-3-Clause
//
// Communication of a simulated job's processes with the scheduler: one request at a time, and the heartbeat.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "net/heartbeat.hpp"
#include "net/protocol.hpp"
#include "net/scheduler_channel.hpp"
#include "test/sim/simulation.hpp"

namespace paracel::sim {

inline constexpr std::uint64_t job_id = 0x51e0;
inline constexpr const char* scheduler_address = "inproc://scheduler";

/// Requests to the scheduler, one after the other. Thread-safety: owned by the actor that opened it.
class question {
 public:
  explicit question(process& of);
  void ask(net::verb what, const std::string& body);
  /// The next reply, if any has arrived; empty if it was an error.
  std::optional<std::string> answer();

 private:
  process& of_;
  net::scheduler_channel line_;
  nanos looked_ = 0;
};

/// The heartbeat thread of a process.
class pulse {
 public:
  pulse(simulation& in, process& p, net::heartbeat_options options, std::function<std::string()> describe,
        std::function<void(const net::directive&)> obey);
  /// The membership that the process has; from then on newer ones are requested.
  void follow(std::uint32_t epoch);

 private:
  nanos step();

  simulation& in_;
  process& process_;
  actor& thread_;
  std::atomic<std::uint32_t> followed_{0};
  std::unique_ptr<net::port> port_;
  std::unique_ptr<net::heartbeat_driver> beating_;
  bool over_ = false;
};

}  // namespace paracel::sim
