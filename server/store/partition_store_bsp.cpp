// SPDX-License-Identifier: BSD-3-Clause
//
// BSP on keys: updates that wait for the clock.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "server/request/request_payloads.hpp"
#include "server/store/partition_store.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

void partition_store::stage(const key_operation& op, std::string_view key, std::uint64_t hash, const value_view& delta,
                            shared_buffer&& tail, key_outcome& out) {
  // A failure to fold fails later requests too, so that it is never ignored.
  if (broken_count_ != 0) [[unlikely]] {
    if (const auto s = failed_fold(out.text); s != status::ok) return out.fail(s, std::move(out.text));
  }
  auto at = staged_.find(key, hash);
  if (!can_be_folded(op, key, hash, delta, at != staged_.end() ? &at->second : nullptr, out)) return;
  if (!keys_.has_room(static_cast<std::size_t>(staged_bytes(delta.bytes.size())))) {
    return out.fail(status::out_of_memory, quoted_key(key) + ": " + memory_limit_reached().what());
  }
  if (at == staged_.end()) {
    at = staged_.insert({std::string(key), {}}).first;
    ++staged_changes_;
  }
  auto& staged = at.value();
  auto kept = tail ? shared_buffer::own(std::move(tail)) : shared_buffer::copy_of(delta.bytes);
  make_room(staged.waiting, 1);
  list(staged, key, op.header->clock);
  log_.staged(hash, key, arrivals_);
  staged.waiting.push_back({op.header->clock, op.header->rank, arrivals_++, op.what,
                            static_cast<std::uint16_t>(op.header->flags & ~(net::flag_stream | net::flag_first)),
                            op.function, delta.tag, std::move(kept)});
  keys_.count_bytes(staged_bytes(delta.bytes.size()));
  staged.changes_type = staged.changes_type || may_change_type(op.what, *op.function);
  ++staged_count_;
  // An update of a clock that every worker has finished is late: it was retried.
  try {
    fold_before(folded_clock_, staged, key, hash);
  } catch (const std::bad_alloc&) {  // it is staged, and folded with the next one or before the next read
  }
  if (staged.broken != status::ok) out.fail(staged.broken, told(staged.why));
}

/// Whether the update may succeed, judging by types and sizes now: of the current value, or else of the first
/// delta that would become it.
bool partition_store::can_be_folded(const key_operation& op, std::string_view key, std::uint64_t hash,
                                    const value_view& delta, const staged_key* waiting, key_outcome& out) {
  const bool others = waiting != nullptr && !waiting->waiting.empty();
  if (others && waiting->changes_type) return true;
  value_view current;
  if (const auto* e = keys_.find(hash, key)) {
    current = e->view();
  } else if (others && op.what == verb::update) {
    const auto& first = waiting->waiting.front();
    const auto wanted = static_cast<value_tag>(op.function->function->value_tag);
    const bool becomes_it = first.what == verb::update && first.function == op.function && is_numeric(first.tag) &&
                            op.function->function->initialise == nullptr &&
                            (wanted == value_tag::none || wanted == element_of(first.tag));
    if (!becomes_it) return true;
    current = {first.tag, first.delta.bytes()};
  } else {
    return true;
  }
  auto how = status::ok;
  if (op.what == verb::update_at) {
    element_change change;
    if (parse_update_at(delta, (op.header->flags & net::flag_range) != 0, change) != nullptr) return true;
    how = fits_elements(*op.function, current, change, out.text);
  } else {
    default_and_delta both;
    if (op.what == verb::update_default && !parse(delta.bytes, both)) return true;
    const auto& by = op.what == verb::update_default ? both.delta : delta;
    if (!srv::fits(*op.function, current, by, out.text)) how = status::type_mismatch;
  }
  if (how == status::ok) return true;
  out.fail(how, quoted_key(key) + ": " + out.text);
  return false;
}

/// Lists the key as having staged updates for this clock. An entry under a later one remains, without effect.
void partition_store::list(staged_key& staged, std::string_view key, std::uint32_t clock) {
  if (staged.listed <= clock) return;
  due_[clock].emplace_back(key);
  staged.listed = clock;
}

/// Lists a key that is not listed, if anything is staged for it. Throws: std::bad_alloc; it is listed as before.
void partition_store::list_again(staged_key& staged, std::string_view key) {
  const auto least = std::ranges::min_element(staged.waiting, {}, &staged_update::clock);
  const auto clock = least != staged.waiting.end() ? least->clock : net::no_clock;
  if (clock != net::no_clock) due_[clock].emplace_back(key);
  staged.listed = clock;
}

/// Rebuilds due_: the set of own keys has changed.
void partition_store::list_again() {
  due_.clear();
  for (auto at = staged_.begin(); at != staged_.end(); ++at) {
    if (keys_.owns(partition_of(hash_key(at->first)))) list_again(at.value(), at->first);
    else at.value().listed = net::no_clock;  // a replica: its head folds it
  }
}

void partition_store::clear_error(staged_key& staged) noexcept {
  if (std::exchange(staged.broken, status::ok) != status::ok) --broken_count_;
}

void partition_store::fold_before(std::uint32_t clock, std::string_view key, std::uint64_t hash, key_outcome& out) {
  folded_clock_ = std::max(folded_clock_, clock);
  const auto at = staged_.find(key, hash);
  if (at == staged_.end()) return;
  auto& staged = at.value();
  fold_before(clock, staged, key, hash);
  if (staged.broken != status::ok) out.fail(staged.broken, staged.why);
}

/// Throws: std::bad_alloc; then nothing is folded.
void partition_store::fold_before(std::uint32_t clock, staged_key& staged, std::string_view key, std::uint64_t hash) {
  auto& waiting = staged.waiting;
  const auto due = std::partition(waiting.begin(), waiting.end(), [&](const auto& u) { return u.clock >= clock; });
  if (due == waiting.end()) return;
  std::vector<staged_update> now;
  now.reserve(static_cast<std::size_t>(waiting.end() - due));
  log_.folded(hash, key, clock);
  std::sort(due, waiting.end(), [](const auto& a, const auto& b) {
    return std::tie(a.clock, a.rank, a.arrival) < std::tie(b.clock, b.rank, b.arrival);
  });
  // They are removed first: whatever happens to one, none is folded twice.
  std::move(due, waiting.end(), std::back_inserter(now));
  waiting.erase(due, waiting.end());
  if (waiting.empty()) staged.changes_type = false;
  PARACEL_CHECK(now.size() <= staged_count_);
  staged_count_ -= now.size();
  for (const auto& u : now) keys_.count_bytes(-staged_bytes(u.delta.size()));
  for (auto& u : now) {
    key_outcome folded;
    fold(u, key, hash, folded);
    if (folded.result != status::ok && staged.broken == status::ok) {
      ++broken_count_;
      staged.broken = folded.result;
      staged.why = told_by([&] {
        return "a staged update of rank " + std::to_string(u.rank) + " in iteration " + std::to_string(u.clock) + ": " +
               folded.text;
      });
    }
  }
}

void partition_store::fold(staged_update& u, std::string_view key, std::uint64_t hash, key_outcome& folded) noexcept {
  try {
    const value_view delta{u.tag, u.delta.bytes()};
    if (default_and_delta both; u.what == verb::update_default && parse(delta.bytes, both)) {
      update_default(*u.function, key, hash, both, folded);
    } else if (u.what == verb::update_at) {
      element_change change;  // it was checked when it was staged
      if (parse_update_at(delta, (u.flags & net::flag_range) != 0, change) == nullptr) {
        update_at(*u.function, key, hash, change, folded);
      }
    } else {
      shared_buffer large;
      if (u.delta.size() > net::tail_threshold_bytes) large = std::move(u.delta);
      update(*u.function, key, hash, delta, std::move(large), folded);
    }
  } catch (...) {
    folded.fail_by_exception();
    folded.text = told_by([&] { return quoted_key(key) + ": " + folded.text; });
  }
}

bool partition_store::fold_all_before(std::uint32_t clock, time_point until) {
  folded_clock_ = std::max(folded_clock_, clock);
  return fold_keys_before(clock, [&] { return std::chrono::steady_clock::now() >= until; });
}

/// Returns: whether all is folded.
bool partition_store::fold_keys_before(std::uint32_t clock, const std::function<bool()>& over) {
  while (!due_.empty() && due_.begin()->first < clock) {
    auto& keys = due_.begin()->second;
    while (!keys.empty()) {
      const bool folded = fold_listed(clock, keys.front());
      keys.pop_front();
      // Only completed work counts against the time, so that every call makes progress.
      if (folded && over()) return false;
    }
    due_.erase(due_.begin());
  }
  return true;
}

/// Returns: whether there was anything to do.
bool partition_store::fold_listed(std::uint32_t clock, const std::string& key) {
  const auto hash = hash_key(key);
  const auto at = staged_.find(key, hash);
  if (at == staged_.end()) return false;
  auto& staged = at.value();
  if (staged.listed != due_.begin()->first) return false;  // stale: listed again since
  if (!keys_.owns(partition_of(hash))) return false;
  const auto before = staged.waiting.size();
  fold_before(clock, staged, key, hash);
  const bool folded = staged.waiting.size() != before;
  if (staged.waiting.empty() && staged.broken == status::ok) {
    staged_.erase(at);
    ++staged_changes_;
  } else {
    list_again(staged, key);
  }
  return folded;
}

bool partition_store::fold_due(const std::function<bool()>& over) {
  const bool done = fold_keys_before(due_clock_, over) && rows_.fold_before(due_clock_, over);
  return !done;
}

status partition_store::failed_fold(std::string& why) const {
  if (const auto s = broken({}, why); s != status::ok) return s;
  return rows_.failed_fold(why);
}

std::uint64_t partition_store::fence(std::uint32_t rank, std::uint32_t clock, std::string& example) {
  std::uint64_t dropped = 0;
  for (auto at = staged_.begin(); at != staged_.end();) {
    const auto hash = hash_key(at->first);
    auto& waiting = at.value().waiting;
    const auto gone = std::stable_partition(waiting.begin(), waiting.end(),
                                            [&](const auto& u) { return u.rank != rank || u.clock < clock; });
    if (gone == waiting.end() || !keys_.owns(partition_of(hash))) {  // a replica: its head decides
      ++at;
      continue;
    }
    if (example.empty()) example = quoted_key(at->first);
    log_.key_gone(hash, at->first);  // the replicas get what is left of it
    dropped += static_cast<std::uint64_t>(waiting.end() - gone);
    staged_count_ -= static_cast<std::uint64_t>(waiting.end() - gone);
    for (auto u = gone; u != waiting.end(); ++u) keys_.count_bytes(-staged_bytes(u->delta.size()));
    waiting.erase(gone, waiting.end());
    if (waiting.empty() && at->second.broken == status::ok) {
      at = staged_.erase(at);
      ++staged_changes_;
    } else {
      ++at;
    }
  }
  return dropped + rows_.fence(rank, clock, example);
}

status partition_store::broken(std::string_view prefix, std::string& why) const {
  if (broken_count_ == 0) return status::ok;
  for (const auto& [key, staged] : staged_) {
    if (staged.broken == status::ok || !key.starts_with(prefix)) continue;
    if (!keys_.owns(partition_of(hash_key(key)))) continue;
    why = staged.why;
    return staged.broken;
  }
  return status::ok;
}

void partition_store::erasing(std::string_view key, std::uint64_t hash) {
  log_.key_gone(hash, key);
  forget_staged(key);
}

void partition_store::forget_staged(std::string_view key) {
  const auto at = staged_.find(key);
  if (at == staged_.end()) return;
  clear_error(at.value());
  for (const auto& u : at->second.waiting) keys_.count_bytes(-staged_bytes(u.delta.size()));
  PARACEL_CHECK(at->second.waiting.size() <= staged_count_);
  staged_count_ -= at->second.waiting.size();
  staged_.erase(at);
  ++staged_changes_;
}

}  // namespace paracel::srv
