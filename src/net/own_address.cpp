// SPDX-License-Identifier: BSD-3-Clause
#include "net/own_address.hpp"

#include <netdb.h>
#include <unistd.h>

#include <array>
#include <memory>

#include <paracel/error.hpp>

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

std::string host_in(std::string_view address) {
  address.remove_prefix(std::string_view("tcp://").size());
  auto host = address.substr(0, address.rfind(':'));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return std::string(host);
}

std::string own_host_towards(const std::string& address) {
  if (!address.starts_with("tcp://")) return "127.0.0.1";
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_in(address).c_str(), "9", &hints, &found) != 0 || found == nullptr)
    throw network_error("the host in " + address + " is unknown", false);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, &freeaddrinfo);
  const auto own = own_address_towards(found->ai_addr, found->ai_addrlen);
  if (own.empty()) throw network_error("no route from this host to " + address, false);
  return own.find(':') != std::string::npos ? "[" + own + "]" : own;
}

}  // namespace paracel::net
