// SPDX-License-Identifier: BSD-3-Clause
//
// Addresses of threads that share one connection to each of their clients: `<address>#<lane>`. Channels to lanes of one
// address use one connection. The empty frame before a message carries the lane, and its reply has the same one:
//
//     lane 0          empty, as in the envelope of REQ and REP
//     lane 1 to 1023  u16, little-endian
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace paracel::net {

inline constexpr std::size_t most_lanes = 1024;

struct lane_address {
  std::string_view base;  ///< without the lane
  std::uint16_t lane = 0;
  bool is_shared = false;  ///< it names a lane

  /// An address that does not end in `#` and a lane below 1024 is one without lanes.
  static lane_address parse(std::string_view address) noexcept {
    const auto at = address.rfind('#');
    if (at == std::string_view::npos) return {address};
    const auto number = address.substr(at + 1);
    std::uint16_t lane = 0;
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), lane);
    if (failed != std::errc{} || end != number.data() + number.size() || lane >= most_lanes) return {address};
    return {address.substr(0, at), lane, true};
  }
  static std::string of(std::string_view base, std::size_t lane) {
    return std::string(base) + '#' + std::to_string(lane);
  }
};

/// Whether the text can be connected to, as far as its form tells: ipc:// and a path for a Unix socket, tcp:// with
/// host and port, or inproc:// and a name; each may end in a lane.
[[nodiscard]] inline bool is_address(std::string_view text) noexcept {
  constexpr std::size_t most_path_bytes = 107;  // of sockaddr_un, without the final zero
  const auto base = lane_address::parse(text).base;
  const auto after = [&](std::string_view scheme) {
    return base.starts_with(scheme) && base.find('\0') == base.npos ? base.substr(scheme.size()) : std::string_view();
  };
  if (const auto path = after("ipc://"); !path.empty()) return path.size() <= most_path_bytes;
  if (!after("inproc://").empty()) return true;
  const auto place = after("tcp://");
  const auto colon = place.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const auto number = place.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), port);
  return failed == std::errc{} && end == number.data() + number.size() && port != 0;
}

/// The content of the frame that carries the lane.
class lane_frame {
 public:
  explicit lane_frame(std::uint16_t lane) noexcept
      : size_(lane == 0 ? 0 : 2), bytes_{static_cast<std::byte>(lane & 0xffU), static_cast<std::byte>(lane >> 8U)} {}
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), size_}; }

  /// None: the frame is malformed.
  static std::optional<std::uint16_t> parse(std::span<const std::byte> frame) noexcept {
    if (frame.empty()) return 0;
    if (frame.size() != 2) return std::nullopt;
    const auto lane =
        static_cast<std::uint16_t>(std::to_integer<unsigned>(frame[0]) | std::to_integer<unsigned>(frame[1]) << 8U);
    if (lane == 0 || lane >= most_lanes) return std::nullopt;
    return lane;
  }

 private:
  std::size_t size_;
  std::array<std::byte, 2> bytes_;
};

}  // namespace paracel::net
