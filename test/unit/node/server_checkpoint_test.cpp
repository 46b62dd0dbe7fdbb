// SPDX-License-Identifier: BSD-3-Clause
//
// What servers write into a checkpoint, and read back.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/membership.hpp"
#include "server/node/server.hpp"
#include "test/support/crash_disk.hpp"
#include "test/support/replies.hpp"

namespace paracel {
namespace {

using net::status;
using net::verb;
using nlohmann::json;

TEST(CheckpointOfServers, EveryCopyOfAPartitionIsReadBack) {
  test::crash_disk disk;
  membership members;
  members.job = 7;
  members.replicas = 2;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    server_entry e;
    e.slot = slot;
    e.incarnation = slot + 1;
    e.shards = {"s"};
    e.clock = e.control = "c";
    members.servers.push_back(e);
  }
  const auto make = [&](std::uint32_t slot) {
    srv::server_options o;
    o.slot = slot;
    o.job = 7;
    auto s = std::make_unique<srv::server>(o);
    s->use_disk(disk);
    s->set_membership(members);
    return s;
  };
  const key_router router(members);
  std::vector<std::unique_ptr<srv::server>> all;
  for (std::uint32_t slot = 0; slot < 3; ++slot) all.push_back(make(slot));
  const auto ask = [&](srv::server& s, net::request_header h, const std::string& body) {
    test::replies_by_sequence sink;
    net::request_view r;
    h.job = 7;
    h.epoch = 1;
    h.sequence = 1;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    r.header = h;
    r.body = net::bytes_of(body);
    s.handle(0, r, {}, srv::completion(sink, {}, h.what, 1, 0, 1));
    return sink.all.at(1);
  };
  const auto push = [&](srv::server& s, const std::string& key, char value) {
    net::request_header h;
    h.what = verb::push;
    h.tag = value_tag::i64;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    ASSERT_EQ(ask(s, h, key + std::string(8, value)).header.result, status::ok);
  };
  const auto keys_of = [](const srv::server& s) { return json::parse(s.stats_json())["keys"].get<std::size_t>(); };
  constexpr std::size_t keys = 500;
  const auto key = [](std::size_t i) { return "key" + std::to_string(i); };
  for (std::size_t i = 0; i < keys; ++i) push(*all[router.locate(key(i)).server], key(i), static_cast<char>(i));
  storage::checkpoint_manifest m{.job = 7, .clock = 10};
  net::request_header h;
  h.what = verb::checkpoint;
  const auto save = json{{"do", "save"}, {"folder", "d/0000000010"}, {"clock", 10}}.dump();
  const auto restore = json{{"do", "restore"}, {"folder", "d/0000000010"}}.dump();
  std::vector<std::string> saved;
  for (auto& s : all) {
    const auto a = ask(*s, h, save);
    ASSERT_EQ(a.header.result, status::ok) << a.body;
    saved.push_back(a.body);
    m.files.push_back(storage::entry_from_json(json::parse(a.body)["file"].dump(), 10, 7));
  }
  const auto text = m.to_text();
  disk.write("d/0000000010/manifest.json", net::bytes_of(text));
  // The request is repeated after the job has continued: the file stays as the manifest describes it.
  for (std::size_t i = 0; i < keys; ++i) push(*all[router.locate(key(i)).server], key(i), 'x');
  for (std::size_t slot = 0; slot < all.size(); ++slot) EXPECT_EQ(ask(*all[slot], h, save).body, saved[slot]);
  EXPECT_NO_THROW((void)storage::verify_checkpoint(disk, "d/0000000010"));
  std::size_t copies = 0;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    const auto fresh = make(slot);
    const auto a = ask(*fresh, h, restore);
    ASSERT_EQ(a.header.result, status::ok) << a.body;
    copies += keys_of(*fresh);
    std::size_t own = 0;
    while (router.locate("own" + std::to_string(own)).server != slot) ++own;
    push(*fresh, "own" + std::to_string(own), 1);
    const auto with_own = keys_of(*fresh);
    EXPECT_EQ(ask(*fresh, h, restore).body, a.body);
    EXPECT_EQ(keys_of(*fresh), with_own) << "what it was asked again took what had come since";
  }
  EXPECT_EQ(copies, 2 * keys);
  srv::server_options o;
  o.job = 7;
  srv::server unaware(o);
  EXPECT_EQ(ask(unaware, h, restore).header.result, status::stale_epoch);
}

}  // namespace
}  // namespace paracel
