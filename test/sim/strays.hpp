// SPDX-License-Identifier: BSD-3-Clause
//
// Frames of another job, as they arrive when an address now belongs to another process: accepted, each would do harm.
#pragma once

#include <cstdint>
#include <memory>

#include "core/membership.hpp"
#include "net/transport.hpp"
#include "test/sim/simulation.hpp"

namespace paracel::sim {

class strays {
 public:
  explicit strays(process& of);
  /// Sends some of them to one thread of this server, as if from `from`, which is a server of its membership.
  void send(const server_entry& to, const server_entry& from, std::uint32_t epoch);

 private:
  process& of_;
  actor& thread_;
  std::unique_ptr<net::port> port_;
  std::uint64_t sequence_ = 0;
};

}  // namespace paracel::sim
