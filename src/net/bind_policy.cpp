// SPDX-License-Identifier: BSD-3-Clause
#include "net/bind_policy.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <optional>

#include <paracel/error.hpp>

#include "net/job_key.hpp"
#include "net/own_address.hpp"

namespace paracel::net {

namespace {

bool is_loopback_v4(const unsigned char* bytes) noexcept { return bytes[0] == 127; }

bool is_loopback_address(const sockaddr* address) noexcept {
  if (address->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, address, sizeof four);
    return is_loopback_v4(reinterpret_cast<const unsigned char*>(&four.sin_addr));
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 six{};
  std::memcpy(&six, address, sizeof six);
  return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) ||
         (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) && is_loopback_v4(six.sin6_addr.s6_addr + 12));
}

/// Of the interface of that name, which ZeroMQ prefers to a host of that name; none: there is no such interface.
std::optional<bool> is_loopback_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(all, &freeifaddrs);
  std::optional<bool> found;
  for (const auto* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_name != name || one->ifa_addr == nullptr) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    found = found.value_or(true) && is_loopback_address(one->ifa_addr);
  }
  return found;
}

}  // namespace

bool is_loopback(const std::string& address) {
  if (!address.starts_with("tcp://")) return true;
  const auto host = host_in(address);
  if (const auto known = is_loopback_interface(host)) return *known;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, &freeaddrinfo);
  for (const auto* one = found; one != nullptr; one = one->ai_next)
    if (!is_loopback_address(one->ai_addr)) return false;
  return true;
}

void check_bind(const std::string& address, bool insecure) {
  if (!insecure && !job_curve_secret() && !is_loopback(address))
    throw usage_error(address +
                      " can be reached from other hosts, by anybody and unencrypted: start the job with prun.py, which "
                      "encrypts, or add --insecure if the network is trusted");
}

}  // namespace paracel::net
