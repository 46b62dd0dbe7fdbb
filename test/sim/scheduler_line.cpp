// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/scheduler_line.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace paracel::sim {

using std::chrono::milliseconds;

question::question(process& of) : of_(of), line_(of, scheduler_address, of.in().dice().next() | 1U) {}

void question::ask(net::verb what, const std::string& body) {
  net::request_header h;
  h.what = what;
  h.job = job_id;
  line_.ask(h, net::bytes_of(body));
}

std::optional<std::string> question::answer() {
  const auto slept = of_.in().now() - std::exchange(looked_, of_.in().now());
  net::reply_view reply;
  if (!line_.receive(milliseconds(0), reply)) {
    line_.record_silence(std::chrono::nanoseconds(std::min<nanos>(slept, 50_ms)));
    return std::nullopt;
  }
  if (reply.header.result != net::status::ok) return "";
  return std::string(net::text_of(reply.body));
}

pulse::pulse(simulation& in, process& p, net::heartbeat_options options, std::function<std::string()> describe,
             std::function<void(const net::directive&)> obey)
    : in_(in), process_(p), thread_(p.add("beat")) {
  p.own(thread_);
  port_ = p.open();
  const auto end = [this, obey = std::move(obey)](const net::directive& o) {
    over_ = true;
    obey(o);
  };
  options.scheduler = scheduler_address;
  options.job = job_id;
  options.limit *= net::patience_with_scheduler;
  beating_ = std::make_unique<net::heartbeat_driver>(*port_, std::move(options), std::move(describe), end, followed_,
                                                     p.time());
  thread_.step = [this] { return step(); };
  in.wake(thread_, in.now());
}

void pulse::follow(std::uint32_t epoch) {
  followed_ = epoch;
  beating_->beat_now();
  in_.wake(thread_, in_.now());
}

nanos pulse::step() {
  if (over_) return never;
  beating_->beat_if_due();
  while (!over_ && beating_->listen(milliseconds(0)) == net::heartbeat_driver::outcome::heard) {
  }
  if (over_) return never;
  const auto until = std::max<nanos>(nanos_of(beating_->next_beat() - process_.time().now()), 1);
  return beating_->is_idle() ? until : std::min(until, 50_ms);
}

}  // namespace paracel::sim
