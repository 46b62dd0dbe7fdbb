// SPDX-License-Identifier: BSD-3-Clause
//
// Limits on what one connection may send. ZeroMQ delivers a message when its last part has arrived, and until then
// keeps every part in a block of 64 bytes: its high-water mark counts whole messages and ZMQ_MAXMSGSIZE checks one
// part, so 32 MB of empty parts with the flag MORE grow a process by a gigabyte. So the bytes are checked before they
// reach ZeroMQ.
//
//     greeting   0xff | 8 bytes | 0x7f | u8 version >= 3 | 53 bytes
//     part       u8 flags | u8 size, or with flag 2 u64 size, big endian | bytes
//                flags: 1 another part of the message follows; 2 long; 4 a command, which is not a part
//
// At an encrypted address the first two commands are those of CURVE's client, HELLO and INITIATE. ZeroMQ checks each as
// it arrives and closes the connection of a peer that does not have the job's key, so whatever follows the second one
// is of a member of the job: until then nothing but two small commands is let through. Whether a member's part is
// followed by another one is encrypted with it, so connection_guard counts these parts where they are decrypted.
//
// Source: ZMTP 3.1 (rfc.zeromq.org/spec/37).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "net/unfinished_messages.hpp"

namespace paracel::net {

/// Parses the byte stream of a connection.
///
/// Thread-safety: none. Cost: O(parts), not O(bytes).
class inbound_watch {
 public:
  explicit inbound_watch(const inbound_limits& limits) noexcept : limits_(limits) {}

  /// The next bytes. False: they exceed a limit, or are not ZMTP 3; the connection is to be dropped.
  [[nodiscard]] bool take(std::span<const std::byte> bytes) noexcept;
  /// Whether a whole message has arrived, or the whole handshake if it has a number of commands.
  [[nodiscard]] bool is_established() const noexcept { return is_established_; }
  /// Of the message that has not arrived as a whole, what was announced of the part that is arriving included.
  [[nodiscard]] std::uint64_t unfinished_bytes() const noexcept { return message_.bytes(); }

 private:
  static constexpr std::uint64_t greeting_bytes = 64;
  enum class state : std::uint8_t { greeting, flags, size, content };

  bool begin_content() noexcept;
  void end_content() noexcept;

  inbound_limits limits_;
  state at_ = state::greeting;
  std::uint8_t flags_ = 0;
  std::uint8_t size_left_ = 0;  // bytes of the size still to come
  std::uint64_t size_ = 0;      // of the part
  std::uint64_t taken_ = 0;     // bytes of the greeting or the content received
  unfinished_message message_;
  unsigned commands_left_ = limits_.handshake_commands;
  bool is_established_ = false;
};

}  // namespace paracel::net
