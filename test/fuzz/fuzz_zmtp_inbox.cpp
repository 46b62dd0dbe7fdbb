// SPDX-License-Identifier: BSD-3-Clause
//
// What the other end of a Unix socket sends: arbitrary bytes, behind a good opening or not, to an inbox with a ring or
// without. The first byte chooses that, the second how they are cut. However they are cut, the same messages come out;
// a frame in the ring has the bytes that lie there.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/unix_ring.hpp"
#include "net/zmtp_inbox.hpp"
#include "property.hpp"

namespace {

using namespace paracel::net;

constexpr std::size_t most_bytes = 100'000;
std::byte pattern(std::size_t i) { return static_cast<std::byte>(i % 251); }

std::unique_ptr<ring_reader> filled_ring() {
  auto reader = ring_reader::make();
  require(reader != nullptr, "a ring can be made");
  std::vector<std::byte> all(ring_capacity);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = pattern(i);
  const ring_memory memory(reader->file());
  std::memcpy(memory.blocks(), all.data(), all.size());
  return reader;
}

using text = std::string;

/// Everything that comes out of the inbox, in order.
std::vector<text> taken(std::span<const std::uint8_t> all, std::size_t cut, std::unique_ptr<ring_reader>& ring) {
  zmtp_inbox inbox({.max_message_bytes = most_bytes});
  inbox.ring = std::move(ring);
  std::vector<text> seen;
  bool is_broken = false;
  while (!all.empty() && !is_broken) {
    const auto room = inbox.room();
    require(!room.empty(), "there is room for more");
    const auto n = std::min({cut, all.size(), room.size()});
    std::memcpy(room.data(), all.data(), n);
    all = all.subspan(n);
    inbox.filled(n);
    for (zmtp_inbox::message m;;) {
      const auto o = inbox.next(m);
      if (o == zmtp_inbox::outcome::incomplete) break;
      const auto of = [](std::span<const std::byte> b) {
        return text(reinterpret_cast<const char*>(b.data()), b.size());
      };
      text what(1, static_cast<char>('0' + static_cast<int>(o)));
      if (o == zmtp_inbox::outcome::message) {
        require(m.frame.size() <= most_bytes && m.tail.size() <= most_bytes, "no frame exceeds the limit");
        what += std::to_string(m.frame.size()) + ":" + of(m.frame) + of(m.tail.bytes());
      } else if (o == zmtp_inbox::outcome::ping) {
        what += of(inbox.pong());
      }
      seen.push_back(std::move(what));
      m = {};
      is_broken = o == zmtp_inbox::outcome::broken;
      if (is_broken) break;
    }
  }
  ring = std::move(inbox.ring);
  return seen;
}

/// A message whose head is a frame in the ring, if the ring has it.
void check_block(std::uint64_t offset, std::uint64_t bytes, std::unique_ptr<ring_reader>& ring) {
  paracel::shared_buffer out;
  const bool is_inside = bytes != 0 && bytes <= ring_capacity && offset <= ring_capacity - bytes;
  require(ring->take(offset, bytes, out) == is_inside, "what is not in the ring is refused");
  for (std::size_t i = 0; i < out.size(); i += 997)
    require(out.data()[i] == pattern(offset + i), "the bytes are those");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static auto one = filled_ring();
  std::unique_ptr<ring_reader> none;
  auto& ring = (data[0] & 1U) != 0 ? one : none;
  std::vector<std::uint8_t> all;
  if ((data[0] & 2U) != 0) all.assign(zmtp_opening(false).begin(), zmtp_opening(false).end());
  all.insert(all.end(), data + 2, data + size);
  const auto expected = taken(all, all.size() + 1, ring);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{1} + data[1]})
    require(taken(all, cut, ring) == expected, "what comes out does not depend on how the bytes are cut");
  if (size >= 18) {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::memcpy(&offset, data + 2, 8);
    std::memcpy(&bytes, data + 10, 8);
    if ((data[0] & 4U) != 0) offset %= 2 * ring_capacity;
    if ((data[0] & 8U) != 0) bytes %= 2 * ring_capacity;
    if (bytes <= 2 * most_bytes || bytes > ring_capacity) check_block(offset, bytes, one);
  }
  return 0;
}
