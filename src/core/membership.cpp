// SPDX-License-Identifier: BSD-3-Clause
#include "core/membership.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/hex.hpp"
#include "core/ring.hpp"

namespace paracel {
namespace {

using nlohmann::json;

constexpr int deepest_membership = 16;  // ours is 4 deep; the rest is room for fields of later versions
constexpr std::size_t longest_text = 1024;

[[noreturn]] void refuse(const std::string& what) { throw protocol_error("membership: " + what); }

const json& field(const json& object, const std::string& where, const char* name) {
  if (!object.is_object()) refuse(where + "is not an object");
  const auto found = object.find(name);
  if (found == object.end()) refuse(where + name + " is missing");
  return *found;
}

template <class T>
T integer(const json& object, const std::string& where, const char* name, T least, T most) {
  const auto& v = field(object, where, name);
  // an integer beyond 64 bits is a float to the parser and refused here
  if (v.is_number_unsigned()) {
    const auto n = v.get<std::uint64_t>();
    if (std::cmp_greater_equal(n, least) && std::cmp_less_equal(n, most)) return static_cast<T>(n);
  } else if (v.is_number_integer()) {
    const auto n = v.get<std::int64_t>();
    if (std::cmp_greater_equal(n, least) && std::cmp_less_equal(n, most)) return static_cast<T>(n);
  }
  refuse(where + name + " is not an integer from " + std::to_string(least) + " to " + std::to_string(most));
}

std::uint64_t id(const json& object, const std::string& where, const char* name) {
  const auto& v = field(object, where, name);
  if (v.is_string()) {
    if (const auto parsed = from_hex(v.get_ref<const std::string&>())) return *parsed;
  }
  refuse(where + name + " is not a string of 16 hex digits");
}

const std::string& text(const json& v, const std::string& name) {
  if (!v.is_string()) refuse(name + " is not a string");
  const auto& s = v.get_ref<const std::string&>();
  if (s.size() > longest_text) refuse(name + " is longer than " + std::to_string(longest_text) + " bytes");
  return s;
}

const std::string& text(const json& object, const std::string& where, const char* name) {
  return text(field(object, where, name), where + name);
}

server_state state_of(const std::string& name, const std::string& where) {
  for (const auto s : {server_state::up, server_state::joining, server_state::down, server_state::entering,
                       server_state::leaving, server_state::left, server_state::gone})
    if (name == name_of(s)) return s;
  refuse(where + "state is not up, joining, down, entering, leaving, left or gone");
}

server_entry read_server(const json& o, const std::string& where) {
  server_entry s;
  s.slot = integer<std::uint32_t>(o, where, "slot", 0, std::numeric_limits<std::uint32_t>::max());
  const auto& weight = field(o, where, "weight");
  if (!weight.is_number()) refuse(where + "weight is not a number");
  s.weight = weight.get<double>();
  if (!(s.weight >= ring::least_weight && s.weight <= ring::greatest_weight)) {
    refuse(where + "weight is outside [1/64, 64]");
  }
  s.incarnation = id(o, where, "incarnation");
  s.threads = integer<std::uint32_t>(o, where, "threads", 1, membership::most_threads);
  s.host = text(o, where, "host");
  s.pid = integer<int>(o, where, "pid", 0, std::numeric_limits<int>::max());
  if (o.contains("state")) s.state = state_of(text(o, where, "state"), where);
  const auto& shards = field(o, where, "shards");
  if (!shards.is_array() || shards.size() != s.threads) {
    refuse(where + "shards is not a list of " + std::to_string(s.threads) + " addresses, one a thread");
  }
  for (const auto& a : shards) s.shards.push_back(text(a, where + "shards"));
  s.clock = text(o, where, "clock");
  s.control = text(o, where, "control");
  return s;
}

checkpoint_plan read_checkpoints(const json& o) {
  constexpr auto any = std::numeric_limits<std::uint32_t>::max();
  const std::string where = "checkpoints.";
  checkpoint_plan c;
  c.folder = text(o, where, "folder");
  c.every = integer<std::uint32_t>(o, where, "every", 0, any);
  c.resume = text(o, where, "resume");
  c.clock = integer<std::uint32_t>(o, where, "clock", 0, any - 1);
  c.workers = integer<std::uint32_t>(o, where, "workers", 0, membership::most_workers);
  return c;
}

std::vector<refused_function> read_refused(const json& list) {
  if (!list.is_array() || list.size() > membership::most_refused) {
    refuse("refused is not a list of at most " + std::to_string(membership::most_refused) + " functions");
  }
  std::vector<refused_function> all;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto where = "refused[" + std::to_string(i) + "].";
    all.push_back({id(list[i], where, "function"), text(list[i], where, "why")});
  }
  return all;
}

std::vector<placement> read_placements(const json& list, const std::string& name) {
  if (!list.is_array() || list.size() > partition_count) refuse(name + " is not a list of placements");
  std::vector<placement> all;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto where = name + "[" + std::to_string(i) + "]";
    const auto is_number = [&](std::size_t at, std::uint64_t end) {
      return list[i][at].is_number_unsigned() && list[i][at].get<std::uint64_t>() < end;
    };
    if (!list[i].is_array() || list[i].size() != 2 || !is_number(0, partition_count) ||
        !is_number(1, std::uint64_t{1} << 32U))
      refuse(where + " is not a partition and a slot");
    all.push_back({list[i][0].get<std::uint16_t>(), list[i][1].get<std::uint32_t>()});
    if (i != 0 && all[i].partition <= all[i - 1].partition) refuse(where + " is not in the order of partitions");
  }
  return all;
}

json placements_json(const std::vector<placement>& all) {
  json list = json::array();
  for (const auto& p : all) list.push_back(json::array({p.partition, p.slot}));
  return list;
}

// A chain is short: for a handful of values this is much faster than a set, and it is called for each partition.
[[maybe_unused]] bool all_distinct(std::span<const std::uint16_t> chain) {
  for (std::size_t i = 1; i < chain.size(); ++i)
    if (std::ranges::find(chain.first(i), chain[i]) != chain.first(i).end()) return false;
  return true;
}

}  // namespace

const char* name_of(server_state s) noexcept {
  switch (s) {
    case server_state::up:
      return "up";
    case server_state::joining:
      return "joining";
    case server_state::down:
      return "down";
    case server_state::entering:
      return "entering";
    case server_state::leaving:
      return "leaving";
    case server_state::left:
      return "left";
    case server_state::gone:
      return "gone";
  }
  return "unknown";
}

std::string membership::to_json() const {
  json list = json::array();
  for (const auto& s : servers) {
    list.push_back({{"slot", s.slot},
                    {"weight", s.weight},
                    {"incarnation", to_hex(s.incarnation)},
                    {"threads", s.threads},
                    {"host", s.host},
                    {"pid", s.pid},
                    {"shards", s.shards},
                    {"clock", s.clock},
                    {"control", s.control}});
    if (s.state != server_state::up) list.back()["state"] = name_of(s.state);
  }
  json all{{"epoch", epoch}, {"job", to_hex(job)}, {"workers", workers}, {"servers", std::move(list)}};
  if (replicas != 1) all["replicas"] = replicas;
  if (elastic) all["elastic"] = true;
  if (!placed.empty()) all["placed"] = placements_json(placed);
  if (!moving.empty()) all["moving"] = placements_json(moving);
  if (const auto& c = checkpoints; c != checkpoint_plan{}) {
    all["checkpoints"] = {
        {"folder", c.folder}, {"every", c.every}, {"resume", c.resume}, {"clock", c.clock}, {"workers", c.workers}};
  }
  for (const auto& f : refused) all["refused"].push_back({{"function", to_hex(f.id)}, {"why", f.why}});
  // a host name need not be UTF-8, and must not crash the scheduler
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

membership membership::from_json(std::string_view text) {
  if (text.size() > most_json_bytes) refuse("longer than " + std::to_string(most_json_bytes) + " bytes");
  json all;
  try {
    all = json::parse(text, [](int depth, json::parse_event_t, json&) {
      if (depth > deepest_membership) refuse("nested deeper than " + std::to_string(deepest_membership));
      return true;
    });
  } catch (const json::exception& e) {
    refuse(std::string("no JSON: ") + e.what());
  }

  membership m;
  m.epoch = integer<std::uint32_t>(all, "", "epoch", 0, std::numeric_limits<std::uint32_t>::max());
  m.job = id(all, "", "job");
  m.workers = integer<std::uint32_t>(all, "", "workers", 1, most_workers);
  if (all.contains("replicas")) m.replicas = integer<std::uint32_t>(all, "", "replicas", 1, most_replicas);
  if (const auto at = all.find("elastic"); at != all.end()) {
    if (!at->is_boolean()) refuse("elastic is not true or false");
    m.elastic = at->get<bool>();
  }
  if (const auto at = all.find("placed"); at != all.end()) m.placed = read_placements(*at, "placed");
  if (const auto at = all.find("moving"); at != all.end()) m.moving = read_placements(*at, "moving");
  if (const auto at = all.find("checkpoints"); at != all.end()) m.checkpoints = read_checkpoints(*at);
  if (const auto at = all.find("refused"); at != all.end()) m.refused = read_refused(*at);
  const auto& list = field(all, "", "servers");
  if (!list.is_array() || list.size() > ring::most_members) {
    refuse("servers is not a list of at most " + std::to_string(ring::most_members));
  }
  std::set<std::uint32_t> slots;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto where = "servers[" + std::to_string(i) + "].";
    m.servers.push_back(read_server(list[i], where));
    if (!slots.insert(m.servers.back().slot).second) refuse(where + "slot occurs twice");
  }
  return m;
}

key_router::key_router(const membership& members) {
  if (members.servers.empty()) throw error("the job has no server to keep a key");
  std::vector<ring_member> before;  // on the current ring
  std::vector<ring_member> after;   // on the ring after entering servers have joined and leaving ones have left
  std::unordered_map<std::uint32_t, std::uint16_t> index;  // of a slot in members.servers
  bool moves = !members.moving.empty();
  std::size_t not_up = 0;
  for (std::uint16_t i = 0; i < members.servers.size(); ++i) {
    const auto& s = members.servers[i];
    if (s.threads == 0 || s.threads > membership::most_threads) {
      throw error("server s" + std::to_string(s.slot) + " has " + std::to_string(s.threads) + " threads, not 1 to " +
                  std::to_string(membership::most_threads));
    }
    if (s.state == server_state::left || s.state == server_state::gone) continue;
    index.emplace(s.slot, i);
    if (s.state != server_state::entering) before.push_back({s.slot, s.weight, s.threads});
    if (s.state != server_state::leaving) after.push_back({s.slot, s.weight, s.threads});
    moves |= s.state == server_state::entering || s.state == server_state::leaving;
    not_up += s.state != server_state::up ? 1 : 0;
  }
  const auto is = [&](std::uint16_t server, server_state s) { return members.servers[server].state == s; };
  if (std::ranges::none_of(members.servers, [](const auto& s) { return may_head(s.state); }))
    throw error("the job has no server that is up");
  const ring owners(before);
  std::optional<ring> next;
  if (moves && !after.empty()) next.emplace(after);
  const auto by_rank = [&](const ring& r) {
    std::vector<std::uint16_t> servers;
    for (const auto slot : r.slots()) servers.push_back(index.at(slot));
    return servers;
  };
  const auto owner_servers = by_rank(owners);
  const auto next_servers = next.has_value() ? by_rank(*next) : std::vector<std::uint16_t>{};
  // By partition, the rank of the server where it is placed on a ring; empty if none is.
  const auto placed_on = [](const ring& r, std::span<const placement> all) {
    std::vector<std::optional<std::uint32_t>> ranks;
    for (const auto& p : all) {
      const auto at = std::ranges::lower_bound(r.slots(), p.slot);
      if (at == r.slots().end() || *at != p.slot) continue;
      ranks.resize(partition_count);
      ranks[p.partition] = static_cast<std::uint32_t>(at - r.slots().begin());
    }
    return ranks;
  };
  const auto placed = placed_on(owners, members.placed);
  auto next_placed = std::vector<std::optional<std::uint32_t>>();
  if (next.has_value()) {
    next_placed = placed_on(*next, members.placed);
    const auto moved = placed_on(*next, members.moving);
    next_placed.resize(std::max(next_placed.size(), moved.size()));
    for (std::size_t p = 0; p < moved.size(); ++p)
      if (moved[p]) next_placed[p] = moved[p];
  }
  std::vector<std::uint32_t> clockwise;
  // The first n ranks of the order of a partition, into `clockwise`.
  const auto find_order = [&](const ring& r, const std::vector<std::optional<std::uint32_t>>& places,
                              std::uint16_t partition, std::size_t n) {
    r.replica_ranks(partition, n, clockwise);
    if (places.empty() || !places[partition]) return;
    const auto first = *places[partition];
    const auto there = std::ranges::find(clockwise, first);
    if (there != clockwise.end()) clockwise.erase(there);
    else if (!clockwise.empty()) clockwise.pop_back();
    clockwise.insert(clockwise.begin(), first);
  };
  std::vector<std::uint16_t> joining;
  const bool alone = members.replicas <= 1 && not_up == 0 && !moves;
  const auto thread_of = [&](std::uint16_t partition, std::uint16_t server) {
    return static_cast<std::uint16_t>(shard_of(partition, members.servers[server].threads));
  };
  homes_.reserve(partition_count);
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    const auto partition = static_cast<std::uint16_t>(p);
    if (alone) {
      const bool is_placed = !placed.empty() && placed[partition];
      const auto server = owner_servers[is_placed ? *placed[partition] : owners.owner_rank(partition)];
      homes_.push_back({server, thread_of(partition, server)});
      continue;
    }
    chain_begin_.push_back(static_cast<std::uint32_t>(chains_.size()));
    const auto begin = static_cast<std::ptrdiff_t>(chains_.size());
    std::size_t up = 0;
    std::size_t taken = 0;  // up or joining
    joining.clear();
    // if the job has at least as many servers as replicas are required, this many include enough that serve
    find_order(owners, placed, partition, members.replicas + not_up);
    for (const auto rank : clockwise) {
      const auto server = owner_servers[rank];
      if (is(server, server_state::down)) continue;
      ++taken;
      if (is(server, server_state::joining)) {
        if (taken <= members.replicas) joining.push_back(server);
      } else if (up < members.replicas) {
        chains_.push_back(server);
        ++up;
      }
    }
    chains_.insert(chains_.end(), joining.begin(), joining.end());
    if (next.has_value()) {
      taken = 0;
      find_order(*next, next_placed, partition, members.replicas + not_up);
      for (const auto rank : clockwise) {
        const auto server = next_servers[rank];
        if (is(server, server_state::down)) continue;
        if (++taken > members.replicas) break;
        if (std::find(chains_.begin() + begin, chains_.end(), server) == chains_.end()) chains_.push_back(server);
      }
    }
    PARACEL_CHECK(chain_begin_.back() < chains_.size());  // at least one server is up
    PARACEL_ASSERT(all_distinct(std::span(chains_).subspan(chain_begin_.back())));
    const auto head = chains_[chain_begin_.back()];
    homes_.push_back({head, thread_of(partition, head)});
  }
  if (!alone) chain_begin_.push_back(static_cast<std::uint32_t>(chains_.size()));
}

}  // namespace paracel
