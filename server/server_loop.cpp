// SPDX-License-Identifier: BSD-3-Clause
#include "server/server_loop.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "server/unread_guard.hpp"

namespace paracel::srv {

using net::status;
using net::verb;
using std::chrono::milliseconds;

bool decode_for(server& s, reply_sink& sink, const net::incoming& in, net::request_view& request) {
  const char* reason = net::decode(in.frame, in.tail.size(), request);
  if (reason != nullptr) request.header.what = verb::none;  // it may be a number that no reply can carry
  // These two free what is held for the sender, and are answered in 64 bytes.
  const bool frees = request.header.what == verb::ping || request.header.what == verb::set_prepare;
  if (!frees && s.unread().is_over(in.unread_bytes)) [[unlikely]] {
    if (s.unread().answers(request.header, in.unread_bytes)) {
      s.completion_for(sink, in.from, request.header).fail(status::too_large, unread_guard::text);
    }
    return false;
  }
  if (reason == nullptr) return true;
  s.completion_for(sink, in.from, request.header).fail(status::bad_request, reason);
  return false;
}

/// Takes the requests that wait, `expect`s them together and calls `handle` for each in order.
template <class Copies, class Follow, class Expect, class Handle>
void server_loop::take(milliseconds sleep, Copies& copies, const Follow& follow, const Expect& expect, const Handle& handle) {
  auto& server = in_.of;
  const auto received = in_.port.receive_batch(messages_, sleep);
  std::size_t n = 0;
  // Without copies replies leave at once; nobody knows whether there are any before the first membership.
  const bool unknown = server.epoch() == 0;
  if (const auto newest = server.copies_epoch(); newest != 0 && newest != copies.epoch()) follow(server.copies());
  const bool with_copies = copies.active() || unknown;
  reply_sink& sink = copies.active() ? static_cast<reply_sink&>(copies) : alone_;
  for (std::size_t i = 0; i < received; ++i) {
    if (messages_[i].channel >= 0) {  // an answer of another server; those to `clock_moved` mean nothing
      if (with_copies) copies.take_reply(messages_[i]);
      continue;
    }
    if (decode_for(server, sink, messages_[i], requests_[n])) from_[n++] = &messages_[i];
    else messages_[i].tail = {};
  }
  if (n != 0) expect(std::span<const net::request_view>(requests_.data(), n));
  for (std::size_t i = 0; i < n; ++i) {
    const auto& h = requests_[i].header;
    const bool early = with_copies && h.epoch != 0;
    auto done = server.completion_for(early ? static_cast<reply_sink&>(copies) : sink, from_[i]->from, h);
    if (h.what == verb::stop && h.client == server.options().incarnation && in_.stop.load(std::memory_order_acquire)) {
      told_ = true;
      done.ok();
    } else if (!early && !copies.active() && (h.flags & net::flag_stream) != 0 && !copies.takes(h, from_[i]->from)) [[unlikely]] {
      done.fail(status::reconnected);
    } else if (!early && !copies.active() && h.what == verb::ping && h.count == net::ping_alive) [[unlikely]] {
      done.ok();
    } else {
      handle(requests_[i], std::move(from_[i]->tail), std::move(done), early || copies.active());
    }
  }
}

/// What every thread with copies does after a batch: sends what has changed, and the replies that wait for nothing any
/// more. Returns: for how long to sleep.
template <class Copies>
milliseconds server_loop::settle(Copies& copies) {
  // The lease may be renewed, and is looked at again then.
  constexpr milliseconds while_waiting{5};
  if (!copies.active()) {
    if (!copies.has_parked()) return idle;
    const auto epoch = in_.of.epoch();
    if (epoch == 0 || in_.of.copies_epoch() != 0) return while_waiting;
    copies.stay_alone(epoch, in_.time.now());
  }
  // Without copies nobody can be put in our place.
  const auto lease = copies.active() ? in_.lease_end.load(std::memory_order_relaxed) : std::numeric_limits<std::int64_t>::max();
  using time_point = net::time_source::time_point;
  copies.settle(in_.time.now(), time_point(time_point::duration(lease)));
  in_.synced.store(copies.synced(), std::memory_order_release);
  return copies.waits() ? while_waiting : idle;
}

shard_loop::shard_loop(const loop_surroundings& s, request_handler& handler, unsigned index)
    : server_loop(s), handler_(handler), index_(index),
      copies_({.job = s.of.options().job, .incarnation = s.of.options().incarnation, .index = index,
               .threads = s.of.options().threads, .most_parked_bytes = s.of.options().max_parked_bytes,
               .most_body_bytes = s.of.options().max_message_bytes / 2},
              s.of.at(index), s.of.plugins(), s.port,
              [this](const net::request_view& request, blob tail, completion done) {
                handler_.handle(index_, request, std::move(tail), std::move(done));
              }) {}

shard_loop::~shard_loop() {
  try {
    handler_.closing(index_);
    copies_.close();
  } catch (const std::exception&) {  // the clients will see that the connection is gone
  }
}

milliseconds shard_loop::step(milliseconds sleep) {
  take(
      sleep, copies_,
      [&](const std::shared_ptr<const copies_view>& view) {
        in_.of.adopt(index_, *view);
        copies_.follow(view);
      },
      [&](std::span<const net::request_view> requests) { handler_.expect(index_, requests); },
      [&](const net::request_view& request, blob tail, completion done, bool with_copies) {
        if (!with_copies) [[likely]] handler_.handle(index_, request, std::move(tail), std::move(done));
        else copies_.handle(request, std::move(tail), std::move(done));
      });
  return settle(copies_);
}

/// Tells every shard of the job when the clock has moved, once somebody has subscribed to keys.
class clock_loop::crier {
 public:
  crier(const server_options& options, net::port& mine, const server_entry& self,
        std::function<std::shared_ptr<const membership>()> newest)
      : options_(options), port_(mine), self_(self), newest_(std::move(newest)) {}

  void tend(const clock_service& clock) {
    if (!clock.is_watched() || clock.slowest() == told_) return;
    follow_membership();
    told_ = clock.slowest();
    net::request_header h;
    h.what = verb::clock_moved;
    h.job = options_.job;
    h.client = options_.incarnation;
    h.clock = told_;
    for (const auto channel : shards_) {
      h.sequence = ++sequence_;
      net::request_bytes head;
      net::encode(h, head);
      try {
        port_.send(channel, {.head = head});
      } catch (const error&) {  // that server is gone; who subscribed there asks by itself
      }
    }
  }

 private:
  void follow_membership() {
    auto newest = newest_();
    if (newest == members_ && !shards_.empty()) return;
    members_ = std::move(newest);
    shards_.clear();
    const auto call = [&](const server_entry& s) {
      for (const auto& address : s.shards) {
        const auto [at, fresh] = channels_.try_emplace(address, -1);
        if (fresh) at->second = port_.connect(address);
        shards_.push_back(at->second);
      }
    };
    if (members_ == nullptr) return call(self_);
    for (const auto& s : members_->servers) {
      if (takes_part(s.state)) call(s);
    }
  }

  const server_options& options_;
  net::port& port_;
  const server_entry& self_;
  std::function<std::shared_ptr<const membership>()> newest_;
  std::shared_ptr<const membership> members_;
  std::unordered_map<std::string, int> channels_;  // by address
  std::vector<int> shards_;                        // channels of the members'
  std::uint64_t sequence_ = 0;
  std::uint32_t told_ = 0;
};

clock_loop::clock_loop(const loop_surroundings& s, const server_entry& self,
                       std::function<std::shared_ptr<const membership>()> newest)
    : server_loop(s),
      copies_(s.of.options().job, s.of.options().incarnation, s.of.clock(), s.port,
              [this](const net::request_view& request, completion done) {
                in_.of.handle_clock(request, std::move(done), now(), copies_.keeps());
              }),
      crier_(std::make_unique<crier>(s.of.options(), s.port, self, std::move(newest))) {}

clock_loop::~clock_loop() {
  try {
    in_.of.clock().fail_all(status::job_ended, "the server is stopping");
    copies_.close();
  } catch (const std::exception&) {  // as above
  }
}

milliseconds clock_loop::step(milliseconds sleep) {
  take(
      sleep, copies_, [&](std::shared_ptr<const copies_view> view) { copies_.follow(std::move(view), now()); },
      [](std::span<const net::request_view>) {},
      [&](const net::request_view& request, const blob&, completion done, bool with_copies) {
        if (!with_copies) in_.of.handle_clock(request, std::move(done), now(), std::nullopt);
        else copies_.handle(request, std::move(done), now());
      });
  const auto longest = in_.of.tend_clock(now());
  const auto settled = settle(copies_);
  crier_->tend(in_.of.clock());
  return std::min(longest, settled);
}

}  // namespace paracel::srv
