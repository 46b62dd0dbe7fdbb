// SPDX-License-Identifier: BSD-3-Clause
//
// A scheduler without a thread: requests are passed as frames, replies are collected by number, the time is a variable.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/membership.hpp"
#include "net/collective_codec.hpp"
#include "server/scheduler/scheduler.hpp"
#include "test/support/recorded_reply.hpp"

namespace paracel::test {

using namespace std::chrono_literals;
using net::instruction;
using net::status;
using net::verb;
using nlohmann::json;
using srv::scheduler;

class scheduler_test : public testing::Test, public srv::reply_sink {
 protected:
  static constexpr std::uint64_t job = 0x00c0ffee12345678;
  struct answer {
    status result;
    instruction order;
    std::string body;
    std::uint32_t count = 0;
    std::uint64_t version = 0;
    [[nodiscard]] json parsed() const { return json::parse(body); }
  };

  void SetUp() override { make(3, 2); }
  void make(std::uint32_t workers, std::uint32_t servers, std::uint32_t replicas = 1, bool eject = false,
            bool elastic = false) {
    subject.emplace(
        srv::scheduler_options{.job = job,
                               .workers = workers,
                               .servers = servers,
                               .replicas = replicas,
                               .elastic = elastic,
                               .eject_workers = eject,
                               .worker_wait = worker_wait,
                               .heartbeat_limit = 3000ms,
                               .lease_limit = 2200ms,
                               .hang_limit = hang_limit,
                               .join_limit = 60s},
        [this](std::string_view line, bool) { events.push_back(json::parse(line)); }, now,
        [this](const std::string& to, const net::request_header& h, std::string_view) { sent.emplace_back(to, h); });
  }
  void send(const net::peer& to, const net::outgoing& message) override {
    const test::recorded_reply recorded(message);
    const auto& reply = recorded.view;
    int number = 0;
    std::memcpy(&number, to.id.data(), sizeof number);
    ASSERT_FALSE(answers.contains(number)) << "answered twice";
    answers[number] = {reply.header.result, reply.header.order, std::string(net::text_of(reply.body)),
                       reply.header.count, reply.header.value_version};
  }

  /// Sends a request; returns its number, under which the reply is stored.
  int ask_text(verb what, const std::string& body, std::uint64_t of_job = job) {
    net::request_header h;
    h.what = what;
    h.job = of_job;
    h.sequence = static_cast<std::uint64_t>(++last);
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    return deliver(h, body);
  }
  int ask(verb what, const json& body) { return ask_text(what, body.dump()); }
  int barrier(std::uint32_t rank, std::uint32_t size) {
    net::request_header h;
    h.job = job;
    h.sequence = static_cast<std::uint64_t>(++last);
    net::collective_request r;
    r.rank = rank;
    r.size = size;
    const auto front = net::encode(r, 0, h);
    return deliver(h, std::string(net::text_of(front)));
  }
  int deliver(net::request_header h, const std::string& body) {
    h.client = client;
    std::vector<std::byte> frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame.data(), net::request_header_bytes));
    frame.insert(frame.end(), net::bytes_of(body).begin(), net::bytes_of(body).end());
    net::request_view view;
    EXPECT_EQ(net::decode(frame, 0, view), nullptr);
    net::peer who;
    who.size = sizeof last;
    std::memcpy(who.id.data(), &last, sizeof last);
    subject->handle(view, {}, srv::completion(*this, who, h.what, h.sequence, job, 1), now);
    return last;
  }

  static json server(int slot) {
    const auto at = "ipc:///x/" + std::to_string(slot);
    return {{"role", "server"},    {"slot", slot},      {"incarnation", 100 + slot},        {"threads", 2},
            {"host", "h"},         {"pid", 500 + slot}, {"shards", {at + "_0", at + "_1"}}, {"clock", at + "_c"},
            {"control", at + "_k"}};
  }
  static json worker(int rank, int size = 3) {
    return {{"role", "worker"}, {"rank", rank}, {"size", size}, {"host", "h"}, {"pid", 700 + rank}};
  }
  /// All processes join; the time does not advance.
  void start(int servers = 2) {
    for (int s = 0; s < servers; ++s) ask(verb::join, server(s));
    for (int r = 0; r < 3; ++r) ask(verb::join, worker(r));
    ASSERT_EQ(subject->state(), scheduler::phase::running);
  }
  void beat_all(const std::vector<json>& who) {
    for (const auto& w : who) ask(verb::heartbeat, w);
  }
  static json leaving(json who, int with_status = 0) {
    who["status"] = with_status;
    return who;
  }
  [[nodiscard]] std::vector<std::string> kinds() const {
    std::vector<std::string> names;
    for (const auto& e : events) names.push_back(e["event"]);
    return names;
  }
  /// Address of the clock thread in charge.
  [[nodiscard]] std::string clock_keeper() const {
    const auto& m = subject->members();
    return m.servers[key_router(m).clock_server()].clock;
  }
  const answer& to(int number) {
    static const answer none{status::internal, instruction::proceed, "unanswered", 0, 0};
    EXPECT_TRUE(answers.contains(number)) << number;
    return answers.contains(number) ? answers[number] : none;
  }
  void expect_refused(int number, const std::string& text) {
    EXPECT_EQ(to(number).result, status::bad_request);
    EXPECT_EQ(to(number).body, text);
  }
  void expect_ended(int number, int with_status, const std::string& cause) {
    EXPECT_EQ(to(number).result, status::job_ended);
    EXPECT_EQ(to(number).parsed(), (json{{"status", with_status}, {"cause", cause}}));
  }

  std::chrono::milliseconds hang_limit{0};
  std::chrono::milliseconds worker_wait{0};
  scheduler::time_point now{std::chrono::hours(5)};
  std::map<int, answer> answers;
  std::vector<json> events;
  std::vector<std::pair<std::string, net::request_header>> sent;  // to servers, with their addresses
  int last = 0;
  std::uint64_t client = 0;          // of the sender
  std::optional<scheduler> subject;  // declared after what its completions use
};

}  // namespace paracel::test
