// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/strays.hpp"

#include <vector>

#include "core/ssp_clock.hpp"
#include "net/protocol.hpp"
#include "server/replication/replication_entries.hpp"
#include "server/request/verb_rules.hpp"
#include "test/sim/scheduler_line.hpp"

namespace paracel::sim {

using net::verb;

namespace {

constexpr std::uint32_t far = 500'000;

/// "Your replicas of these partitions are empty."
std::vector<std::byte> wiping(const server_entry& to, std::uint32_t shard, chance& dice) {
  std::vector<std::byte> body;
  put_fields(body, shard);
  for (std::uint32_t p = shard; p < partition_count; p += to.threads * (1 + static_cast<std::uint32_t>(dice.below(20))))
    srv::append(body,
                {.partition = static_cast<std::uint16_t>(p), .what = srv::entry_kind::whole_state, .index = ~0ULL});
  return body;
}

/// "All workers have reached this clock."
std::vector<std::byte> far_clock(std::uint32_t workers) {
  std::vector<std::byte> body(5);
  const auto clock = ssp_clock(workers, far).encode();
  body.insert(body.end(), clock.begin(), clock.end());
  return body;
}

}  // namespace

strays::strays(process& of) : of_(of), thread_(of.add("stray")) {
  of.own(thread_);
  port_ = of.open();
  thread_.step = [this] {
    for (net::incoming in; port_->receive(in, std::chrono::milliseconds(0));) {
    }
    return never;
  };
}

void strays::send(const server_entry& to, const server_entry& from, std::uint32_t epoch) {
  auto& dice = of_.in().dice();
  const auto shard = static_cast<std::uint32_t>(dice.below(to.threads));
  const bool to_clock = dice.in(3);
  const auto channel = port_->connect(to_clock ? to.clock : to.shards[shard]);
  const auto moves = to_clock ? verb::clock_tick : verb::clock_moved;
  for (const auto what : {verb::replicate, moves, verb::handover, verb::fence, verb::clear}) {
    net::request_header h;
    h.what = what;
    h.job = job_id + 1;
    h.epoch = epoch;
    h.clock = far;
    h.sequence = ++sequence_;
    srv::link{.from = from.incarnation, .from_slot = from.slot, .to = to.incarnation}.write(h);
    h.flags = static_cast<std::uint16_t>(net::flag_stream | (what == verb::replicate ? net::flag_first : 0));
    std::vector<std::byte> body;
    if (what == verb::replicate) body = to_clock ? far_clock(2) : wiping(to, shard, dice);
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    net::request_bytes head;
    net::encode(h, head);
    port_->send(channel, {.head = head, .body = body});
  }
}

}  // namespace paracel::sim
