// SPDX-License-Identifier: BSD-3-Clause
//
// The verbs of requests: the number, the name and the kind of each, in one table. Which sender may send which verb to
// which thread is in server/request/verb_rules.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace paracel::net {

/// The verb of a request. The numbers are part of the wire format. Client methods, handlers and log lines use the same
/// names.
enum class verb : std::uint8_t {
  none = 0,
  pull = 1,
  push = 2,
  update = 3,
  bupdate = 4,
  contains = 5,
  remove = 6,
  update_default = 7,
  cas = 8,
  pull_at = 9,
  update_at = 10,
  pull_multi = 16,
  push_multi = 17,
  update_multi = 18,
  bupdate_multi = 19,
  contains_multi = 20,
  remove_multi = 21,
  update_default_multi = 22,
  pull_at_multi = 24,
  update_at_multi = 25,
  clear = 32,
  register_update = 33,
  register_bupdate = 34,
  register_filter = 35,
  scan = 36,
  top_k = 37,
  reduce = 38,
  remove_if = 39,
  set_prepare = 40,
  set_pull = 41,
  set_push = 42,
  set_update = 43,
  set_bupdate = 44,
  clock_tick = 48,
  clock_wait = 49,
  proxy = 64,
  ping = 65,
  stats = 66,
  stop = 67,
  join = 80,
  heartbeat = 81,
  progress = 82,
  leave = 83,
  abort = 84,
  collective = 85,
  watch = 86,
  report_death = 87,
  resize = 88,
  find_worker = 89,
  message = 90,
  tell = 91,
  take_commands = 92,
  reserve = 93,
  table_open = 96,
  rows_pull = 97,
  rows_push = 98,
  rows_update = 99,
  rows_remove = 100,
  rows_scan = 101,
  subscribe = 104,
  clock_moved = 105,
  replicate = 106,
  handover = 107,
  checkpoint = 108,
  fence = 109,  ///< another process has replaced the worker of this rank
  fold = 110,   ///< fold what BSP has staged
};
/// One more than the greatest verb.
inline constexpr std::size_t verb_count = 111;

/// What a request is about.
enum class verb_kind : std::uint8_t {
  unknown,   ///< no verb
  control,   ///< clock, membership, jobs, replication
  function,  ///< an update function or a filter
  key,       ///< one key, at the shard that owns it
  keys,      ///< a list of keys of one shard
  key_set,   ///< a prepared list of keys
  all_keys,  ///< every key of a shard
  rows,      ///< a typed table
};
enum class verb_effect : std::uint8_t {
  none,
  reads,    ///< changes no value
  changes,  ///< changes values; the answer is remembered, so that a retry is not applied twice
  removes,  ///< changes values; applied again to the same values it changes nothing
  defines,  ///< makes a function or a table known, once or several times
};
enum class verb_scope : std::uint8_t {
  named,   ///< the partitions of what the request names
  shard,   ///< all partitions of a shard at once
  slices,  ///< all partitions of a shard, in slices: a scan
};

struct verb_traits {
  const char* name = "unknown";
  verb_kind kind = verb_kind::unknown;
  verb_effect effect = verb_effect::none;
  verb_scope scope = verb_scope::named;
  verb each = verb::none;  ///< key, keys, key_set: what is done to each key
};

inline constexpr auto verb_table = [] {
  using enum verb;
  using enum verb_scope;
  using k = verb_kind;
  using e = verb_effect;
  std::array<verb_traits, verb_count + 1> t{};  // the last row: numbers that are no verb
  const auto add = [&t](verb what, const char* name, k kind, e effect, verb_scope scope = named, verb each = none) {
    t[static_cast<std::size_t>(what)] = {name, kind, effect, scope, kind == k::key ? what : each};
  };
  add(none, "none", k::unknown, e::none);

  add(pull, "pull", k::key, e::reads);
  add(push, "push", k::key, e::changes);
  add(update, "update", k::key, e::changes);
  add(bupdate, "bupdate", k::key, e::changes);
  add(contains, "contains", k::key, e::reads);
  add(remove, "remove", k::key, e::changes);
  add(update_default, "update_default", k::key, e::changes);
  add(cas, "cas", k::key, e::changes);
  add(pull_at, "pull_at", k::key, e::reads);
  add(update_at, "update_at", k::key, e::changes);

  add(pull_multi, "pull_multi", k::keys, e::reads, named, pull);
  add(push_multi, "push_multi", k::keys, e::changes, named, push);
  add(update_multi, "update_multi", k::keys, e::changes, named, update);
  add(bupdate_multi, "bupdate_multi", k::keys, e::changes, named, bupdate);
  add(contains_multi, "contains_multi", k::keys, e::reads, named, contains);
  add(remove_multi, "remove_multi", k::keys, e::changes, named, remove);
  add(update_default_multi, "update_default_multi", k::keys, e::changes, named, update_default);
  add(pull_at_multi, "pull_at_multi", k::keys, e::reads, named, pull_at);
  add(update_at_multi, "update_at_multi", k::keys, e::changes, named, update_at);

  add(set_prepare, "set_prepare", k::key_set, e::none);
  add(set_pull, "set_pull", k::key_set, e::reads, named, pull);
  add(set_push, "set_push", k::key_set, e::changes, named, push);
  add(set_update, "set_update", k::key_set, e::changes, named, update);
  add(set_bupdate, "set_bupdate", k::key_set, e::changes, named, bupdate);

  add(clear, "clear", k::all_keys, e::changes, shard);
  add(scan, "scan", k::all_keys, e::reads, slices);
  add(top_k, "top_k", k::all_keys, e::reads, slices);
  add(reduce, "reduce", k::all_keys, e::reads, slices);
  add(remove_if, "remove_if", k::all_keys, e::removes, slices);

  add(table_open, "table_open", k::rows, e::defines);
  add(rows_pull, "rows_pull", k::rows, e::reads);
  add(rows_push, "rows_push", k::rows, e::changes);
  add(rows_update, "rows_update", k::rows, e::changes);
  add(rows_remove, "rows_remove", k::rows, e::changes);
  add(rows_scan, "rows_scan", k::rows, e::reads, slices);

  add(register_update, "register_update", k::function, e::defines);
  add(register_bupdate, "register_bupdate", k::function, e::defines);
  add(register_filter, "register_filter", k::function, e::defines);

  // changed keys, which are pushed when the clock ticks; what BSP has staged
  add(subscribe, "subscribe", k::control, e::none, shard);
  add(clock_moved, "clock_moved", k::control, e::none, shard);
  add(fold, "fold", k::control, e::none, shard);
  add(fence, "fence", k::control, e::none);
  // the clock thread, the control thread
  add(clock_tick, "clock_tick", k::control, e::none);
  add(clock_wait, "clock_wait", k::control, e::none);
  add(proxy, "proxy", k::control, e::none);
  add(ping, "ping", k::control, e::none);
  add(stats, "stats", k::control, e::none);
  add(stop, "stop", k::control, e::none);
  // the scheduler, from worker to worker
  add(join, "join", k::control, e::none);
  add(heartbeat, "heartbeat", k::control, e::none);
  add(progress, "progress", k::control, e::none);
  add(leave, "leave", k::control, e::none);
  add(abort, "abort", k::control, e::none);
  add(collective, "collective", k::control, e::none);
  add(watch, "watch", k::control, e::none);
  add(report_death, "report_death", k::control, e::none);
  add(resize, "resize", k::control, e::none);
  add(find_worker, "find_worker", k::control, e::none);
  add(tell, "tell", k::control, e::none);
  add(take_commands, "take_commands", k::control, e::none);
  add(reserve, "reserve", k::control, e::none);
  add(message, "message", k::control, e::none);
  // replicas of partitions, between servers; their shard and clock threads
  add(replicate, "replicate", k::control, e::none);
  add(handover, "handover", k::control, e::none);
  add(checkpoint, "checkpoint", k::control, e::none);
  return t;
}();

/// The row of a verb; of kind `unknown` for a number that is no verb.
constexpr const verb_traits& traits_of(verb v) noexcept {
  const auto i = static_cast<std::size_t>(v);
  return verb_table[i < verb_count ? i : verb_count];
}
constexpr const char* name_of(verb v) noexcept { return traits_of(v).name; }
constexpr verb_kind kind_of(verb v) noexcept { return traits_of(v).kind; }
/// Whether `v` is a verb that a request may have. `none` is not.
constexpr bool is_known(verb v) noexcept { return traits_of(v).kind != verb_kind::unknown; }
/// Whether a request of this verb changes no value.
constexpr bool only_looks(verb v) noexcept { return traits_of(v).effect == verb_effect::reads; }
/// Whether it is remembered, so that a retry is not applied twice.
constexpr bool changes_state(verb v) noexcept { return traits_of(v).effect == verb_effect::changes; }
constexpr bool defines(verb v) noexcept { return traits_of(v).effect == verb_effect::defines; }
/// Whether it lists keys or rows, by their names or as a prepared set, and does something to each.
constexpr bool has_items(verb v) noexcept {
  const auto& t = traits_of(v);
  const bool list = t.kind == verb_kind::keys || t.kind == verb_kind::key_set || t.kind == verb_kind::rows;
  return list && t.scope == verb_scope::named && (t.effect == verb_effect::reads || t.effect == verb_effect::changes);
}
/// Whether it does something to each key by an update function.
constexpr bool takes_function(verb v) noexcept {
  const auto each = traits_of(v).each;
  return each == verb::update || each == verb::bupdate || each == verb::update_default || each == verb::update_at;
}
/// The form for a list of keys of what is done to one.
constexpr verb multi_of(verb one) noexcept {
  for (std::size_t i = 0; i < verb_count; ++i)
    if (verb_table[i].kind == verb_kind::keys && verb_table[i].each == one) return static_cast<verb>(i);
  return verb::none;
}

}  // namespace paracel::net
