// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/scheduler_node.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/json_io.hpp"
#include "net/attention.hpp"
#include "server/request/channels.hpp"
#include "server/request/slow_consumer_guard.hpp"
#include "server/scheduler/reply_cache.hpp"

namespace paracel::srv {
namespace {

// A port cannot be woken by another thread, so this bounds the delay of stop and abort, and the accuracy of leases
// and deadlines.
constexpr std::chrono::milliseconds idle{50};
// While another thread works for it, whose completion it must notice, or is about to stop it, because the job is over.
constexpr std::chrono::milliseconds soon{1};
// Requests handled between two readings of the clock. A scheduler that was itself suspended finds the heartbeats of
// that time in its queue; it must handle them before it declares nodes lost.
constexpr int most_in_a_row = 10'000;
// An iteration that takes longer than this, or than a quarter of the interval after which a node is lost, is an
// absence.
constexpr std::chrono::milliseconds long_turn{250};
constexpr std::size_t most_unread_bytes = std::size_t{1} << 30;

}  // namespace

scheduler_node::scheduler_node(net::transport& transport, scheduler_node_options options, const net::clock_source* time)
    : options_(std::move(options)), time_(time != nullptr ? *time : real_time_) {
  if (!options_.events) options_.events = [](std::string_view, bool) {};
  std::promise<std::string> bound;
  auto address = bound.get_future();
  thread_ = std::thread([this, &bound, mine = transport.open()]() mutable {
    bool ready = false;
    try {
      auto here = mine->bind(options_.bind);
      options_.events(json_text({{"event", "ready"}, {"address", here}}), false);
      ready = true;
      bound.set_value(std::move(here));
      run(*mine);
    } catch (const std::exception& e) {
      if (!ready) bound.set_exception(std::current_exception());
      else end_here(e.what());
    }
    mine.reset();  // a port is destroyed on the thread that used it
  });
  try {
    address_ = address.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

scheduler_node::~scheduler_node() {
  stop_.store(true, std::memory_order_release);
  thread_.join();
}

/// The last resort: not even the job's end could be announced. Its launcher sees this process exit.
void scheduler_node::end_here(const char* why) noexcept {
  std::fprintf(stderr, "start_scheduler: error: the scheduler cannot continue: %s\n", why);
  status_.store(exit_status::scheduler_lost, std::memory_order_release);
  state_.store(scheduler::phase::aborted, std::memory_order_release);
  if (options_.on_over) options_.on_over();
}

void scheduler_node::abort(int status, std::string cause) {
  abort_cause_ = std::move(cause);
  abort_status_.store(status, std::memory_order_release);
}

std::vector<metric_family> scheduler_node::metrics(std::chrono::milliseconds limit) {
  std::unique_lock held(metrics_mutex_);
  // Those that are being taken may have been begun before this call.
  const auto wanted = metrics_number_ + 1;
  metrics_asked_.store(true, std::memory_order_release);
  metrics_come_.wait_for(held, limit, [&] { return metrics_number_ >= wanted; });
  return metrics_;
}

void scheduler_node::run(net::port& mine) {
  reply_cache sink(mine);
  channels to_servers(mine);
  scheduler job(options_.job, options_.events, time_.now(),
                [&, id = options_.job.job](const std::string& to, net::request_header h, std::string_view body) {
                  h.job = id;
                  h.client = id;
                  h.body_bytes = static_cast<std::uint32_t>(body.size());
                  net::request_bytes head;
                  net::encode(h, head);
                  to_servers.send(to, {.head = head, .body = net::bytes_of(body)}, time_.now().time_since_epoch());
                });
  slow_consumer_guard unread(most_unread_bytes);
  net::incoming in;
  const auto interval = std::min(options_.job.heartbeat_limit, options_.job.lease_limit);
  net::attention own(time_.now(), net::clock_source::time_point::duration(std::max(interval / 4, long_turn)));
  auto epoch = job.members().epoch;
  bool over = false;
  // A request that fails is refused. What fails outside of one leaves the job in an unknown state, so it ends, and the
  // nodes are told why.
  const auto guarded = [&](const auto& step) {
    try {
      step();
    } catch (const std::exception& e) {
      const auto cause = std::string("the scheduler failed: ") + e.what();
      std::fprintf(stderr, "start_scheduler: error: %s\n", cause.c_str());
      job.abort(exit_status::scheduler_lost, cause, time_.now());
    }
  };
  while (!stop_.load(std::memory_order_acquire)) {
    bool came = mine.receive(in, job.busy() || over ? soon : idle);
    for (int i = 0; came && i < most_in_a_row; ++i) {
      if (in.channel >= 0) {
        to_servers.heard(in.channel);
        net::reply_view reply;
        if (net::decode(in.frame, in.tail.size(), reply) == nullptr)
          guarded([&] { job.on_reply(reply.header.sequence, reply, time_.now()); });
        came = mine.receive(in, std::chrono::milliseconds{0});
        continue;
      }
      net::request_view request;
      const char* malformed = net::decode(in.frame, in.tail.size(), request);
      const auto& h = request.header;
      if (unread.is_over(in.unread_bytes) && !unread.answers(h, in.unread_bytes)) {
        came = mine.receive(in, std::chrono::milliseconds{0});
        continue;
      }
      // Nothing is cached for requests of another job; the scheduler answers them.
      if (malformed == nullptr && h.job == options_.job.job && !sink.accepts(h, in.from)) {
        came = mine.receive(in, std::chrono::milliseconds{0});
        continue;
      }
      completion done(sink, in.from, malformed == nullptr ? h.what : net::verb::none, h.sequence, options_.job.job, 0);
      if (malformed != nullptr) {
        done.fail(net::status::bad_request, malformed);
      } else if (unread.is_over(in.unread_bytes)) {
        done.fail(net::status::too_large, slow_consumer_guard::text);
      } else {
        try {
          job.handle(request, std::move(in.tail), std::move(done), time_.now());
        } catch (const std::exception& e) {  // no memory, or a reply too large to send: only that request has failed
          options_.events(json_text({{"event", "error"}, {"text", e.what()}}), false);
        }
      }
      came = mine.receive(in, std::chrono::milliseconds{0});
    }
    const auto now = time_.now();
    guarded([&] {
      if (const auto missed = own.absence(now); missed.count() != 0) job.was_away(missed, now);
      if (metrics_asked_.load(std::memory_order_relaxed) && metrics_asked_.exchange(false, std::memory_order_acquire))
          [[unlikely]] {
        auto all = job.metrics(now);
        const std::lock_guard held(metrics_mutex_);
        metrics_ = std::move(all);
        ++metrics_number_;
        metrics_come_.notify_all();
      }
      if (checkpoint_asked_.exchange(false, std::memory_order_acquire)) job.ask_for_checkpoint();
      job.tick(now);
      if (std::exchange(epoch, job.members().epoch) != job.members().epoch) to_servers.follow(job.members());
    });
    if (const int status = abort_status_.load(std::memory_order_acquire); status != 0)
      job.abort(status, abort_cause_, now);
    status_.store(job.status(), std::memory_order_release);
    state_.store(job.state(), std::memory_order_release);
    if (!over && job.all_notified(now)) {
      over = true;
      if (options_.on_over) options_.on_over();
    }
  }
  job.abort(exit_status::scheduler_lost, "the scheduler was stopped", time_.now());
}

}  // namespace paracel::srv
