// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/detail/free_tcp_ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <paracel/error.hpp>

namespace paracel {

std::vector<std::size_t> free_tcp_ports(std::size_t count) {
  std::vector<std::size_t> ports;
  std::vector<int> sockets;  // all open until the end, so that no port is returned twice
  while (ports.size() < count) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    ::sockaddr_in at{};
    at.sin_family = AF_INET;
    ::socklen_t size = sizeof at;
    auto* const address = reinterpret_cast<::sockaddr*>(&at);
    if (::bind(sockets.back(), address, size) != 0 || ::getsockname(sockets.back(), address, &size) != 0) break;
    ports.push_back(ntohs(at.sin_port));
  }
  for (const int s : sockets) ::close(s);
  if (ports.size() != count) throw error("get_ports: there is no free tcp port");
  return ports;
}

}  // namespace paracel
