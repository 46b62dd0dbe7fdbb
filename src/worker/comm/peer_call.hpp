// SPDX-License-Identifier: BSD-3-Clause
//
// The messages of collectives between ranks. Every one begins with a header of 32 bytes:
//
//     0   u8   what: 1 call, 2 piece, 3 value (a message of the program), 4 failure, 5 several calls
//     1   u8   operation (peer_operation)
//     2   u8   element (value_tag)
//     3   u8   reduce_op; 255: a function of the program
//     4   u32  bytes of the name
//     8   u64  elements; for a failure, its exit status
//     16  u32  root; for a failure, the rank that failed by itself
//     20  u32  number of a piece
//     24  u64  0
//     32       the name, padded to a multiple of 16 bytes; then the payload
//
// Several calls follow one another, each preceded by its length (u64); the first is the sender's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>

namespace paracel {

enum class peer_operation : std::uint8_t {
  all_reduce = 1,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  barrier,
};

enum class peer_message : std::uint8_t { call = 1, piece, value, failure, calls };

struct peer_header;

/// What a rank calls; all ranks must make the same call.
struct peer_call {
  static constexpr std::uint8_t own_fold = 255;
  static constexpr std::size_t longest_name = 255;

  peer_operation what{};
  value_tag element = value_tag::none;
  std::uint8_t op = 0;
  std::uint64_t length = 0;  ///< elements
  std::uint32_t root = 0;
  std::string_view name;

  /// all_reduce("x") of 10 f64, sum
  [[nodiscard]] std::string text() const;
  /// Some operations allow lengths to differ.
  [[nodiscard]] bool fits(const peer_call& other) const;
  /// Without the name.
  [[nodiscard]] peer_header header() const;
  [[nodiscard]] static peer_call of(const peer_header& f, std::string_view name);
  [[nodiscard]] byte_vector message(std::span<const std::byte> payload) const;
  /// The call in a message of kind call or calls. Lifetime of the name: that of the bytes. Throws: protocol_error.
  [[nodiscard]] static peer_call in(std::span<const std::byte> message);
};

/// Why an operation failed at all ranks.
struct peer_failure {
  std::uint32_t origin = 0;  ///< the rank that failed by itself
  int status = 0;            ///< an exit_status
  std::string text;
};

struct peer_header {
  peer_message kind{};
  std::uint8_t operation = 0;
  std::uint8_t element = 0;
  std::uint8_t op = 0;
  std::uint32_t name_bytes = 0;
  std::uint64_t length = 0;
  std::uint32_t root = 0;
  std::uint32_t number = 0;
  std::uint64_t reserved = 0;

  static constexpr std::size_t bytes = 32;
  /// Throws: protocol_error when the message is cut off.
  [[nodiscard]] static peer_header in(std::span<const std::byte> message);
  /// Where the payload of a message begins.
  [[nodiscard]] static std::size_t payload_at(std::span<const std::byte> message);
  [[nodiscard]] byte_vector message(std::string_view name, std::span<const std::byte> payload) const;
};

inline std::span<std::byte> payload_of(byte_vector& message) {
  return std::span(message).subspan(peer_header::payload_at(message));
}

}  // namespace paracel
