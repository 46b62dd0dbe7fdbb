// SPDX-License-Identifier: BSD-3-Clause
//
// The state of a partition as records: the records written by one shard create the same partition in another, whatever
// it contains; and malformed bytes are rejected.
#include "server/store/partition_records.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bitset>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "net/row_codec.hpp"
#include "server/node/server.hpp"
#include "test/support/paths.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::HasSubstr;
using bytes = std::vector<std::byte>;

void join(bytes& to, std::span<const std::byte> what) { to.insert(to.end(), what.begin(), what.end()); }
std::span<const std::byte> of(const std::vector<double>& d) { return std::as_bytes(std::span(d)); }

struct reply_text {
  net::reply_header header;
  bytes body;
  [[nodiscard]] std::string text() const { return std::string(net::text_of(body)); }
};

class partition_state_notebook final : public reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    bytes frame(message.head.begin(), message.head.end());
    join(frame, message.body);
    net::reply_view view;
    ASSERT_EQ(net::decode(frame, message.tail.size(), view), nullptr);
    last = {view.header, {view.body.begin(), view.body.end()}};
    if (message.tail) join(last.body, message.tail.bytes());
  }
  reply_text last;
};

/// A server with one thread that is called directly.
class one_server {
 public:
  explicit one_server(server_options o = {}) {
    o.plugin_folders = {test::plugin_folder()};
    o.incarnation = 7;
    server_ = std::make_unique<server>(o);
  }
  reply_text send(net::request_header h, std::string_view key, std::span<const std::byte> payload) {
    h.client = 5;
    h.sequence = ++sequence_;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    h.body_bytes = static_cast<std::uint32_t>(key.size() + payload.size());
    bytes frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    join(frame, net::bytes_of(key));
    join(frame, payload);
    net::request_view request;
    EXPECT_EQ(net::decode(frame, 0, request), nullptr);
    net::peer from;
    from.size = 1;
    server_->handle(0, request, {}, server_->completion_for(sink_, from, request.header));
    return sink_.last;
  }
  reply_text key(verb what, std::string_view name, const std::vector<double>& value = {}, std::uint64_t function = 0) {
    net::request_header h;
    h.what = what;
    h.function = function;
    if (!value.empty()) h.tag = value_tag::f64_array;
    return send(h, name, of(value));
  }
  reply_text staged(std::string_view name, const std::vector<double>& delta, std::uint32_t clock, std::uint32_t rank,
                    std::uint64_t function = 0) {
    net::request_header h;
    h.what = verb::update;
    h.flags = net::flag_staged;
    h.clock = clock;
    h.rank = rank;
    h.tag = value_tag::f64_array;
    h.function = function;
    return send(h, name, of(delta));
  }
  reply_text bsp_pull(std::string_view name, std::uint32_t clock) {
    net::request_header h;
    h.what = verb::pull;
    h.flags = net::flag_bsp_read;
    h.clock = clock;
    return send(h, name, {});
  }
  std::uint64_t function(std::string_view plugin, std::string_view symbol) {
    net::request_header h;
    h.what = verb::register_update;
    const auto a = send(h, plugin, net::bytes_of(symbol));
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    std::uint64_t id = 0;
    std::memcpy(&id, a.body.data(), sizeof id);
    return id;
  }
  void open(std::string_view name, std::uint32_t width, std::string_view plugin = {}, std::string_view symbol = {}) {
    net::request_header h;
    h.what = verb::table_open;
    net::table_definition d;
    d.element = value_tag::f32;
    d.width = width;
    d.init = row_init::uniform(-1, 1, 3);
    d.plugin = plugin;
    d.symbol = symbol;
    const auto a = send(h, name, net::encode(d));
    ASSERT_EQ(a.header.result, status::ok) << a.text();
  }
  reply_text rows(verb what, std::string_view table, const std::vector<std::uint64_t>& ids,
                  const std::vector<float>& values, std::uint16_t flags = 0, std::uint32_t clock = net::no_clock,
                  std::uint32_t rank = 0) {
    bytes payload;
    join(payload, std::as_bytes(std::span(ids)));
    join(payload, std::as_bytes(std::span(values)));
    return some_rows(what, table, static_cast<std::uint32_t>(ids.size()), payload, flags, clock, rank);
  }
  reply_text named_rows(verb what, std::string_view table, const std::vector<std::string>& names,
                        const std::vector<float>& values, std::uint16_t flags = 0, std::uint32_t clock = net::no_clock,
                        std::uint32_t rank = 0) {
    bytes payload;
    for (const auto& n : names) {
      const auto length = static_cast<std::uint32_t>(n.size());
      join(payload, std::as_bytes(std::span(&length, 1)));
    }
    for (const auto& n : names) join(payload, net::bytes_of(n));
    payload.resize((payload.size() + 7) / 8 * 8);
    join(payload, std::as_bytes(std::span(values)));
    return some_rows(what, table, static_cast<std::uint32_t>(names.size()), payload, flags | net::flag_named, clock,
                     rank);
  }
  reply_text some_rows(verb what, std::string_view table, std::uint32_t count, const bytes& payload,
                       std::uint16_t flags, std::uint32_t clock, std::uint32_t rank) {
    net::request_header h;
    h.what = what;
    h.table = net::table_id(table);
    h.tag = value_tag::f32;
    h.count = count;
    h.flags = flags;
    h.clock = clock;
    h.rank = rank;
    return send(h, {}, payload);
  }

  shard& object() { return server_->at(0); }
  bytes state(std::uint16_t partition) {
    bytes out;
    object().encode_partition(partition, out);
    return out;
  }
  std::map<std::uint16_t, bytes> states() {
    std::map<std::uint16_t, bytes> all;
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      if (auto s = state(static_cast<std::uint16_t>(p)); !s.empty()) all.emplace(p, std::move(s));
    }
    return all;
  }
  void take(const std::map<std::uint16_t, bytes>& all) {
    for (const auto& [p, s] : all) {
      std::string why;
      ASSERT_EQ(object().apply_records(p, s, why), status::ok) << why;
    }
  }

 private:
  std::unique_ptr<server> server_;
  partition_state_notebook sink_;
  std::uint64_t sequence_ = 0;
};

std::size_t count_of(const std::map<std::uint16_t, bytes>& all, record_kind kind) {
  std::size_t n = 0;
  for (const auto& [p, s] : all) {
    records cursor(s);
    for (record r; cursor.next(r);) n += r.kind == kind ? 1 : 0;
    EXPECT_TRUE(cursor.ok());
  }
  return n;
}

/// All kinds of contents of a partition.
void fill(one_server& s) {
  const auto adagrad = s.function("libparacel_default.so", std::string("paracel_adagrad\0lr=0.5", 22));
  const auto adam = s.function("libparacel_default.so", "paracel_adam");
  for (int i = 0; i < 300; ++i) {
    const auto name = "key" + std::to_string(i);
    ASSERT_EQ(s.key(verb::push, name, {double(i), 1, 2}).header.result, status::ok);
    if (i % 3 == 0) {
      ASSERT_EQ(s.key(verb::update, name, {1, 2, 3}, adagrad).header.result, status::ok);
    }
    if (i % 3 == 1) {
      ASSERT_EQ(s.key(verb::update, name, {1, 2, 3}, adam).header.result, status::ok);
    }
    if (i % 5 == 0) {
      ASSERT_EQ(s.key(verb::remove, name).header.result, status::ok);
    }
    if (i % 7 == 0) {
      ASSERT_EQ(s.staged("late" + name, {1, 2}, 3, 1).header.result, status::ok);
      ASSERT_EQ(s.staged("late" + name, {5, 7}, 2, 0).header.result, status::ok);
      ASSERT_EQ(s.staged(name, {1, 1, 1}, 2, i % 4, adagrad).header.result, status::ok);
    }
  }
  ASSERT_EQ(s.key(verb::push, "large", std::vector<double>(20'000, 0.25)).header.result, status::ok);
  s.open("added", 3);
  s.open("stepped", 2, "libparacel_default.so", "paracel_adam");
  s.open("empty", 2);
  std::vector<std::uint64_t> ids;
  std::vector<std::string> names;
  std::vector<float> threes;
  std::vector<float> twos;
  for (std::uint64_t i = 0; i < 200; ++i) {
    ids.push_back(i * i);
    names.push_back("row" + std::to_string(i));
    threes.insert(threes.end(), {float(i), 1, 2});
    twos.insert(twos.end(), {float(i), 1});
  }
  ASSERT_EQ(s.rows(verb::rows_update, "added", ids, threes).header.result, status::ok);
  ASSERT_EQ(s.rows(verb::rows_update, "stepped", ids, twos).header.result, status::ok);
  ASSERT_EQ(s.named_rows(verb::rows_update, "added", names, threes).header.result, status::ok);
  ASSERT_EQ(s.named_rows(verb::rows_update, "stepped", names, twos).header.result, status::ok);
  ASSERT_EQ(s.rows(verb::rows_remove, "added", {0, 1, 4}, {}).header.result, status::ok);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(s.rows(verb::rows_update, "added", ids, threes, net::flag_staged, 5, rank).header.result, status::ok);
    ASSERT_EQ(s.named_rows(verb::rows_update, "stepped", names, twos, net::flag_staged, 5, rank).header.result,
              status::ok);
  }
  ASSERT_EQ(s.staged("key1", {1, 2, 3}, 1, 0).header.result, status::ok);
  ASSERT_EQ(s.key(verb::push, "key1", {1, 2}).header.result,
            status::ok);  // of a different size: it cannot be folded any more
  ASSERT_EQ(s.bsp_pull("key1", 2).header.result, status::type_mismatch);
}

TEST(PartitionState, WhatOneShardWritesMakesTheSamePartitionsInAnother) {
  one_server from;
  fill(from);
  from.object().applied().add(9, 3, 4, partition_of(hash_key("key1")), {});
  const auto all = from.states();
  EXPECT_GT(count_of(all, record_kind::put), 200U);
  EXPECT_GT(count_of(all, record_kind::stage), 100U);
  EXPECT_GT(count_of(all, record_kind::row), 700U);
  EXPECT_GT(count_of(all, record_kind::row_stage), 1000U);
  EXPECT_EQ(count_of(all, record_kind::applied), 1U);
  EXPECT_EQ(count_of(all, record_kind::broken), 1U);

  one_server to;
  (void)to.function("libparacel_default.so", std::string("paracel_adagrad\0lr=0.5", 22));
  to.take(all);
  EXPECT_EQ(to.states(), all);

  // And both continue identically: the same folds, the same optimizer steps, the same versions.
  for (auto* s : {&from, &to}) {
    for (int i = 0; i < 300; i += 7) {
      (void)s->bsp_pull("latekey" + std::to_string(i), 9);
      (void)s->bsp_pull("key" + std::to_string(i), 9);
    }
    (void)s->rows(verb::rows_pull, "added", {5}, {}, net::flag_bsp_read, 9);
    (void)s->rows(verb::rows_pull, "stepped", {5}, {}, net::flag_bsp_read, 9);
  }
  const auto versions_aside = [](std::map<std::uint16_t, bytes> states) {
    for (auto& [p, s] : states) {
      bytes out;
      records cursor(s);
      for (record r; cursor.next(r);) {
        if (r.kind == record_kind::put) r.a = 1;
        append(out, r);
      }
      s = std::move(out);
    }
    return states;
  };
  const auto after = from.states();
  EXPECT_EQ(count_of(after, record_kind::stage) + count_of(after, record_kind::row_stage), 0U);
  EXPECT_EQ(versions_aside(to.states()), versions_aside(after));
}

TEST(PartitionState, ADroppedPartitionLeavesNothing) {
  one_server s;
  fill(s);
  s.object().applied().add(9, 3, 4, partition_of(hash_key("key1")), {});
  std::bitset<partition_count> all;
  s.object().drop_partitions(all.set());
  EXPECT_TRUE(s.states().empty());
  EXPECT_EQ(s.object().counters().keys.load(), 0U);
  EXPECT_EQ(s.object().counters().rows.load(), 0U);
  EXPECT_EQ(s.object().counters().staged.load(), 0U);
}

TEST(PartitionState, ClearEraseAndFoldedTakeAwayWhatTheyName) {
  one_server s;
  ASSERT_EQ(s.key(verb::push, "k", {1}).header.result, status::ok);
  ASSERT_EQ(s.staged("k", {1}, 1, 0).header.result, status::ok);
  ASSERT_EQ(s.staged("k", {1}, 4, 0).header.result, status::ok);
  const auto p = partition_of(hash_key("k"));
  std::string why;
  bytes b;
  append(b, {.kind = record_kind::folded, .a = 2, .key = net::bytes_of("k")});
  ASSERT_EQ(s.object().apply_records(p, b, why), status::ok) << why;
  EXPECT_EQ(s.object().counters().staged.load(), 1U);
  b.clear();
  append(b, {.kind = record_kind::erase, .key = net::bytes_of("k")});
  const auto before = s.state(p);
  ASSERT_EQ(s.object().apply_records(p, b, why), status::ok) << why;
  EXPECT_TRUE(s.state(p).empty());
  ASSERT_EQ(s.object().apply_records(p, before, why), status::ok) << why;
  EXPECT_EQ(s.state(p), before);
  b.clear();
  append(b, {.kind = record_kind::clear});
  ASSERT_EQ(s.object().apply_records(p, b, why), status::ok) << why;
  EXPECT_TRUE(s.state(p).empty());
  EXPECT_EQ(s.object().counters().staged.load(), 0U);
}

TEST(PartitionState, VersionsGoOnAboveThoseThatCame) {
  one_server from;
  for (int i = 0; i < 50; ++i) ASSERT_EQ(from.key(verb::push, "k", {1}).header.result, status::ok);
  one_server to;
  to.take(from.states());
  EXPECT_EQ(to.key(verb::pull, "k").header.value_version, 50U);
  EXPECT_GT(to.key(verb::push, "other", {1}).header.value_version, 50U);
}

TEST(PartitionState, AFailureOfAStagedUpdateIsToldByTheNewCopyToo) {
  one_server from;
  ASSERT_EQ(from.key(verb::push, "k", {1, 2}).header.result, status::ok);
  ASSERT_EQ(from.staged("k", {1, 1}, 1, 0).header.result, status::ok);
  ASSERT_EQ(from.key(verb::push, "k", {1}).header.result, status::ok);
  const auto told = from.bsp_pull("k", 2);
  ASSERT_EQ(told.header.result, status::type_mismatch);
  one_server to;
  to.take(from.states());
  const auto again = to.bsp_pull("k", 2);
  EXPECT_EQ(again.header.result, status::type_mismatch);
  EXPECT_EQ(again.text(), told.text());
  ASSERT_EQ(to.key(verb::push, "k", {1, 2}).header.result, status::ok);
  EXPECT_EQ(to.bsp_pull("k", 2).header.result, status::ok);
}

// ---- malformed bytes ------------------------------------------------------------------------------------------------

TEST(PartitionState, EveryTruncationIsRefusedAndChangesNothing) {
  one_server from;
  ASSERT_EQ(from.key(verb::push, "k", {1}).header.result, status::ok);
  ASSERT_EQ(from.staged("k", {1}, 1, 0).header.result, status::ok);
  const auto p = partition_of(hash_key("k"));
  const auto whole = from.state(p);
  std::size_t boundary = 0;
  {
    records cursor(whole);
    record r;
    ASSERT_TRUE(cursor.next(r));
    boundary = record_front_bytes + r.key.size() + r.value.size() + r.state.size();
  }
  one_server to;
  for (std::size_t n = 1; n < whole.size(); ++n) {
    if (n == boundary) continue;
    std::string why;
    EXPECT_EQ(to.object().apply_records(p, std::span(whole).first(n), why), status::bad_request) << n;
    EXPECT_THAT(why, HasSubstr("malformed"));
  }
  EXPECT_TRUE(to.state(p).empty());
}

TEST(PartitionState, ImpossibleRecordsAreRefusedWithTheReason) {
  one_server s;
  const auto p = partition_of(hash_key("k"));
  const std::vector<double> one{1};
  const auto refused = [&](const bytes& b, status how, const std::string& says) {
    std::string why;
    EXPECT_EQ(s.object().apply_records(p, b, why), how) << says;
    EXPECT_THAT(why, HasSubstr(says));
    EXPECT_TRUE(s.state(p).empty());
  };
  const auto one_record = [](const record& r) {
    bytes b;
    append(b, r);
    return b;
  };
  const auto f64s = static_cast<std::uint8_t>(value_tag::f64_array);
  const auto k = net::bytes_of("k");
  refused(
      one_record({.kind = record_kind::put, .tag = f64s, .a = 1, .key = net::bytes_of("elsewhere"), .value = of(one)}),
      status::bad_request, "another partition");
  refused(one_record({.kind = record_kind::put, .tag = f64s, .a = 0, .key = k, .value = of(one)}), status::bad_request,
          "version");
  refused(one_record({.kind = record_kind::put, .tag = f64s, .a = most_version + 1, .key = k, .value = of(one)}),
          status::bad_request, "version");
  refused(one_record({.kind = record_kind::put, .tag = f64s, .a = 1, .key = k, .value = of(one).first(3)}),
          status::bad_request, "not a value");
  refused(one_record({.kind = record_kind::put, .tag = 0x77, .a = 1, .key = k, .value = of(one)}), status::bad_request,
          "not a value");
  refused(one_record({.kind = record_kind::put, .tag = f64s, .a = 1, .key = k, .value = of(one), .state = of(one)}),
          status::bad_request, "state");
  refused(one_record({.kind = record_kind::stage, .tag = f64s, .key = k, .value = of(one)}), status::bad_request,
          "malformed");
  bytes unknown;
  append(unknown, {.kind = record_kind::stage, .tag = f64s, .key = k, .value = of(one)},
         {.clock = 1, .what = static_cast<std::uint8_t>(verb::update), .function = 12345});
  refused(unknown, status::unknown_function, "not registered");
  bytes wrong_verb;
  append(wrong_verb, {.kind = record_kind::stage, .tag = f64s, .key = k, .value = of(one)},
         {.clock = 1, .what = static_cast<std::uint8_t>(verb::push)});
  refused(wrong_verb, status::bad_request, "malformed");
  refused(one_record({.kind = record_kind::broken, .key = k}), status::bad_request, "status");
  refused(one_record({.kind = record_kind::row, .a = 17, .key = k, .value = of(one)}), status::bad_request, "not open");
  refused(one_record({.kind = record_kind::table, .a = 17, .key = k}), status::bad_request, "id");
  refused(one_record({.kind = record_kind::applied, .a = 1, .state = of(one)}), status::bad_request, "client");
  const std::vector<double> two{1, 2};
  refused(one_record({.kind = record_kind::applied, .a = 1, .value = of(one), .state = of(two)}), status::bad_request,
          "answer");
  std::string why;
  EXPECT_EQ(s.object().apply_records(0xffff, {}, why), status::wrong_owner);
}

TEST(PartitionState, FlippedBitsAreAppliedOrRefusedButNeverMore) {
  one_server from;
  fill(from);
  const auto all = from.states();
  std::mt19937_64 random(11);
  one_server to;
  (void)to.function("libparacel_default.so", std::string("paracel_adagrad\0lr=0.5", 22));
  std::size_t refused = 0;
  for (const auto& [p, state] : all) {
    for (int i = 0; i < 8; ++i) {
      auto flipped = state;
      flipped[random() % flipped.size()] ^= std::byte{1} << (random() % 8);
      std::string why;
      if (to.object().apply_records(p, flipped, why) != status::ok) ++refused;
    }
    to.object().drop_partitions(std::bitset<partition_count>().set(p));
  }
  EXPECT_GT(refused, 500U);
  EXPECT_TRUE(to.states().empty());
}

TEST(PartitionState, ALimitOfMemoryIsKept) {
  one_server from;
  ASSERT_EQ(from.key(verb::push, "large", std::vector<double>(200'000, 1)).header.result, status::ok);
  server_options o;
  o.max_memory_bytes = 1 << 20;
  one_server to(o);
  std::string why;
  const auto p = partition_of(hash_key("large"));
  EXPECT_EQ(to.object().apply_records(p, from.state(p), why), status::out_of_memory);
  EXPECT_TRUE(to.state(p).empty());
  EXPECT_EQ(to.object().apply_replica(p, from.state(p), why), status::ok) << why;
  EXPECT_EQ(to.state(p), from.state(p)) << "a copy is what its head has answered";
  EXPECT_EQ(to.key(verb::push, "another", {1}).header.result, status::out_of_memory) << "the limit holds again";
}

TEST(PartitionState, AWalkFoldsWhatCameFromOthersOnceANewEpochHasBegun) {
  one_server head, copy;
  ASSERT_EQ(head.staged("k", {5}, 0, 0).header.result, status::ok);
  const auto folded = [&] {
    net::request_header h;
    h.what = verb::reduce;
    h.flags = net::flag_bsp_read;
    h.clock = 1;
    bytes request;
    append(request, net::reduce_request{});
    const auto a = copy.send(h, {}, request);
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    return copy.key(verb::pull, "k").header.result == status::ok;
  };
  EXPECT_FALSE(folded());
  copy.take(head.states());
  copy.object().begin_epoch(2);
  EXPECT_TRUE(folded());
}

}  // namespace
}  // namespace paracel::srv
