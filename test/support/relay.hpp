// SPDX-License-Identifier: BSD-3-Clause
//
// Somebody on the way between two processes of one host, who reads, cuts off and changes what they send by tcp.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace paracel::test {

/// A connection to an address of this host.
inline int dial(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

/// A socket that listens, and its address.
inline std::pair<int, std::string> listening() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&any), size), 0);
  EXPECT_EQ(listen(fd, 8), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size);
  return {fd, "tcp://127.0.0.1:" + std::to_string(ntohs(any.sin_port))};
}

/// What a relay does to the first connection.
struct fault {
  std::optional<std::size_t> from_client{};  ///< the number of a byte in which a bit is flipped
  std::optional<std::size_t> from_server{};
  std::string leads_to{};  ///< another address
};

/// Forwards connections to an address: all that comes back, and of what the client sends as many bytes as it is told.
class relay {
 public:
  explicit relay(std::string to, std::size_t most = ~std::size_t{0}, fault first = {})
      : to_(std::move(to)), most_(most), first_(std::move(first)) {
    std::tie(listener_, address_) = listening();
    thread_ = std::thread([this] { run(); });
  }
  ~relay() {
    stop_ = true;
    thread_.join();
    close(listener_);
    for (auto& c : pairs_) end(c);
  }
  relay(const relay&) = delete;
  relay& operator=(const relay&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  /// What the client of the first connection has sent.
  std::string sent() const {
    const std::lock_guard lock(access_);
    return sent_;
  }
  /// How many bytes it has been sent.
  [[nodiscard]] std::size_t returned() const { return returned_; }

 private:
  struct pair {
    int client = -1;
    int server = -1;
    std::size_t forwarded = 0;
    std::size_t returned = 0;
    bool is_first = false;
  };
  static void end(pair& c) {
    if (c.client < 0) return;
    close(c.client);
    close(c.server);
    c.client = -1;
  }
  void run() {
    while (!stop_) {
      std::vector<pollfd> all{{listener_, POLLIN, 0}};
      for (const auto& c : pairs_) {
        all.push_back({c.client, POLLIN, 0});
        all.push_back({c.client < 0 ? -1 : c.server, POLLIN, 0});
      }
      poll(all.data(), all.size(), 10);
      const std::size_t before = pairs_.size();
      if (all[0].revents != 0) {
        const bool strays = before == 0 && !first_.leads_to.empty();
        pairs_.push_back(
            {.client = accept(listener_, nullptr, nullptr), .server = dial(strays ? first_.leads_to : to_)});
        pairs_.back().is_first = before == 0;
      }
      for (std::size_t i = 0; i < before; ++i) {
        if (all[2 * i + 1].revents != 0) from_client(pairs_[i]);
        if (pairs_[i].client >= 0 && all[2 * i + 2].revents != 0) from_server(pairs_[i]);
      }
    }
  }
  void from_client(pair& c) {
    char bytes[4096];
    const auto n = recv(c.client, bytes, sizeof bytes, 0);
    if (n <= 0) return end(c);
    const auto passed = std::min(static_cast<std::size_t>(n), most_ - c.forwarded);
    if (c.is_first) flip(first_.from_client, bytes, passed, c.forwarded);
    c.forwarded += passed;
    if (passed != 0) send(c.server, bytes, passed, MSG_NOSIGNAL);
    const std::lock_guard lock(access_);
    if (c.is_first) sent_.append(bytes, static_cast<std::size_t>(n));
  }
  void from_server(pair& c) {
    char bytes[4096];
    const auto n = recv(c.server, bytes, sizeof bytes, 0);
    if (n <= 0) return end(c);
    const auto got = static_cast<std::size_t>(n);
    if (c.is_first) {
      flip(first_.from_server, bytes, got, c.returned);
      returned_ += got;
    }
    c.returned += got;
    send(c.client, bytes, got, MSG_NOSIGNAL);
  }
  static void flip(const std::optional<std::size_t>& number, char* bytes, std::size_t n, std::size_t before) {
    if (number && *number >= before && *number < before + n) bytes[*number - before] ^= 1;
  }

  const std::string to_;
  const std::size_t most_;
  const fault first_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::vector<pair> pairs_;
  mutable std::mutex access_;
  std::string sent_;
  std::atomic<std::size_t> returned_{0};
  std::thread thread_;
};

}  // namespace paracel::test
