// SPDX-License-Identifier: BSD-3-Clause
#include "net/own_address.hpp"

#include <netdb.h>
#include <unistd.h>

#include <array>

namespace paracel::net {

std::string own_address_towards(const sockaddr* other, socklen_t bytes) {
  const int s = ::socket(other->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  std::array<char, 256> text{};
  const bool known = s >= 0 && ::connect(s, other, bytes) == 0 && ::getsockname(s, address, &size) == 0 &&
                     ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  if (s >= 0) ::close(s);
  return known ? text.data() : "";
}

}  // namespace paracel::net
