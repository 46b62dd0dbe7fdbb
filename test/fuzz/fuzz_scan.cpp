// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as the payloads and replies of scans and reductions. Besides not crashing: accepted input encodes to
// the same bytes again, names a valid position, and no view leaves its bytes.
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/hash.hpp"
#include "net/scan_codec.hpp"
#include "property.hpp"

namespace {

using namespace paracel;
using namespace paracel::net;

bool exists(const scan_cursor& c) { return c.partition <= partition_count && c.position < scan_positions; }

template <class Request>
void as_payload(std::span<const std::byte> bytes) {
  Request r;
  if (decode(bytes, r) != nullptr) return;
  require(exists(r.from), "an accepted cursor is a place");
  std::vector<std::byte> again;
  append(again, r);
  require(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), again.size()) == 0,
          "an accepted payload encodes to itself");
}

void as_reply(std::span<const std::byte> bytes) {
  scan_reply scan;
  if (decode(bytes, scan) == nullptr) {
    require(exists(scan.next), "an accepted place exists");
    require(scan.rest.size() + scan_cursor_bytes == bytes.size(), "the rest is the rest");
    summary s;
    if (decode(scan.rest, s) == nullptr) {
      require(s.bins.size() * 8 + summary_front_bytes == scan.rest.size(), "a summary is as large as its bins say");
      std::vector<std::byte> again;
      append(again, s);
      require(std::memcmp(again.data(), scan.rest.data(), again.size()) == 0, "a summary encodes to itself");
      summary twice;
      twice.merge(s);
      twice.merge(s);
      require(twice.keys == 2 * s.keys, "partials merge");
    }
  }
  top_k_reply top;
  if (decode(bytes, top) == nullptr) {
    request_items items(top.items, 3);
    for (request_item i; items.next(i);) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  as_payload<scan_request>(bytes);
  as_payload<top_k_request>(bytes);
  as_payload<reduce_request>(bytes);
  as_reply(bytes);
  return 0;
}
