// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/scheduler_node.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/error.hpp>

#include "net/collective_codec.hpp"
#include "net/inproc_transport.hpp"

namespace {

using namespace paracel;
using namespace std::chrono_literals;
using net::status;
using net::verb;
using nlohmann::json;

constexpr std::uint64_t job = 0x5c4ed;

class log_book {
 public:
  srv::scheduler::event_sink sink() {
    return [this](std::string_view line, bool) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(json::parse(line));
    };
  }
  std::vector<json> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<json> lines_;
};

/// A node's end: sends requests and waits for replies.
class client {
 public:
  client(net::transport& over, const std::string& address) : port_(over.open()), channel_(port_->connect(address)) {}
  void send(verb what, const json& body, std::uint32_t epoch = 0) {
    const auto text = body.dump();
    net::request_header h;
    h.what = what;
    h.job = job;
    h.epoch = epoch;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(text.size());
    net::request_bytes head;
    net::encode(h, head);
    port_->send(channel_, {.head = head, .body = net::bytes_of(text)});
  }
  /// The next answer.
  net::reply_view wait(std::chrono::milliseconds limit = 5s) {
    net::reply_view reply;
    if (!port_->receive(in_, limit)) throw error("no answer");
    if (const char* reason = net::decode(in_.frame, in_.tail.size(), reply)) throw error(reason);
    return reply;
  }
  net::port& port() { return *port_; }
  [[nodiscard]] int channel() const { return channel_; }

 private:
  std::unique_ptr<net::port> port_;
  int channel_;
  std::uint64_t sequence_ = 0;
  net::incoming in_;
};

json server() {
  return {{"role", "server"},
          {"slot", 0},
          {"incarnation", 7},
          {"threads", 1},
          {"host", "h"},
          {"pid", 1},
          {"shards", {"inproc://a"}},
          {"clock", "inproc://b"},
          {"control", "inproc://c"}};
}
json worker(int rank, int size) {
  return {{"role", "worker"}, {"rank", rank}, {"size", size}, {"host", "h"}, {"pid", 2 + rank}};
}

class SchedulerNode : public testing::Test {
 protected:
  std::unique_ptr<srv::scheduler_node> start(std::uint32_t workers, std::chrono::milliseconds limit = 10s) {
    srv::scheduler_node_options o;
    o.job = {.job = job, .workers = workers, .servers = 1, .heartbeat_limit = limit};
    o.bind = "inproc://scheduler*";
    o.events = book.sink();
    o.on_over = [this] { over = true; };
    return std::make_unique<srv::scheduler_node>(transport, std::move(o));
  }
  log_book book;
  std::atomic<bool> over{false};
  net::inproc_transport transport;
};

TEST_F(SchedulerNode, SaysWhereItIsFirst) {
  const auto node = start(1);
  ASSERT_FALSE(book.lines().empty());
  EXPECT_EQ(book.lines()[0], (json{{"event", "ready"}, {"address", node->address()}}));
}

TEST_F(SchedulerNode, AnAddressThatIsTakenIsAnError) {
  const auto node = start(1);
  srv::scheduler_node_options o;
  o.bind = node->address();
  EXPECT_THROW(srv::scheduler_node(transport, std::move(o)), network_error);
}

TEST_F(SchedulerNode, AJobFromJoinToDone) {
  const auto node = start(2);
  client s(transport, node->address());
  client w0(transport, node->address());
  client w1(transport, node->address());
  w0.send(verb::join, worker(0, 2));
  w1.send(verb::join, worker(1, 2));
  s.send(verb::join, server());
  EXPECT_EQ(s.wait().header.result, status::ok);
  EXPECT_EQ(w0.wait().header.result, status::ok);
  EXPECT_EQ(w1.wait().header.result, status::ok);
  w0.send(verb::progress, {{"round", 1}});
  w0.wait();
  for (auto* w : {&w0, &w1}) {
    auto body = worker(w == &w0 ? 0 : 1, 2);
    body["status"] = 0;
    w->send(verb::leave, body);
    EXPECT_EQ(w->wait().header.result, status::ok);
  }
  s.send(verb::heartbeat, server());
  EXPECT_EQ(s.wait().header.order, net::instruction::shutdown);
  for (int i = 0; i < 500 && !over; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(over);
  EXPECT_EQ(node->state(), srv::scheduler::phase::done);
  EXPECT_EQ(node->status(), 0);
  std::vector<std::string> kinds;
  for (const auto& line : book.lines()) kinds.push_back(line["event"]);
  EXPECT_EQ(kinds, (std::vector<std::string>{"ready", "joined", "joined", "joined", "started", "progress", "left",
                                             "left", "done"}));
}

TEST_F(SchedulerNode, ALostWorkerIsFoundByTheClock) {
  const auto node = start(1, 200ms);
  client s(transport, node->address());
  client w(transport, node->address());
  s.send(verb::join, server());
  w.send(verb::join, worker(0, 1));
  s.wait();
  w.wait();
  json last;
  for (int i = 0; i < 300; ++i) {
    s.send(verb::heartbeat, server());
    const auto reply = s.wait();
    if (reply.header.order == net::instruction::abort) {
      last = json::parse(net::text_of(reply.body));
      break;
    }
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(last["status"], 10);
  EXPECT_NE(last["cause"].get<std::string>().find("worker 0 (pid 2 on h) lost: no heartbeat for 0."),
            std::string::npos);
  EXPECT_EQ(node->status(), 10);
}

TEST_F(SchedulerNode, EverythingThatArrivesIsAnswered) {
  const auto node = start(1);
  client c(transport, node->address());
  const std::vector<std::byte> noise(200, std::byte{0x5a});
  c.port().send(c.channel(), {.head = noise});
  EXPECT_EQ(c.wait().header.result, status::bad_request);
  c.port().send(c.channel(), {.head = std::span(noise).first(3)});
  EXPECT_EQ(c.wait().header.result, status::bad_request);
  c.send(verb::pull, {});
  EXPECT_EQ(c.wait().header.result, status::bad_request);
  c.send(verb::ping, {});
  EXPECT_EQ(c.wait().header.result, status::ok);
}

TEST_F(SchedulerNode, AnAbortFromOutsideAnswersWhoWaits) {
  const auto node = start(2);
  client w(transport, node->address());
  w.send(verb::join, worker(0, 2));
  while (book.lines().size() < 2) std::this_thread::sleep_for(1ms);
  node->abort(143, "the scheduler was told to stop");
  const auto reply = w.wait();
  EXPECT_EQ(reply.header.result, status::job_ended);
  EXPECT_EQ(json::parse(net::text_of(reply.body)),
            (json{{"status", 143}, {"cause", "the scheduler was told to stop"}}));
}

TEST_F(SchedulerNode, WhatFailsOutsideOfARequestEndsTheJobWithItsReason) {
  srv::scheduler_node_options o;
  o.job = {.job = job, .workers = 1, .servers = 1, .heartbeat_limit = 50ms};
  o.bind = "inproc://scheduler*";
  o.events = [to = book.sink()](std::string_view line, bool droppable) {
    if (line.find("\"lost\"") != line.npos) throw std::runtime_error("no memory for a line");
    to(line, droppable);
  };
  o.on_over = [this] { over = true; };
  const srv::scheduler_node node(transport, std::move(o));
  client s(transport, node.address());
  client w(transport, node.address());
  w.send(verb::join, worker(0, 1));  // first: the server's limit counts from when all servers have joined
  s.send(verb::join, server());
  EXPECT_EQ(w.wait().header.result, status::ok);
  w.send(verb::watch, {{"role", "worker"}, {"rank", 0}}, 1);
  const auto told = w.wait();
  EXPECT_EQ(told.header.result, status::job_ended);
  EXPECT_EQ(json::parse(net::text_of(told.body)),
            (json{{"status", 13}, {"cause", "the scheduler failed: no memory for a line"}}));
  while (!over) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(node.status(), 13);
  EXPECT_EQ(book.lines().back()["cause"], "the scheduler failed: no memory for a line");
}

TEST_F(SchedulerNode, EvenWhenTheEndCannotBeAnnouncedTheStatusIsThatOfALostScheduler) {
  srv::scheduler_node_options o;
  o.job = {.job = job, .workers = 1, .servers = 1, .heartbeat_limit = 50ms};
  o.bind = "inproc://scheduler*";
  o.events = [](std::string_view line, bool) {
    if (line.find("\"lost\"") != line.npos || line.find("\"abort\"") != line.npos) throw std::runtime_error("no");
  };
  o.on_over = [this] { over = true; };
  const srv::scheduler_node node(transport, std::move(o));
  client s(transport, node.address());
  client w(transport, node.address());
  w.send(verb::join, worker(0, 1));  // first: the server's limit counts from when all servers have joined
  s.send(verb::join, server());
  while (!over) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(node.status(), 13);
  EXPECT_EQ(node.state(), srv::scheduler::phase::aborted);
}

TEST_F(SchedulerNode, WhoStillWaitsAtTheEndIsAnswered) {
  auto node = start(2);
  client w(transport, node->address());
  w.send(verb::join, worker(0, 2));
  while (book.lines().size() < 2) std::this_thread::sleep_for(1ms);
  node.reset();
  EXPECT_EQ(w.wait().header.result, status::job_ended);
}

}  // namespace
