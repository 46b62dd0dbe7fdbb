// SPDX-License-Identifier: BSD-3-Clause
#include "ps/machine.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include <paracel/error.hpp>

#include "net/own_address.hpp"
#include "ps/internal/env.h"

namespace paracel::ps_compat {

namespace {

using address_list = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

address_list look_up(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0 || found == nullptr)
    throw network_error("'" + host + "' has no address: " + (failed != 0 ? ::gai_strerror(failed) : "none found"),
                        false);
  return {found, ::freeaddrinfo};
}

std::string address_text(const sockaddr* address) {
  char text[INET_ADDRSTRLEN] = {};
  sockaddr_in a{};
  std::memcpy(&a, address, sizeof a);
  ::inet_ntop(AF_INET, &a.sin_addr, text, sizeof text);
  return text;
}

}  // namespace

const std::string& machine_name() {
  static const std::string name = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
      struct stat s {};
      if (::stat(space, &s) == 0) id += "-" + std::to_string(s.st_ino);
    }
    return id;
  }();
  return name;
}

std::int64_t own_pid() { return ::getpid(); }

std::uint64_t start_of_process(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // Fields after the name, which is in parentheses and may contain any character: state is 3, the start 22.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i < 22; ++i) fields >> field;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

std::size_t machine_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::string tcp_address(const std::string& host, int port) {
  return "tcp://" + address_text(look_up(host, port)->ai_addr) + ":" + std::to_string(port);
}

std::string own_address_towards(const std::string& host, int port) {
  if (const char* given = ::ps::Environment::Get()->find("DMLC_NODE_HOST"); given != nullptr && *given != '\0')
    return address_text(look_up(given, port)->ai_addr);
  const auto to = look_up(host, port);
  auto own = net::own_address_towards(to->ai_addr, to->ai_addrlen);
  if (own.empty())
    throw network_error(
        "this machine has no route to '" + host + "'; set DMLC_NODE_HOST to the address of this machine", false);
  return own;
}

process_watch::process_watch(std::int64_t pid, std::uint64_t started) {
  if (pid <= 0) return;
  descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  // The start is read after the process was opened: if the pid is reused in between, the start is another one.
  const bool found = descriptor_ >= 0 || errno != ESRCH;
  const auto start = found ? start_of_process(pid) : 0;  // 0, too, if this user may not see it
  ended_ = !found || (start != 0 && start != started);
}
process_watch::process_watch(process_watch&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), ended_(other.ended_) {}
process_watch::~process_watch() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
bool process_watch::has_ended() const {
  if (ended_ || descriptor_ < 0) return ended_;
  pollfd p{descriptor_, POLLIN, 0};
  return ::poll(&p, 1, 0) > 0;
}

}  // namespace paracel::ps_compat
