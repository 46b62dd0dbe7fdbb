// SPDX-License-Identifier: BSD-3-Clause
//
// Messages of which some parts have arrived and others have not. ZeroMQ keeps such parts, and no program sees them, so
// they are counted as they arrive: of one message (limits of inbound_limits), and of all connections of a process
// together, since many connections may each have begun a message that is no larger than allowed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "net/frame_parts.hpp"

namespace paracel::net {

struct inbound_limits {
  std::size_t most_parts = 8;                             ///< of a message, but for the full ones; ours have four
  std::size_t full_part_bytes = part_bytes;               ///< of a part that the next one continues
  std::size_t most_message_bytes = std::size_t{2} << 30;  ///< of all its parts
  std::size_t most_command_bytes = std::size_t{64} << 10;
  unsigned handshake_commands = 0;                          ///< that must precede the first part
  std::size_t most_handshake_bytes = std::size_t{4} << 10;  ///< of each of them
};

/// The message that a connection is sending. Thread-safety: none. Cost: O(1).
class unfinished_message {
 public:
  /// The next part. False: the message exceeds a limit, and the connection is to be dropped.
  [[nodiscard]] bool take(std::uint64_t bytes, const inbound_limits& limits) noexcept {
    if (bytes != limits.full_part_bytes) ++parts_;
    if (parts_ > limits.most_parts || bytes > limits.most_message_bytes - bytes_) return false;
    bytes_ += bytes;
    return true;
  }
  /// That was the last one.
  void end() noexcept { *this = {}; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t parts_ = 0;  // but for the full ones
  std::uint64_t bytes_ = 0;
};

/// The bytes of the unfinished messages of all connections. Thread-safety: none.
class unfinished_messages {
 public:
  using connection = int;

  /// What the message of a connection takes now. Returns: the connection to be dropped, the one with the largest
  /// message, if all together take more than `most`; it no longer counts. Throws: std::bad_alloc.
  /// Cost: O(1), and when one is to be dropped O(unfinished messages).
  [[nodiscard]] std::optional<connection> set(connection of, std::uint64_t bytes, std::uint64_t most) {
    if (bytes == 0) {
      forget(of);
      return std::nullopt;
    }
    auto& counted = bytes_[of];
    total_ = total_ - counted + bytes;
    counted = bytes;
    if (total_ <= most) return std::nullopt;
    const auto largest =
        std::ranges::max_element(bytes_, {}, [](const auto& one) { return std::pair(one.second, one.first); })->first;
    forget(largest);
    return largest;
  }
  void forget(connection c) noexcept {
    const auto at = bytes_.find(c);
    if (at == bytes_.end()) return;
    total_ -= at->second;
    bytes_.erase(at);
  }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

 private:
  std::unordered_map<connection, std::uint64_t> bytes_;  // of those that have any
  std::uint64_t total_ = 0;
};

}  // namespace paracel::net
