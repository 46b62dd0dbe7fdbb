// SPDX-License-Identifier: BSD-3-Clause
//
// Which sender may send which verb to which thread: one table, checked before any handler. The job of a request must
// always be the receiver's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "net/protocol.hpp"

namespace paracel::srv {

/// A thread that accepts requests.
enum class place : std::uint8_t { shard, clock, control, scheduler, worker };
inline constexpr std::size_t places = 5;
const char* name_of(place p) noexcept;

enum class asker : std::uint8_t {
  anybody,    ///< any process of the job: workers, tools of the launcher, a server on behalf of a worker (proxy)
  peer,       ///< a server of the membership, or this one itself; see `link`
  itself,     ///< this server: header.client is its incarnation
  scheduler,  ///< header.client is the job
  node,       ///< the process in the position that the body names (role, slot or rank, pid, incarnation)
};

/// How a request of an epoch other than the receiver's is handled, in jobs whose servers may change.
enum class epoch_rule : std::uint8_t {
  any,        ///< it is served
  not_ahead,  ///< one from a later epoch waits until that membership is known here
  current,    ///< likewise, and an earlier one is refused with `stale_epoch`
};

struct verb_rule {
  net::verb what;
  place at;
  asker who;
  epoch_rule when;
};

inline constexpr auto verb_rules = [] {
  using enum net::verb;
  using enum place;
  using r = verb_rule;
  constexpr auto anybody = asker::anybody;
  constexpr auto any = epoch_rule::any;
  constexpr auto not_ahead = epoch_rule::not_ahead;
  constexpr auto current = epoch_rule::current;
  return std::to_array<verb_rule>({
      r{pull, shard, anybody, current},
      r{push, shard, anybody, current},
      r{update, shard, anybody, current},
      r{bupdate, shard, anybody, current},
      r{contains, shard, anybody, current},
      r{remove, shard, anybody, current},
      r{update_default, shard, anybody, current},
      r{cas, shard, anybody, current},
      r{pull_at, shard, anybody, current},
      r{update_at, shard, anybody, current},
      r{pull_multi, shard, anybody, current},
      r{push_multi, shard, anybody, current},
      r{update_multi, shard, anybody, current},
      r{bupdate_multi, shard, anybody, current},
      r{contains_multi, shard, anybody, current},
      r{remove_multi, shard, anybody, current},
      r{update_default_multi, shard, anybody, current},
      r{pull_at_multi, shard, anybody, current},
      r{update_at_multi, shard, anybody, current},
      r{clear, shard, anybody, current},
      r{scan, shard, anybody, current},
      r{top_k, shard, anybody, current},
      r{reduce, shard, anybody, current},
      r{remove_if, shard, anybody, current},
      r{register_update, shard, anybody, not_ahead},
      r{register_bupdate, shard, anybody, not_ahead},
      r{register_filter, shard, anybody, not_ahead},
      r{set_prepare, shard, anybody, not_ahead},
      r{set_pull, shard, anybody, current},
      r{set_push, shard, anybody, current},
      r{set_update, shard, anybody, current},
      r{set_bupdate, shard, anybody, current},
      r{table_open, shard, anybody, not_ahead},
      r{rows_pull, shard, anybody, current},
      r{rows_push, shard, anybody, current},
      r{rows_update, shard, anybody, current},
      r{rows_remove, shard, anybody, current},
      r{rows_scan, shard, anybody, current},
      r{subscribe, shard, anybody, current},
      r{fence, shard, anybody, current},
      r{fold, shard, anybody, current},
      r{ping, shard, anybody, not_ahead},
      r{checkpoint, shard, asker::scheduler, not_ahead},
      r{stop, shard, asker::itself, any},
      r{replicate, shard, asker::peer, current},
      r{handover, shard, asker::peer, current},
      r{clock_moved, shard, asker::peer, current},

      r{clock_tick, clock, anybody, current},
      r{clock_wait, clock, anybody, current},
      r{subscribe, clock, anybody, current},
      r{checkpoint, clock, asker::scheduler, current},
      r{replicate, clock, asker::peer, current},
      r{handover, clock, asker::peer, current},
      r{ping, clock, anybody, any},
      r{stop, clock, asker::itself, any},

      r{proxy, control, anybody, any},
      r{ping, control, anybody, any},
      r{stats, control, anybody, any},
      r{stop, control, anybody, any},

      r{join, scheduler, anybody, any},
      r{heartbeat, scheduler, asker::node, any},
      r{watch, scheduler, asker::node, any},
      r{leave, scheduler, asker::node, any},
      r{collective, scheduler, asker::node, any},
      r{progress, scheduler, anybody, any},
      r{abort, scheduler, anybody, any},
      r{report_death, scheduler, anybody, any},
      r{resize, scheduler, anybody, any},
      r{find_worker, scheduler, anybody, any},
      r{reserve, scheduler, anybody, any},
      r{tell, scheduler, anybody, any},
      r{take_commands, scheduler, asker::node, any},
      r{checkpoint, scheduler, anybody, any},
      r{ping, scheduler, anybody, any},
      r{stats, scheduler, anybody, any},

      r{message, worker, anybody, any},  // src/worker/job/peer_channels.cpp
  });
}();

/// The rule of a verb at a place; null: not valid there. Cost: one load.
[[nodiscard]] const verb_rule* rule_of(place at, net::verb what) noexcept;

/// Why a request is rejected before its handler.
struct refusal_at_door {
  net::status why;
  std::string text;
};
/// The checks that need no membership: the verb is valid at this thread, the job is ours, and the sender is this server
/// or the scheduler where it must be. `job` 0: requests of any job are accepted, and any sender may be its scheduler.
/// Cost: a load and two comparisons unless it is rejected.
[[nodiscard]] std::optional<refusal_at_door> refused_at(place at, const net::request_header& h, std::uint64_t job,
                                                        std::uint64_t incarnation);

/// Both ends of a request from a thread of one server to one of another: stored in header.client, table and
/// function.
struct link {
  std::uint64_t from = 0;  ///< incarnation of the sender
  std::uint32_t from_slot = 0;
  std::uint64_t to = 0;  ///< incarnation of the intended receiver

  void write(net::request_header& h) const noexcept {
    h.client = from;
    h.table = from_slot;
    h.function = to;
  }
  [[nodiscard]] static link of(const net::request_header& h) noexcept { return {h.client, h.table, h.function}; }
};

}  // namespace paracel::srv
