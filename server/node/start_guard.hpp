// SPDX-License-Identifier: BSD-3-Clause
//
// Protects a process that accepts connections: every accepted connection is monitored by an
// inbound_watch, and one that exceeds its limits is dropped before ZeroMQ has buffered what it sent. One for which no
// descriptor is left is closed at once: ZeroMQ would abort the process (ipc) or retry forever (tcp).
//
// ZeroMQ offers no hook to see the bytes of a connection before they are buffered. So these programs define
// accept(), accept4(), connect() and recv() themselves, in front of the C library's: libzmq then calls these.
// Nothing else in the process is affected, and calls on other descriptors pass through.
#pragma once

#include <functional>
#include <string_view>

#include "net/inbound_watch.hpp"

namespace paracel::srv {

/// From now on connections accepted in this process are monitored. `dropped` is called for each that is dropped,
/// with the reason, on ZeroMQ's thread. Call it once, before the first port is bound.
void guard_connections(const net::inbound_limits& limits, std::function<void(std::string_view why)> dropped);

}  // namespace paracel::srv
