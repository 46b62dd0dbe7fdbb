// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as a request frame, as a reply frame and as items. Besides not crashing: accepted input encodes to
// the same bytes again, and no view leaves the frame.
#include <cstdint>
#include <vector>

#include "net/protocol.hpp"
#include "property.hpp"
#include "server/request/request_payloads.hpp"

namespace {

using namespace paracel;
using namespace paracel::net;

using bytes = std::vector<std::byte>;

bool inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

void read_request_items(std::span<const std::byte> body, std::uint32_t count) {
  request_items items(body, count);
  request_item item;
  bytes again;
  std::uint32_t seen = 0;
  while (items.next(item)) {
    require(inside(bytes_of(item.key), body) && inside(item.value.bytes, body), "a request item stays in its body");
    append_item(again, item.key, item.value);
    ++seen;
  }
  require(seen <= count && again.size() <= body.size(), "no more request items than there are");
  require(same(again, body.first(again.size())), "request items encode to what they were read from");
  if (items.ok()) require(seen == count && again.size() == body.size(), "accepted request items are the whole body");
}

void read_reply_items(std::span<const std::byte> body, std::uint32_t count) {
  reply_items items(body, count);
  reply_item item;
  bytes again;
  std::uint32_t seen = 0;
  while (items.next(item)) {
    require(inside(item.value.bytes, body), "a reply item stays in its body");
    append_item(again, item.result, item.version, item.value);
    ++seen;
  }
  require(seen <= count && again.size() <= body.size(), "no more reply items than there are");
  require(same(again, body.first(again.size())), "reply items encode to what they were read from");
  if (items.ok()) require(seen == count && again.size() == body.size(), "accepted reply items are the whole body");
}

void as_payload_of_a_key(std::span<const std::byte> payload) {
  if (srv::default_and_delta both; srv::parse(payload, both)) {
    require(inside(both.initial.bytes, payload) && inside(both.delta.bytes, payload),
            "two values stay in their payload");
    bytes again;
    append_item(again, {}, both.initial);
    append_item(again, {}, both.delta);
    require(same(again, payload), "initial value and delta are the whole payload");
  }
  auto rest = payload;
  std::uint64_t version = 0;
  if (srv::take_expected(rest, version)) {
    require(inside(rest, payload) && rest.size() + sizeof version == payload.size(), "a version and the rest");
  } else {
    require(rest.size() == payload.size() && payload.size() < sizeof version, "what holds no version is left alone");
  }
}

void as_request(std::span<const std::byte> frame, std::size_t tail_bytes) {
  request_view v;
  if (decode(frame, tail_bytes, v) != nullptr) {
    require(v.body.empty(), "a refused request has no body");
    return;
  }
  request_bytes again;
  encode(v.header, again);
  require(same(again, frame.first(request_header_bytes)), "an accepted request encodes to its own bytes");
  require(same(v.body, frame.subspan(request_header_bytes)), "the body of a request is the rest of its frame");
  require(v.key().size() + v.payload().size() == v.body.size(), "a request is a key and a payload");
  read_request_items(v.payload(), v.header.count);
  as_payload_of_a_key(v.payload());
}

void as_reply(std::span<const std::byte> frame, std::size_t tail_bytes) {
  reply_view v;
  if (decode(frame, tail_bytes, v) != nullptr) {
    require(v.body.empty(), "a refused reply has no body");
    return;
  }
  reply_bytes again;
  encode(v.header, again);
  require(same(again, frame.first(reply_header_bytes)), "an accepted reply encodes to its own bytes");
  require(same(v.body, frame.subspan(reply_header_bytes)), "the body of a reply is the rest of its frame");
  read_reply_items(v.body, v.header.count);
}

/// The unmodified frame, and once more with valid values in the fields that random input does not match, so that the
/// decoders behind them are reached.
template <class Decode>
void raw_and_repaired(bytes frame, std::size_t header_bytes, const char* magic, std::size_t body_bytes_at,
                      std::size_t tail_bytes_at, Decode decode_it) {
  decode_it(frame, 0);
  if (frame.size() < header_bytes) return;
  const auto body_bytes = static_cast<std::uint32_t>(frame.size() - header_bytes);
  std::memcpy(frame.data(), magic, 4);
  frame[4] = std::byte{protocol_version};
  std::memcpy(frame.data() + body_bytes_at, &body_bytes, 4);
  std::uint64_t tail_bytes = 0;
  std::memcpy(&tail_bytes, frame.data() + tail_bytes_at, 8);
  decode_it(frame, tail_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const bytes frame(input.begin(), input.end());  // exact size, so that reads beyond it are detected
  raw_and_repaired(frame, request_header_bytes, "PRCQ", 84, 88, as_request);
  raw_and_repaired(frame, reply_header_bytes, "PRCR", 44, 48, as_reply);
  if (size > 0) {
    const auto count = std::to_integer<std::uint32_t>(input[0]) % 16;
    const bytes body(input.begin() + 1, input.end());
    read_request_items(body, count);
    read_reply_items(body, count);
    as_payload_of_a_key(body);
  }
  return 0;
}
