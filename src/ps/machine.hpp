// SPDX-License-Identifier: BSD-3-Clause
//
// Facts about this machine, and about other processes on it.
#pragma once

#include <cstdint>
#include <string>

namespace paracel::ps_compat {

/// The same for processes that reach each other by abstract local sockets and see each other's process ids.
[[nodiscard]] const std::string& machine_name();
[[nodiscard]] std::int64_t own_pid();
/// When a process of this machine was started, in clock ticks since boot, which tells it from a later one with its pid.
/// 0: there is no such process.
[[nodiscard]] std::uint64_t start_of_process(std::int64_t pid);
/// The memory of this machine, in bytes.
[[nodiscard]] std::size_t machine_memory();

/// `tcp://address:port` from a host name or an address. Throws: network_error when it has no address.
[[nodiscard]] std::string tcp_address(const std::string& host, int port);
/// DMLC_NODE_HOST, or the address of this machine from which it reaches a host. Throws: network_error when there is
/// none.
[[nodiscard]] std::string own_address_towards(const std::string& host, int port);

/// Detects the end of a process of this machine, even if it ended before, or its pid is in use again.
class process_watch {
 public:
  /// `pid`: 0 for one that cannot be seen from here. `started`: its start_of_process.
  process_watch(std::int64_t pid, std::uint64_t started);
  process_watch(process_watch&& other) noexcept;
  process_watch(const process_watch&) = delete;
  process_watch& operator=(const process_watch&) = delete;
  ~process_watch();
  [[nodiscard]] bool has_ended() const;

 private:
  int descriptor_ = -1;
  bool ended_ = false;  // before it could be watched
};

}  // namespace paracel::ps_compat
