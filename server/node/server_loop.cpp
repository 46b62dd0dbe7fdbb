// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/server_loop.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/trace.hpp"
#include "server/request/channels.hpp"
#include "server/request/slow_consumer_guard.hpp"

namespace paracel::srv {

using net::status;
using net::verb;
using std::chrono::milliseconds;

bool decode_for(server& s, place at, reply_sink& sink, const net::incoming& in, net::request_view& request) {
  const char* reason = net::decode(in.frame, in.tail.size(), request);
  if (reason != nullptr) request.header.what = verb::none;  // it may be a number that no reply can carry
  // These two release what is held for the sender, and are answered in 64 bytes.
  const bool frees = request.header.what == verb::ping || request.header.what == verb::set_prepare;
  if (!frees && s.unread().is_over(in.unread_bytes)) [[unlikely]] {
    if (s.unread().answers(request.header, in.unread_bytes)) {
      s.completion_for(sink, in.from, request.header).fail(status::too_large, slow_consumer_guard::text);
    }
    return false;
  }
  if (reason != nullptr) {
    s.completion_for(sink, in.from, request.header).fail(status::bad_request, reason);
    return false;
  }
  const auto refused = s.refused(at, request.header);
  if (refused) [[unlikely]]
    s.completion_for(sink, in.from, request.header).fail(refused->why, refused->text);
  return !refused;
}

server_loop::server_loop(const loop_context& s, place at, unsigned thread)
    : in_(s),
      thread_(thread),
      chain_(s.of.begin_replication(
          thread, s.port,
          [this](const net::request_view& request, shared_buffer tail, completion done) {
            serve_traced(request, std::move(tail), std::move(done));
          },
          s.log)),
      at_(at),
      unreplicated_(s.port) {}

bool server_loop::take(milliseconds sleep) {
  auto& server = in_.of;
  const auto received = in_.port.receive_batch(messages_, sleep);
  PARACEL_CHECK(received <= batch);
  std::size_t n = 0;
  // Without replicas replies are sent at once; before the first membership it is unknown whether there are any.
  const bool unknown = server.epoch() == 0;
  if (const auto newest = server.replicas_epoch(); newest != 0 && newest != chain_.epoch()) {
    const auto view = server.replicas();
    adopt(*view);
    chain_.follow(view);
  }
  const bool may_replicate = chain_.active() || unknown;
  reply_sink& sink = chain_.active() ? static_cast<reply_sink&>(chain_) : unreplicated_;
  for (std::size_t i = 0; i < received; ++i) {
    if (messages_[i].channel >= 0) {  // a reply of another server; those to `clock_moved` are ignored
      if (!take_reply(messages_[i]) && may_replicate) chain_.take_reply(messages_[i]);
      continue;
    }
    // Refusals here need not wait for the replicas.
    if (decode_for(server, at_, unreplicated_, messages_[i], requests_[n])) from_[n++] = &messages_[i];
    else messages_[i].tail = {};
  }
  if (n == 0) return received != 0;
  expect(std::span<const net::request_view>(requests_.data(), n));
  std::optional<net::batch_of_messages> replies;
  if (n > 1) replies.emplace(in_.port);
  for (std::size_t i = 0; i < n; ++i) {
    const auto& h = requests_[i].header;
    const bool early = may_replicate && h.epoch != 0;
    auto done = server.completion_for(early ? static_cast<reply_sink&>(chain_) : sink, from_[i]->from, h);
    if (h.what == verb::stop && h.client == server.options().incarnation && in_.stop.load(std::memory_order_acquire)) {
      told_ = true;
      done.ok();
    } else if (!early && !chain_.active() && (h.flags & net::flag_stream) != 0 && !chain_.accepts(h, from_[i]->from)) {
      done.fail(status::connection_reset);
    } else if (!early && !chain_.active() && h.what == verb::ping && h.count == net::ping_alive) [[unlikely]] {
      done.ok();
    } else if (early || chain_.active()) {
      chain_.handle(requests_[i], std::move(from_[i]->tail), std::move(done));
    } else {
      serve_traced(requests_[i], std::move(from_[i]->tail), std::move(done));
    }
  }
  if (received == 0) trace::idle();
  return received != 0;
}

void server_loop::serve_traced(const net::request_view& request, shared_buffer tail, completion done) {
  if ((request.header.flags & net::flag_traced) == 0 || trace::mine == nullptr) [[likely]]
    return serve(request, std::move(tail), std::move(done));
  trace::record r{.client = request.header.client,
                  .sequence = request.header.sequence,
                  .bytes = static_cast<std::uint32_t>(
                      std::min<std::size_t>(net::request_header_bytes + request.body.size() + tail.size(), UINT32_MAX)),
                  .kind = trace::kind::serve,
                  .what = static_cast<std::uint8_t>(request.header.what)};
  chain_.trace_batch();
  r.begin = trace::now();
  serve(request, std::move(tail), std::move(done));
  r.end = trace::now();
  trace::add(r);
}

milliseconds server_loop::end_batch() {
  // The lease may be renewed, and is checked again then.
  constexpr milliseconds while_waiting{5};
  if (!chain_.active()) {
    // Requests served before the first membership are answered through the chain, possibly much later: the last tick of
    // a worker once all shards know that it has left.
    if (!chain_.has_parked() && !chain_.waits()) return idle;
    const auto epoch = in_.of.epoch();
    if (epoch == 0 || in_.of.replicas_epoch() != 0) return while_waiting;
    chain_.run_unreplicated(epoch);
  }
  // Without replicas no other server can replace us.
  constexpr auto forever = std::numeric_limits<std::int64_t>::max();
  const auto lease = chain_.active() ? in_.lease_end.load(std::memory_order_relaxed) : forever;
  using time_point = net::clock_source::time_point;
  const net::batch_of_messages changes_and_replies(in_.port);
  chain_.end_batch(in_.time, time_point(time_point::duration(lease)));
  in_.synced.store(chain_.synced(), std::memory_order_release);
  return chain_.waits() ? while_waiting : idle;
}

shard_loop::shard_loop(const loop_context& s, request_handler& handler, unsigned index)
    : server_loop(s, place::shard, index), handler_(handler) {}

shard_loop::~shard_loop() {
  try {
    handler_.closing(thread_);
    chain_.close();
  } catch (const std::exception&) {  // the clients will notice that the connection is gone
  }
}

void shard_loop::serve(const net::request_view& request, shared_buffer tail, completion done) {
  if (request.header.what == verb::clock_moved) [[unlikely]] {
    if (!in_.of.is_of_peer(request.header)) return done.fail(status::bad_request, replication_chain::no_peer);
    if (request.header.epoch != in_.of.epoch()) return done.fail(status::stale_epoch);
  }
  handler_.handle(thread_, request, std::move(tail), std::move(done));
}

milliseconds shard_loop::step(milliseconds sleep) {
  const bool is_idle = !take(sleep);
  const bool more = chain_.serves() && fold();
  const auto until = end_batch();
  return more || tidy(is_idle) ? milliseconds{0} : until;
}

/// Gives back memory that removed keys and rows have left, in slices between batches of requests: without a pause while
/// there are no requests, else for a twentieth of the time. Returns: whether to continue at once.
bool shard_loop::tidy(bool is_idle) {
  constexpr std::chrono::microseconds slice{250};
  constexpr std::chrono::seconds interval{1};
  if (!is_idle && ++busy_turns_ % 64 != 0) return false;
  const auto begin = in_.time.now();
  if (begin < next_tidying_) return false;
  auto& shard = in_.of.at(thread_);
  if (tidying_ != tidying::yes) {
    const bool wanted = shard.wants_tidying();
    // What was removed may be replaced at once.
    const bool again = wanted && tidying_ == tidying::soon;
    tidying_ = again ? tidying::yes : wanted ? tidying::soon : tidying::no;
    if (!again) {
      next_tidying_ = begin + interval;
      return false;
    }
  }
  if (shard.tidy([&] { return in_.time.now() >= begin + slice; })) {
    if (!is_idle) next_tidying_ = begin + 20 * slice;
    return is_idle;
  }
  tidying_ = tidying::no;
  next_tidying_ = in_.time.now() + 5 * interval;
  return false;
}

/// Folds a slice of the staged updates that are due: waiting requests are served between two slices.
bool shard_loop::fold() {
  constexpr std::chrono::microseconds slice{500};
  auto& shard = in_.of.at(thread_);
  if (!shard.has_due()) return false;
  const trace::phase_scope traced(trace::phase::fold);
  const auto end = in_.time.now() + slice;
  try {
    return shard.fold_due([&] { return in_.time.now() >= end; });
  } catch (const std::bad_alloc&) {  // retried when memory is available; a read of the key reports it
    return false;
  }
}

/// The clock thread's notifications to every shard of the job: that the clock has ticked, once a worker has subscribed
/// to keys or stages updates, and which workers leave the clock.
class clock_loop::clock_notifier {
 public:
  clock_notifier(const loop_context& s, const server_entry& self,
                 std::function<std::shared_ptr<const membership>()> newest)
      : options_(s.of.options()), channels_(s.port), time_(s.time), self_(self), newest_(std::move(newest)) {}

  void fence_leavers(clock_service& clock, net::clock_source::time_point now) {
    constexpr std::chrono::milliseconds again{500};
    if (!clock.is_watched()) return;
    std::erase_if(fences_, [&](const auto& f) { return !clock.leaving().contains(f.first); });
    if (clock.leaving().empty()) return;
    follow_membership();
    std::vector<std::uint32_t> over;
    for (const auto& [rank, l] : clock.leaving()) {
      auto& f = fences_[rank];
      if (f.by == members_ && !f.refused && f.open.empty() && f.sent != net::clock_source::time_point{}) {
        over.push_back(rank);
        continue;
      }
      const bool first = f.sent == net::clock_source::time_point{};
      if (!first && f.by == members_ && now - f.sent < again) continue;
      f.open.clear();
      f.refused = false;
      f.by = members_;
      f.sent = now;
      const auto epoch = members_ != nullptr ? members_->epoch : 0;
      for (const auto& to : shards_) {
        f.open.insert(
            send(to.address,
                 {.what = verb::fence, .flags = net::flag_staged, .rank = rank, .clock = l.finished, .epoch = epoch}));
      }
    }
    for (const auto rank : over) {
      const auto f = std::move(fences_.extract(rank).mapped());
      clock.left(rank, f.dropped, f.example);
    }
  }

  /// To be called when the chain has sent its changes. Only the head notifies, and only of what all replicas have: a
  /// worker whose last tick is lost with the head may be removed as one that has not finished its iteration, which no
  /// shard may have folded by then.
  void tell_shards(const clock_service& clock, const replication_chain& chain) {
    if (!clock.is_watched()) return;
    follow_membership();
    // A notification is not repeated otherwise.
    channels_.renew_silent(time_.now().time_since_epoch(), [this](const std::string&) { told_ = 0; });
    const auto epoch = members_ != nullptr ? members_->epoch : 0;
    const state now{.epoch = epoch, .number = chain.state_number(), .clock = clock.slowest()};
    if (!chain.active()) return tell(now.clock, epoch);
    if (chain.heads(clock_partition) != true || chain.epoch() != epoch || chain.synced() != epoch) return;
    if (chain.is_replicated(now.number)) {
      next_ = now;
    } else if (next_.epoch != epoch || !chain.is_replicated(next_.number)) {
      if (next_.epoch != epoch) next_ = now;
      return;
    }
    tell(next_.clock, epoch);
    next_ = now;
  }

  /// Returns: whether it was a reply to one of these notifications.
  bool take_reply(const net::incoming& in) {
    channels_.heard(in.channel);
    net::reply_view reply;
    if (net::decode(in.frame, in.tail.size(), reply) != nullptr || reply.header.what != verb::fence) return false;
    for (auto& [rank, f] : fences_) {
      if (f.open.erase(reply.header.sequence) == 0) continue;
      // A shard of another epoch is asked again when this thread has that epoch's membership.
      if (reply.header.result != status::ok) f.refused = true;
      f.dropped += reply.header.count;
      if (f.example.empty()) f.example = net::text_of(reply.body);
    }
    return true;
  }

 private:
  struct fence {
    std::set<std::uint64_t> open;  // numbers of unanswered requests
    bool refused = false;
    net::clock_source::time_point sent{};
    std::shared_ptr<const membership> by;
    std::uint32_t dropped = 0;
    std::string example;
  };

  std::uint64_t send(const std::string& address, net::request_header h) {
    h.job = options_.job;
    h.client = options_.incarnation;
    h.sequence = ++sequence_;
    net::request_bytes head;
    net::encode(h, head);
    try {
      channels_.send(address, {.head = head}, time_.now().time_since_epoch());
    } catch (const error&) {  // that server is gone
    }
    return h.sequence;
  }

  /// A state of the clock that the replicas may not have yet.
  struct state {
    std::uint32_t epoch = 0;
    std::uint64_t number = 0;
    std::uint32_t clock = 0;
  };

  void tell(std::uint32_t clock, std::uint32_t epoch) {
    if (clock == told_) return;
    told_ = clock;
    for (const auto& to : shards_) {
      net::request_header h{.what = verb::clock_moved, .clock = told_, .epoch = epoch};
      link{.from = options_.incarnation, .from_slot = options_.slot, .to = to.incarnation}.write(h);
      send(to.address, h);
    }
  }

  void follow_membership() {
    auto newest = newest_();
    if (newest == members_ && !shards_.empty()) return;
    members_ = std::move(newest);
    shards_.clear();
    told_ = 0;  // a server notified in an older epoch may have refused it
    const auto call = [&](const server_entry& s) {
      for (const auto& address : s.shards) shards_.push_back({address, s.incarnation});
    };
    if (members_ == nullptr) {
      call(self_);
      return;
    }
    channels_.follow(*members_);
    for (const auto& s : members_->servers) {
      if (takes_part(s.state)) call(s);
    }
  }

  struct destination {
    std::string address;
    std::uint64_t incarnation;  // of its server
  };

  const server_options& options_;
  channels channels_;
  const net::clock_source& time_;
  const server_entry& self_;
  std::function<std::shared_ptr<const membership>()> newest_;
  std::shared_ptr<const membership> members_;
  std::vector<destination> shards_;  // the members'
  std::uint64_t sequence_ = 0;
  std::uint32_t told_ = 0;
  state next_;                             // the next to be announced
  std::map<std::uint32_t, fence> fences_;  // by the rank of the leaving worker
};

clock_loop::clock_loop(const loop_context& s, const server_entry& self,
                       std::function<std::shared_ptr<const membership>()> newest)
    : server_loop(s, place::clock, s.of.threads()),
      notifier_(std::make_unique<clock_notifier>(s, self, std::move(newest))) {}

bool clock_loop::take_reply(const net::incoming& in) { return notifier_->take_reply(in); }

void clock_loop::serve(const net::request_view& request, shared_buffer, completion done) {
  in_.of.handle_clock(request, std::move(done), now(), chain_.heads(clock_partition));
}

clock_loop::~clock_loop() {
  try {
    in_.of.clock().fail_all(status::job_ended, "the server is stopping");
    chain_.close();
  } catch (const std::exception&) {  // as above
  }
}

milliseconds clock_loop::step(milliseconds sleep) {
  take(sleep);
  const auto longest = in_.of.tend_clock(now());
  notifier_->fence_leavers(in_.of.clock(), now());
  const auto until = end_batch();
  notifier_->tell_shards(in_.of.clock(), chain_);
  return std::min(longest, until);
}

}  // namespace paracel::srv
