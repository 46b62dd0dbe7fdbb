// SPDX-License-Identifier: BSD-3-Clause
//
// The guard at the door of a process that others connect to: every connection that is accepted is followed by an
// inbound_watch, and one that breaks its limits is dropped before ZeroMQ has kept what it sent. One for which no
// descriptor is left is closed at once: ZeroMQ would end the process (ipc) or try for ever (tcp).
//
// ZeroMQ offers no place where the bytes of a connection can be seen before they are kept. So these programs define
// accept(), accept4(), connect() and recv() themselves, in front of the C library's: it is these that libzmq calls.
// Nothing else in the process is touched, and what was not accepted here passes through.
#pragma once

#include <functional>
#include <string_view>

#include "net/inbound_watch.hpp"

namespace paracel::srv {

/// From now on connections that are accepted in this process are watched. `dropped` is called for each that is dropped,
/// with the reason, by ZeroMQ's thread. Call it once, before the first port is bound.
void guard_connections(const net::inbound_limits& limits, std::function<void(std::string_view why)> dropped);

}  // namespace paracel::srv
