// SPDX-License-Identifier: BSD-3-Clause
//
// Shared by the tests of transports: an address for each kind of transport, a thread that answers, messages of known
// bytes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "net/inproc_transport.hpp"
#include "net/protocol.hpp"
#include "net/unix_transport.hpp"
#include "net/zmq_transport.hpp"

namespace paracel::test {

constexpr std::chrono::milliseconds at_most(10000);  // only failures take this long

inline std::string frame_text(const net::incoming& in) { return std::string(net::text_of(in.frame)); }
inline net::outgoing saying(std::string_view s) { return {.head = net::bytes_of(s)}; }

inline shared_buffer filled_buffer(std::size_t size, unsigned seed) {
  shared_buffer b = shared_buffer::allocate(size);
  for (std::size_t i = 0; i < size; ++i) b.mutable_data()[i] = static_cast<std::byte>((i * 31 + seed) & 0xff);
  return b;
}
inline bool is_filled_buffer(const shared_buffer& b, std::size_t size, unsigned seed) {
  if (b.size() != size) return false;
  for (std::size_t i = 0; i < size; ++i) {
    if (b.data()[i] != static_cast<std::byte>((i * 31 + seed) & 0xff)) return false;
  }
  return true;
}

/// Where addresses come from: a folder for ipc, a free port for tcp, names inside the process.
struct inproc_setting {
  explicit inproc_setting(net::transport_limits limits = {}) : net(limits) {}
  std::string wildcard() { return "inproc://*"; }
  std::string named(const std::string& name) { return "inproc://" + name; }
  std::string taken(const std::string& real) { return real; }
  net::inproc_transport net;
};

struct folder_setting {
  folder_setting() {
    std::string pattern = "/tmp/prc-test-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~folder_setting() { std::filesystem::remove_all(folder); }
  folder_setting(const folder_setting&) = delete;
  folder_setting& operator=(const folder_setting&) = delete;
  std::string wildcard() { return named("w" + std::to_string(++count)); }
  std::string named(const std::string& name) { return "ipc://" + folder + "/" + name; }
  std::string taken(const std::string&) { return "ipc://" + folder + "/no/such/folder"; }
  std::string folder;
  int count = 0;
};

struct ipc_setting : folder_setting {
  explicit ipc_setting(net::transport_limits limits = {}, const std::optional<net::curve_secret>& secret = {})
      : net(limits, {}, secret) {}
  net::zmq_transport net;
};

struct unix_setting : folder_setting {
  explicit unix_setting(net::transport_limits limits = {}) : net(limits) {}
  net::unix_transport net;
};

struct tcp_setting : ipc_setting {
  using ipc_setting::ipc_setting;
  std::string wildcard() { return "tcp://127.0.0.1:*"; }
  std::string taken(const std::string& real) { return real; }
};

struct encrypted_setting : tcp_setting {
  explicit encrypted_setting(net::transport_limits limits = {}) : tcp_setting(limits, net::curve_secret{4, 2}) {}
};

/// For the names of typed tests.
struct setting_names {
  template <typename Setting>
  static std::string GetName(int) {
    if (std::is_same_v<Setting, inproc_setting>) return "inproc";
    if (std::is_same_v<Setting, ipc_setting>) return "zmq_ipc";
    if (std::is_same_v<Setting, unix_setting>) return "unix";
    return std::is_same_v<Setting, tcp_setting> ? "zmq_tcp" : "zmq_encrypted";
  }
};

inline std::unique_ptr<net::port> bound(net::transport& net, const std::string& address) {
  auto p = net.open();
  p->bind(address);
  return p;
}

/// A thread that answers every request with `f(request)` until it is destroyed.
class answering {
 public:
  answering(std::unique_ptr<net::port> p, std::function<void(net::port&, net::incoming&)> f)
      : thread_([this, p = std::move(p), f = std::move(f)]() mutable {
          net::incoming in;
          while (!stop_) {
            if (p->receive(in, std::chrono::milliseconds(20))) f(*p, in);
          }
        }) {}
  ~answering() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

inline void echo(net::port& p, net::incoming& in) { p.reply(in.from, {.head = in.frame, .tail = in.tail}); }

}  // namespace paracel::test
