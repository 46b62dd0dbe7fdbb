// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

namespace paracel::net {

/// The numeric address of this host as that one sees it: the one that a socket towards it is bound to. Nothing is sent.
/// Empty: there is no route.
[[nodiscard]] std::string own_address_towards(const sockaddr* other, socklen_t bytes);

/// The same towards the host of `tcp://host:port`, as it is written in such an address; 127.0.0.1 for any other
/// address. Throws: network_error when the host is unknown, or there is no route.
[[nodiscard]] std::string own_host_towards(const std::string& address);

/// The host of `tcp://host:port`, without the brackets of IPv6.
[[nodiscard]] std::string host_in(std::string_view address);

}  // namespace paracel::net
