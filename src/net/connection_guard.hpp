// SPDX-License-Identifier: BSD-3-Clause
//
// Protects a process from what the other ends of its connections may do, before any message of theirs is read, in
// workers, servers, the scheduler and programs for ps-lite alike. Of connections that it accepts, from anybody who can
// connect; of those that it opens itself, from a member of the job that sends messages without an end:
//
//   what it sends           inspected by an inbound_watch: one that exceeds the limits of a message is dropped before
//                           ZeroMQ has buffered it; the parts of an encrypted message are counted as each is decrypted
//   unfinished messages     of all connections together: when they take too much, the one with the largest is dropped
//   connections without     of those that have not sent a whole message yet, in their handshake or after it, the oldest
//   a message               are dropped when they are many or take more than a quarter of the descriptors, and when few
//                           descriptors are left; at encrypted addresses only those in their handshake count
//   other users             at addresses on this host that are no tcp: a connection of another user is closed at once,
//                           root's excepted (an address in a folder of the job has that folder's permissions as well)
//   too many connections    are closed at once, as those for which no descriptor is left and none without a message has
//                           one: ZeroMQ would abort the process (ipc) or retry forever (tcp)
//
// ZeroMQ limits the time of a handshake itself (zmq_socket.cpp), but has no hook to see the bytes of a connection
// before they are buffered. So five calls of libzmq to the C library, and two to libsodium, are redirected to this file
// (library_calls.hpp).
// They pass on what does not concern a connection that was accepted at one of our addresses, or opened to one: a
// program may use ZeroMQ itself, with sockets of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "net/inbound_watch.hpp"

namespace paracel::net {

/// Thread-safety: any thread.
class connection_guard : public std::enable_shared_from_this<connection_guard> {
 public:
  struct limits {
    inbound_limits message;
    /// Of all guards of the process, when one of this guard is accepted; at most a quarter of its descriptors.
    std::size_t most_without_message = 4096;
    std::size_t most_connections = 65'536;  ///< of this guard
    /// Of the messages that have not arrived as a whole, of all guards, when a part arrives at one of this guard.
    std::uint64_t most_unfinished_bytes = ~std::uint64_t{0};
  };
  /// `dropped` is called for each connection that is dropped, with the reason, on ZeroMQ's thread.
  explicit connection_guard(const limits& l, std::function<void(std::string_view why)> dropped = {})
      : limits_(l), dropped_(std::move(dropped)) {}

  /// Redirects the calls of libzmq, of which `member` is any function. Before its first socket exists: the dynamic
  /// linker resolves each call when it is first made, on any thread, and would put the original address back.
  /// Throws: network_error if this build of libzmq cannot be redirected. Cost: about 100 us, once a process.
  static void install(const void* member);
  /// The same for the calls that encrypted connections make. Before the first of them is bound.
  static void install_decryption(const void* member);
  /// A function as the library that contains `member` finds it; null: it does not.
  [[nodiscard]] static void* function_of_library(const void* member, const char* name) noexcept;

  /// An address at which connections are guarded, until it is destroyed.
  class address {
   public:
    address() = default;
    address(std::string text, const connection_guard* guard, bool is_target)
        : text_(std::move(text)), guard_(guard), is_target_(is_target) {}
    address(address&& other) noexcept
        : text_(std::exchange(other.text_, {})), guard_(other.guard_), is_target_(other.is_target_) {}
    address& operator=(address&& other) noexcept {
      std::swap(text_, other.text_);
      std::swap(guard_, other.guard_);
      std::swap(is_target_, other.is_target_);
      return *this;
    }
    ~address();

   private:
    std::string text_;
    const connection_guard* guard_ = nullptr;  // may be gone
    bool is_target_ = false;                   // it is connected to, not bound
  };

  /// `bind` binds a ZeroMQ socket and returns the address, as ZeroMQ names it. Connections are guarded from the first
  /// one on, after `install`. Blocks: connections that arrive meanwhile are accepted afterwards. Throws: what `bind`
  /// throws; network_error if another user of libzmq in this process, whose sockets are older than ours, has undone the
  /// redirection, and it cannot be repeated.
  /// `is_encrypted`: nothing but a handshake is let through before a connection has shown that it belongs to the job.
  address open(const void* member, const std::function<std::string()>& bind, bool is_encrypted = false);
  /// Connections that ZeroMQ opens to this address, from now on and as long as the result lives, have the same limits
  /// on messages; their number has none. After `install`, and `install_decryption` if they are encrypted. Of a host's
  /// name all connections to that port of any host are meant. Throws: std::bad_alloc.
  address to(const std::string& target, bool is_encrypted);

 private:
  friend class guarded_connections;
  limits limits_;
  std::function<void(std::string_view)> dropped_;
  std::size_t connections_ = 0;  // guarded by the mutex of guarded_connections
};

}  // namespace paracel::net
