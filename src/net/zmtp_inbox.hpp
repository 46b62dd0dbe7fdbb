// SPDX-License-Identifier: BSD-3-Clause
//
// The bytes of one connection, in and out: ZMTP 3 without encryption, which is what ZeroMQ speaks over ipc, as far as
// messages between a DEALER (or REQ) and a ROUTER need it; and frames in a ring, which only the other end of a ring
// sends. No socket here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/shared_buffer.hpp"
#include "net/transport.hpp"
#include "net/unix_ring.hpp"

namespace paracel::net {

/// What is sent first on a connection: the greeting, and the READY command of this type of socket.
std::string_view zmtp_opening(bool is_router) noexcept;

/// Commands about the ring of one direction, which ZeroMQ ignores: its sender asks for one, and the receiver passes the
/// file with its answer.
inline constexpr std::string_view zmtp_wants_ring("\x04\x0a\x09RING-WANT", 12);
inline constexpr std::string_view zmtp_has_ring("\x04\x0a\x09RING-FILE", 12);

/// Where the frames of a message are in the ring.
struct ring_places {
  std::optional<std::uint64_t> head{};
  std::optional<std::uint64_t> tail{};
};

/// The bytes around the frames of an outgoing message; instead of them, if they are in the ring.
struct zmtp_framing {
  explicit zmtp_framing(const outgoing& message, const ring_places& places = {}) noexcept;
  std::array<std::byte, 2 + 17> before_head;
  std::array<std::byte, 17> before_tail;
  std::uint8_t before_head_bytes;
  std::uint8_t before_tail_bytes;  ///< 0: there is no tail
};

/// Takes the bytes of a connection apart. A frame that fits into its buffer is delivered in place; a larger one is
/// received into memory of its own, which is reserved only after its length has been checked.
/// Thread-safety: none.
class zmtp_inbox {
 public:
  static constexpr std::size_t capacity = std::size_t{128} * 1024;

  explicit zmtp_inbox(const transport_limits& limits) : limit_(limits.max_message_bytes) {}

  /// Where the next bytes of the connection go; not empty. Frames delivered before are invalid from now on.
  std::span<std::byte> room();
  void filled(std::size_t bytes) noexcept { (big_ ? big_filled_ : end_) += bytes; }

  /// A message without its envelope. Malformed ones are skipped.
  struct message {
    std::span<const std::byte> frame;
    shared_buffer memory;  ///< of the frame, if it is not in the buffer
    shared_buffer tail;
    bool tail_is_lent = false;
  };
  enum class outcome {
    message,
    incomplete,
    broken,  ///< the peer breaks the protocol or exceeds a limit: the connection is of no use
    ping,    ///< to be answered with `pong`
    wants_ring,
    has_ring,
  };
  outcome next(message& out);
  /// Whether the opening of the other side has been received.
  [[nodiscard]] bool is_established() const noexcept { return stage_ == stage::messages; }
  [[nodiscard]] std::span<const std::byte> pong() const noexcept { return {pong_.data(), pong_bytes_}; }
  /// Whether `next` may have more without further bytes.
  [[nodiscard]] bool has_bytes() const noexcept { return pos_ != end_ || (big_ && big_filled_ == big_.size()); }

  std::unique_ptr<ring_reader> ring;  ///< null: frames in one break the protocol
  bool lends_tails = false;           ///< tails in the ring are not copied

 private:
  enum class stage : std::uint8_t { greeting, ready, messages };
  static constexpr std::size_t most_command_bytes = 4096;
  static constexpr std::size_t most_parts = 8;

  [[nodiscard]] const std::byte* at(std::size_t offset) const noexcept { return buffer_.get() + offset; }
  outcome take_command(std::size_t header, std::size_t size);
  bool begin_part(std::size_t header, std::uint64_t size, bool more, std::optional<std::uint64_t> in_ring);
  bool end_part();
  void start_over() noexcept;

  std::size_t limit_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;  // of the message that is being received
  std::size_t pos_ = 0;    // up to here it has been understood
  std::size_t end_ = 0;    // of what was received
  stage stage_ = stage::greeting;
  // The message that begins there.
  std::size_t parts_ = 0;
  std::uint64_t bytes_ = 0;
  bool more_ = false;     // another part follows the current one
  bool in_part_ = false;  // the header of a part has been read, but not all of its content
  bool is_dropped_ = false;
  std::uint64_t skip_ = 0;       // bytes of the current part that are ignored
  std::size_t part_bytes_ = 0;   // of the current part, if it is received into the buffer
  std::size_t head_offset_ = 0;  // from begin_
  std::size_t head_bytes_ = 0;
  shared_buffer head_, tail_;
  bool tail_is_lent_ = false;
  shared_buffer big_;  // the current part, if it has memory of its own
  std::size_t big_filled_ = 0;
  std::array<std::byte, 2 + 5 + 16> pong_{};
  std::size_t pong_bytes_ = 0;
};

}  // namespace paracel::net
