// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/server_membership.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace {

using namespace paracel;

server_entry entry_of(std::uint32_t slot) {
  server_entry s;
  s.slot = slot;
  s.incarnation = slot + 100;
  s.threads = 1;
  s.host = "h";
  s.shards = {"ipc:///x/" + std::to_string(slot)};
  return s;
}

TEST(ServerMembership, IsEncodedOnceAndAgainAfterEachChange) {
  srv::server_membership subject(1, 2, 2, 2, true);
  std::string before = subject.encoded();
  const auto expect_change = [&](const char* what, const std::function<void()>& change) {
    change();
    EXPECT_NE(subject.encoded(), before) << what;
    EXPECT_EQ(subject.encoded(), subject.members().to_json()) << what;
    EXPECT_EQ(subject.encoded().data(), subject.encoded().data()) << what;  // the same text, not another one
    before = subject.encoded();
  };
  const auto all_synced = [&] {
    for (std::uint32_t s = 0; s < subject.members().servers.size(); ++s) {
      if (subject.state(s) == server_state::gone) continue;
      (void)subject.synced(s, subject.members().epoch);
    }
  };
  expect_change("enter", [&] { subject.enter(entry_of(0)); });
  expect_change("enter", [&] { subject.enter(entry_of(1)); });
  checkpoint_plan plan;
  plan.folder = "/checkpoints";
  expect_change("plan", [&] { subject.plan_checkpoints(plan); });
  all_synced();
  expect_change("refuse", [&] { subject.refuse({.id = 7, .why = "it hangs"}); });
  expect_change("lost", [&] { EXPECT_TRUE(subject.server_lost(1).continues); });
  expect_change("rejoin", [&] { subject.rejoin(entry_of(1)); });
  expect_change("synced", all_synced);
  all_synced();
  expect_change("admit", [&] { subject.admit(entry_of(2)); });
  expect_change("synced", all_synced);
  all_synced();
  expect_change("dismiss", [&] { (void)subject.dismiss(); });
  expect_change("left", all_synced);
  expect_change("gone", all_synced);
}

TEST(ServerMembership, PartitionsMoveWhenTheirNewServersAreComplete) {
  srv::server_membership subject(1, 2, 3, 2);
  for (std::uint32_t s = 0; s < 3; ++s) subject.enter(entry_of(s));
  const auto head = [&](std::uint16_t p) { return key_router(subject.members()).locate_partition(p).server; };
  const auto to = [&](std::uint16_t p) { return (head(p) + 1) % 3; };
  const std::vector<placement> where{{5, to(5)}, {9000, to(9000)}};
  ASSERT_TRUE(subject.may_move());
  const auto before = subject.members();
  subject.move(where);
  EXPECT_EQ(subject.members().epoch, 2U);
  EXPECT_FALSE(subject.may_move()) << "one change at a time";
  EXPECT_NE(subject.why_not_resize(1), "");
  EXPECT_EQ(head(5), key_router(before).locate_partition(5).server) << "it has not arrived";
  EXPECT_EQ(subject.synced(0, 2), srv::server_membership::news::none);
  EXPECT_EQ(subject.synced(1, 2), srv::server_membership::news::none);
  EXPECT_EQ(subject.synced(2, 2), srv::server_membership::news::serves);
  EXPECT_EQ(subject.members().epoch, 3U);
  EXPECT_EQ(subject.members().placed, where);
  EXPECT_TRUE(subject.members().moving.empty());
  for (const auto& p : where) EXPECT_EQ(head(p.partition), p.slot);
  for (std::uint32_t s = 0; s < 3; ++s) (void)subject.synced(s, 3);
  ASSERT_TRUE(subject.may_move());
  // Back to where the ring has it: that is no placement.
  subject.move({{5, key_router(before).locate_partition(5).server}});
  for (std::uint32_t s = 0; s < 3; ++s) (void)subject.synced(s, 4);
  EXPECT_EQ(subject.members().placed, (std::vector<placement>{where[1]}));
}

TEST(ServerMembership, WhatMovesToALostServerStays) {
  srv::server_membership subject(1, 2, 3, 2);
  for (std::uint32_t s = 0; s < 3; ++s) subject.enter(entry_of(s));
  std::vector<placement> where;
  for (std::uint16_t p = 1; where.size() < 40; p = static_cast<std::uint16_t>(p + 200)) {
    const auto slot = key_router(subject.members()).locate_partition(p).server;
    where.push_back({p, (slot + 1) % 3});
  }
  subject.move(where);
  ASSERT_TRUE(subject.server_lost(1).continues);
  for (const auto& p : subject.members().moving) EXPECT_NE(p.slot, 1U);
  EXPECT_FALSE(subject.members().moving.empty());
  EXPECT_EQ(subject.synced(0, 3), srv::server_membership::news::none);
  EXPECT_EQ(subject.synced(2, 3), srv::server_membership::news::serves);
  EXPECT_TRUE(subject.members().moving.empty());
  EXPECT_FALSE(subject.may_move()) << "s1 is down";
  // A placement at a server that is lost stays for its replacement, as everything that was there.
  const auto placed = subject.members().placed;
  subject.rejoin(entry_of(1));
  for (std::uint32_t s = 0; s < 3; ++s) (void)subject.synced(s, subject.members().epoch);
  for (std::uint32_t s = 0; s < 3; ++s) (void)subject.synced(s, subject.members().epoch);
  EXPECT_TRUE(subject.may_move());
  EXPECT_EQ(subject.members().placed, placed);
}

TEST(ServerMembership, WhatIsPlacedAtAServerThatLeavesIsNotPlacedAtTheNextOneInItsSlot) {
  srv::server_membership subject(1, 2, 3, 1, true);
  for (std::uint32_t s = 0; s < 3; ++s) subject.enter(entry_of(s));
  const auto all_synced = [&] {
    for (std::uint32_t s = 0; s < subject.members().servers.size(); ++s)
      if (subject.state(s) != server_state::gone) (void)subject.synced(s, subject.members().epoch);
  };
  const auto head = [&](std::uint16_t p) { return key_router(subject.members()).locate_partition(p).server; };
  std::vector<placement> where;
  for (std::uint16_t p = 0; where.size() < 2; ++p)
    if (head(p) == 0) where.push_back({p, where.empty() ? 2U : 1U});
  subject.move(where);
  all_synced();
  all_synced();
  ASSERT_EQ(subject.members().placed, where);
  ASSERT_EQ(subject.dismiss(), 2U);
  EXPECT_EQ(head(where[0].partition), 2U) << "it still has it";
  all_synced();
  ASSERT_EQ(subject.state(2), server_state::left);
  EXPECT_EQ(subject.members().placed, (std::vector<placement>{where[1]}));
  EXPECT_NE(head(where[0].partition), 2U);
  all_synced();
  subject.admit(entry_of(2));
  all_synced();
  EXPECT_EQ(head(where[0].partition), 0U) << "where the ring has it";
  EXPECT_EQ(head(where[1].partition), 1U);
}

}  // namespace
