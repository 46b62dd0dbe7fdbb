// SPDX-License-Identifier: BSD-3-Clause
//
// Parts of a message, as a member of the job may send them: any sizes in any order. However they come, no frame exceeds
// its limit, every byte of an accepted message is in one of two frames, and what is cut again arrives as the same. And
// as parts of several connections, whose messages may have no end: those of none, and those of all together, take more
// than is allowed, and only a connection with the largest one is dropped for the sum.
#include <algorithm>
#include <array>
#include <cstdint>

#include "net/frame_parts.hpp"
#include "net/unfinished_messages.hpp"
#include "property.hpp"

namespace {

using namespace paracel::net;

/// Two bytes a part: of which connection it is and whether it is the last one, and its size.
void send_on_several(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t connections = 6;
  constexpr inbound_limits limits{.most_parts = 5, .full_part_bytes = 40, .most_message_bytes = 400};
  constexpr std::uint64_t most_of_all = 900;
  std::array<unfinished_message, connections> messages;
  std::array<std::uint64_t, connections> bytes{};  // as counted here
  std::array<std::size_t, connections> others{};   // parts that are not full
  unfinished_messages all;
  const auto close = [&](std::size_t c) {
    messages[c].end();
    bytes[c] = others[c] = 0;
  };
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    const std::size_t c = data[i] % connections;
    const bool is_last = data[i] >= 240;
    const std::uint64_t part = data[i + 1] == 255 ? ~std::uint64_t{0} : data[i + 1] % 2 == 0 ? 40 : data[i + 1];
    const bool fits = part <= 400 - bytes[c] && others[c] + (part == 40 ? 0 : 1) <= 5;
    require(messages[c].take(part, limits) == fits, "a message has its limits");
    if (!fits || is_last) {
      close(c);
      require(!all.set(static_cast<int>(c), 0, most_of_all), "nobody is dropped for a message that ends");
    } else {
      bytes[c] += part;
      others[c] += part == 40 ? 0 : 1;
      const auto largest = *std::max_element(bytes.begin(), bytes.end());
      if (const auto dropped = all.set(static_cast<int>(c), messages[c].bytes(), most_of_all)) {
        require(bytes[static_cast<std::size_t>(*dropped)] == largest, "the largest is dropped");
        close(static_cast<std::size_t>(*dropped));
      }
    }
    std::uint64_t sum = 0;
    for (const auto b : bytes) sum += b;
    require(all.total() == sum && sum <= most_of_all, "all together have a limit");
    require(messages[c].bytes() == bytes[c], "every byte counts until its message ends");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  send_on_several(data, size);
  const std::size_t full = 1 + data[0] % 16U;
  const std::size_t most = data[1];
  frame_joiner joiner(most, full);
  std::size_t bytes = 0;
  std::size_t parts = 0;
  bool is_accepted = true;
  for (std::size_t i = 2; i < size && is_accepted; ++i) {
    // Most are full ones or close to it; some are as large as a size can be.
    const std::size_t part = data[i] == 255 ? ~std::size_t{0} : data[i] % 4 == 0 ? full : data[i] / 4U;
    is_accepted = joiner.take(part);
    if (!is_accepted) break;
    bytes += part;
    ++parts;
  }
  const auto& head = joiner[0];
  const auto& tail = joiner[1];
  require(head.bytes <= most && tail.bytes <= most, "no frame exceeds its limit");
  require(head.bytes + tail.bytes == bytes, "every byte is in one of the frames");
  require(head.parts + tail.parts == parts, "every part is of one of the frames");
  for (const bool cuts : {false, true}) {
    frame_joiner again(most, full);
    std::size_t largest = 0;
    const auto take = [&](std::size_t, std::size_t n) {
      largest = n > largest ? n : largest;
      require(again.take(n), "what is cut is accepted");
    };
    for_each_part(head.bytes, cuts, tail.bytes != 0, take, full);
    if (tail.bytes != 0) for_each_part(tail.bytes, cuts, false, take, full);
    require(again[0].bytes == head.bytes && again[1].bytes == tail.bytes, "what is cut is joined again");
    require(!cuts || largest <= full, "no part is larger than a full one");
  }
  return 0;
}
