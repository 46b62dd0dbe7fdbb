// SPDX-License-Identifier: BSD-3-Clause
//
// BSP at a shard: updates that wait for the clock.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/key_payloads.hpp"
#include "server/shard.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

void shard::stage(const context& c, std::string_view key, std::uint64_t hash, const value_view& delta, blob&& tail,
                  outcome& out) {
  if (!keys_.has_room(static_cast<std::size_t>(staged_bytes(delta.bytes.size())))) {
    return out.fail(status::out_of_memory, memory_limit_reached().what());
  }
  auto at = staged_.find(key, hash);
  if (at == staged_.end()) {
    at = staged_.insert({std::string(key), {}}).first;
    ++staged_changes_;
  }
  auto& staged = at.value();
  keys_.note(staged_bytes(delta.bytes.size()));
  if (journal_ != nullptr) journal_->staged(hash, key, arrivals_);
  staged.waiting.push_back(
      {c.header->clock, c.header->rank, arrivals_++, c.what,
       static_cast<std::uint16_t>(c.header->flags & ~(net::flag_stream | net::flag_first)), c.function, delta.tag,
       tail ? blob::own(std::move(tail)) : blob::copy_of(delta.bytes)});
  ++staged_count_;
  // A key that is written and never read would gather its updates for ever.
  fold_before(folded_clock_, staged, key, hash);
  if (staged.broken != status::ok) out.fail(staged.broken, staged.why);
}

void shard::mend(staged_key& staged) noexcept {
  if (std::exchange(staged.broken, status::ok) != status::ok) --broken_count_;
}

void shard::fold_before(std::uint32_t clock, std::string_view key, std::uint64_t hash, outcome& out) {
  folded_clock_ = std::max(folded_clock_, clock);
  const auto at = staged_.find(key, hash);
  if (at == staged_.end()) return;
  auto& staged = at.value();
  fold_before(clock, staged, key, hash);
  if (staged.broken != status::ok) out.fail(staged.broken, staged.why);
}

void shard::fold_before(std::uint32_t clock, staged_key& staged, std::string_view key, std::uint64_t hash) {
  auto& waiting = staged.waiting;
  const auto due = std::partition(waiting.begin(), waiting.end(), [&](const auto& u) { return u.clock >= clock; });
  if (due == waiting.end()) return;
  if (journal_ != nullptr) journal_->folded(hash, key, clock);
  std::sort(due, waiting.end(), [](const auto& a, const auto& b) {
    return std::tie(a.clock, a.rank, a.arrival) < std::tie(b.clock, b.rank, b.arrival);
  });
  // They are taken out first: whatever happens to one, none is folded twice.
  std::vector<staged_update> now(std::make_move_iterator(due), std::make_move_iterator(waiting.end()));
  waiting.erase(due, waiting.end());
  staged_count_ -= now.size();
  for (const auto& u : now) keys_.note(-staged_bytes(u.delta.size()));
  for (auto& u : now) {
    outcome folded;
    fold(u, key, hash, folded);
    if (folded.result != status::ok && staged.broken == status::ok) {
      ++broken_count_;
      staged.broken = folded.result;
      staged.why = "a staged update of rank " + std::to_string(u.rank) + " in iteration " + std::to_string(u.clock) +
                   ": " + folded.text;
    }
  }
}

void shard::fold(staged_update& u, std::string_view key, std::uint64_t hash, outcome& folded) {
  try {
    const value_view delta{u.tag, u.delta.bytes()};
    if (default_and_delta both; u.what == verb::update_default && parse(delta.bytes, both)) {
      update_default(*u.function, key, hash, both, folded);
    } else if (u.what == verb::update_at) {
      element_change change;  // it was looked at when it was staged
      if (parse_update_at(delta, (u.flags & net::flag_range) != 0, change) == nullptr) {
        update_at(*u.function, key, hash, change, folded);
      }
    } else {
      blob large;
      if (u.delta.size() > net::tail_threshold_bytes) large = std::move(u.delta);
      update(*u.function, key, hash, delta, std::move(large), folded);
    }
  } catch (const std::bad_alloc&) {
    folded.fail(status::out_of_memory, "there was no memory for it");
  }
}

bool shard::fold_all_before(std::uint32_t clock, time_point until) {
  folded_clock_ = std::max(folded_clock_, clock);
  if (clock <= all_folded_clock_) return true;
  for (auto at = staged_.begin(); at != staged_.end();) {
    if (journal_ != nullptr && !keys_.owns(partition_of(hash_key(at->first)))) {  // a copy: its head folds it
      ++at;
      continue;
    }
    auto& staged = at.value();
    const auto before = staged.waiting.size();
    fold_before(clock, staged, at->first, hash_key(at->first));
    const bool folded = staged.waiting.size() != before;
    if (staged.waiting.empty() && staged.broken == status::ok) {
      at = staged_.erase(at);
      ++staged_changes_;
    } else {
      ++at;
    }
    // Only what was done counts against the time, so that every call comes further.
    if (folded && std::chrono::steady_clock::now() >= until) return false;
  }
  all_folded_clock_ = clock;
  return true;
}

/// The worker of this rank begins again after header.clock iterations: what another process had staged for the next one goes,
/// and what still comes from its clients is refused.
void shard::fence(const net::request_view& request, completion& done) {
  const auto& h = request.header;
  auto rest = request.payload();
  if (h.clock == net::no_clock || rest.size() % sizeof(std::uint64_t) != 0) {
    return refuse(done, status::bad_request, "a fence has a clock and ids of clients");
  }
  for (; !rest.empty(); rest = rest.subspan(sizeof(std::uint64_t))) {
    std::uint64_t client = 0;
    std::memcpy(&client, rest.data(), sizeof client);
    fenced_.insert(client);
    waiting_room_.forget(client, status::bad_request);
  }
  std::uint64_t dropped = 0;
  for (auto at = staged_.begin(); at != staged_.end();) {
    const auto hash = hash_key(at->first);
    auto& waiting = at.value().waiting;
    const auto gone = std::stable_partition(waiting.begin(), waiting.end(),
                                            [&](const auto& u) { return u.rank != h.rank || u.clock < h.clock; });
    if (gone == waiting.end() || (journal_ != nullptr && !keys_.owns(partition_of(hash)))) {  // a copy: as its head says
      ++at;
      continue;
    }
    dropped += static_cast<std::uint64_t>(waiting.end() - gone);
    for (auto u = gone; u != waiting.end(); ++u) keys_.note(-staged_bytes(u->delta.size()));
    waiting.erase(gone, waiting.end());
    if (journal_ != nullptr) journal_->key_gone(hash, at->first);  // the copies get what is left of it
    if (waiting.empty() && at->second.broken == status::ok) {
      at = staged_.erase(at);
      ++staged_changes_;
    } else {
      ++at;
    }
  }
  staged_count_ -= dropped;
  dropped += rows_.fence(h.rank, h.clock);
  net::reply_header reply;
  reply.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(dropped, 0xffffffffU));
  done.answer(reply);
}

status shard::broken(std::string_view prefix, std::string& why) const {
  if (broken_count_ == 0) return status::ok;
  for (const auto& [key, staged] : staged_) {
    if (staged.broken == status::ok || !key.starts_with(prefix)) continue;
    if (journal_ != nullptr && !keys_.owns(partition_of(hash_key(key)))) continue;
    why = staged.why;
    return staged.broken;
  }
  return status::ok;
}

void shard::erasing(std::string_view key, std::uint64_t hash) {
  if (journal_ != nullptr) journal_->key_gone(hash, key);
  forget_staged(key);
}

void shard::forget_staged(std::string_view key) {
  const auto at = staged_.find(key);
  if (at == staged_.end()) return;
  mend(at.value());
  for (const auto& u : at->second.waiting) keys_.note(-staged_bytes(u.delta.size()));
  staged_count_ -= at->second.waiting.size();
  staged_.erase(at);
  ++staged_changes_;
}

}  // namespace paracel::srv
