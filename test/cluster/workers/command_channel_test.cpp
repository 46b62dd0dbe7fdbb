// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's channel for commands at a scheduler that refuses its requests, and at one that follows a script.
#include "worker/job/command_channel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "net/inproc_transport.hpp"
#include "net/protocol.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::status;

/// Answers the first request, and refuses all others.
class refusing_scheduler {
 public:
  explicit refusing_scheduler(net::transport& over) {
    std::promise<std::string> bound;
    auto at = bound.get_future();
    thread_ = std::thread([this, &over, &bound] {
      const auto port = over.open();
      bound.set_value(port->bind("inproc://scheduler*"));
      bool is_first = true;
      for (net::incoming in; !stop_;) {
        net::request_view request;
        if (!port->receive(in, 5ms) || net::decode(in.frame, in.tail.size(), request) != nullptr) continue;
        if (request.header.sequence == 0) continue;
        net::reply_header h;
        h.what = request.header.what;
        h.sequence = request.header.sequence;
        h.result = is_first ? status::ok : status::bad_request;
        is_first = false;
        const std::string_view text = h.result == status::ok ? "{}" : "the moon is full";
        h.body_bytes = static_cast<std::uint32_t>(text.size());
        net::reply_bytes head;
        net::encode(h, head);
        port->reply(in.from, {.head = head, .body = net::bytes_of(text)});
      }
    });
    address_ = at.get();
  }
  ~refusing_scheduler() {
    stop_ = true;
    thread_.join();
  }
  refusing_scheduler(const refusing_scheduler&) = delete;
  refusing_scheduler& operator=(const refusing_scheduler&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  std::atomic<bool> stop_{false};
  std::string address_;
  std::thread thread_;
};

TEST(CommandChannel, ARefusalEndsNoCallThatHasAskedForNothing) {
  net::inproc_transport over;
  const refusing_scheduler scheduler(over);
  std::vector<std::string> warnings;
  command_channel subject(
      {.open = [&] { return std::make_unique<net::scheduler_channel>(over, scheduler.address(), 7); },
       .identity = nlohmann::json::object(),
       .marked = [](net::request_header h) { return h; },
       .check = [] {},
       .on_ended = [](const net::reply_view&) {},
       .warn = [&](const std::string& text) { warnings.push_back(text); }});
  subject.on_command(nullptr, "a", [](const std::string&) { return std::string(); });
  while (warnings.empty()) EXPECT_EQ(subject.take(1ms), 0U);  // a commit
  EXPECT_EQ(subject.take(50ms), 0U);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "the scheduler refused take_commands: the moon is full; this worker accepts no more commands");
  EXPECT_THROW(subject.tell(command_target::workers(), "a", "", 1), error);
  subject.close(10ms);
}

/// Replies to the first parked request with a command and a change. Replies to a `tell` when it has the answer to that
/// command, at the latest after a second.
class scripted_scheduler {
 public:
  explicit scripted_scheduler(net::transport& over) : port_(over.open()), address_(port_->bind("inproc://*")) {
    thread_ = std::thread([this] { run(); });
  }
  ~scripted_scheduler() { finish(); }
  [[nodiscard]] const std::string& address() const { return address_; }
  /// All answers that it got.
  nlohmann::json finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return answers_;
  }

 private:
  void run() {
    net::incoming in;
    auto told_at = std::chrono::steady_clock::time_point::max();
    while (!stop_) {
      if (port_->receive(in, 5ms)) {
        net::request_view r;
        if (net::decode(in.frame, in.tail.size(), r) != nullptr || r.header.what != net::verb::take_commands) continue;
        from_ = in.from;
        sequence_ = r.header.sequence;
        on_request(nlohmann::json::parse(net::text_of(r.body)));
        if (tell_ != 0 && told_at == std::chrono::steady_clock::time_point::max())
          told_at = std::chrono::steady_clock::now() + 1s;
      }
      if (tell_ != 0 && (!answers_.empty() || std::chrono::steady_clock::now() > told_at)) {
        reply({{"told", {{"number", std::exchange(tell_, 0)}, {"answers", nlohmann::json::array()}}}});
        told_at = std::chrono::steady_clock::time_point::max();
      }
    }
  }
  void on_request(const nlohmann::json& body) {
    for (const auto& a : body.value("answers", nlohmann::json::array())) answers_.push_back(a);
    if (body.value("begin", false)) return reply(nlohmann::json::object());
    if (body.contains("tell")) tell_ = body["tell"]["number"].get<int>();
    else if (body["after"] == 0 && body.contains("changes"))
      reply({{"commands", {{{"number", 1}, {"command", "echo"}, {"body", "x"}}}},
             {"changes", {{{"number", 1}, {"server", false}, {"index", 0}, {"state", "up"}}}}});
  }
  void reply(const nlohmann::json& body) {
    const auto text = body.dump();
    net::reply_header h;
    h.what = net::verb::take_commands;
    h.sequence = sequence_;
    h.body_bytes = static_cast<std::uint32_t>(text.size());
    net::reply_bytes head;
    net::encode(h, head);
    port_->reply(from_, {.head = head, .body = net::bytes_of(text)});
  }

  std::unique_ptr<net::port> port_;
  std::string address_;
  net::peer from_;
  std::uint64_t sequence_ = 0;
  int tell_ = 0;  // the number of the worker's command that waits for a reply
  nlohmann::json answers_ = nlohmann::json::array();
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(CommandChannel, AnswersOfCommandsThatAnExceptionHadPutOffReachTheScheduler) {
  net::inproc_transport over;
  scripted_scheduler scheduler(over);
  command_channel::options o;
  o.open = [&] { return std::make_unique<net::scheduler_channel>(over, scheduler.address(), 7); };
  o.identity = nlohmann::json::object();
  o.marked = [](net::request_header h) { return h; };
  o.check = [] {};
  o.on_ended = [](const net::reply_view&) {};
  o.warn = [](const std::string&) {};
  command_channel worker(std::move(o));
  worker.on_command(nullptr, "echo", [](const std::string& body) { return body; });
  worker.on_change(nullptr, [](const job_node&) { throw std::runtime_error("of the program"); });
  EXPECT_THROW((void)worker.take(10s), std::runtime_error);
  // Asks first; the command that has been left over runs while that request is parked.
  EXPECT_TRUE(worker.tell(command_target::workers(), "own", "", 1).empty());
  const auto answers = scheduler.finish();
  ASSERT_EQ(answers.size(), 1U) << answers;
  EXPECT_EQ(answers[0]["number"], 1);
  EXPECT_EQ(answers[0]["text"], "x");
}

}  // namespace
}  // namespace paracel
