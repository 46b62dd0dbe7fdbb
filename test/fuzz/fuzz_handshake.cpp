// SPDX-License-Identifier: BSD-3-Clause
//
// What strangers send to a port, before ZeroMQ buffers it: arbitrary bytes, cut in two ways. The first two bytes choose
// the cuts and whether the address is encrypted. However they are cut, the same bytes are accepted as by a parser that
// has all of them at once, and before an encrypted connection is established they are few.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/inbound_watch.hpp"
#include "property.hpp"

namespace {

using namespace paracel::net;
using bytes = std::span<const std::byte>;

constexpr std::size_t greeting = 64;
constexpr std::size_t longest_header = 9;
// Small, so that inputs reach them.
constexpr inbound_limits limits{.most_parts = 3,
                                .full_part_bytes = 20,
                                .most_message_bytes = 300,
                                .most_command_bytes = 200,
                                .most_handshake_bytes = 100};

struct outcome {
  bool is_accepted = true;
  bool is_established = false;
  friend bool operator==(const outcome&, const outcome&) = default;
};

/// By index, with all bytes at hand. `few`: how many there were before it was established.
outcome parsed(bytes all, bool is_encrypted, std::optional<std::size_t>& few) {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(all[i]); };
  for (std::size_t i = 0; i < std::min(all.size(), greeting); ++i)
    if ((i == 0 && at(i) != 0xff) || (i == 9 && at(i) != 0x7f) || (i == 10 && at(i) < 3)) return {false, false};
  outcome o;
  unsigned commands = is_encrypted ? 2 : 0;
  std::size_t parts = 0;
  std::uint64_t size = 0;
  for (std::size_t i = greeting; i < all.size();) {
    const auto flags = at(i);
    if (flags > 7) return {false, o.is_established};
    const std::size_t digits = (flags & 2U) != 0 ? 8 : 1;
    if (all.size() - i < 1 + digits) return o;
    std::uint64_t length = 0;
    for (std::size_t d = 0; d < digits; ++d) length = length << 8U | at(i + 1 + d);
    const bool is_command = (flags & 4U) != 0;
    const bool more = (flags & 1U) != 0;
    if (is_command) {
      if (more || length > (commands != 0 ? limits.most_handshake_bytes : limits.most_command_bytes))
        return {false, o.is_established};
    } else {
      parts += length == limits.full_part_bytes ? 0 : 1;
      if (commands != 0 || parts > limits.most_parts || length > limits.most_message_bytes - size)
        return {false, o.is_established};
      size += length;
    }
    i += 1 + digits;
    if (all.size() - i < length) return o;
    i += length;
    if (is_command) {
      if (commands != 0 && --commands == 0) o.is_established = true;
    } else if (!more) {
      parts = 0;
      size = 0;
      o.is_established = true;
    }
    if (o.is_established && !few) few = i;
  }
  return o;
}

outcome watched(bytes all, bool is_encrypted, std::size_t cut) {
  auto l = limits;
  l.handshake_commands = is_encrypted ? 2 : 0;
  inbound_watch w(l);
  for (std::size_t i = 0; i < all.size(); i += cut) {
    if (!w.take(all.subspan(i, std::min(cut, all.size() - i)))) return {false, w.is_established()};
  }
  return {true, w.is_established()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const bool is_encrypted = (data[0] & 1U) != 0;
  const bool begins_well = (data[0] & 2U) != 0;
  std::vector<std::byte> all;
  if (begins_well) {
    all.resize(greeting);
    all[0] = std::byte{0xff};
    all[9] = std::byte{0x7f};
    all[10] = std::byte{3};
  }
  for (std::size_t i = 2; i < size; ++i) all.push_back(static_cast<std::byte>(data[i]));
  std::optional<std::size_t> few;
  const auto expected = parsed(all, is_encrypted, few);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{1} + data[1], all.size() + 1})
    require(watched(all, is_encrypted, cut) == expected, "the outcome does not depend on how the bytes are cut");
  const auto most = greeting + 2 * (longest_header + limits.most_handshake_bytes);
  if (is_encrypted && expected.is_accepted && !expected.is_established)
    require(all.size() < most, "few bytes are accepted before the handshake is over");
  if (is_encrypted && few) require(*few <= most, "a handshake is short");
  return 0;
}
