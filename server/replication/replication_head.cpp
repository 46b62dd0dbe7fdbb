// SPDX-License-Identifier: BSD-3-Clause
#include "server/replication/replication_head.hpp"

#include <algorithm>
#include <utility>

#include <paracel/free_memory.hpp>

#include "core/check.hpp"
#include "server/replication/replication_entries.hpp"
#include "server/store/partition_records.hpp"

namespace paracel::srv {

replication_head::replication_head(chain_context& of, replication_links& links)
    : context_(of), links_(links), route_of_(of.index.size()), routes_(1) {}

void replication_head::begin_epoch() {
  const auto& servers = context_.view->members.servers;
  pending_.clear();
  routes_.assign(1, {});
  std::map<chain_route, std::uint32_t> numbers;
  incomplete_.reset();
  installs_.clear();
  sweeping_bytes_ = 0;
  bundles questions;
  context_.each_partition([&](std::uint16_t partition) {
    auto& number = route_of_[context_.place_of(partition)];
    number = 0;
    const auto chain = context_.view->router.chain(partition);
    if (chain.front() != context_.view->self || chain.size() == 1) return;
    chain_route rest;
    for (const auto s : chain.subspan(1)) rest.push_back(context_.hop_to(servers[s], partition));
    const auto [at, fresh] = numbers.try_emplace(rest, static_cast<std::uint32_t>(routes_.size()));
    if (fresh) routes_.push_back(rest);
    number = at->second;
    incomplete_.set(partition);
    ask_about(questions[number], partition);
  });
  context_.store.watch(&incomplete_);
  for (auto& [number, b] : questions) dispatch(number, b, 0, 0);
}

/// Is the replica at our index?
void replication_head::ask_about(bundle& b, std::uint16_t partition) const {
  const auto index = context_.index[context_.place_of(partition)];
  append(b.entries, {.partition = partition, .what = entry_kind::question, .previous = index, .index = index});
  b.probes.push_back(partition);
}

void replication_head::flush() {
  if (!context_.store.has_changes()) return;
  bundles out;
  context_.store.take_changes([&](std::uint16_t partition, std::span<const std::byte> records) {
    const auto place = context_.place_of(partition);
    auto& at = context_.index[place];
    const auto previous = at;
    if (!records.empty()) at = std::max(at + 1, std::uint64_t{context_.epoch} << 32U);
    PARACEL_ASSERT(context_.is_own(partition));
    if (route_of_[place] == 0) return;
    if (incomplete_[partition]) {
      install(partition, out, 0, 0);
    } else if (!records.empty()) {
      append(out[route_of_[place]].entries,
             {.partition = partition, .previous = previous, .index = at, .records = records});
    }
    if (auto& b = out[route_of_[place]]; b.entries.size() > context_.options.message_bytes)
      dispatch(route_of_[place], b, 0, 0);
  });
  for (auto& [number, b] : out) dispatch(number, b, 0, 0);
}

void replication_head::install(std::uint16_t partition, bundles& into, std::uint64_t parent, std::size_t sweep) {
  const auto place = context_.place_of(partition);
  PARACEL_CHECK(route_of_[place] != 0);
  state_.clear();
  context_.store.encode_partition(partition, state_);
  incomplete_.reset(partition);
  // Split at record ends, so that no server has to hold more than a message.
  std::vector<std::span<const std::byte>> parts;
  const std::span<const std::byte> all(state_);
  std::size_t begin = 0;
  records cursor(all);
  for (record r; cursor.next(r);) {
    const auto end = all.size() - cursor.rest().size();
    if (end - begin < context_.options.message_bytes && end != all.size()) continue;
    parts.push_back(all.subspan(begin, end - begin));
    begin = end;
  }
  if (parts.empty()) parts.emplace_back();
  PARACEL_ASSERT(begin == all.size());
  auto& b = into[route_of_[place]];
  replication_entry e{.partition = partition, .what = entry_kind::whole_state, .index = context_.index[place]};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    e.after = static_cast<std::uint32_t>(parts.size() - 1 - i);
    e.records = parts[i];
    append(b.entries, e);
    e.what = entry_kind::more_state;
    b.makes_whole = true;
    if (b.entries.size() > context_.options.message_bytes) dispatch(route_of_[place], b, parent, sweep);
  }
  free_if_larger(state_, most_kept_state_bytes);
}

bool replication_head::sweep() {
  if (installs_.empty()) return false;
  bundles out;
  std::size_t bytes = 0;
  while (!installs_.empty() && sweeping_bytes_ + bytes < context_.options.sweep_bytes) {
    const auto partition = installs_.front();
    installs_.pop_front();
    if (!incomplete_[partition]) continue;
    install(partition, out, 0, 1);
    bytes = 0;
    for (const auto& [number, b] : out) bytes += b.entries.size();
  }
  for (auto& [number, b] : out) dispatch(number, b, 0, 1);
  return true;
}

bool replication_head::find_restored() {
  bundles questions;
  context_.each_partition([&](std::uint16_t partition) {
    auto& at = context_.index[context_.place_of(partition)];
    if (at != 0) return;
    state_.clear();
    context_.store.encode_partition(partition, state_);
    if (state_.empty()) return;
    at = 1;
    const auto number = route_of_[context_.place_of(partition)];
    if (number == 0) return;
    incomplete_.set(partition);
    ask_about(questions[number], partition);
  });
  if (questions.empty()) return false;
  context_.store.watch(&incomplete_);
  for (auto& [number, b] : questions) dispatch(number, b, 0, 0);
  return true;
}

/// Sends a bundle and empties it. Later replies wait for it.
std::uint64_t replication_head::dispatch(std::uint32_t number, bundle& b, std::uint64_t parent, std::size_t sweep) {
  if (b.entries.empty()) return 0;
  const auto& to = routes_[number];
  const auto traced_since = context_.traced_since();
  const auto n = links_.replicate(to, b.entries);
  PARACEL_CHECK(n > last_sent_);  // replies wait for it
  auto& s = pending_[n];
  s.parent = parent;
  s.route = number;
  s.at = context_.now;
  s.traced_since = traced_since;
  s.probes = std::move(b.probes);
  if (!s.probes.empty() || b.makes_whole) last_install_ = n;
  if (sweep != 0) {
    s.bytes = b.entries.size();
    sweeping_bytes_ += s.bytes;
  }
  if (const auto p = pending_.find(parent); parent != 0 && p != pending_.end()) ++p->second.open;
  b.entries.clear();
  b.probes.clear();
  b.makes_whole = false;
  last_sent_ = n;
  return n;
}

void replication_head::answered(std::uint64_t number, const std::vector<std::uint16_t>& lacking) {
  auto& s = pending_.at(number);
  if (s.traced_since != 0) [[unlikely]]
    context_.trace_message(std::exchange(s.traced_since, 0), number, routes_[s.route].front());
  bundles out;
  if (s.again) {
    for (const auto p : s.probes) {
      const bool lacks = std::binary_search(lacking.begin(), lacking.end(), p);
      if (!incomplete_[p]) {
        if (lacks) install(p, out, number, 0);
      } else if (lacks) {
        installs_.push_back(p);
      } else {
        incomplete_.reset(p);
      }
    }
  } else if (!s.probes.empty()) {
    for (const auto p : s.probes) {
      if (std::binary_search(lacking.begin(), lacking.end(), p)) installs_.push_back(p);
      else incomplete_.reset(p);
    }
  } else {
    for (const auto p : lacking) {
      if (context_.is_own(p) && route_of_[context_.place_of(p)] != 0) install(p, out, number, 0);
    }
  }
  for (auto& [route_number, b] : out) dispatch(route_number, b, number, 0);
  sweeping_bytes_ -= std::exchange(s.bytes, 0);
  close_one(number);
}

/// A message has one outstanding reply fewer; the last one closes it, and counts as a reply to the message that it
/// stands for.
void replication_head::close_one(std::uint64_t number) {
  for (auto at = pending_.find(number); at != pending_.end() && --at->second.open == 0; at = pending_.find(number)) {
    number = at->second.parent;
    PARACEL_CHECK(number < at->first);
    pending_.erase(at);
  }
}

/// One question about all partitions of this route replaces everything that is unanswered there.
void replication_head::ask_again(std::uint32_t route_number) {
  std::uint64_t first = 0;
  for (auto at = pending_.begin(); at != pending_.end();) {
    auto& s = at->second;
    if (s.route != route_number) {
      ++at;
      continue;
    }
    sweeping_bytes_ -= std::exchange(s.bytes, 0);
    if (first != 0) {
      at = pending_.erase(at);
      continue;
    }
    // Replies keep waiting for the oldest message, and it waits for the question. It will get no reply of its own:
    // replies of one route arrive in order, and the one that made us ask was the next, or the connection is a new one.
    first = at->first;
    s.open = 0;
    s.parent = 0;
    s.again = false;
    s.at = context_.now;
    s.probes.clear();
    ++at;
  }
  if (first == 0) return;
  bundle b;
  context_.each_partition([&](std::uint16_t partition) {
    if (route_of_[context_.place_of(partition)] == route_number) ask_about(b, partition);
  });
  pending_.at(dispatch(route_number, b, first, 0)).again = true;
}

void replication_head::end_sync() {
  PARACEL_ASSERT(incomplete_.none());
  context_.store.watch(nullptr);
}

void replication_head::renew(const chain_hop& to) {
  for (std::uint32_t number = 1; number < routes_.size(); ++number)
    if (routes_[number].front() == to) ask_again(number);
}

void replication_head::add_waits(replication_links::oldest_waits& out) const {
  for (const auto& [number, s] : pending_) out.add(routes_[s.route].front(), s.at);
}

}  // namespace paracel::srv
