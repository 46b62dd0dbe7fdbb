// SPDX-License-Identifier: BSD-3-Clause
#include "net/protocol.hpp"

#include <bit>
#include <limits>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/hash.hpp"
#include "net/job_key.hpp"

namespace paracel::net {
namespace {

static_assert(std::endian::native == std::endian::little, "values are used where they lie, and they are little-endian");

// The two magics differ so that a reply sent to a server, or a request sent to a worker, is detected at the first word.
constexpr std::uint32_t request_magic = 0x51435250;  // "PRCQ"
constexpr std::uint32_t reply_magic = 0x52435250;    // "PRCR"
constexpr std::uint16_t known_flags = flag_staged | flag_bsp_read | flag_range | flag_keys_only | flag_named |
                                      flag_stream | flag_first | flag_listed | flag_uniform_reply | flag_gaps |
                                      flag_traced | flag_f16 | flag_i8;
constexpr std::uint16_t known_reply_flags = reply_uniform | reply_more;

std::uint32_t item_value_bytes(const value_view& value) {
  if (value.bytes.size() > std::numeric_limits<std::uint32_t>::max()) refuse_item({}, value);
  return static_cast<std::uint32_t>(value.bytes.size());
}

}  // namespace

const char* name_of(status s) noexcept {
  switch (s) {
    case status::ok:
      return "ok";
    case status::not_found:
      return "not_found";
    case status::type_mismatch:
      return "type_mismatch";
    case status::unknown_function:
      return "unknown_function";
    case status::plugin_failed:
      return "plugin_failed";
    case status::bad_request:
      return "bad_request";
    case status::wrong_owner:
      return "wrong_owner";
    case status::stale_epoch:
      return "stale_epoch";
    case status::too_large:
      return "too_large";
    case status::deadline_exceeded:
      return "deadline_exceeded";
    case status::job_ended:
      return "job_ended";
    case status::wrong_job:
      return "wrong_job";
    case status::internal:
      return "internal";
    case status::conflict:
      return "conflict";
    case status::unknown_set:
      return "unknown_set";
    case status::out_of_memory:
      return "out_of_memory";
    case status::expired:
      return "expired";
    case status::connection_reset:
      return "connection_reset";
  }
  return "unknown";
}

// Fields in the order of the drawing in README.md: their offsets follow from their types. Golden frames pin them.
void encode(const request_header& h, std::span<std::byte, request_header_bytes> out) noexcept {
  [[maybe_unused]] const auto* end =
      store_fields(out.data(), request_magic, protocol_version, h.what, h.flags, h.job ^ job_key(), h.client,
                   h.sequence, h.low_watermark, h.rank, h.clock, h.epoch, h.partition, h.tag, std::uint8_t{0},
                   h.function, h.table, h.credit, h.deadline_ms, h.count, h.key_bytes, h.body_bytes, h.tail_bytes);
  PARACEL_ASSERT(end == out.data() + out.size());
}

void encode(const reply_header& h, std::span<std::byte, reply_header_bytes> out) noexcept {
  [[maybe_unused]] const auto* end =
      store_fields(out.data(), reply_magic, protocol_version, h.what, h.result, h.sequence, h.value_version, h.server,
                   h.clock, h.epoch, h.count, h.body_bytes, h.tail_bytes, h.tag, h.order, h.flags, h.credit);
  PARACEL_ASSERT(end == out.data() + out.size());
}

const char* decode(std::span<const std::byte> frame, std::size_t tail_bytes, request_view& out) noexcept {
  out = {};
  if (frame.size() < request_header_bytes) return "request shorter than its header";
  auto& h = out.header;
  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  std::uint8_t zero = 0;
  load_fields(frame.data(), magic, version, h.what, h.flags, h.job, h.client, h.sequence, h.low_watermark, h.rank,
              h.clock, h.epoch, h.partition, h.tag, zero, h.function, h.table, h.credit, h.deadline_ms, h.count,
              h.key_bytes, h.body_bytes, h.tail_bytes);
  h.job ^= job_key();
  const auto body = frame.subspan(request_header_bytes);
  if (magic != request_magic) return "not a request: wrong magic";
  if (version != protocol_version) return "request of another protocol version";
  if (!is_known(h.what)) return "unknown verb";
  if ((h.flags & ~known_flags) != 0) return "unknown request flag";
  if (!paracel::is_known(h.tag)) return "unknown type tag in the request";
  if (zero != 0) return "reserved byte of the request is not zero";
  if (h.partition >= partition_count && h.partition != any_partition) return "no such partition";
  if (h.body_bytes != body.size()) return "body length of the request differs from its frame";
  if (h.tail_bytes != tail_bytes) return "tail length of the request differs from its frame";
  if (h.key_bytes > max_key_bytes) return "key longer than 65535 bytes";
  if (h.key_bytes > body.size()) return "key longer than the body";
  if (kind_of(h.what) == verb_kind::keys && h.count > (body.size() - h.key_bytes) / request_item_bytes) {
    return "more items announced than the body can hold";
  }
  out.body = body;
  return nullptr;
}

const char* decode(std::span<const std::byte> frame, std::size_t tail_bytes, reply_view& out) noexcept {
  out = {};
  if (frame.size() < reply_header_bytes) return "reply shorter than its header";
  auto& h = out.header;
  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  load_fields(frame.data(), magic, version, h.what, h.result, h.sequence, h.value_version, h.server, h.clock, h.epoch,
              h.count, h.body_bytes, h.tail_bytes, h.tag, h.order, h.flags, h.credit);
  const auto body = frame.subspan(reply_header_bytes);
  if (magic != reply_magic) return "not a reply: wrong magic";
  if (version != protocol_version) return "reply of another protocol version";
  // verb none: the reply to a request whose verb could not be read
  if (h.what != verb::none && !is_known(h.what)) return "unknown verb";
  if (h.result > status::connection_reset) return "unknown status";
  if (!paracel::is_known(h.tag)) return "unknown type tag in the reply";
  if (h.order > instruction::checkpoint) return "unknown instruction";
  if ((h.flags & ~known_reply_flags) != 0) return "unknown reply flag";
  if (h.body_bytes != body.size()) return "body length of the reply differs from its frame";
  if (h.tail_bytes != tail_bytes) return "tail length of the reply differs from its frame";
  if (kind_of(h.what) == verb_kind::keys && (h.flags & reply_uniform) == 0 &&
      h.count > body.size() / reply_item_bytes) {
    return "more items announced than the body can hold";
  }
  out.body = body;
  return nullptr;
}

void refuse_item(std::string_view key, const value_view& value) {
  if (key.size() > max_key_bytes) {
    throw protocol_error("a key of " + std::to_string(key.size()) + " bytes; at most 65535 are allowed");
  }
  throw protocol_error("a value of " + std::to_string(value.bytes.size()) + " bytes does not fit a multi request");
}

void append_item(std::vector<std::byte>& body, std::string_view key, const value_view& value) {
  const auto at = body.size();
  body.resize(at + request_item_bytes + key.size() + value.bytes.size());
  try {
    write_item(body.data() + at, key, value);
  } catch (...) {
    body.resize(at);
    throw;
  }
}

void append_item(std::vector<std::byte>& body, status result, std::uint64_t version, const value_view& value) {
  std::array<std::byte, reply_item_bytes> front{};
  store_fields(front.data(), item_value_bytes(value), value.tag, std::uint8_t{0}, result, version);
  body.insert(body.end(), front.begin(), front.end());
  body.insert(body.end(), value.bytes.begin(), value.bytes.end());
}

}  // namespace paracel::net
