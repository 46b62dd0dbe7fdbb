// SPDX-License-Identifier: BSD-3-Clause
//
// All verbs: a frame of another job, of another epoch, or from a sender without permission is rejected or waits, and
// nothing changes.
#include "server/request/verb_rules.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "net/inproc_transport.hpp"
#include "server/node/server_loop.hpp"
#include "server/replication/replication_entries.hpp"
#include "test/support/scheduler_test.hpp"

namespace paracel::srv {
namespace {

using namespace std::chrono_literals;
using net::status;
using net::verb;

constexpr std::uint64_t our_job = 5;
constexpr std::uint64_t another_job = 6;
constexpr std::uint64_t incarnation_of(std::uint32_t slot) { return 100 + slot; }

std::string text_of(const verb_rule& r) { return std::string(net::name_of(r.what)) + " to " + name_of(r.at); }

TEST(VerbRules, EveryVerbHasARuleSomewhereAndAVerbThatHasNoneIsRefused) {
  for (unsigned v = 1; v < 256; ++v) {
    const auto what = static_cast<verb>(v);
    bool known = false;
    for (const auto at : {place::shard, place::clock, place::control, place::scheduler, place::worker}) {
      const auto* rule = rule_of(at, what);
      known = known || rule != nullptr;
      if (rule != nullptr) {
        EXPECT_EQ(std::tuple(rule->what, rule->at), std::tuple(what, at));
        continue;
      }
      net::request_header h;
      h.what = what;
      h.job = our_job;
      EXPECT_EQ(refused_at(at, h, our_job, 1)->why, status::bad_request) << v;
    }
    const bool is_verb = std::string(net::name_of(what)) != "unknown";
    EXPECT_EQ(known, is_verb) << v << " " << net::name_of(what);
  }
}

/// s1 of four servers with three replicas: a shard thread and a clock thread that are stepped manually, whose state can
/// be compared.
class VerbTable : public testing::Test {
 protected:
  VerbTable() {
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      server_entry s;
      s.slot = slot;
      s.incarnation = incarnation_of(slot);
      const auto prefix = "inproc://s" + std::to_string(slot) + "/";
      s.shards = {prefix + "0"};
      s.clock = prefix + "k";
      s.control = prefix + "c";
      members_.servers.push_back(s);
    }
    members_.job = our_job;
    members_.replicas = 3;
    members_.workers = 2;
    // The server whose clock is a replica, not the head.
    const key_router router(members_);
    self_ = router.chain(clock_partition)[1];
    server_options o;
    o.slot = self_;
    o.incarnation = incarnation_of(self_);
    o.job = our_job;
    o.workers = 0;
    server_.emplace(o);
    shard_port_ = over_.open();
    shard_port_->bind(self().shards[0]);
    clock_port_ = over_.open();
    clock_port_->bind(self().clock);
    const auto log = [this](const std::string& line) { logged_.push_back(line); };
    shard_.emplace(loop_context{*server_, *shard_port_, stop_, lease_, synced_[0], time_, log}, *server_, 0U);
    clock_.emplace(loop_context{*server_, *clock_port_, stop_, lease_, synced_[1], time_, log}, self(),
                   [this] { return std::make_shared<const membership>(members_); });
    adopt(1);
    outside_ = over_.open();
    to_shard_ = outside_->connect(self().shards[0]);
    to_clock_ = outside_->connect(self().clock);
    const auto pi = 3.25;
    for (int i = 0; i < 200; ++i) {
      const auto key = "key" + std::to_string(i);
      if (router.locate(key).server != self_) continue;
      ask(place::shard, header(verb::push, our_job, 1), key, std::as_bytes(std::span(&pi, 1)), value_tag::f64);
    }
    adopt(2);
  }
  const server_entry& self() const { return members_.servers[self_]; }
  void adopt(std::uint32_t epoch) {
    members_.epoch = epoch;
    server_->set_membership(members_);
    step();
  }
  void step() {
    for (int i = 0; i < 3; ++i) {
      shard_->step(0ms);
      clock_->step(0ms);
    }
  }
  net::request_header header(verb what, std::uint64_t job, std::uint32_t epoch) {
    net::request_header h;
    h.what = what;
    h.job = job;
    h.epoch = epoch;
    h.client = ++clients_ << 20U;
    h.sequence = 1;
    h.clock = 500'000;
    h.rank = 1;
    return h;
  }
  net::request_header header_from(std::uint32_t slot, verb what, std::uint32_t epoch) {
    auto h = header(what, our_job, epoch);
    link{incarnation_of(slot), slot, self().incarnation}.write(h);
    return h;
  }
  /// Returns: the status of the reply; nothing when there is none.
  std::optional<status> ask(place at, net::request_header h, std::string_view key, std::span<const std::byte> payload,
                            value_tag tag = value_tag::none) {
    h.tag = tag;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    h.body_bytes = static_cast<std::uint32_t>(key.size() + payload.size());
    std::vector<std::byte> body(net::bytes_of(key).begin(), net::bytes_of(key).end());
    body.insert(body.end(), payload.begin(), payload.end());
    net::request_bytes head;
    net::encode(h, head);
    outside_->send(at == place::shard ? to_shard_ : to_clock_, {.head = head, .body = body});
    step();
    net::incoming in;
    net::reply_view reply;
    std::optional<status> last;
    while (outside_->receive(in, 0ms)) {
      if (net::decode(in.frame, in.tail.size(), reply) != nullptr || reply.header.what != h.what) continue;
      last = reply.header.result;
      lacking_ = reply.header.count;
    }
    return last;
  }
  /// A body with which the verb would change something, if it can.
  std::optional<status> ask(const verb_rule& r, const net::request_header& h) {
    const double one = 1;
    const auto value = std::as_bytes(std::span(&one, 1));
    if (r.what >= verb::pull && r.what <= verb::update_at) return ask(r.at, h, "key1", value, value_tag::f64);
    if (r.what == verb::replicate && r.at == place::shard) return ask(r.at, h, {}, wiped(replicated_from(our_head())));
    if (r.what == verb::replicate) return ask(r.at, h, {}, of_clock(far_clock()));
    return ask(r.at, h, {}, {});
  }
  /// The head of a partition of which we have a replica.
  std::uint32_t our_head() const { return head_of(replicated_from(~0U)); }
  std::uint32_t head_of(std::uint16_t partition) const {
    const key_router router(members_);
    const auto chain = router.chain(partition);
    const auto us = std::find(chain.begin(), chain.end(), self_);
    return us == chain.begin() || us == chain.end() ? ~0U : chain.front();
  }
  /// A partition that we receive from this server, or from any. `position`: ours in its chain at least.
  std::uint16_t replicated_from(std::uint32_t slot, int position = 1) const {
    const key_router router(members_);
    for (std::uint32_t p = 0;; ++p) {
      const auto chain = router.chain(static_cast<std::uint16_t>(p));
      const auto us = std::find(chain.begin(), chain.end(), self_);
      if (us == chain.end() || us == chain.begin()) continue;
      if (slot != ~0U && chain.front() != slot) continue;
      if (us - chain.begin() >= position) return static_cast<std::uint16_t>(p);
    }
  }
  std::vector<std::byte> wiped(std::uint16_t partition, std::span<const std::byte> records = {}) const {
    std::vector<std::byte> body;
    put_fields(body, std::uint32_t{0});
    append(body, {.partition = partition, .what = entry_kind::whole_state, .index = ++index_, .records = records});
    return body;
  }
  /// The state of a clock for our replica.
  std::vector<std::byte> of_clock(std::span<const std::byte> state) const {
    std::vector<std::byte> records;
    append(records, record{.kind = record_kind::clock, .value = state});
    std::vector<std::byte> body;
    put_fields(body, ~std::uint32_t{0});
    append(body,
           {.partition = clock_partition, .what = entry_kind::whole_state, .index = ++index_, .records = records});
    return body;
  }
  /// One entry about a partition, from its head.
  std::optional<status> send(std::uint16_t partition, entry_kind what, std::uint32_t after, std::uint64_t previous,
                             std::uint64_t index, std::span<const std::byte> records) {
    std::vector<std::byte> body;
    put_fields(body, std::uint32_t{0});
    append(body, {.partition = partition,
                  .what = what,
                  .after = after,
                  .previous = previous,
                  .index = index,
                  .records = records});
    return ask(place::shard, header_from(our_head(), verb::replicate, 2), {}, body);
  }
  std::vector<std::byte> state_of(std::uint16_t partition) {
    std::vector<std::byte> out;
    server_->at(0).encode_partition(partition, out);
    return out;
  }
  static std::vector<std::byte> far_clock() {
    clock_service far(2);
    net::request_header h;
    h.what = verb::clock_tick;
    h.clock = 500'000;
    for (h.rank = 0; h.rank < 2; ++h.rank) far.handle({h, {}}, {}, {});
    return far.encode();
  }
  struct state {
    std::vector<std::byte> partitions;
    std::vector<std::byte> clock;
    nlohmann::json counters;
    std::uint32_t synced;
    /// The state without requests that wait for a membership.
    state but_for_what_waits() const {
      auto s = *this;
      s.counters.erase("held");
      return s;
    }
    friend bool operator==(const state&, const state&) = default;
  };
  state now() {
    state s;
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      server_->at(0).encode_partition(static_cast<std::uint16_t>(p), s.partitions);
    }
    s.clock = server_->clock().encode();
    s.counters = nlohmann::json::parse(server_->stats_json());
    s.counters.erase("resident_bytes");  // of this process: a request allocates
    s.synced = synced_[0] + synced_[1];
    return s;
  }

  /// At most one log line per second, however long the test takes.
  void expect_a_line_a_second() const {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_).count();
    EXPECT_FALSE(logged_.empty());
    EXPECT_LE(logged_.size(), 1U + static_cast<std::size_t>(seconds));
  }

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  net::inproc_transport over_;
  membership members_;
  std::uint32_t self_ = 0;
  std::optional<server> server_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> lease_{std::numeric_limits<std::int64_t>::max()};
  std::atomic<std::uint32_t> synced_[2]{};
  net::boot_time_source time_;
  std::unique_ptr<net::port> shard_port_, clock_port_, outside_;
  std::optional<shard_loop> shard_;
  std::optional<clock_loop> clock_;
  std::vector<std::string> logged_;
  int to_shard_ = 0, to_clock_ = 0;
  std::uint64_t clients_ = 1;
  std::uint32_t lacking_ = 0;  // partitions, according to the last reply
  mutable std::uint64_t index_ = std::uint64_t{2} << 32U;
};

TEST_F(VerbTable, AFrameOfAnotherJobIsRefusedByEveryThreadAndChangesNothing) {
  const auto before = now();
  ASSERT_FALSE(before.partitions.empty());
  for (const auto& r : verb_rules) {
    if (r.at != place::shard && r.at != place::clock) continue;
    for (const std::uint32_t epoch : {0U, 1U, 2U, 3U}) {
      auto h = header(r.what, another_job, epoch);
      if (r.who == asker::peer) link{incarnation_of(our_head()), our_head(), self().incarnation}.write(h);
      h.flags = net::flag_stream | net::flag_first;
      EXPECT_EQ(ask(r, h), status::wrong_job) << text_of(r) << ", epoch " << epoch;
      EXPECT_EQ(now(), before) << text_of(r) << ", epoch " << epoch;
    }
  }
}

TEST_F(VerbTable, AMalformedStateOfTheClockFromItsHeadIsRefusedAndLogged) {
  const auto head = head_of(clock_partition);
  const auto from_head = [&] {
    auto h = header_from(head, verb::replicate, 2);
    h.flags = net::flag_stream | net::flag_first;
    return h;
  };
  const auto before = now().but_for_what_waits();  // the stream's connection is remembered
  auto cut = far_clock();
  cut.pop_back();
  auto others = clock_service(3).encode();  // of a job with three workers
  for (const auto& state : {cut, others, std::vector<std::byte>{}}) {
    EXPECT_EQ(ask(place::clock, from_head(), {}, of_clock(state)), status::bad_request);
    EXPECT_EQ(now().but_for_what_waits(), before);
  }
  expect_a_line_a_second();
  EXPECT_EQ(logged_.at(0), "refuses what s" + std::to_string(head) + " sends: a replica of partition " +
                               std::to_string(clock_partition) + " is malformed: the state of a clock is malformed");
  EXPECT_EQ(ask(place::clock, from_head(), {}, of_clock(far_clock())), status::ok) << "it still serves";
  EXPECT_EQ(now().clock, far_clock());
}

TEST_F(VerbTable, MalformedRecordsOfAPartitionFromItsHeadAreRefusedBeforeAnyIsApplied) {
  const auto p = replicated_from(our_head());
  std::string key;
  for (int i = 0; key.empty() || partition_of(hash_key(key)) != p; ++i) key = "k" + std::to_string(i);
  std::string elsewhere = "x";
  while (partition_of(hash_key(elsewhere)) == p) elsewhere += "x";
  const double number = 1;
  const auto value = std::as_bytes(std::span(&number, 1));
  const record good{.kind = record_kind::put,
                    .tag = static_cast<std::uint8_t>(value_tag::f64),
                    .a = 7,
                    .key = net::bytes_of(key),
                    .value = value};
  std::vector<std::pair<const char*, record>> bad(9, {"", good});
  bad[0] = {"another partition", good};
  bad[0].second.key = net::bytes_of(elsewhere);
  bad[1].first = "version 0";
  bad[1].second.a = 0;
  bad[2].first = "half a number";
  bad[2].second.value = value.first(4);
  bad[3] = {"no staged update", {.kind = record_kind::stage, .key = good.key, .value = value}};
  bad[4] = {"no watermark", {.kind = record_kind::applied, .a = 1, .value = value}};
  bad[5] = {"no status", {.kind = record_kind::broken, .key = good.key}};
  bad[6] = {"a row's id", {.kind = record_kind::row, .a = 5, .key = value.first(3)}};
  bad[7] = {"the id of a table", {.kind = record_kind::table, .a = 5, .key = good.key}};
  bad[8] = {"a clock", {.kind = record_kind::clock, .value = value}};
  const auto before = now();
  for (const auto& [what, r] : bad) {
    std::vector<std::byte> records;
    append(records, good);
    append(records, r);
    EXPECT_EQ(ask(place::shard, header_from(our_head(), verb::replicate, 2), {}, wiped(p, records)),
              status::bad_request)
        << what;
    EXPECT_EQ(now(), before) << what;
  }
  expect_a_line_a_second();
  std::vector<std::byte> records;
  append(records, good);
  EXPECT_EQ(ask(place::shard, header_from(our_head(), verb::replicate, 2), {}, wiped(p, records)), status::ok);
  EXPECT_NE(state_of(p), std::vector<std::byte>{});
}

TEST_F(VerbTable, AFrameOfAnOlderEpochIsRefusedAndOneThatIsAheadWaits) {
  const auto before = now().but_for_what_waits();
  for (const auto& r : verb_rules) {
    if ((r.at != place::shard && r.at != place::clock) || r.who == asker::itself) continue;
    auto h = r.who == asker::peer ? header_from(our_head(), r.what, 1) : header(r.what, our_job, 1);
    if (r.who == asker::scheduler) h.client = our_job;
    if (r.when == epoch_rule::current) {
      EXPECT_EQ(ask(r, h), status::stale_epoch) << text_of(r);
      EXPECT_EQ(now().but_for_what_waits(), before) << text_of(r);
    }
    if (r.when == epoch_rule::any || r.who == asker::scheduler) continue;
    h.epoch = 3;
    EXPECT_EQ(ask(r, h), std::nullopt) << text_of(r);
    EXPECT_EQ(now().but_for_what_waits(), before) << text_of(r);
  }
}

TEST_F(VerbTable, WhoMayNotSendAVerbIsRefusedAndChangesNothing) {
  const auto before_it = now();
  const auto stranger_slot = our_head();
  for (const auto& r : verb_rules) {
    if ((r.at != place::shard && r.at != place::clock) || r.who == asker::anybody) continue;
    EXPECT_EQ(ask(r, header(r.what, our_job, 2)), status::bad_request) << text_of(r) << " from a worker";
    if (r.who == asker::peer) {
      auto h = header_from(stranger_slot, r.what, 2);
      h.client += 1000;
      EXPECT_EQ(ask(r, h), status::bad_request) << text_of(r) << " from an earlier process of that slot";
      h = header_from(stranger_slot, r.what, 2);
      h.table = (stranger_slot + 1) % 4;
      EXPECT_EQ(ask(r, h), status::bad_request) << text_of(r) << " with the slot of another";
      h = header_from(stranger_slot, r.what, 2);
      h.function += 1;
      EXPECT_EQ(ask(r, h), status::bad_request) << text_of(r) << " that is meant for another server";
    }
    EXPECT_EQ(now(), before_it) << text_of(r);
  }
  // A server that is not the head of the partition, or of the clock: not the one before us in the chain either.
  const auto partition = replicated_from(our_head(), 2);
  const auto head = static_cast<std::uint32_t>(key_router(members_).clock_server());
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    if (slot != head_of(partition)) {
      EXPECT_EQ(ask(place::shard, header_from(slot, verb::replicate, 2), {}, wiped(partition)), status::bad_request)
          << slot;
    }
    if (slot != head) {
      EXPECT_EQ(ask(place::clock, header_from(slot, verb::replicate, 2), {}, of_clock(far_clock())),
                status::bad_request)
          << slot;
    }
  }
  EXPECT_EQ(now(), before_it);
}

TEST_F(VerbTable, WhoMaySendItIsServed) {
  const auto partition = replicated_from(our_head());
  EXPECT_EQ(ask(place::shard, header_from(our_head(), verb::handover, 2), {}, {}), status::ok);
  EXPECT_EQ(ask(place::shard, header_from(our_head(), verb::clock_moved, 2), {}, {}), std::nullopt)
      << "answered when the replicas are complete";
  EXPECT_EQ(ask(place::shard, header_from(our_head(), verb::replicate, 2), {}, wiped(partition)), status::ok);
  const auto head = static_cast<std::uint32_t>(key_router(members_).clock_server());
  EXPECT_EQ(ask(place::clock, header_from(head, verb::handover, 2), {}, {}), status::ok);
  const auto before_it = now().clock;
  EXPECT_EQ(ask(place::clock, header_from(head, verb::replicate, 2), {}, far_clock()), status::bad_request)
      << "a state without receiver and entry, as an earlier version of the server sends it";
  EXPECT_EQ(ask(place::clock, header_from(head, verb::replicate, 2), {}, wiped(clock_partition)), status::bad_request)
      << "meant for a shard";
  EXPECT_EQ(now().clock, before_it);
  EXPECT_EQ(ask(place::clock, header_from(head, verb::replicate, 2), {}, of_clock(far_clock())), status::ok);
  EXPECT_EQ(server_->clock().slowest(), 500'000U);
}

/// Records of this many keys of one partition.
std::vector<std::byte> keys_of(std::uint16_t partition, int count, std::size_t value_bytes) {
  std::vector<std::byte> out;
  const std::vector<std::byte> value(value_bytes, std::byte{7});
  for (int i = 0; count > 0; ++i) {
    const auto key = "k" + std::to_string(100'000 + i);
    if (partition_of(hash_key(key)) != partition) continue;
    append(out, record{.kind = record_kind::put,
                       .tag = static_cast<std::uint8_t>(value_tag::packed),
                       .a = 1,
                       .key = net::bytes_of(key),
                       .value = value});
    --count;
  }
  return out;
}

TEST_F(VerbTable, PiecesThatNeverEndAreDroppedAndHoldNothing) {
  const auto before_it = now();
  const std::vector<std::byte> megabyte(std::size_t{1} << 20);
  auto h = header_from(our_head(), verb::replicate, 2);
  h.count = 1;
  EXPECT_EQ(ask(place::shard, h, {}, megabyte), status::ok) << "one piece more is to come";
  EXPECT_EQ(ask(place::shard, h, {}, megabyte), status::bad_request) << "and it is the last";
  h.count = 0;
  EXPECT_EQ(ask(place::shard, h, {}, wiped(replicated_from(our_head()))), status::ok) << "nothing was left of them";
  EXPECT_EQ(now().clock, before_it.clock);
}

TEST_F(VerbTable, AWholeStateInPartsIsOneWhenItsLastHasCome) {
  const auto partition = replicated_from(our_head());
  const auto all = keys_of(partition, 3, 100);
  const auto one = all.size() / 3;
  const auto whole = std::span<const std::byte>(all);
  constexpr std::uint64_t index = 77;
  EXPECT_EQ(send(partition, entry_kind::whole_state, 2, index, index, whole.first(one)), status::ok);
  EXPECT_EQ(lacking_, 0U);
  send(partition, entry_kind::question, 0, index, index, {});
  EXPECT_EQ(lacking_, 1U) << "it is not whole yet";
  send(partition, entry_kind::more_state, 1, index, index, whole.subspan(one, one));
  send(partition, entry_kind::more_state, 0, index, index, whole.subspan(2 * one));
  EXPECT_EQ(lacking_, 0U);
  EXPECT_EQ(state_of(partition), all);
  send(partition, entry_kind::question, 0, index, index, {});
  EXPECT_EQ(lacking_, 0U);
  // An aborted transfer keeps the previous complete state, and the next one starts from the beginning.
  send(partition, entry_kind::whole_state, 1, index + 1, index + 1, whole.first(one));
  EXPECT_EQ(state_of(partition), all);
  send(partition, entry_kind::question, 0, index, index, {});
  EXPECT_EQ(lacking_, 0U);
  send(partition, entry_kind::whole_state, 0, index + 2, index + 2, whole.subspan(one, one));
  EXPECT_EQ(lacking_, 0U);
  const auto second = whole.subspan(one, one);
  EXPECT_EQ(state_of(partition), std::vector<std::byte>(second.begin(), second.end()));
  send(partition, entry_kind::more_state, 0, index + 1, index + 1, whole.subspan(one, one));
  EXPECT_EQ(lacking_, 1U) << "of one that is not there any more";
}

TEST_F(VerbTable, AWholeStateInPartsForWhichThereIsNoRoomAsideReplacesTheCopyAtOnce) {
  const auto partition = replicated_from(our_head());
  const auto old = keys_of(partition, 2, 50);
  send(partition, entry_kind::whole_state, 0, 77, 77, old);
  ASSERT_EQ(state_of(partition), old);
  const auto all = keys_of(partition, 3, 100);
  const auto one = all.size() / 3;
  const auto whole = std::span<const std::byte>(all);
  auto& pieces = server_->budgets().pieces;
  const auto occupied = pieces.limit() - pieces.held();
  pieces.add(occupied);
  EXPECT_EQ(send(partition, entry_kind::whole_state, 2, 78, 78, whole.first(one)), status::ok);
  EXPECT_EQ(state_of(partition),
            std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(one)));
  send(partition, entry_kind::question, 0, 77, 77, {});
  EXPECT_EQ(lacking_, 1U) << "torn: neither the old state nor the new one";
  send(partition, entry_kind::changes, 0, 77, 79, whole.first(one));
  EXPECT_EQ(lacking_, 1U) << "changes of a state that is torn";
  send(partition, entry_kind::more_state, 1, 78, 78, whole.subspan(one, one));
  send(partition, entry_kind::more_state, 0, 78, 78, whole.subspan(2 * one));
  EXPECT_EQ(lacking_, 0U);
  EXPECT_EQ(state_of(partition), all);
  send(partition, entry_kind::question, 0, 78, 78, {});
  EXPECT_EQ(lacking_, 0U);
  pieces.give_back(occupied);
}

// ---- the scheduler and the control thread ---------------------------------------------------------------------------

struct said final : reply_sink {
  std::optional<status> result;
  void send(const net::peer&, const net::outgoing& m) override {
    net::reply_view reply;
    std::vector<std::byte> frame(m.head.begin(), m.head.end());
    frame.insert(frame.end(), m.body.begin(), m.body.end());
    ASSERT_EQ(net::decode(frame, m.tail.size(), reply), nullptr);
    result = reply.header.result;
  }
};

TEST(ControlThread, RefusesAnotherJob) {
  server s({.job = our_job});
  for (const auto& r : verb_rules) {
    if (r.at != place::control) continue;
    for (const auto job : {our_job, another_job}) {
      net::request_header h;
      h.what = r.what;
      h.job = job;
      net::incoming in;
      net::request_bytes frame;
      net::encode(h, frame);
      in.frame = frame;
      net::request_view view;
      said to;
      EXPECT_EQ(decode_for(s, place::control, to, in, view), job == our_job) << text_of(r);
      EXPECT_EQ(to.result, job == our_job ? std::nullopt : std::optional(status::wrong_job)) << text_of(r);
    }
  }
}

using nlohmann::json;

class SchedulerVerbs : public test::scheduler_test {
 protected:
  std::string state() {
    const auto report = to(ask_text(verb::stats, "")).parsed();
    return report.dump() + std::to_string(events.size()) + std::to_string(static_cast<int>(subject->state()));
  }
};

TEST_F(SchedulerVerbs, AnotherJobAndAProcessThatIsNotTheNodeAreRefusedAndChangeNothing) {
  make(3, 3, 2);
  start(3);
  const auto before = state();
  for (const auto& r : verb_rules) {
    if (r.at != place::scheduler) continue;
    for (const auto& body : {server(1), worker(1), json{{"servers", 1}}, json{{"status", 9}, {"cause", "x"}}})
      EXPECT_EQ(to(ask_text(r.what, body.dump(), job + 1)).result, status::wrong_job) << text_of(r);
    EXPECT_EQ(state(), before) << text_of(r);
    if (r.who != asker::node || r.what == verb::collective) continue;
    for (auto body : {server(1), worker(1)}) {
      body["pid"] = 4711;
      body["status"] = 0;
      EXPECT_EQ(to(ask(r.what, body)).result, r.what == verb::watch ? status::ok : status::bad_request) << text_of(r);
    }
    auto body = server(1);
    body["incarnation"] = "00000000000003e7";
    EXPECT_EQ(to(ask(r.what, body)).result, r.what == verb::watch ? status::ok : status::bad_request) << text_of(r);
    EXPECT_EQ(state(), before) << text_of(r);
  }
  client = 12345;  // of a process that is not a worker
  EXPECT_EQ(to(barrier(0, 3)).result, status::bad_request);
  client = 0;
  EXPECT_EQ(state(), before);
}

}  // namespace
}  // namespace paracel::srv
