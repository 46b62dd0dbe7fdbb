// SPDX-License-Identifier: BSD-3-Clause
#include "net/inbound_watch.hpp"

#include <algorithm>

namespace paracel::net {

namespace {

constexpr std::uint8_t flag_more = 1;
constexpr std::uint8_t flag_long = 2;
constexpr std::uint8_t flag_command = 4;

/// Whether this may be byte `at` of a greeting.
bool fits_greeting(std::uint64_t at, std::byte b) noexcept {
  switch (at) {
    case 0:
      return b == std::byte{0xff};
    case 9:
      return b == std::byte{0x7f};
    case 10:
      return b >= std::byte{3};
    default:
      return true;
  }
}

}  // namespace

bool inbound_watch::take(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const auto b = std::to_integer<std::uint8_t>(bytes.front());
    switch (at_) {
      case state::greeting:
        if (!fits_greeting(taken_, bytes.front())) return false;
        if (++taken_ == greeting_bytes) at_ = state::flags;
        bytes = bytes.subspan(1);
        break;
      case state::flags:
        if ((b & ~(flag_more | flag_long | flag_command)) != 0) return false;
        flags_ = b;
        size_left_ = (b & flag_long) != 0 ? 8 : 1;
        size_ = 0;
        at_ = state::size;
        bytes = bytes.subspan(1);
        break;
      case state::size:
        size_ = size_ << 8U | b;
        bytes = bytes.subspan(1);
        if (--size_left_ == 0 && !begin_content()) return false;
        break;
      case state::content: {
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size_ - taken_, bytes.size()));
        taken_ += n;
        bytes = bytes.subspan(n);
        if (taken_ == size_) end_content();
        break;
      }
    }
  }
  return true;
}

/// Called when the size of a part is known.
bool inbound_watch::begin_content() noexcept {
  taken_ = 0;
  at_ = state::content;
  if ((flags_ & flag_command) != 0) {
    const auto most = commands_left_ != 0 ? limits_.most_handshake_bytes : limits_.most_command_bytes;
    if ((flags_ & flag_more) != 0 || size_ > most) return false;
  } else {
    if (commands_left_ != 0) return false;
    if (!message_.take(size_, limits_)) return false;
  }
  if (size_ == 0) end_content();
  return true;
}

void inbound_watch::end_content() noexcept {
  at_ = state::flags;
  if ((flags_ & flag_command) != 0) {
    if (commands_left_ != 0) is_established_ = --commands_left_ == 0;
    return;
  }
  if ((flags_ & flag_more) != 0) return;
  message_.end();
  is_established_ = true;
}

}  // namespace paracel::net
