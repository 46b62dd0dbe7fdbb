// SPDX-License-Identifier: BSD-3-Clause
//
// The wire format, drawn in src/net/README.md: a request is a 96-byte header and a body in one frame, a reply a 64-byte
// header and a body; a large value follows in a second frame. Everything is little-endian. Nothing here depends on
// sockets.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>

#include "core/short_bytes.hpp"
#include "net/verbs.hpp"

namespace paracel::net {

inline constexpr std::uint8_t protocol_version = 1;
inline constexpr std::size_t request_header_bytes = 96;
inline constexpr std::size_t reply_header_bytes = 64;
inline constexpr std::uint16_t any_partition = 0xffff;
/// A clock exempt from every rule: tools, proxies, reads without SSP.
inline constexpr std::uint32_t no_clock = 0xffffffffU;
/// Larger values are sent in a frame of their own (measured: below it one copy is cheaper than a second frame).
inline constexpr std::size_t tail_threshold_bytes = 64 * 1024;
inline constexpr std::size_t max_key_bytes = 65535;

enum class status : std::uint16_t {
  ok = 0,
  not_found = 1,         ///< the key does not exist
  type_mismatch = 2,     ///< the value or delta has another type than the function accepts
  unknown_function = 3,  ///< register it first
  plugin_failed = 4,     ///< a plug-in could not be loaded or its function threw; the value is unchanged
  bad_request = 5,       ///< malformed or impossible
  wrong_owner = 6,       ///< the partition is not served here
  stale_epoch = 7,       ///< the sender's membership is older than ours, which is the body
  too_large = 8,
  deadline_exceeded = 9,
  job_ended = 10,  ///< the job is aborting; the body says why
  wrong_job = 11,
  internal = 12,
  conflict = 13,          ///< cas: the value has another version than expected
  unknown_set = 14,       ///< no key set, or list of rows, with this digest is known: send it again
  out_of_memory = 15,     ///< beyond --max-memory of the server; nothing has changed
  expired = 16,           ///< retried too late, or lost between two replicas: it is unknown whether it was applied
  connection_reset = 17,  ///< the connection is new, and earlier messages may be lost: resend all of them
};
const char* name_of(status s) noexcept;

/// A directive to the worker (in heartbeat and clock replies).
/// checkpoint: stop here, write your part, and continue when the scheduler has replied.
enum class instruction : std::uint8_t { proceed = 0, abort = 1, shutdown = 2, checkpoint = 3 };

/// Request flags.
inline constexpr std::uint16_t flag_staged = 1;  ///< BSP: fold this update when the clock ticks, in rank order
inline constexpr std::uint16_t flag_bsp_read =
    2;  ///< BSP: header.clock iterations of every worker are complete; fold them first
inline constexpr std::uint16_t flag_range = 4;      ///< at verbs: a range of elements instead of a list
inline constexpr std::uint16_t flag_keys_only = 8;  ///< scan: without the values
inline constexpr std::uint16_t flag_named = 16;     ///< rows: named by texts instead of 64-bit ids
/// Part of a stream: all requests of client and rank to this thread use one connection, in order. The first over a
/// connection carries flag_first; others over a connection that has seen no such request are rejected with
/// `connection_reset`.
inline constexpr std::uint16_t flag_stream = 32;
inline constexpr std::uint16_t flag_first = 64;
inline constexpr std::uint16_t flag_listed = 128;  ///< rows: the ids are those of the list whose digest is the key
/// Many keys: the reply may be one with reply_uniform. Only where it need not be merged with others (no replicas).
inline constexpr std::uint16_t flag_uniform_reply = 256;
inline constexpr std::uint16_t flag_gaps = 512;  ///< rows: non-decreasing ids, as the first one and the gaps after it
inline constexpr std::uint16_t flag_traced = 1024;  ///< who handles it records when, if its process is traced
/// Rows: the numbers of the request or its reply as in row_values.hpp; at most one of them. table_open: they may be.
inline constexpr std::uint16_t flag_f16 = 2048;
inline constexpr std::uint16_t flag_i8 = 4096;
/// header.count of a ping that only asks whether this thread is alive, regardless of the order of requests.
inline constexpr std::uint32_t ping_alive = 1;
/// The count in the reply to a heartbeat of the rightful process: its lease is renewed.
inline constexpr std::uint32_t known_sender = 1;
/// Reply flags.
/// Sets, and requests on many keys that allow it: all keys succeeded, and the values, if any, are contiguous instead of
/// items, all of the reply's tag.
inline constexpr std::uint16_t reply_uniform = 1;
inline constexpr std::uint16_t reply_more = 2;  ///< there is more: continue from the cursor that the body begins with

struct request_header {
  verb what = verb::none;
  std::uint16_t flags = 0;
  std::uint64_t job = 0;
  std::uint64_t client = 0;         ///< incarnation of the client, unique
  std::uint64_t sequence = 0;       ///< of that client, from 1, never reused
  std::uint64_t low_watermark = 0;  ///< every sequence below it is answered
  std::uint32_t rank = 0;
  std::uint32_t clock = no_clock;
  std::uint32_t epoch = 0;
  std::uint16_t partition = any_partition;
  value_tag tag = value_tag::none;  ///< of the value or delta of a single-key request
  std::uint64_t function = 0;
  std::uint32_t table = 0;
  std::uint32_t credit = 0;       ///< bytes the client accepts in one reply; 0 = no limit of its own
  std::uint32_t deadline_ms = 0;  ///< 0 = none
  std::uint32_t count = 0;        ///< items of a multi request
  std::uint32_t key_bytes = 0;    ///< the key is at the front of the body
  std::uint32_t body_bytes = 0;
  std::uint64_t tail_bytes = 0;
};

struct reply_header {
  verb what = verb::none;
  status result = status::ok;
  std::uint64_t sequence = 0;
  std::uint64_t value_version = 0;
  std::uint64_t server = 0;  ///< incarnation of the server
  std::uint32_t clock = 0;   ///< slowest worker's clock as known to the server
  std::uint32_t epoch = 0;
  std::uint32_t count = 0;
  std::uint32_t body_bytes = 0;
  std::uint64_t tail_bytes = 0;
  value_tag tag = value_tag::none;
  instruction order = instruction::proceed;
  std::uint16_t flags = 0;
  std::uint32_t credit = 0;
};

using request_bytes = std::array<std::byte, request_header_bytes>;
using reply_bytes = std::array<std::byte, reply_header_bytes>;
void encode(const request_header& h, std::span<std::byte, request_header_bytes> out) noexcept;
void encode(const reply_header& h, std::span<std::byte, reply_header_bytes> out) noexcept;

/// A decoded request; the views point into the frame.
struct request_view {
  request_header header;
  std::span<const std::byte> body;  ///< header.body_bytes long
  /// The key of a single-key request.
  [[nodiscard]] std::string_view key() const noexcept {
    return {reinterpret_cast<const char*>(body.data()), header.key_bytes};
  }
  /// What follows the key.
  [[nodiscard]] std::span<const std::byte> payload() const noexcept { return body.subspan(header.key_bytes); }
};
struct reply_view {
  reply_header header;
  std::span<const std::byte> body;
};

/// Decodes and checks one frame: magic, version, known verb and tag, consistent lengths, key inside the body.
/// On failure returns the reason; `out.header` holds what could be read (sequence and verb if the frame is long
/// enough). Cost: O(1), no allocation.
[[nodiscard]] const char* decode(std::span<const std::byte> frame, std::size_t tail_bytes, request_view& out) noexcept;
[[nodiscard]] const char* decode(std::span<const std::byte> frame, std::size_t tail_bytes, reply_view& out) noexcept;

// ---- items of multi requests and replies ------------------------------------------------------------------------
//
// request item: u32 key_bytes | u32 value_bytes | u8 tag | 3 zero bytes | key | value        (12 bytes before the key)
// reply item:   u32 value_bytes | u8 tag | u8 zero | u16 status | u64 version | value         (16 bytes before the
// value)

struct request_item {
  std::string_view key;
  value_view value;
};
struct reply_item {
  status result = status::ok;
  std::uint64_t version = 0;
  value_view value;
};
/// Bytes before the key of a request item.
inline constexpr std::size_t request_item_bytes = 12;
inline constexpr std::size_t reply_item_bytes = 16;
void append_item(std::vector<std::byte>& body, std::string_view key, const value_view& value = {});
/// The same into memory that has room for it. Returns: the position of the next one.
/// Throws: protocol_error for a key or a value that is too long; nothing is written.
inline std::byte* write_item(std::byte* to, std::string_view key, const value_view& value);
[[noreturn]] void refuse_item(std::string_view key, const value_view& value);
void append_item(std::vector<std::byte>& body, status result, std::uint64_t version, const value_view& value);

/// Iterates over `count` items of a body; stops at the first malformed one.
/// Cost: O(1) per item, no allocation; `count` is never trusted beyond the available bytes.
class request_items {
 public:
  request_items(std::span<const std::byte> body, std::uint32_t count) noexcept : rest_(body), left_(count) {}
  /// The next item, or nothing at the end or when the rest is malformed (`ok()` tells which).
  bool next(request_item& out) noexcept;
  /// The next items, as many as `to` has room for, by where they begin (`item_key`, `item_value`). Returns: how many;
  /// fewer at the end or when the rest is malformed. Cost: items with the lengths and the tag of the one before are
  /// recognised by two comparisons.
  std::size_t next(std::span<const std::byte*> to) noexcept;
  /// True when all items were read and no byte is left over.
  [[nodiscard]] bool ok() const noexcept { return !bad_ && left_ == 0 && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  std::uint32_t left_;
  bool bad_ = false;
  // What the last item of a batch began with, and its length; none yet: longer than any.
  std::uint64_t lengths_ = 0;
  std::uint32_t tag_ = 0;
  std::size_t bytes_ = std::numeric_limits<std::size_t>::max();
};
/// Of an item by where it begins, once request_items has checked it.
inline std::string_view item_key(const std::byte* item) noexcept;
inline value_view item_value(const std::byte* item) noexcept;

class reply_items {
 public:
  reply_items(std::span<const std::byte> body, std::uint32_t count) noexcept : rest_(body), left_(count) {}
  bool next(reply_item& out) noexcept;
  [[nodiscard]] bool ok() const noexcept { return !bad_ && left_ == 0 && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  std::uint32_t left_;
  bool bad_ = false;
};

inline std::span<const std::byte> bytes_of(std::string_view s) noexcept {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}
inline std::string_view text_of(std::span<const std::byte> b) noexcept {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

inline std::byte* write_item(std::byte* to, std::string_view key, const value_view& value) {
  const auto bytes = value.bytes.size();
  if (key.size() > max_key_bytes || bytes > std::numeric_limits<std::uint32_t>::max()) [[unlikely]]
    refuse_item(key, value);
  to = store_fields(to, static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(bytes),
                    static_cast<std::uint32_t>(value.tag));  // and three zero bytes
  copy_short(to, key.data(), key.size());
  copy_short(to + key.size(), value.bytes.data(), bytes);
  return to + key.size() + bytes;
}

inline bool request_items::next(request_item& out) noexcept {
  if (bad_ || left_ == 0) return false;
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  value_tag tag{};
  std::array<std::byte, 3> zeros{};
  bad_ = true;  // until the item is known to be complete
  if (rest_.size() < request_item_bytes) return false;
  load_fields(rest_.data(), key_bytes, value_bytes, tag, zeros);
  const auto after = rest_.subspan(request_item_bytes);
  if (key_bytes > max_key_bytes || key_bytes > after.size() || value_bytes > after.size() - key_bytes) return false;
  if (!paracel::is_known(tag) || zeros != std::array<std::byte, 3>{}) return false;
  out.key = text_of(after.first(key_bytes));
  out.value = {tag, after.subspan(key_bytes, value_bytes)};
  rest_ = after.subspan(std::size_t{key_bytes} + value_bytes);
  --left_;
  bad_ = false;
  return true;
}

inline std::size_t request_items::next(std::span<const std::byte*> to) noexcept {
  const auto most = bad_ ? 0 : std::min<std::size_t>(to.size(), left_);
  const auto* at = rest_.data();
  auto bytes = rest_.size();
  std::size_t n = 0;
  for (; n < most; ++n) {
    to[n] = at;
    if (bytes < bytes_ || load_field<std::uint64_t>(at) != lengths_ || load_field<std::uint32_t>(at + 8) != tag_) {
      request_items one({at, bytes}, 1);
      request_item item;
      if (!one.next(item)) {
        bad_ = true;
        break;
      }
      load_fields(at, lengths_, tag_);
      bytes_ = bytes - one.rest_.size();
    }
    at += bytes_;
    bytes -= bytes_;
  }
  rest_ = {at, bytes};
  left_ -= static_cast<std::uint32_t>(n);
  return n;
}

inline std::string_view item_key(const std::byte* item) noexcept {
  return {reinterpret_cast<const char*>(item) + request_item_bytes, load_field<std::uint32_t>(item)};
}
inline value_view item_value(const std::byte* item) noexcept {
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  value_tag tag{};
  load_fields(item, key_bytes, value_bytes, tag);
  return {tag, {item + request_item_bytes + key_bytes, value_bytes}};
}

inline bool reply_items::next(reply_item& out) noexcept {
  if (bad_ || left_ == 0) return false;
  std::uint32_t value_bytes = 0;
  value_tag tag{};
  std::uint8_t zero = 0;
  bad_ = true;
  if (rest_.size() < reply_item_bytes) return false;
  load_fields(rest_.data(), value_bytes, tag, zero, out.result, out.version);
  const auto after = rest_.subspan(reply_item_bytes);
  if (value_bytes > after.size()) return false;
  if (!paracel::is_known(tag) || zero != 0 || out.result > status::expired) return false;
  out.value = {tag, after.first(value_bytes)};
  rest_ = after.subspan(value_bytes);
  --left_;
  bad_ = false;
  return true;
}

}  // namespace paracel::net
