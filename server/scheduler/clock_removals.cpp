// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/clock_removals.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace paracel::srv {
namespace {

// A clock that has staged updates answers when all shards have dropped the worker's.
constexpr std::chrono::milliseconds unanswered{1000};
constexpr std::chrono::milliseconds refused{200};
// The numbers of these requests are distinct from those of checkpoint_coordinator, which count from 1.
constexpr std::uint64_t first_number = std::uint64_t{1} << 63;

}  // namespace

const std::string& clock_address(const membership& members) {
  return members.servers[key_router(members).clock_server()].clock;
}

void clock_removals::remove(std::uint32_t rank, const membership& members, time_point now) {
  const auto [at, fresh] = removals_.try_emplace(rank, removal{.until = now + limit, .again = now});
  if (fresh) put(rank, at->second, members, now);
}

void clock_removals::put(std::uint32_t rank, removal& r, const membership& members, time_point now) {
  PARACEL_CHECK(!members.servers.empty());  // the job has started
  r.again = now + unanswered;
  r.epoch = members.epoch;
  if (!send_) return;
  net::request_header h;
  h.what = net::verb::clock_tick;
  h.clock = net::no_clock;
  h.rank = rank;
  h.epoch = members.epoch;
  h.sequence = first_number + rank;
  send_(clock_address(members), h, {});
}

void clock_removals::on_reply(std::uint64_t number, const net::reply_view& reply, time_point now) {
  if (number < first_number) return;
  const auto at = removals_.find(static_cast<std::uint32_t>(number - first_number));
  if (at == removals_.end()) return;
  auto& r = at->second;
  if (reply.header.result == net::status::ok) r.done = true;
  else r.again = std::min(r.again, now + refused);
}

std::optional<std::uint32_t> clock_removals::tick(const membership& members, time_point now) {
  for (auto& [rank, r] : removals_) {
    if (r.done) continue;
    if (now > r.until) return rank;
    if (now >= r.again || r.epoch != members.epoch) put(rank, r, members, now);
  }
  return std::nullopt;
}

void clock_removals::was_away(time_point::duration missed) noexcept {
  for (auto& [rank, r] : removals_) r.until += missed;
}

}  // namespace paracel::srv
