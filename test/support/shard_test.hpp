// SPDX-License-Identifier: BSD-3-Clause
//
// A server without a thread or a socket: requests are passed as frames, each is answered immediately.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "net/protocol.hpp"
#include "server/node/server.hpp"
#include "test/support/paths.hpp"
#include "test/support/recorded_reply.hpp"

namespace paracel::test {

/// A reply, decoded.
struct shard_answer {
  net::reply_header header;
  std::vector<std::byte> body;
  shared_buffer tail;

  [[nodiscard]] std::span<const std::byte> bytes() const { return tail ? tail.bytes() : std::span(body); }
  [[nodiscard]] std::string text() const { return std::string(net::text_of(body)); }
  [[nodiscard]] std::vector<double> doubles() const {
    std::vector<double> d(bytes().size() / sizeof(double));
    if (!d.empty()) std::memcpy(d.data(), bytes().data(), d.size() * sizeof(double));
    return d;
  }
  struct item {
    net::status result;
    std::uint64_t version;
    value_tag tag;
    std::vector<std::byte> value;
  };
  [[nodiscard]] std::vector<item> items() const {
    std::vector<item> all;
    net::reply_items cursor(body, header.count);
    for (net::reply_item i; cursor.next(i);) {
      all.push_back({i.result, i.version, i.value.tag, {i.value.bytes.begin(), i.value.bytes.end()}});
    }
    EXPECT_TRUE(cursor.ok());
    return all;
  }
};

/// Records the replies.
class reply_recorder final : public srv::reply_sink {
 public:
  void send(const net::peer& to, const net::outgoing& message) override {
    EXPECT_EQ(to.size, 1);
    const test::recorded_reply recorded(message);
    const auto& view = recorded.view;
    answers.push_back({view.header, {view.body.begin(), view.body.end()}, message.tail});
  }
  std::deque<shard_answer> answers;
};

/// Fields of a request besides key and value.
struct shard_request {
  std::uint64_t function = 0;
  std::uint16_t flags = 0;
  std::uint32_t clock = net::no_clock;
  std::uint32_t rank = 0;
  std::uint32_t credit = 0;
  std::uint16_t partition = net::any_partition;
  std::uint64_t job = 0;
  std::uint32_t table = 0;
  unsigned shard = 0;
  shared_buffer tail{};
};

class shard_test : public testing::Test {
 protected:
  using answer = shard_answer;
  using with = shard_request;

  static value_view view(const double& d) { return {value_tag::f64, std::as_bytes(std::span(&d, 1))}; }
  static value_view view(const std::vector<double>& d) { return {value_tag::f64_array, std::as_bytes(std::span(d))}; }
  /// For update_default: both values, concatenated.
  static std::vector<std::byte> payload_of(const value_view& initial, const value_view& delta) {
    std::vector<std::byte> payload;
    net::append_item(payload, {}, initial);
    net::append_item(payload, {}, delta);
    return payload;
  }
  /// For cas: the version before the value.
  static std::vector<std::byte> expecting(std::uint64_t version, const value_view& value) {
    std::vector<std::byte> payload(sizeof version);
    std::memcpy(payload.data(), &version, sizeof version);
    payload.insert(payload.end(), value.bytes.begin(), value.bytes.end());
    return payload;
  }

  shard_test() { reset({}); }

  void reset(srv::server_options o) {
    o.plugin_folders = {plugin_folder()};
    o.incarnation = 77;
    server_ = std::make_unique<srv::server>(o);
  }
  answer send(net::request_header h, const std::vector<std::byte>& body, with w) {
    h.function = w.function;
    h.flags = w.flags;
    h.clock = w.clock;
    h.rank = w.rank;
    h.credit = w.credit;
    h.partition = w.partition;
    h.job = w.job;
    h.table = w.table;
    h.client = client_;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    h.tail_bytes = w.tail.size();
    std::vector<std::byte> frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    frame.insert(frame.end(), body.begin(), body.end());
    net::request_view request;
    EXPECT_EQ(net::decode(frame, w.tail.size(), request), nullptr);
    net::peer from;
    from.size = 1;
    const auto before = sink_.answers.size();
    server_->handle(w.shard, request, std::move(w.tail), server_->completion_for(sink_, from, request.header));
    EXPECT_EQ(sink_.answers.size(), before + 1) << "exactly one answer";
    auto a = std::move(sink_.answers.back());
    sink_.answers.pop_back();
    EXPECT_EQ(a.header.sequence, sequence_);
    EXPECT_EQ(a.header.what, h.what);
    EXPECT_EQ(a.header.server, 77U);
    return a;
  }
  answer call(net::verb what, std::string_view key, const value_view& value = {}, with w = {}) {
    net::request_header h;
    h.what = what;
    h.tag = value.tag;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    std::vector<std::byte> body(net::bytes_of(key).begin(), net::bytes_of(key).end());
    body.insert(body.end(), value.bytes.begin(), value.bytes.end());
    return send(h, body, std::move(w));
  }
  answer call_tail(net::verb what, std::string_view key, value_tag tag, shared_buffer tail, with w = {}) {
    w.tail = std::move(tail);
    return call(what, key, {tag, {}}, std::move(w));
  }
  answer multi(net::verb what, const std::vector<std::pair<std::string, value_view>>& items, with w = {}) {
    net::request_header h;
    h.what = what;
    h.count = static_cast<std::uint32_t>(items.size());
    std::vector<std::byte> body;
    for (const auto& [key, value] : items) net::append_item(body, key, value);
    return send(h, body, std::move(w));
  }
  std::uint64_t function(const std::string& symbol, bool* additive = nullptr) {
    const auto a = call(net::verb::register_update, std::string("server_updates") + '\0' + symbol);
    EXPECT_EQ(a.header.result, net::status::ok) << a.text();
    std::uint64_t id = 0;
    EXPECT_EQ(a.body.size(), 9U);
    std::memcpy(&id, a.body.data(), sizeof id);
    if (additive != nullptr) *additive = a.body[8] != std::byte{0};
    return id;
  }
  void push(std::string_view key, double d) {
    ASSERT_EQ(call(net::verb::push, key, view(d)).header.result, net::status::ok);
  }
  double pull(std::string_view key, with w = {}) {
    const auto a = call(net::verb::pull, key, {}, std::move(w));
    EXPECT_EQ(a.header.result, net::status::ok) << a.text();
    return a.doubles().size() == 1 ? a.doubles()[0] : std::numeric_limits<double>::quiet_NaN();
  }
  [[nodiscard]] nlohmann::json stats() const { return nlohmann::json::parse(server_->stats_json()); }

  std::unique_ptr<srv::server> server_;
  reply_recorder sink_;
  std::uint64_t client_ = 5;
  std::uint64_t sequence_ = 0;
};

}  // namespace paracel::test
