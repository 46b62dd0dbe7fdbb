// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/attention.hpp"
#include "net/clock_source.hpp"
#include "server/request/channels.hpp"
#include "server/scheduler/reply_cache.hpp"
#include "server/scheduler/scheduler.hpp"
#include "test/sim/simulation.hpp"

namespace paracel::sim {

/// The equivalent of scheduler_node: the scheduler's loop and its connections to the servers.
class scheduler_process {
 public:
  /// `events`: called with each event as JSON. `hasty`: a mutation; it does not notice that it was suspended.
  /// Lifetime: the simulation and the process must outlive it.
  scheduler_process(simulation& in, process& p, srv::scheduler_options options,
                    std::function<void(std::string_view)> events, bool hasty);

 private:
  nanos step();
  void receive();
  void send(const std::string& to, net::request_header h, std::string_view body);

  process& process_;
  actor& main_;
  std::unique_ptr<net::port> port_;
  srv::reply_cache replies_;
  srv::channels servers_;
  net::attention<net::clock_source::time_point> own_;
  const bool hasty_;
  std::uint32_t known_epoch_ = 1;
  srv::scheduler scheduler_;
};

}  // namespace paracel::sim
