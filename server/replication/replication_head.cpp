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
    : context_(of), links_(links), group_of_(of.index.size()), groups_(1) {}

void replication_head::begin_epoch() {
  const auto& servers = context_.view->members.servers;
  pending_.clear();
  peers_.clear();
  unsent_.clear();
  groups_.assign(1, {});
  std::map<chain_hop, std::uint32_t> numbers;
  std::map<std::vector<std::uint32_t>, std::uint32_t> groups;
  incomplete_.reset();
  installs_.clear();
  sweeping_bytes_ = 0;
  std::vector<std::uint32_t> group;
  context_.each_partition([&](std::uint16_t partition) {
    auto& number = group_of_[context_.place_of(partition)];
    number = 0;
    const auto chain = context_.view->router.chain(partition);
    if (chain.front() != context_.view->self || chain.size() == 1) return;
    group.clear();
    for (const auto s : chain.subspan(1)) {
      const auto hop = context_.hop_to(servers[s], partition);
      const auto [at, fresh] = numbers.try_emplace(hop, static_cast<std::uint32_t>(peers_.size()));
      if (fresh) peers_.push_back({.at = hop});
      group.push_back(at->second);
    }
    const auto [at, fresh] = groups.try_emplace(group, static_cast<std::uint32_t>(groups_.size()));
    if (fresh) groups_.push_back(group);
    number = at->second;
    for (const auto n : group) ask_about_unknown(n, partition);
  });
  context_.store.watch(&incomplete_);
  dispatch_all();
}

bool replication_head::has_replica(std::uint32_t peer_number, std::uint16_t partition) const {
  const auto peers = peers_of(partition);
  return std::find(peers.begin(), peers.end(), peer_number) != peers.end();
}

void replication_head::append_to(std::uint32_t peer_number, const replication_entry& e) {
  auto& to = peers_[peer_number];
  if (to.body.empty()) {
    unsent_.push_back(peer_number);
    put_fields(to.body, to.at.thread);
  }
  append(to.body, e);
}

/// Is its replica at our index?
void replication_head::ask_about(std::uint32_t peer_number, std::uint16_t partition) {
  const auto index = context_.index[context_.place_of(partition)];
  append_to(peer_number, {.partition = partition, .what = entry_kind::question, .previous = index, .index = index});
  peers_[peer_number].probes.push_back(partition);
}

/// The same, about one of which nothing is known.
void replication_head::ask_about_unknown(std::uint32_t peer_number, std::uint16_t partition) {
  ask_about(peer_number, partition);
  peers_[peer_number].incomplete.set(partition);
  incomplete_.set(partition);
}

/// This peer's replica is up to date, or will be when it has what was sent.
void replication_head::complete(std::uint32_t peer_number, std::uint16_t partition) {
  peers_[peer_number].incomplete.reset(partition);
  if (std::ranges::none_of(peers_of(partition), [&](const auto n) { return peers_[n].incomplete[partition]; }))
    incomplete_.reset(partition);
}

void replication_head::flush() {
  if (!context_.store.has_changes()) return;
  context_.store.take_changes([&](std::uint16_t partition, std::span<const std::byte> records) {
    PARACEL_ASSERT(context_.is_own(partition));
    auto& at = context_.index[context_.place_of(partition)];
    const auto previous = at;
    if (!records.empty()) at = std::max(at + 1, std::uint64_t{context_.epoch} << 32U);
    for (const auto n : peers_of(partition)) {
      if (peers_[n].incomplete[partition]) install(n, partition, 0, 0);
      else if (!records.empty())
        append_to(n, {.partition = partition, .previous = previous, .index = at, .records = records});
      if (peers_[n].body.size() > context_.options.message_bytes) dispatch(n, 0, 0);
    }
  });
  dispatch_all();
}

void replication_head::install(std::uint32_t peer_number, std::uint16_t partition, std::uint64_t parent,
                               std::size_t sweep) {
  PARACEL_CHECK(has_replica(peer_number, partition));
  state_.clear();
  context_.store.encode_partition(partition, state_);
  complete(peer_number, partition);
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
  auto& to = peers_[peer_number];
  replication_entry e{
      .partition = partition, .what = entry_kind::whole_state, .index = context_.index[context_.place_of(partition)]};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    e.after = static_cast<std::uint32_t>(parts.size() - 1 - i);
    e.records = parts[i];
    append_to(peer_number, e);
    e.what = entry_kind::more_state;
    to.makes_whole = true;
    if (to.body.size() > context_.options.message_bytes) dispatch(peer_number, parent, sweep);
  }
  free_if_larger(state_, most_kept_state_bytes);
}

bool replication_head::sweep() {
  if (installs_.empty()) return false;
  std::size_t bytes = 0;
  while (!installs_.empty() && sweeping_bytes_ + bytes < context_.options.sweep_bytes) {
    const auto [to, partition] = installs_.front();
    installs_.pop_front();
    if (!peers_[to].incomplete[partition]) continue;
    install(to, partition, 0, 1);
    bytes = 0;
    for (const auto n : unsent_) bytes += peers_[n].body.size();
  }
  dispatch_all(0, 1);
  return true;
}

bool replication_head::find_restored() {
  bool asks = false;
  context_.each_partition([&](std::uint16_t partition) {
    auto& at = context_.index[context_.place_of(partition)];
    if (at != 0) return;
    state_.clear();
    context_.store.encode_partition(partition, state_);
    if (state_.empty()) return;
    at = 1;
    for (const auto n : peers_of(partition)) {
      ask_about_unknown(n, partition);
      asks = true;
    }
  });
  if (!asks) return false;
  context_.store.watch(&incomplete_);
  dispatch_all();
  return true;
}

/// Sends a peer's message, if there is one. Later replies wait for it. Returns: its number, or 0.
std::uint64_t replication_head::dispatch(std::uint32_t peer_number, std::uint64_t parent, std::size_t sweep) {
  auto& to = peers_[peer_number];
  if (to.body.empty()) return 0;
  const auto traced_since = context_.traced_since();
  const auto n = links_.send(to.at, net::verb::replicate, to.body);
  PARACEL_CHECK(n > last_sent_);  // replies wait for it
  auto& s = pending_[n];
  s.parent = parent;
  s.to = peer_number;
  s.at = context_.now;
  s.traced_since = traced_since;
  s.probes = std::exchange(to.probes, {});
  if (!s.probes.empty() || to.makes_whole) last_install_ = n;
  if (sweep != 0) {
    s.bytes = to.body.size();
    sweeping_bytes_ += s.bytes;
  }
  if (const auto p = pending_.find(parent); parent != 0 && p != pending_.end()) ++p->second.open;
  free_if_larger(to.body, most_kept_body_bytes);
  to.body.clear();
  to.makes_whole = false;
  last_sent_ = n;
  return n;
}

void replication_head::dispatch_all(std::uint64_t parent, std::size_t sweep) {
  for (const auto n : unsent_) dispatch(n, parent, sweep);
  unsent_.clear();
}

void replication_head::answered(std::uint64_t number, const std::vector<std::uint16_t>& lacking) {
  auto& s = pending_.at(number);
  if (s.traced_since != 0) [[unlikely]]
    context_.trace_message(std::exchange(s.traced_since, 0), number, peers_[s.to].at);
  const auto lacks = [&](std::uint16_t p) { return std::binary_search(lacking.begin(), lacking.end(), p); };
  if (s.probes.empty()) {
    for (const auto p : lacking)
      if (context_.is_own(p) && has_replica(s.to, p)) install(s.to, p, number, 0);
  }
  for (const auto p : s.probes) {
    if (!lacks(p)) complete(s.to, p);
    // It was known to be complete: what it lacks was lost, and replies wait for it.
    else if (s.again && !peers_[s.to].incomplete[p]) install(s.to, p, number, 0);
    else installs_.emplace_back(s.to, p);
  }
  dispatch_all(number);
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

/// One question about all partitions of this peer replaces everything that is unanswered there.
void replication_head::ask_again(std::uint32_t peer_number) {
  std::uint64_t first = 0;
  for (auto at = pending_.begin(); at != pending_.end();) {
    auto& s = at->second;
    if (s.to != peer_number) {
      ++at;
      continue;
    }
    sweeping_bytes_ -= std::exchange(s.bytes, 0);
    if (first != 0) {
      at = pending_.erase(at);
      continue;
    }
    // Replies keep waiting for the oldest message, and it waits for the question. It will get no reply of its own, as
    // its connection was given up.
    first = at->first;
    s.open = 0;
    s.parent = 0;
    s.again = false;
    s.at = context_.now;
    s.probes.clear();
    ++at;
  }
  if (first == 0) return;
  context_.each_partition([&](std::uint16_t partition) {
    if (has_replica(peer_number, partition)) ask_about(peer_number, partition);
  });
  pending_.at(dispatch(peer_number, first, 0)).again = true;
  unsent_.clear();
}

void replication_head::end_sync() {
  PARACEL_ASSERT(incomplete_.none());
  context_.store.watch(nullptr);
}

void replication_head::renew(const chain_hop& to) {
  for (std::uint32_t n = 0; n < peers_.size(); ++n)
    if (peers_[n].at == to) ask_again(n);
}

void replication_head::add_waits(replication_links::oldest_waits& out) const {
  for (const auto& [number, s] : pending_) out.add(peers_[s.to].at, s.at);
}

}  // namespace paracel::srv
