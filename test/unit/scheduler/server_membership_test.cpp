// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/server_membership.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

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

}  // namespace
