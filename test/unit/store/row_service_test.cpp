// SPDX-License-Identifier: BSD-3-Clause
//
// The verbs on rows, at the server object: which requests are rejected, and that a rejected request changes nothing.
#include "server/store/row_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/half.hpp"
#include "core/membership.hpp"
#include "net/row_codec.hpp"
#include "net/row_values.hpp"
#include "server/node/server.hpp"
#include "test/support/paths.hpp"
#include "test/support/row_replies.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::HasSubstr;
using bytes = std::vector<std::byte>;
using ids = std::vector<std::uint64_t>;
using floats = std::vector<float>;

using answer = test::row_reply;

void add_bytes(bytes& to, std::span<const std::byte> what) { to.insert(to.end(), what.begin(), what.end()); }

class RowsService : public testing::Test {
 protected:
  RowsService() { reset({}); }
  void reset(server_options o) {
    o.plugin_folders = {test::plugin_folder()};
    o.incarnation = 7;
    server_ = std::make_unique<server>(o);
  }
  answer send(net::request_header h, bytes body, shared_buffer tail = {}, unsigned shard = 0) {
    h.client = 5;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    h.tail_bytes = tail.size();
    bytes frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    add_bytes(frame, body);
    net::request_view request;
    EXPECT_EQ(net::decode(frame, tail.size(), request), nullptr);
    net::peer from;
    from.size = 1;
    server_->handle(shard, request, std::move(tail), server_->completion_for(sink_, from, request.header));
    EXPECT_EQ(sink_.all.size(), 1U) << "exactly one answer";
    return sink_.take();
  }
  answer open(const std::string& name, const net::table_definition& d, unsigned shard = 0) {
    net::request_header h;
    h.what = verb::table_open;
    h.key_bytes = static_cast<std::uint32_t>(name.size());
    bytes body(net::bytes_of(name).begin(), net::bytes_of(name).end());
    add_bytes(body, net::encode(d));
    return send(h, body, {}, shard);
  }
  void open_floats(std::uint32_t width, const row_init& init = {}) {
    net::table_definition d;
    d.element = value_tag::f32;
    d.width = width;
    d.init = init;
    for (unsigned shard = 0; shard < server_->threads(); ++shard)
      ASSERT_EQ(open("t", d, shard).header.result, status::ok);
  }
  struct with {
    std::uint16_t flags = 0;
    std::uint32_t clock = net::no_clock;
    std::uint32_t rank = 0;
    std::uint32_t credit = 0;
    unsigned shard = 0;
  };
  answer rows(verb what, const ids& names, const floats& values, with w) {
    net::request_header h;
    h.what = what;
    h.table = net::table_id("t");
    h.tag = value_tag::f32;
    h.count = static_cast<std::uint32_t>(names.size());
    h.flags = w.flags;
    h.clock = w.clock;
    h.rank = w.rank;
    h.credit = w.credit;
    bytes body;
    add_bytes(body, std::as_bytes(std::span(names)));
    add_bytes(body, std::as_bytes(std::span(values)));
    return send(h, body, {}, w.shard);
  }
  answer rows(verb what, const ids& names, const floats& values = {}) { return rows(what, names, values, {}); }

  std::unique_ptr<server> server_;
  test::row_replies sink_;
  std::uint64_t sequence_ = 0;
};

TEST_F(RowsService, WhatIsMalformedIsRefusedAndChangesNothing) {
  EXPECT_THAT(rows(verb::rows_pull, {1}).text(), HasSubstr("open it first"));
  open_floats(2);
  ASSERT_EQ(rows(verb::rows_push, {1, 2}, {1, 2, 3, 4}).header.result, status::ok);
  EXPECT_EQ(rows(verb::rows_push, {1, 2}, {9, 9, 9}).header.result, status::bad_request);
  EXPECT_EQ(rows(verb::rows_update, {1}, {9, 9, 9}).header.result, status::bad_request);
  EXPECT_EQ(rows(verb::rows_update, {1}, {}).header.result, status::bad_request);
  EXPECT_EQ(rows(verb::rows_pull, {1}, {9}).header.result, status::bad_request);

  net::request_header h;
  h.what = verb::rows_pull;
  h.table = net::table_id("t");
  h.tag = value_tag::f64;
  EXPECT_EQ(send(h, {}).header.result, status::type_mismatch);
  h.tag = value_tag::f32;
  h.count = 0xffffffffU;
  EXPECT_EQ(send(h, bytes(64)).header.result, status::bad_request);
  h.flags = net::flag_named;
  EXPECT_EQ(send(h, bytes(64)).header.result, status::bad_request);
  h.count = 2;
  bytes names(16);
  const std::uint32_t long_name = 9;
  std::memcpy(names.data(), &long_name, sizeof long_name);
  EXPECT_THAT(send(h, names).text(), HasSubstr("longer than the payload"));
  names[0] = std::byte{3};
  names[15] = std::byte{1};
  EXPECT_THAT(send(h, names).text(), HasSubstr("padded with zeros"));
  h.flags = 0;
  h.count = 1;
  EXPECT_THAT(send(h, bytes(8), shared_buffer::allocate(8)).text(), HasSubstr("second frame"));
  h.what = verb::rows_scan;
  EXPECT_THAT(send(h, bytes(7)).text(), HasSubstr("cursor"));
  EXPECT_EQ(rows(verb::rows_pull, {1, 2}).numbers(), (floats{1, 2, 3, 4}));

  h.what = verb::table_open;
  h.key_bytes = 1;
  for (std::size_t n = 1; n < 40; ++n) EXPECT_EQ(send(h, bytes(n)).header.result, status::bad_request) << n;
}

TEST_F(RowsService, IdsAsGapsAreTheSameIds) {
  open_floats(1);
  const ids names{3, 5, 5, 300, 90'000};
  net::request_header h;
  h.table = net::table_id("t");
  h.tag = value_tag::f32;
  h.count = 5;
  const auto as_gaps = [&](verb what, const floats& values, std::uint16_t more = 0,
                           std::uint32_t clock = net::no_clock) {
    h.what = what;
    h.flags = static_cast<std::uint16_t>(net::flag_gaps | more);
    h.clock = clock;
    bytes body(net::gaps_bytes(5, 4));
    net::write_gaps(body.data(), 5, 4, [&](std::size_t k) { return names[k]; });
    add_bytes(body, std::as_bytes(std::span(values)));
    return send(h, body);
  };
  ASSERT_EQ(as_gaps(verb::rows_push, {1, 2, 3, 4, 5}).header.result, status::ok);
  EXPECT_EQ(rows(verb::rows_pull, names).numbers(), (floats{1, 3, 3, 4, 5}));
  ASSERT_EQ(as_gaps(verb::rows_update, {10, 20, 30, 40, 50}).header.result, status::ok);
  EXPECT_EQ(as_gaps(verb::rows_pull, {}).numbers(), (floats{11, 53, 53, 44, 55}));
  ASSERT_EQ(as_gaps(verb::rows_update, {1, 1, 1, 1, 1}, net::flag_staged, 0).header.result, status::ok);
  EXPECT_EQ(rows(verb::rows_pull, {3, 300}).numbers(), (floats{11, 44})) << "not before the clock ticks";
  EXPECT_EQ(as_gaps(verb::rows_pull, {}, net::flag_bsp_read, 1).numbers(), (floats{12, 55, 55, 45, 56}));
  EXPECT_THAT(as_gaps(verb::rows_pull, {}, net::flag_named).text(), HasSubstr("only ids can be sent as gaps"));
  EXPECT_THAT(as_gaps(verb::rows_push, {1, 2}).text(), HasSubstr("do not fit the payload"));
  h.count = (1U << 27U) + 1;
  EXPECT_THAT(as_gaps(verb::rows_pull, {}).text(), HasSubstr("more rows than a frame has room for"));
  h.count = 5;
  ASSERT_EQ(as_gaps(verb::rows_remove, {}).header.result, status::ok);
  EXPECT_EQ(rows(verb::rows_pull, names).numbers(), (floats{0, 0, 0, 0, 0}));
}

TEST_F(RowsService, ARetriedStagedBatchOfWhichAPartWasAppliedKeepsTheValuesOfTheRest) {
  for (const auto format : {wire_format::full, wire_format::f16, wire_format::i8}) {
    reset({});
    membership m;
    m.workers = 1;
    m.elastic = true;  // changes are recorded by partition
    m.epoch = 1;
    server_entry only;
    only.threads = 1;
    only.incarnation = 7;
    only.shards = {"a"};
    m.servers.push_back(only);
    server_->set_membership(m);
    server_->adopt(0, *server_->replicas());
    server_->at(0).keep_replicas();
    open_floats(1);

    // Large enough for a frame of its own, which is freed as soon as nothing refers to it.
    ids all, applied;
    for (std::uint64_t id = 0; id < 30'000; ++id) {
      all.push_back(id);
      if (partition_of(net::hash_row(id)) % 4 != 0) applied.push_back(id);
    }
    const auto stage = [&](const ids& names) {
      net::request_header h;
      h.what = verb::rows_update;
      h.table = net::table_id("t");
      h.tag = value_tag::f32;
      h.count = static_cast<std::uint32_t>(names.size());
      h.flags = static_cast<std::uint16_t>(net::flag_gaps | net::flag_staged | net::flag_of(format));
      h.clock = 0;
      bytes payload(net::gaps_bytes(names.size(), sizeof(std::uint32_t)));
      net::write_gaps(payload.data(), names.size(), sizeof(std::uint32_t), [&](std::size_t k) { return names[k]; });
      for (const auto id : names) {
        const auto value = static_cast<float>(id % 1000 + 1);
        const auto at = payload.size();
        payload.resize(at + net::wire_bytes(format, value_tag::f32, 1));
        if (format == wire_format::full) std::memcpy(&payload[at], &value, sizeof value);
        else net::quantise(format, value_tag::f32, std::as_bytes(std::span(&value, 1)).data(), 1, &payload[at]);
      }
      return send(h, {}, shared_buffer::copy_of(payload)).header.result;
    };
    ASSERT_EQ(stage(applied), status::ok);
    --sequence_;  // under the same number: what was applied is left out
    ASSERT_EQ(stage(all), status::ok);
    const auto read = rows(verb::rows_pull, all, {}, {net::flag_bsp_read, 1}).numbers();
    ASSERT_EQ(read.size(), all.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      wrong += std::abs(read[i] / static_cast<float>(all[i] % 1000 + 1) - 1) < 1e-6F ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << net::name_of(format);
  }
}

/// Rows by id or by name in fewer bits.
class QuantisedRows : public RowsService {
 protected:
  answer coded(verb what, wire_format f, const ids& names, const floats& values, std::uint16_t more = 0,
               std::uint32_t clock = net::no_clock) {
    net::request_header h;
    h.what = what;
    h.table = net::table_id("t");
    h.tag = value_tag::f32;
    h.count = static_cast<std::uint32_t>(names.size());
    h.flags = static_cast<std::uint16_t>(net::flag_of(f) | more);
    h.clock = clock;
    bytes body;
    if ((more & net::flag_named) != 0) {
      std::string texts;
      for (const auto id : names) {
        const auto text = "row " + std::to_string(id);
        put_bytes(body, static_cast<std::uint32_t>(text.size()));
        texts += text;
      }
      add_bytes(body, net::bytes_of(texts));
      body.resize(net::names_bytes(names.size(), texts.size()));
    } else {
      add_bytes(body, std::as_bytes(std::span(names)));
    }
    const auto width = values.size() / names.size();
    for (std::size_t i = 0; i < names.size() && !values.empty(); ++i) {
      const auto at = body.size();
      body.resize(at + net::wire_bytes(f, value_tag::f32, width));
      net::quantise(f, value_tag::f32, reinterpret_cast<const std::byte*>(values.data() + i * width), width, &body[at]);
    }
    return send(h, body);
  }
  static floats numbers(wire_format f, const answer& a, std::size_t rows, std::size_t width) {
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    EXPECT_EQ(a.body.size(), rows * net::wire_bytes(f, value_tag::f32, width));
    floats out(rows * width);
    if (a.body.size() == rows * net::wire_bytes(f, value_tag::f32, width))
      net::dequantise(f, value_tag::f32, a.body.data(), rows, width, reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
};

TEST_F(QuantisedRows, ValuesTravelInFewerBitsAndAreStoredInAll) {
  open_floats(2);
  const ids names{3, 9};
  for (const auto f : {wire_format::f16, wire_format::i8}) {
    ASSERT_EQ(rows(verb::rows_push, names, {0.1F, 127, -127, 2}).header.result, status::ok);
    EXPECT_EQ(numbers(f, coded(verb::rows_pull, f, names, {}), 2, 2),
              (floats{f == wire_format::f16 ? float_of_half(half_of(0.1F)) : 0, 127, -127, 2}));
    ASSERT_EQ(coded(verb::rows_update, f, names, {127, 1, 127, 5}).header.result, status::ok);
    EXPECT_EQ(rows(verb::rows_pull, names).numbers(), (floats{127.1F, 128, 0, 7}));
    ASSERT_EQ(coded(verb::rows_push, f, names, {127, 1, 127, 5}).header.result, status::ok);
    EXPECT_EQ(rows(verb::rows_pull, names).numbers(), (floats{127, 1, 127, 5}));
  }
}

TEST_F(QuantisedRows, AStagedBatchWaitsInFullPrecision) {
  open_floats(2);
  for (const std::uint16_t form : {std::uint16_t{0}, net::flag_named}) {
    for (const auto f : {wire_format::f16, wire_format::i8}) {
      ASSERT_EQ(coded(verb::rows_update, f, {3, 90}, {127, 1, 127, 5}, net::flag_staged | form, 0).header.result,
                status::ok);
      ASSERT_EQ(coded(verb::rows_update, f, {90, 4}, {127, -1, 2, 127}, net::flag_staged | form, 0).header.result,
                status::ok);
    }
    const auto got = coded(verb::rows_pull, wire_format::f16, {3, 4, 90}, {}, net::flag_bsp_read | form, 1);
    EXPECT_EQ(numbers(wire_format::f16, got, 3, 2), (floats{254, 2, 4, 254, 508, 8}));
  }
}

TEST_F(QuantisedRows, WhatCannotTravelSoIsRefusedAndChangesNothing) {
  open_floats(2);
  ASSERT_EQ(rows(verb::rows_push, {1, 2}, {1, 2, 70000, 4}).header.result, status::ok);
  constexpr auto f16 = wire_format::f16;
  EXPECT_THAT(coded(verb::rows_pull, f16, {1, 2}, {}).text(),
              HasSubstr("table \"t\", row 2: found 70000, want at most"));
  EXPECT_EQ(coded(verb::rows_pull, f16, {2}, {}).header.result, status::too_large);
  EXPECT_EQ(numbers(wire_format::i8, coded(verb::rows_pull, wire_format::i8, {2}, {}), 1, 2)[0], 70000);
  EXPECT_EQ(numbers(f16, coded(verb::rows_pull, f16, {1}, {}), 1, 2), (floats{1, 2}));
  EXPECT_THAT(coded(verb::rows_update, f16, {1}, {5, 5}, net::flag_i8).text(), HasSubstr("not as both"));
  EXPECT_THAT(coded(verb::rows_remove, f16, {1}, {}).text(), HasSubstr("rows_remove has no numbers"));
  EXPECT_THAT(rows(verb::rows_update, {1}, {1, 1}, {.flags = net::flag_f16}).text(),
              HasSubstr("do not fit the payload"));
  EXPECT_EQ(rows(verb::rows_pull, {1, 2}).numbers(), (floats{1, 2, 70000, 4}));
  net::request_header h;
  h.what = verb::rows_scan;
  h.table = net::table_id("t");
  h.flags = net::flag_f16;
  EXPECT_THAT(send(h, bytes(8)).text(), HasSubstr("rows_scan has no numbers"));

  const auto open_coded = [&](const char* symbol, value_tag element, std::uint16_t flags) {
    net::table_definition d;
    d.element = element;
    d.width = 2;
    if (*symbol != '\0') {
      d.plugin = "libparacel_default.so";
      d.symbol = symbol;
    }
    net::request_header o;
    o.what = verb::table_open;
    o.flags = flags;
    o.key_bytes = 1;
    bytes body(1, std::byte{'u'});
    add_bytes(body, net::encode(d));
    return send(o, body);
  };
  EXPECT_THAT(open_coded("paracel_max", value_tag::f32, net::flag_f16).text(), HasSubstr("paracel_max does not add"));
  EXPECT_THAT(open_coded("", value_tag::i64, net::flag_i8).text(), HasSubstr("rows of i64 cannot be sent as i8"));
  EXPECT_THAT(open_coded("", value_tag::f32, net::flag_i8 | net::flag_f16).text(), HasSubstr("not as both"));
  EXPECT_EQ(open_coded("paracel_adagrad", value_tag::f64, net::flag_i8).header.result, status::ok);
  // A table that was opened without it: each request is checked, too.
  net::table_definition d;
  d.element = value_tag::f32;
  d.width = 2;
  d.plugin = "libparacel_default.so";
  d.symbol = "paracel_max";
  ASSERT_EQ(open("most", d).header.result, status::ok);
  h = {};
  h.what = verb::rows_update;
  h.table = net::table_id("most");
  h.tag = value_tag::f32;
  h.count = 1;
  h.flags = net::flag_f16;
  EXPECT_THAT(send(h, bytes(12)).text(), HasSubstr("additive(...)"));
  h.what = verb::rows_pull;
  EXPECT_EQ(send(h, bytes(8)).header.result, status::ok) << "any table can be read so";
}

TEST_F(RowsService, ARowOfAnotherShardOrServerIsRefusedBeforeAnythingIsDone) {
  server_options o;
  o.threads = 2;
  reset(o);
  open_floats(1);
  ids here;
  std::uint64_t stranger = 0;
  for (std::uint64_t id = 0; here.size() < 3 || stranger == 0; ++id) {
    if (partition_of(net::hash_row(id)) % 2 == 0) here.push_back(id);
    else stranger = id;
  }
  auto mixed = here;
  mixed.push_back(stranger);
  EXPECT_EQ(rows(verb::rows_update, mixed, floats(mixed.size(), 1)).header.result, status::wrong_owner);
  EXPECT_EQ(rows(verb::rows_pull, here).numbers(), floats(here.size(), 0));
  EXPECT_EQ(rows(verb::rows_pull, {stranger}, {}, {.shard = 1}).header.result, status::ok);

  membership m;  // two servers, of which this is the first
  m.workers = 1;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    server_entry e;
    e.slot = slot;
    e.threads = 2;
    e.shards = {"a", "b"};
    m.servers.push_back(e);
  }
  server_->set_membership(m);
  const key_router router(m);
  for (const auto id : here) {
    const bool mine = router.locate_partition(partition_of(net::hash_row(id))).server == 0;
    EXPECT_EQ(rows(verb::rows_pull, {id}).header.result, mine ? status::ok : status::wrong_owner);
  }
}

TEST_F(RowsService, ValuesMayLieAtAnyAddress) {
  net::table_definition d;
  d.element = value_tag::f64;
  d.width = 3;
  d.plugin = "libparacel_default.so";
  d.symbol = std::string_view("paracel_sgd\0lr=0.5", 18);
  ASSERT_EQ(open("t", d).header.result, status::ok);
  for (std::size_t shift = 0; shift < 9; ++shift) {
    net::request_view r;
    r.header.what = verb::rows_update;
    r.header.table = net::table_id("t");
    r.header.tag = value_tag::f64;
    r.header.count = 1;
    bytes memory(64);
    const std::vector<double> g{2, 4, 6};
    std::memcpy(memory.data() + shift + 8, g.data(), 24);
    r.body = std::span(memory).subspan(shift, 32);
    r.header.body_bytes = 32;
    net::peer from;
    from.size = 1;
    server_->handle(0, r, {}, server_->completion_for(sink_, from, r.header));
    const auto a = sink_.take();
    ASSERT_EQ(a.result(), status::ok) << a.text();
  }
  net::request_header h;
  h.what = verb::rows_pull;
  h.table = net::table_id("t");
  h.tag = value_tag::f64;
  h.count = 1;
  const auto a = send(h, bytes(8));
  std::vector<double> v(3);
  ASSERT_EQ(a.body.size(), 24U);
  std::memcpy(v.data(), a.body.data(), 24);
  EXPECT_EQ(v, (std::vector<double>{-9, -18, -27}));
}

TEST_F(RowsService, BatchesAreStagedWholeAndFoldedByClockRankAndArrival) {
  net::table_definition d;
  d.element = value_tag::f32;
  d.width = 1;
  d.plugin = "libparacel_default.so";
  d.symbol = "paracel_assign";  // the last one wins
  ASSERT_EQ(open("t", d).header.result, status::ok);
  const auto stage = [&](std::uint32_t clock, std::uint32_t rank, float v) {
    ASSERT_EQ(rows(verb::rows_update, {1}, {v}, {net::flag_staged, clock, rank}).header.result, status::ok);
  };
  const auto read = [&](std::uint32_t clock) {
    return rows(verb::rows_pull, {1}, {}, {net::flag_bsp_read, clock}).numbers()[0];
  };
  stage(1, 0, 10);
  stage(0, 1, 2);
  stage(0, 1, 3);
  stage(0, 0, 1);
  stage(1, 1, 11);
  EXPECT_EQ(rows(verb::rows_pull, {1}).numbers()[0], 0) << "a read without the flag sees what is folded";
  EXPECT_THAT(server_->stats_json(), HasSubstr("\"staged\":5"));
  EXPECT_EQ(read(1), 3);
  EXPECT_EQ(read(1), 3);
  EXPECT_EQ(read(2), 11);
  stage(1, 0, 12);  // late: all iterations before 2 are complete
  EXPECT_EQ(rows(verb::rows_pull, {1}).numbers()[0], 12);
  EXPECT_THAT(server_->stats_json(), HasSubstr("\"staged\":0"));
}

TEST_F(RowsService, BatchesThatAreDueAreFoldedInSlicesInTheirOrder) {
  net::table_definition d;
  d.element = value_tag::f32;
  d.width = 1;
  ASSERT_EQ(open("t", d).header.result, status::ok);
  // Sums of these numbers depend on the order.
  const std::vector<std::vector<float>> terms{{1e8F, 3}, {-1e8F, 7}, {0.3F, 1e-3F}};
  float expected = 0;
  for (std::uint32_t clock = 0; clock < 2; ++clock) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) expected += terms[rank][clock];
    for (const std::uint32_t rank : {2U, 0U, 1U}) {
      ASSERT_EQ(rows(verb::rows_update, {1}, {terms[rank][clock]}, {net::flag_staged, clock, rank}).header.result,
                status::ok);
    }
  }
  ASSERT_EQ(rows(verb::rows_update, {1}, {64}, {net::flag_staged, 2, 0}).header.result, status::ok);
  net::request_header h;
  h.what = verb::clock_moved;
  h.clock = 2;
  EXPECT_EQ(send(h, {}).header.result, status::ok);
  int slices = 1;
  while (server_->at(0).fold_due([] { return true; })) ++slices;
  EXPECT_GE(slices, 6);
  EXPECT_FALSE(server_->at(0).has_due());
  EXPECT_THAT(server_->stats_json(), HasSubstr("\"staged\":1"));
  EXPECT_EQ(rows(verb::rows_pull, {1}).numbers()[0], expected);
}

TEST_F(RowsService, AFenceDropsTheBatchesThatARankHasStaged) {
  net::table_definition d;
  d.element = value_tag::f32;
  d.width = 1;
  ASSERT_EQ(open("t", d).header.result, status::ok);
  const auto stage = [&](std::uint32_t clock, std::uint32_t rank, float v) {
    ASSERT_EQ(rows(verb::rows_update, {1}, {v}, {net::flag_staged, clock, rank}).header.result, status::ok);
  };
  stage(0, 1, 1);
  stage(1, 1, 10);
  stage(1, 0, 100);
  net::request_header h;
  h.what = verb::fence;
  h.rank = 1;
  h.clock = 1;
  EXPECT_EQ(send(h, {}).header.count, 1U);
  EXPECT_THAT(server_->stats_json(), HasSubstr("\"staged\":2"));
  EXPECT_EQ(rows(verb::rows_pull, {1}, {}, {net::flag_bsp_read, 2}).numbers()[0], 101);
}

TEST_F(RowsService, AScanGoesInChunksOfTheCredit) {
  open_floats(4, row_init::uniform(0, 1, 3));
  ids all;
  for (std::uint64_t i = 0; i < 1000; ++i) all.push_back(i * 7);
  const auto values = rows(verb::rows_pull, all).numbers();
  for (const bool keys_only : {false, true}) {
    std::map<std::uint64_t, float> met;
    std::uint64_t cursor = 0;
    int chunks = 0;
    for (bool more = true; more; ++chunks) {
      net::request_header h;
      h.what = verb::rows_scan;
      h.table = net::table_id("t");
      h.credit = 1000;
      h.flags = keys_only ? net::flag_keys_only : std::uint16_t{0};
      const auto c = std::as_bytes(std::span(&cursor, 1));
      const auto a = send(h, bytes(c.begin(), c.end()));
      ASSERT_EQ(a.header.result, status::ok);
      EXPECT_LE(a.body.size(), 1000U);
      std::memcpy(&cursor, a.body.data(), sizeof cursor);
      net::rows_view r;
      ASSERT_EQ(net::decode(std::span(a.body).subspan(8), a.header.count, false, keys_only ? 0 : 16, r), nullptr);
      for (std::uint32_t i = 0; i < r.count; ++i) {
        float first = 0;
        if (!keys_only) std::memcpy(&first, r.values.data() + i * 16, sizeof first);
        EXPECT_TRUE(met.emplace(r.id(i), first).second);
      }
      more = (a.header.flags & net::reply_more) != 0;
    }
    EXPECT_GT(chunks, 5);
    ASSERT_EQ(met.size(), all.size());
    if (keys_only) continue;
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(met.at(all[i]), values[i * 4]);
  }
}

TEST_F(RowsService, AnAnswerBeyondTheCreditIsRefusedAndALargeOneTravelsApart) {
  open_floats(16);
  ids many(2000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i;
  EXPECT_EQ(rows(verb::rows_pull, many, {}, {.credit = 1000}).header.result, status::too_large);
  const auto a = rows(verb::rows_pull, many);
  EXPECT_EQ(a.header.tail_bytes, many.size() * 64);
  EXPECT_EQ(a.numbers(), floats(many.size() * 16, 0));
}

TEST_F(RowsService, ClearEmptiesTheTablesAndKeepsThem) {
  open_floats(1, row_init::constant(5));
  EXPECT_EQ(rows(verb::rows_push, {1}, {7}).header.result, status::ok);
  rows(verb::rows_update, {1}, {1}, {net::flag_staged, 0, 0});
  EXPECT_THAT(server_->stats_json(), HasSubstr("\"rows\":1"));
  net::request_header h;
  h.what = verb::clear;
  EXPECT_EQ(send(h, {}).header.result, status::ok);
  EXPECT_THAT(server_->stats_json(), HasSubstr("\"rows\":0"));
  EXPECT_EQ(rows(verb::rows_pull, {1}, {}, {net::flag_bsp_read, 1}).numbers(), (floats{5}));
}

}  // namespace
}  // namespace paracel::srv
