// SPDX-License-Identifier: BSD-3-Clause
#include "net/frame_parts.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace paracel::net {
namespace {

constexpr std::size_t full = 4;
constexpr std::size_t most = 3 * full + 1;

std::vector<std::size_t> parts_of(std::size_t frame, bool cuts, bool followed) {
  std::vector<std::size_t> parts;
  std::size_t end = 0;
  for_each_part(
      frame, cuts, followed,
      [&](std::size_t at, std::size_t n) {
        EXPECT_EQ(at, end);
        end += n;
        parts.push_back(n);
      },
      full);
  EXPECT_EQ(end, frame);
  return parts;
}

TEST(FrameParts, AFrameIsCutIntoFullPartsAndAnEmptyOneEndsItWhereAnotherFollows) {
  using list = std::vector<std::size_t>;
  EXPECT_EQ(parts_of(0, true, true), list{0});
  EXPECT_EQ(parts_of(3, true, true), list{3});
  EXPECT_EQ(parts_of(4, true, true), (list{4, 0}));
  EXPECT_EQ(parts_of(4, true, false), list{4});
  EXPECT_EQ(parts_of(8, true, true), (list{4, 4, 0}));
  EXPECT_EQ(parts_of(9, true, false), (list{4, 4, 1}));
  EXPECT_EQ(parts_of(9, false, true), list{9});
  EXPECT_EQ(parts_of(4, false, true), (list{4, 0}));
}

TEST(FrameParts, WhatIsCutIsJoinedAgainWhateverTheSizes) {
  for (const bool cuts : {false, true}) {
    for (std::size_t head = 0; head <= most; ++head) {
      for (std::size_t tail = 0; tail <= most; ++tail) {
        auto parts = parts_of(head, cuts, tail != 0);
        const auto of_head = parts.size();
        if (tail != 0) {
          for (const auto n : parts_of(tail, cuts, false)) parts.push_back(n);
        }
        frame_joiner joiner(most, full);
        for (const auto n : parts) {
          EXPECT_LE(n, cuts ? full : most);
          ASSERT_TRUE(joiner.take(n)) << head << " and " << tail;
        }
        EXPECT_EQ(joiner[0].bytes, head);
        EXPECT_EQ(joiner[0].parts, of_head);
        EXPECT_EQ(joiner[1].bytes, tail);
        EXPECT_EQ(joiner[1].parts, parts.size() - of_head);
      }
    }
  }
}

TEST(FrameParts, AThirdFrameAndOneThatIsTooLargeAreRefused) {
  frame_joiner three(most, full);
  EXPECT_TRUE(three.take(1));
  EXPECT_TRUE(three.take(0));
  EXPECT_FALSE(three.take(0));
  EXPECT_FALSE(three.take(full));
  frame_joiner large(most, full);
  EXPECT_FALSE(large.take(most + 1));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(large.take(full));
  EXPECT_FALSE(large.take(2));
  EXPECT_TRUE(large.take(1)) << "refusing changes nothing";
  EXPECT_FALSE(large.take(~std::size_t{0}));
  EXPECT_EQ(large[0].bytes, most);
}

}  // namespace
}  // namespace paracel::net
