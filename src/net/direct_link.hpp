// SPDX-License-Identifier: BSD-3-Clause
//
// A tcp connection between two workers that their owners read and write themselves: a message passes through no other
// thread. Either side sends on it:
//
//     record   u64 the other side's last message that has been received | u64 number, 0: there is no message |
//              u64 communicator | i32 tag | u32 0 | u64 size | size bytes
//
// In an encrypted job these bytes travel in boxes (XSalsa20, Poly1305, as CURVE's), each of at most 64 KiB. The key is
// random and of this connection alone, and came over one that CURVE encrypts:
//
//     box      u32 bytes that follow | Poly1305 tag, 16 bytes | content
//     nonce    1 byte: 1 of the side that offered the connection, 2 of the other | 15 zeros | u64 number of the box
//
// XSalsa20 derives the key of a box from the first 16 bytes of its nonce: each direction has one of its own, under
// which the rest of the nonce counts. Bytes that are changed, lost, repeated, in another order or sent back end the
// connection.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <paracel/detail/bytes.hpp>

#include "core/shared_buffer.hpp"
#include "net/courier.hpp"
#include "net/mutex.hpp"
#include "net/owned_fd.hpp"

namespace paracel::net {

struct link_record {
  std::uint64_t received = 0;
  std::uint64_t number = 0;
  std::uint64_t communicator = 0;
  std::int32_t tag = 0;
  std::uint32_t zero = 0;
  std::uint64_t size = 0;
};

/// One direction of an encrypted connection. Thread-safety: none.
class link_box {
 public:
  using key = std::array<std::uint8_t, 32>;
  static constexpr std::size_t overhead = 16;

  /// Whether libsodium is there, as libzmq has it.
  [[nodiscard]] static bool is_available() noexcept;
  link_box(const key& k, bool of_offering_side) noexcept : key_(k) { nonce_[0] = of_offering_side ? 1 : 2; }
  /// `to`: the size of `from` and the overhead.
  void seal(std::byte* to, std::span<const std::byte> from) noexcept;
  /// `to`: the size of `from` less the overhead. Returns: false: it is not what was sealed next.
  [[nodiscard]] bool open(std::byte* to, std::span<const std::byte> from) noexcept;

 private:
  void count() noexcept;
  key key_;
  std::array<std::uint8_t, 24> nonce_{};
  std::uint64_t counter_ = 0;
};

/// A connection whose handshake is over (worker/job/direct_links.hpp). What the socket does not take at once is queued,
/// without a copy; the owner's next call sends it, or the courier if there is none soon.
///
/// After a fork, the copy in the new process neither sends nor receives: its boxes would have the original's numbers.
///
/// Thread-safety: the owner's and the courier's.
class direct_link final : public courier_task {
 public:
  using clock = std::chrono::steady_clock;
  struct boxes {
    link_box out, in;
  };
  static constexpr std::size_t most_box_bytes = std::size_t{64} << 10U;

  direct_link(owned_fd connected, std::optional<boxes> encrypted, std::size_t most_message_bytes);

  [[nodiscard]] int descriptor() const noexcept { return fd_.get(); }
  /// Nothing more can be sent. What has arrived before can still be received.
  [[nodiscard]] bool is_broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Nothing more can be received, either. The owner's.
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }
  /// Sends the handshake, in clear. Before anything else.
  void begin(std::vector<std::byte> hello);
  /// Whether the connection is there and the handshake has been sent.
  [[nodiscard]] bool has_begun() const noexcept { return begun_.load(std::memory_order_acquire); }
  /// Whether it is known that the other worker has this connection, and not only its host. The owner's.
  [[nodiscard]] bool is_heard() const noexcept { return heard_; }
  void send(const link_record& head, shared_buffer body);
  /// Sends what is queued, as far as the socket takes it. Returns: whether nothing is left.
  bool push();
  [[nodiscard]] bool has_queued() const noexcept { return queued_.load(std::memory_order_acquire); }
  /// Reads what has arrived, a part of it if it is much. Returns: whether there was anything, or it has ended. Throws:
  /// what `take` does.
  using taker = std::function<void(const link_record& head, byte_vector body)>;
  bool receive(const taker& take);
  /// Whether the other host has acknowledged all bytes.
  [[nodiscard]] bool has_arrived() const noexcept;
  /// Whether the network is silent: the kernel has sent some bytes again, more than once, in vain.
  [[nodiscard]] bool is_silent() const noexcept;
  void close();

  bool work(clock::time_point now) override;
  wish waits_for() override;

  // The owner's account of it.
  std::uint64_t acknowledged = 0;  ///< the last message from there that this side has said it received
  std::size_t unsaid_bytes = 0;    ///< of those after it

 private:
  struct piece {
    std::array<std::byte, sizeof(link_record)> head;
    shared_buffer body;
    std::size_t done = 0;
    [[nodiscard]] std::size_t size() const noexcept { return head.size() + body.size(); }
  };
  bool is_copied() noexcept;
  bool write() PARACEL_REQUIRES(access_);
  ssize_t write_clear() PARACEL_REQUIRES(access_);
  ssize_t write_sealed() PARACEL_REQUIRES(access_);
  void drop_written(std::size_t bytes) PARACEL_REQUIRES(access_);
  std::size_t gather(std::span<iovec> parts, std::size_t most) PARACEL_REQUIRES(access_);
  bool parse(std::span<const std::byte> bytes, const taker& take);
  bool parse_sealed(const taker& take);

  const owned_fd fd_;
  const std::size_t most_message_bytes_;
  const unsigned forks_before_;
  std::atomic<bool> broken_{false};
  bool ended_ = false;  // the owner's
  bool heard_ = true;   // the owner's
  std::atomic<bool> queued_{false};
  std::atomic<bool> begun_{true};
  mutex access_;
  std::deque<piece> queue_ PARACEL_GUARDED_BY(access_);
  std::vector<std::byte> hello_ PARACEL_GUARDED_BY(access_);  // the part of it that is not sent
  std::optional<boxes> boxes_;                                // `out` is used under access_, `in` by the owner
  std::vector<std::byte> content_ PARACEL_GUARDED_BY(access_);
  std::vector<std::byte> sealed_ PARACEL_GUARDED_BY(access_);
  std::size_t sealed_done_ PARACEL_GUARDED_BY(access_) = 0;
  std::size_t sealed_bytes_ PARACEL_GUARDED_BY(access_) = 0;
  clock::time_point due_ PARACEL_GUARDED_BY(access_){};  // when the courier begins to send

  // What is being received.
  std::vector<std::byte> buffer_;
  std::size_t filled_ = 0;
  std::vector<std::byte> plain_;
  std::array<std::byte, sizeof(link_record)> head_;
  std::size_t head_bytes_ = 0;
  link_record record_;
  byte_vector body_;
  std::size_t body_bytes_ = 0;
};

}  // namespace paracel::net
