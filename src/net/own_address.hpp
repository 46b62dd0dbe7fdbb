// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <string>

namespace paracel::net {

/// The numeric address of this host as that one sees it: the one that a socket towards it is bound to. Nothing is sent.
/// Empty: there is no route.
[[nodiscard]] std::string own_address_towards(const sockaddr* other, socklen_t bytes);

}  // namespace paracel::net
