// SPDX-License-Identifier: BSD-3-Clause
//
// Scans and reductions of a shard beyond scan_test.cpp: filters of plug-ins, staged updates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "net/protocol.hpp"
#include "net/scan_codec.hpp"
#include "test/support/shard_test.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::HasSubstr;

/// Walks run to completion, however many of the server's time slices that takes.
class ShardScanTest : public test::shard_test {
 protected:
  struct walked {
    std::uint32_t count = 0;
    net::summary sum;  ///< of verb::reduce
    answer last;
  };

  template <class Request>
  walked walk(verb what, std::string_view prefix, Request request, with w = {}) {
    walked all;
    do {
      std::vector<std::byte> bytes;
      append(bytes, request);
      all.last = call(what, prefix, {value_tag::none, bytes}, w);
      all.count += all.last.header.count;
      if (all.last.header.result != status::ok) break;
      net::scan_reply r;
      EXPECT_EQ(decode(all.last.body, r), nullptr);
      request.from = r.next;
      net::summary part;
      if (what != verb::reduce) continue;
      EXPECT_EQ(decode(r.rest, part), nullptr);
      all.sum.merge(part);
    } while ((all.last.header.flags & net::reply_more) != 0);
    return all;
  }
};

TEST_F(ShardScanTest, AFilterIsRegisteredUnderAnIdOfItsOwn) {
  const auto registered = call(verb::register_filter, std::string("filters") + '\0' + "ends_with_seven");
  ASSERT_EQ(registered.header.result, status::ok) << registered.text();
  std::uint64_t id = 0;
  std::memcpy(&id, registered.body.data(), sizeof id);
  for (const char* key : {"a7", "a8", "b7"}) push(key, 1);
  EXPECT_EQ(walk(verb::scan, "", net::scan_request{}, {.function = id}).count, 2U);
  EXPECT_EQ(call(verb::update, "a7", view(1.0), {.function = id}).header.result, status::unknown_function)
      << "a filter is no update function";
  const auto refused = call(verb::register_filter, std::string("filters") + '\0' + "not_a_filter");
  EXPECT_EQ(refused.header.result, status::plugin_failed);
  EXPECT_THAT(refused.text(), HasSubstr("is an update function, and a filter was asked for"));
  EXPECT_THAT(call(verb::register_filter, std::string("filters") + '\0' + "of_another_abi").text(), HasSubstr("ABI 2"));
  EXPECT_GE(stats()["shards"][0]["requests"]["scan"], 1);
}

TEST_F(ShardScanTest, AWalkOfABspReaderFoldsEveryKeyFirst) {
  push("a", 1);
  for (const char* key : {"a", "b", "c"}) {
    for (const std::uint32_t clock : {0U, 1U}) {
      (void)call(verb::update, key, view(10.0), {.flags = net::flag_staged, .clock = clock});
    }
  }
  const auto sum = [&](std::uint32_t clock) {
    const auto all = walk(verb::reduce, "", net::reduce_request{}, {.flags = net::flag_bsp_read, .clock = clock});
    EXPECT_EQ(all.last.header.result, status::ok) << all.last.text();
    return all.sum.total();
  };
  EXPECT_EQ(sum(0), 1);
  EXPECT_EQ(sum(1), 31);
  EXPECT_EQ(sum(1), 31);
  EXPECT_EQ(stats()["shards"][0]["staged"], 3);
  // A late update, for a clock that has been folded everywhere, does not wait.
  (void)call(verb::update, "late", view(5.0), {.flags = net::flag_staged, .clock = 0});
  EXPECT_EQ(sum(1), 36);
  EXPECT_EQ(sum(2), 66);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
  // A staged update that cannot be folded is reported to a scan of its key, and dropped with the key.
  push("text", 1);
  ASSERT_EQ(call(verb::update, "text", view(1.0), {.flags = net::flag_staged, .clock = 2}).header.result, status::ok);
  ASSERT_EQ(call(verb::push, "text", {value_tag::packed, std::as_bytes(std::span("\xa1x", 2))}).header.result,
            status::ok);
  const auto told = walk(verb::scan, "", net::scan_request{}, {.flags = net::flag_bsp_read, .clock = 3}).last;
  EXPECT_NE(told.header.result, status::ok);
  EXPECT_THAT(told.text(), HasSubstr("a staged update of rank 0"));
  EXPECT_EQ(walk(verb::remove_if, "text", net::scan_request{}).count, 1U);
  EXPECT_EQ(sum(3), 66);
}

TEST_F(ShardScanTest, KeysThatAreRemovedByAWalkTakeTheirStagedUpdatesAlong) {
  push("gone", 1);
  (void)call(verb::update, "gone", view(10.0), {.flags = net::flag_staged, .clock = 0});
  EXPECT_EQ(walk(verb::remove_if, "gone", net::scan_request{}).count, 1U);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
  EXPECT_EQ(call(verb::pull, "gone", {}, {.flags = net::flag_bsp_read, .clock = 1}).header.result, status::not_found);
  EXPECT_EQ(stats()["keys"], 0);
}

}  // namespace
}  // namespace paracel::srv
