// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's channel for commands at a scheduler that refuses its requests.
#include "worker/command_channel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
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

}  // namespace
}  // namespace paracel
