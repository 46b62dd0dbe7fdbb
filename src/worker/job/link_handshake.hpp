// SPDX-License-Identifier: BSD-3-Clause
//
// How a direct connection of two workers begins (direct_links.hpp). One offers it in a message to the other, where it
// listens, and a random key for this connection alone. That one connects, and begins with what only the receiver of the
// offer can write:
//
//     offer   u32 port | the key, 32 bytes | its numeric host
//     hello   u32 rank of the sender | the key, or in an encrypted job a box with it of the following:
//             u64 client, u32 turn of the sender
//
// The box is the first one of its sender (net/direct_link.hpp), so its number is not used again. No sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <paracel/detail/bytes.hpp>

#include "net/direct_link.hpp"

namespace paracel {

struct link_offer {
  std::uint16_t port = 0;
  net::link_box::key key{};
  std::string host;

  [[nodiscard]] byte_vector bytes() const;
  /// Nothing: it is none.
  [[nodiscard]] static std::optional<link_offer> read(std::span<const std::byte> bytes);
};

struct link_hello {
  std::uint32_t rank = 0;
  std::uint64_t client = 0;
  std::uint32_t turn = 0;

  /// How many bytes it has, also from a stranger.
  static constexpr std::size_t size(bool encrypted) noexcept {
    return sizeof rank + (encrypted ? net::link_box::overhead : sizeof(net::link_box::key)) + sizeof client +
           sizeof turn;
  }
  /// `box`: the sender's; null: the job is not encrypted.
  [[nodiscard]] byte_vector bytes(const net::link_box::key& key, net::link_box* box) const;
  /// Of whom it says it is, which proves nothing.
  [[nodiscard]] static std::uint32_t claimed_rank(std::span<const std::byte> bytes) noexcept;
  /// Nothing: its sender has not received the offer with this key. `box`: the sender's, as the receiver opens it.
  [[nodiscard]] static std::optional<link_hello> read(std::span<const std::byte> bytes, const net::link_box::key& key,
                                                      net::link_box* box);
};

}  // namespace paracel
