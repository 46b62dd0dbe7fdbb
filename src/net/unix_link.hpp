// SPDX-License-Identifier: BSD-3-Clause
//
// Connections over Unix sockets. What their owners cannot do without waiting, a courier does. An internal header of
// unix_transport.cpp.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/courier.hpp"
#include "net/mutex.hpp"
#include "net/owned_fd.hpp"
#include "net/transport.hpp"
#include "net/unix_ring.hpp"
#include "net/zmtp_inbox.hpp"

namespace paracel::net {

/// The socket of an address. Throws: network_error unless it is ipc:// and a path that fits.
std::string unix_path(const std::string& address);

/// One connection. What the socket does not take at once is queued here, and the courier sends it.
///
/// Thread-safety: its owner and the courier. The owner alone reads; it sends directly while nothing is queued.
class unix_link final : public courier_task {
 public:
  /// Accepted, or (with a path) still to be connected: then the courier adds it to the owner's `events` as `number`.
  unix_link(const transport_limits& limits, owned_fd accepted, std::uint64_t number);
  unix_link(const transport_limits& limits, std::string path, int events, std::uint64_t number);

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] bool is_connected() const noexcept { return connected_.load(std::memory_order_acquire); }
  /// Of a connected link; the owner's.
  [[nodiscard]] int descriptor() const noexcept { return fd_.get(); }
  /// Bytes that the other side has not read, as far as they wait here or in the ring. The owner's.
  [[nodiscard]] std::uint64_t unread() const noexcept { return queued() + (ring_ ? ring_->unread() : 0); }

  enum class sent { all, rest_queued, broken };
  /// Sends a message, after the ones that `keep` has kept.
  sent send(const outgoing& message);
  /// Keeps a copy. Returns: false: it is too much, send it.
  bool keep(const outgoing& message);
  [[nodiscard]] bool keeps() const noexcept { return !kept_.empty(); }
  sent send_kept();
  sent send_bytes(std::span<const std::byte> bytes);
  /// Receives as recv(2) does, and a file that comes with the bytes.
  ssize_t receive(std::span<std::byte> to, int flags);
  /// Whether the last receive ended early: it does behind bytes that come with a file.
  [[nodiscard]] bool has_file() const noexcept { return passed_.get() >= 0; }
  /// The other side wants to send large frames in a ring: makes one, if that is possible now.
  void make_ring();
  /// The other side has made the ring that was asked for.
  void take_ring() noexcept;

  /// Connects, as far as that does not have to wait: the other side listens, and has answered the opening. ZeroMQ drops
  /// a connection on which a message arrives before it has.
  void try_connect();
  /// Nothing is sent or received any more. With `linger`, the courier may send what is queued until then.
  void close(clock::time_point linger = {});

  bool work(clock::time_point now) override;
  wish waits_for() override;

  zmtp_inbox inbox;
  std::uint64_t outstanding = 0;  ///< requests without a reply, of a connecting link
  int channel = -1;               ///< of a connecting link

 private:
  struct piece {
    std::vector<std::byte> bytes;
    shared_buffer tail;
    std::size_t done = 0;
    [[nodiscard]] std::span<const std::byte> rest() const noexcept {
      return (tail ? tail.bytes() : std::span<const std::byte>(bytes)).subspan(done);
    }
  };
  [[nodiscard]] std::uint64_t queued() const noexcept { return queued_.load(std::memory_order_acquire); }
  sent send_framed(const outgoing& message, const zmtp_framing& framing, const ring_places& places);
  sent send_large(const outgoing& message);
  sent send_parts(std::span<iovec> parts, const shared_buffer& tail);
  void queue(std::span<const iovec> parts, const shared_buffer& tail, std::size_t done) PARACEL_REQUIRES(access_);
  void connect_now() PARACEL_REQUIRES(access_);
  bool take_opening() PARACEL_REQUIRES(access_);
  bool write_queue() PARACEL_REQUIRES(access_);

  static constexpr std::size_t most_kept_bytes = std::size_t{64} * 1024;

  const transport_limits limits_;
  const std::uint64_t number_;
  const std::string path_;
  owned_fd fd_;  // the courier's until connected_ is set; closed under access_
  std::atomic<bool> connected_{false};
  std::atomic<std::uint64_t> queued_{0};
  // The owner's:
  std::vector<std::byte> kept_;
  std::unique_ptr<ring_writer> ring_;
  std::uint64_t large_messages_ = 0;  // sent before there was a ring
  bool awaits_ring_ = false;
  owned_fd passed_;  // the last file that has come with bytes
  mutex access_;
  std::deque<piece> queue_ PARACEL_GUARDED_BY(access_);
  int events_ PARACEL_GUARDED_BY(access_) = -1;
  bool closed_ PARACEL_GUARDED_BY(access_) = false;
  clock::time_point linger_ PARACEL_GUARDED_BY(access_){};
  std::array<std::byte, 64 + 2 + 255> opening_;  // of the other side
  std::size_t opening_bytes_ PARACEL_GUARDED_BY(access_) = 0;
  clock::time_point next_try_ PARACEL_GUARDED_BY(access_){};
  std::chrono::milliseconds pause_ PARACEL_GUARDED_BY(access_){0};
};

}  // namespace paracel::net
