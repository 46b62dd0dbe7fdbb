// SPDX-License-Identifier: BSD-3-Clause
#include "net/heartbeat.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

namespace paracel::net {

namespace {

using steady = std::chrono::steady_clock;
// How long the destructor may wait for a thread whose beat is unanswered.
constexpr std::chrono::milliseconds look_up_interval{50};

}  // namespace

order order_of(const reply_view& reply) {
  order o;
  o.what = reply.header.order;
  if (reply.header.result != status::ok) o.what = instruction::abort;
  if (o.what != instruction::abort) return o;
  const auto body = nlohmann::json::parse(text_of(reply.body), nullptr, false);
  o.status = exit_status::failure;
  if (body.is_object() && body.contains("cause") && body["cause"].is_string()) {
    o.cause = body["cause"].get<std::string>();
    if (body.contains("status") && body["status"].is_number_integer()) o.status = body["status"].get<int>();
  } else {
    o.cause = std::string(text_of(reply.body));
  }
  return o;
}

heartbeat::heartbeat(transport& over, heartbeat_options options, std::function<std::string()> describe,
                     std::function<void(const order&)> obey)
    : options_(std::move(options)), describe_(std::move(describe)), obey_(std::move(obey)) {
  thread_ = std::thread([this, mine = over.open()]() mutable {
    try {
      run(*mine);
    } catch (const error& e) {
      obey_({instruction::abort, e.status(), e.what()});
    }
    mine.reset();  // a port dies on the thread that used it
  });
}

heartbeat::~heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_one();
  thread_.join();
}

void heartbeat::run(port& to_scheduler) {
  const int channel = to_scheduler.connect(options_.scheduler);
  auto last_answer = steady::now();
  auto next_beat = last_answer;
  std::uint64_t sequence = 0;
  bool answered = true;
  incoming in;
  while (!stop_.load(std::memory_order_relaxed)) {
    const auto now = steady::now();
    if (now >= next_beat) {
      // Asked nothing, the scheduler says nothing: the time that this process itself slept is not its silence.
      if (answered) last_answer = std::max(last_answer, now - options_.interval);
      next_beat = now + options_.interval;
      answered = false;
      const auto body = describe_();
      request_header h;
      h.what = verb::heartbeat;
      h.job = options_.job;
      h.sequence = ++sequence;
      h.body_bytes = static_cast<std::uint32_t>(body.size());
      request_bytes head;
      encode(h, head);
      to_scheduler.send(channel, {.head = head, .body = bytes_of(body)});
    }
    if (answered) {
      std::unique_lock lock(mutex_);
      wake_.wait_until(lock, next_beat, [&] { return stop_.load(std::memory_order_relaxed); });
      continue;
    }
    if (!to_scheduler.receive(in, look_up_interval)) {
      if (steady::now() - last_answer <= options_.limit) continue;
      obey_({instruction::abort, exit_status::scheduler_lost,
             "the scheduler is lost: silent for " + std::to_string(options_.limit.count()) + " ms"});
      return;
    }
    reply_view reply;
    if (decode(in.frame, in.tail.size(), reply) != nullptr) continue;
    last_answer = steady::now();
    answered = true;
    const auto asked = order_of(reply);
    if (asked.what == instruction::go_on) continue;
    obey_(asked);
    return;
  }
}

}  // namespace paracel::net
