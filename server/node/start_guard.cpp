// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/start_guard.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace paracel::srv {

namespace {

template <class Function>
Function* next(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

class door {
 public:
  door(const net::inbound_limits& limits, std::function<void(std::string_view)> dropped)
      : limits_(limits), dropped_(std::move(dropped)), reserve_(spare()) {}

  /// False: there is no memory to monitor it.
  bool accepted(int fd) noexcept try {
    const std::lock_guard lock(mutex_);
    watched_.insert_or_assign(fd, net::inbound_watch(limits_));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  /// The descriptor may be reused for something else.
  void forget(int fd) noexcept {
    const std::lock_guard lock(mutex_);
    watched_.erase(fd);
  }
  /// False: the connection is to be dropped.
  bool takes(int fd, const void* bytes, std::size_t count) noexcept {
    {
      const std::lock_guard lock(mutex_);
      const auto at = watched_.find(fd);
      if (at == watched_.end() || at->second.take({static_cast<const std::byte*>(bytes), count})) return true;
      watched_.erase(at);
    }
    say("its messages have too many parts or bytes, or are not ZMTP 3");
    return false;
  }
  /// There is no descriptor for the pending connection: it gets the reserved one, and is closed.
  void turn_away(int listener) noexcept {
    static auto* const real = next<decltype(accept)>("accept");
    {
      const std::lock_guard lock(mutex_);
      if (reserve_ >= 0) close(reserve_);
      if (const int fd = real(listener, nullptr, nullptr); fd >= 0) close(fd);
      reserve_ = spare();
    }
    say("no file descriptor is left for it (ulimit -n)");
  }

 private:
  static int spare() noexcept { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
  void say(std::string_view why) const {
    if (dropped_) dropped_(why);
  }

  const net::inbound_limits limits_;
  const std::function<void(std::string_view)> dropped_;
  std::mutex mutex_;
  int reserve_;
  std::unordered_map<int, net::inbound_watch> watched_;  // by descriptor
};

std::atomic<door*> at_the_door{nullptr};  // never freed: ZeroMQ's thread may outlive everything

/// `fd`: the result of accept.
int entered(int listener, int fd) noexcept {
  auto* guard = at_the_door.load(std::memory_order_acquire);
  if (guard == nullptr) return fd;
  if (fd >= 0) {
    if (!guard->accepted(fd)) shutdown(fd, SHUT_RDWR);
  } else if (errno == EMFILE) {
    guard->turn_away(listener);
    errno = ECONNABORTED;  // which ZeroMQ accepts for any kind of socket
  }
  return fd;
}

}  // namespace

void guard_connections(const net::inbound_limits& limits, std::function<void(std::string_view)> dropped) {
  at_the_door.store(new door(limits, std::move(dropped)), std::memory_order_release);
}

}  // namespace paracel::srv

extern "C" {

int accept(int fd, sockaddr* address, socklen_t* size) {
  static auto* const real = paracel::srv::next<decltype(accept)>("accept");
  return paracel::srv::entered(fd, real(fd, address, size));
}

int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  static auto* const real = paracel::srv::next<decltype(accept4)>("accept4");
  return paracel::srv::entered(fd, real(fd, address, size, flags));
}

int connect(int fd, const sockaddr* address, socklen_t size) {
  static auto* const real = paracel::srv::next<decltype(connect)>("connect");
  if (auto* guard = paracel::srv::at_the_door.load(std::memory_order_acquire)) guard->forget(fd);
  return real(fd, address, size);
}

ssize_t recv(int fd, void* buffer, std::size_t bytes, int flags) {
  static auto* const real = paracel::srv::next<decltype(recv)>("recv");
  const auto n = real(fd, buffer, bytes, flags);
  auto* guard = paracel::srv::at_the_door.load(std::memory_order_acquire);
  if (guard == nullptr) return n;
  if (n > 0) {
    if (guard->takes(fd, buffer, static_cast<std::size_t>(n))) return n;
    errno = ECONNRESET;
    return -1;
  }
  if (n == 0) guard->forget(fd);
  return n;
}

}  // extern "C"
