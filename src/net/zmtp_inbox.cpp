// SPDX-License-Identifier: BSD-3-Clause
#include "net/zmtp_inbox.hpp"

#include <algorithm>
#include <cstring>

namespace paracel::net {

namespace {

constexpr std::uint8_t frame_more = 1;
constexpr std::uint8_t frame_long = 2;
constexpr std::uint8_t frame_command = 4;
constexpr std::uint8_t frame_in_ring = 8;  // its length, and where it is, instead of its bytes
constexpr std::size_t greeting_bytes = 64;
constexpr std::size_t long_header = 1 + 8;
constexpr std::size_t ring_header = 1 + 8 + 8;
constexpr std::size_t longest_header = ring_header;
constexpr std::size_t longest_short_frame = 255;
constexpr std::uint8_t least_version = 3;

void put_number(std::byte* to, std::uint64_t n) noexcept {
  for (unsigned i = 0; i < 8; ++i) to[i] = static_cast<std::byte>(n >> (56 - 8 * i));
}
std::uint64_t get_number(const std::byte* from) noexcept {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < 8; ++i) n = n << 8U | std::to_integer<std::uint8_t>(from[i]);
  return n;
}

/// The header of a frame. Returns: its length.
std::uint8_t put_header(std::byte* to, std::uint8_t flags, std::size_t size,
                        std::optional<std::uint64_t> in_ring = std::nullopt) noexcept {
  if (in_ring) {
    to[0] = static_cast<std::byte>(flags | frame_long | frame_in_ring);
    put_number(to + 1, size);
    put_number(to + 9, *in_ring);
    return ring_header;
  }
  if (size <= longest_short_frame) {
    to[0] = std::byte{flags};
    to[1] = static_cast<std::byte>(size);
    return 2;
  }
  to[0] = static_cast<std::byte>(flags | frame_long);
  put_number(to + 1, size);
  return long_header;
}

template <std::size_t N>
constexpr auto opening(const char (&type)[N]) {
  constexpr std::size_t type_bytes = N - 1;
  constexpr std::string_view ready = "\5READY\13Socket-Type";
  std::array<char, greeting_bytes + 2 + ready.size() + 4 + type_bytes> all{};
  all[0] = '\xff';
  all[8] = 1;
  all[9] = '\x7f';
  all[10] = least_version;
  std::ranges::copy(std::string_view("NULL"), all.begin() + 12);
  auto to = all.begin() + greeting_bytes;
  *to++ = static_cast<char>(frame_command);
  *to++ = static_cast<char>(ready.size() + 4 + type_bytes);
  to = std::ranges::copy(ready, to).out;
  to += 3;
  *to++ = static_cast<char>(type_bytes);
  std::copy_n(type, type_bytes, to);
  return all;
}

bool is_greeting(const std::byte* b) noexcept {
  constexpr std::string_view plain("NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  return b[0] == std::byte{0xff} && b[9] == std::byte{0x7f} && b[10] >= std::byte{least_version} &&
         std::memcmp(b + 12, plain.data(), plain.size()) == 0;
}

}  // namespace

std::string_view zmtp_opening(bool is_router) noexcept {
  static constexpr auto router = opening("ROUTER");
  static constexpr auto dealer = opening("DEALER");
  return is_router ? std::string_view(router.data(), router.size()) : std::string_view(dealer.data(), dealer.size());
}

zmtp_framing::zmtp_framing(const outgoing& message, const ring_places& places) noexcept {
  const std::size_t tail = message.tail.size();
  before_head[0] = std::byte{frame_more};  // the empty frame of the envelope
  before_head[1] = std::byte{0};
  before_head_bytes = static_cast<std::uint8_t>(2 + put_header(&before_head[2], tail != 0 ? frame_more : 0,
                                                               message.head.size() + message.body.size(), places.head));
  before_tail_bytes = tail != 0 ? put_header(before_tail.data(), 0, tail, places.tail) : 0;
}

std::span<std::byte> zmtp_inbox::room() {
  if (big_) return {big_.mutable_data() + big_filled_, big_.size() - big_filled_};
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(capacity);
  if (begin_ != 0 && (begin_ == end_ || end_ > capacity / 2)) {
    std::memmove(buffer_.get(), at(begin_), end_ - begin_);
    pos_ -= begin_;
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, capacity - end_};
}

zmtp_inbox::outcome zmtp_inbox::next(message& out) {
  for (;;) {
    if (in_part_) {
      if (!end_part()) return outcome::incomplete;
      if (more_) continue;
      const bool is_good = !is_dropped_ && parts_ >= 2;
      if (is_good) {
        out.memory = std::move(head_);
        out.frame = out.memory ? out.memory.bytes() : std::span(at(begin_ + head_offset_), head_bytes_);
        out.tail = std::move(tail_);
        out.tail_is_lent = tail_is_lent_;
      }
      start_over();
      if (is_good) return outcome::message;
      continue;
    }
    const std::size_t left = end_ - pos_;
    if (stage_ == stage::greeting) [[unlikely]] {
      if (left < greeting_bytes) return outcome::incomplete;
      if (!is_greeting(at(pos_))) return outcome::broken;
      stage_ = stage::ready;
      begin_ = pos_ += greeting_bytes;
      continue;
    }
    if (left < 2) return outcome::incomplete;
    const auto flags = std::to_integer<std::uint8_t>(*at(pos_));
    const bool is_in_ring = (flags & frame_in_ring) != 0;
    if ((flags & ~(frame_more | frame_long | frame_command | frame_in_ring)) != 0 ||
        (is_in_ring && (!ring || (flags & (frame_long | frame_command)) != frame_long)))
      return outcome::broken;
    std::uint64_t size = std::to_integer<std::uint8_t>(*at(pos_ + 1));
    std::size_t header = 2;
    if ((flags & frame_long) != 0) {
      header = is_in_ring ? ring_header : long_header;
      if (left < header) return outcome::incomplete;
      size = get_number(at(pos_ + 1));
    }
    if ((flags & frame_command) != 0) [[unlikely]] {
      if (parts_ != 0 || (flags & frame_more) != 0 || size == 0 || size > most_command_bytes) return outcome::broken;
      if (left < header + size) return outcome::incomplete;
      const auto o = take_command(header, size);
      if (o != outcome::incomplete) return o;
      continue;
    }
    const auto in_ring = is_in_ring ? std::optional(get_number(at(pos_ + 9))) : std::nullopt;
    if (stage_ != stage::messages || !begin_part(header, size, (flags & frame_more) != 0, in_ring))
      return outcome::broken;
  }
}

/// Returns: incomplete: it is done.
zmtp_inbox::outcome zmtp_inbox::take_command(std::size_t header, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(at(pos_ + header)), size);
  begin_ = pos_ += header + size;
  if (stage_ == stage::ready) {
    if (!text.starts_with("\5READY")) return outcome::broken;
    stage_ = stage::messages;
    return outcome::incomplete;
  }
  if (text == zmtp_wants_ring.substr(2)) return outcome::wants_ring;
  if (text == zmtp_has_ring.substr(2)) return outcome::has_ring;
  constexpr std::size_t before_context = 5 + 2;  // the name, and a time to live
  if (!text.starts_with("\4PING") || size < before_context) return outcome::incomplete;
  const auto context = text.substr(before_context, 16);
  std::memcpy(pong_.data() + 2, "\4PONG", 5);
  std::memcpy(pong_.data() + 7, context.data(), context.size());
  pong_bytes_ = 7 + context.size();
  put_header(pong_.data(), frame_command, pong_bytes_ - 2);
  return outcome::ping;
}

/// Returns: false when the message exceeds a limit, or the ring has no such block.
bool zmtp_inbox::begin_part(std::size_t header, std::uint64_t size, bool more, std::optional<std::uint64_t> in_ring) {
  if (++parts_ > most_parts || size > limit_ || size > 2 * std::uint64_t{limit_} - bytes_) return false;
  bytes_ += size;
  more_ = more;
  in_part_ = true;
  pos_ += header;
  skip_ = 0;
  part_bytes_ = 0;
  if (in_ring) {
    shared_buffer block;
    tail_is_lent_ = lends_tails && parts_ == 3;
    if (!(tail_is_lent_ ? ring->lend(*in_ring, size, block) : ring->take(*in_ring, size, block))) return false;
    is_dropped_ = is_dropped_ || parts_ == 1 || parts_ > 3;
    if (!is_dropped_) (parts_ == 2 ? head_ : tail_) = std::move(block);
  } else if (is_dropped_ || parts_ == 1 || parts_ > 3) {  // the envelope's frame is empty, and two follow at most
    is_dropped_ = is_dropped_ || size != 0 || parts_ > 3;
    skip_ = size;
  } else if (parts_ == 2) {
    head_offset_ = pos_ - begin_;
    head_bytes_ = size;
    if (size <= capacity - head_offset_ - longest_header) part_bytes_ = size;  // with that of the next frame
    else big_ = shared_buffer::allocate(size);
  } else if (size != 0) {
    big_ = shared_buffer::allocate(size);
  }
  if (big_) {
    big_filled_ = std::min<std::size_t>(size, end_ - pos_);
    std::memcpy(big_.mutable_data(), at(pos_), big_filled_);
    if (big_filled_ == size) pos_ += big_filled_;
    else end_ = pos_;  // the rest goes there, and what follows it here
  }
  return true;
}

/// Returns: whether the current part is complete.
bool zmtp_inbox::end_part() {
  if (skip_ != 0) {
    const auto n = std::min<std::uint64_t>(skip_, end_ - pos_);
    skip_ -= n;
    begin_ = pos_ += n;  // nothing before is needed any more
    if (skip_ != 0) return false;
  } else if (big_) {
    if (big_filled_ != big_.size()) return false;
    (parts_ == 2 ? head_ : tail_) = std::move(big_);
    big_ = {};
  } else {
    if (end_ - pos_ < part_bytes_) return false;
    pos_ += part_bytes_;
  }
  if (parts_ == 2 && head_) begin_ = pos_;  // it is not in the buffer, which may be full
  in_part_ = false;
  return true;
}

void zmtp_inbox::start_over() noexcept {
  begin_ = pos_;
  parts_ = 0;
  bytes_ = 0;
  is_dropped_ = false;
  head_ = {};
  tail_ = {};
  tail_is_lent_ = false;
}

}  // namespace paracel::net
