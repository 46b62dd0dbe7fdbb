// SPDX-License-Identifier: BSD-3-Clause
//
// Parts of a message, as a member of the job may send them: any sizes in any order. However they come, no frame exceeds
// its limit, every byte of an accepted message is in one of two frames, and what is cut again arrives as the same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "net/frame_parts.hpp"

namespace {

using namespace paracel::net;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "property broken: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
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
