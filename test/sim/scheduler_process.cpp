// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/scheduler_process.hpp"

#include <chrono>
#include <utility>

#include "test/sim/scheduler_line.hpp"

namespace paracel::sim {
namespace {

std::unique_ptr<net::port> bound(process& p) {
  auto port = p.open();
  port->bind(scheduler_address);
  return port;
}

}  // namespace

scheduler_process::scheduler_process(simulation& in, process& p, srv::scheduler_options options,
                                     std::function<void(std::string_view)> events, bool hasty)
    : process_(p),
      main_(p.add("main")),
      port_((p.own(main_), bound(p))),
      replies_(*port_),
      servers_(*port_),
      own_(p.time().now(), std::chrono::nanoseconds(options.lease_limit / 4)),
      hasty_(hasty),
      scheduler_(
          std::move(options), [events = std::move(events)](std::string_view text, bool) { events(text); },
          p.time().now(),
          [this](const std::string& to, const net::request_header& h, std::string_view body) { send(to, h, body); }) {
  main_.step = [this] { return step(); };
  in.wake(main_, 0);
}

nanos scheduler_process::step() {
  receive();
  const auto now = process_.time().now();
  const auto missed = own_.absence(now);
  if (missed.count() != 0 && !hasty_) scheduler_.was_away(missed, now);
  scheduler_.tick(now);
  const auto& members = scheduler_.members();
  if (std::exchange(known_epoch_, members.epoch) != members.epoch) servers_.follow(members);
  return scheduler_.busy() ? 1_ms : 50_ms;
}

void scheduler_process::receive() {
  net::incoming in;
  while (port_->receive(in, std::chrono::milliseconds(0))) {
    net::reply_view reply;
    net::request_view request;
    if (in.channel >= 0) {
      servers_.heard(in.channel);
      if (net::decode(in.frame, in.tail.size(), reply) == nullptr)
        scheduler_.on_reply(reply.header.sequence, reply, process_.time().now());
      continue;
    }
    if (net::decode(in.frame, in.tail.size(), request) != nullptr) continue;
    if (!replies_.accepts(request.header, in.from)) continue;
    srv::completion done(replies_, in.from, request.header.what, request.header.sequence, job_id, 0);
    scheduler_.handle(request, std::move(in.tail), std::move(done), process_.time().now());
  }
}

void scheduler_process::send(const std::string& to, net::request_header h, std::string_view body) {
  h.job = job_id;
  h.client = job_id;
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  net::request_bytes head;
  net::encode(h, head);
  servers_.send(to, {.head = head, .body = net::bytes_of(body)}, process_.time().now().time_since_epoch());
}

}  // namespace paracel::sim
