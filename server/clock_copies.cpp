// SPDX-License-Identifier: BSD-3-Clause
#include "server/clock_copies.hpp"

#include <algorithm>
#include <string>

#include "net/line_care.hpp"
#include "server/verb_rules.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

void clock_copies::follow(std::shared_ptr<const copies_view> view, time_point now) {
  if (view_ != nullptr && view->members.epoch <= epoch_) return;
  view_ = std::move(view);
  epoch_ = view_->members.epoch;
  const auto json = view_->members.to_json();
  held_.refuse(status::stale_epoch, epoch_, net::bytes_of(json),
               [&](const net::peer& to, const net::outgoing& m) { port_.reply(to, m); });
  // Whoever waits for the clock asks again, by the new membership.
  direct_ = true;
  clock_.refuse_waits(status::stale_epoch, json);
  direct_ = false;
  pending_.clear();
  for (const auto& [channel, incarnation] : copies_) port_.disconnect(channel);
  copies_.clear();
  const auto chain = view_->router.chain(clock_partition);
  if (chain.front() == view_->self) {
    for (const auto s : chain.subspan(1)) {
      const auto& to = view_->members.servers[s];
      copies_.emplace_back(port_.connect(to.clock), to.incarnation);
    }
    spread();
    spread_at_ = now;
  }
  if (pending_.empty()) synced_ = epoch_;
  go_on(now);
}

void clock_copies::stay_alone(std::uint32_t epoch, time_point now) {
  epoch_ = epoch;
  go_on(now);
}

void clock_copies::go_on(time_point now) {
  for (auto& p : std::exchange(parked_, {})) {
    p.held = {};
    admit({p.header, p.body}, std::move(p.done), now);
  }
}

void clock_copies::send(const net::peer& to, const net::outgoing& message) {
  if (direct_) return port_.reply(to, message);
  held_.hold(to, message);
}

void clock_copies::refuse(completion& done, status why, std::string_view text) {
  direct_ = true;
  done.fail(why, text);
  direct_ = false;
}

void clock_copies::handle(const net::request_view& request, completion done, time_point now) {
  const auto& h = request.header;
  if (!streams_.takes(h, done.peer())) return refuse(done, status::reconnected, {});
  if ((h.flags & net::flag_first) != 0) {  // what it has here comes again
    std::erase_if(parked_, [&](parked& p) {
      if (!streams::are_of_one(p.header, h)) return false;
      refuse(p.done, status::reconnected, {});
      return true;
    });
  }
  admit(request, std::move(done), now);
}

void clock_copies::admit(const net::request_view& request, completion done, time_point now) {
  const auto& h = request.header;
  done.set_epoch(epoch_);
  if (h.what == verb::ping) {
    direct_ = true;  // says that this thread lives, whatever its copies do
    serve_(request, std::move(done));
    direct_ = false;
    return;
  }
  if (h.epoch > epoch_) {
    held_bytes held;
    if (!held.take(budgets_.parked, request.body.size() + sizeof(parked))) {
      const bool comes_again = (h.flags & net::flag_stream) != 0;
      if (comes_again) streams_.end(h);  // with all that is behind it, in order
      return comes_again ? refuse(done, status::reconnected, {})
                         : refuse(done, status::internal, "too much waits here for a membership");
    }
    parked_.push_back({h, {request.body.begin(), request.body.end()}, std::move(done), std::move(held)});
    return;
  }
  if (view_ == nullptr) return serve_(request, std::move(done));
  if (h.epoch < epoch_) return refuse(done, status::stale_epoch, view_->members.to_json());
  if (h.what != verb::replicate) return serve_(request, std::move(done));
  // Nobody but the clock's head has anything to say of it.
  const auto& head = view_->members.servers[view_->router.clock_server()];
  const auto between = link::of(h);
  if (between.to != self_.incarnation || between.from != head.incarnation || between.from_slot != head.slot ||
      head.slot == self_.slot) {
    return refuse(done, status::bad_request, chain::no_peer);
  }
  const char* wrong = clock_.merge(request.payload(), now);
  if (wrong != nullptr) return refuse(done, status::bad_request, wrong);
  direct_ = true;
  done.ok();
  direct_ = false;
}

/// The state goes to all copies.
void clock_copies::spread() {
  spread_changes_ = clock_.changes();
  if (copies_.empty() || !clock_.begun()) return;
  const auto state = clock_.encode();
  for (const auto& [channel, incarnation] : copies_) {
    net::request_header h;
    h.what = verb::replicate;
    h.job = job_;
    link{.from = self_.incarnation, .from_slot = self_.slot, .to = incarnation}.write(h);
    h.sequence = ++next_;
    h.epoch = epoch_;
    h.body_bytes = static_cast<std::uint32_t>(state.size());
    net::request_bytes head;
    net::encode(h, head);
    port_.send(channel, {.head = head, .body = state});
    pending_.emplace(next_, channel);
  }
  last_sent_ = next_;
}

void clock_copies::take_reply(const net::incoming& in) {
  net::reply_view reply;
  if (net::decode(in.frame, in.tail.size(), reply) != nullptr || reply.header.result != status::ok) return;
  if (reply.header.what != net::verb::replicate) return;  // the crier's numbers are its own
  const auto is_it = [&](const auto& c) { return c.first == in.channel && c.second == reply.header.server; };
  if (std::ranges::none_of(copies_, is_it)) return;  // somebody else has its address
  // Each holds the whole state: whoever has this one needs none of those before.
  std::erase_if(pending_, [&](const auto& p) { return p.first <= reply.header.sequence && p.second == in.channel; });
  if (pending_.empty()) synced_ = epoch_;
}

void clock_copies::settle(const net::time_source& time, time_point lease_end) {
  const auto now = time.now();
  if (clock_.changes() != spread_changes_ || (!pending_.empty() && now - spread_at_ >= net::late)) {
    spread();
    spread_at_ = now;
  }
  held_.seal(last_sent_);
  if (!held_.empty() && time.now() < lease_end) {
    held_.release(pending_.empty() ? next_ + 1 : pending_.begin()->first,
                  [&](const net::peer& to, const net::outgoing& m) { port_.reply(to, m); });
  }
}

void clock_copies::close() {
  direct_ = true;
  for (auto& p : parked_) p.done.fail(status::job_ended, "the server is stopping");
  parked_.clear();
}

}  // namespace paracel::srv
