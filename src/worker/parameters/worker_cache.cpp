// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/worker_cache.hpp"

#include "core/reduction.hpp"

namespace paracel {

const read_cache::entry* worker_cache::find_fresh(const std::string& key) {
  const auto needed = clock_.needed(clock_.of(key));
  const auto* e = entries_.find_fresh(key, needed);
  if (e == nullptr && pushed_) {
    client_.poll();
    e = entries_.find_fresh(key, needed);
  }
  if (e != nullptr) e->read_in = clock_.finished();
  return e;
}

std::vector<std::uint32_t> worker_cache::not_fresh(const consistency& c, std::span<const std::string> keys) {
  constexpr std::size_t short_list = 64;
  constexpr std::size_t samples = 16;
  const auto needed = clock_.needed(c);
  const auto is_fresh = [&](std::size_t i) { return entries_.find_fresh(keys[i], needed) != nullptr; };
  const auto may_be_fresh = [&] {
    if (!clock_.may_cache(c) || entries_.size() == 0) return false;
    if (keys.size() <= short_list) return true;
    for (std::size_t n = 0; n < samples; ++n)
      if (is_fresh(n * keys.size() / samples)) return true;
    return false;
  };
  std::vector<std::uint32_t> others;
  const auto look = [&] {
    const bool any = may_be_fresh();
    others.clear();
    for (std::uint32_t i = 0; i < keys.size(); ++i)
      if (!any || !is_fresh(i)) others.push_back(i);
  };
  look();
  if (!others.empty() && pushed_) {
    client_.poll();
    look();
  }
  return others;
}

void worker_cache::remember_read(std::string_view key, const value_view& value, std::uint64_t version,
                                 std::uint32_t minimum, const read_mark& mark, bool exact) {
  if (!worker_clock::is_clocked(clock_.of(key))) return;
  if (!changed_.empty()) {
    const auto changed = changed_.find(std::string(key));
    if (changed != changed_.end() && changed->second > mark.sent_at_) return;  // it lacks a change by this worker
  }
  if (!exact && !pushed_) {
    inexact_ = true;
    return entries_.put(key, value, version, minimum, false);
  }
  if (!exact) return drop(key);  // pushing has begun meanwhile
  put(key, value, version, minimum, true);
}

void worker_cache::put(std::string_view key, const value_view& value, std::uint64_t version, std::uint32_t minimum,
                       bool wanted) {
  entries_.put(key, value, version, minimum);
  const auto& c = clock_.of(key);
  if (wanted && pushed_ && c.model == consistency_model::ssp && clock_.may_cache(c))
    pushed_->wants(std::string(key), clock_.finished());
}

void worker_cache::remember_write(const std::string& key, const value_view& value, std::uint32_t minimum) {
  // Under BSP only a reply to a read is known to be the state of this clock.
  if (clock_.of(key).model == consistency_model::ssp) entries_.put(key, value, 0, minimum);
  else entries_.drop(key);
}

void worker_cache::apply(const std::string& key, const value_view& delta, std::uint64_t function) {
  // Under BSP own updates too take effect when the clock ticks, and then the entry is stale anyway.
  if (clock_.of(key).model != consistency_model::ssp) return;
  auto* e = entries_.find(key);
  if (e == nullptr) return;
  if (!functions_.is_additive(function) || e->tag != delta.tag || e->bytes.size() != delta.bytes.size() ||
      !is_numeric(e->tag)) {
    entries_.drop(key);
    return;
  }
  fold(element_of(e->tag), e->bytes, delta.bytes, reduce_op::sum);
}

void worker_cache::drop(const sharded_keys& set) {
  if (entries_.size() == 0) return;
  for (const auto& key : set.keys) entries_.drop(key);
}

void worker_cache::begin_push(push_cache::add_unsent add) {
  if (pushed_) return;
  if (std::exchange(inexact_, false)) entries_.clear();
  client_.clock_request(net::verb::subscribe, 0, nullptr);  // from now on the clock notifies the shards
  pushed_ = std::make_unique<push_cache>(client_, entries_, std::move(add),
                                         [this](std::uint32_t slowest) { clock_.record_slowest(slowest); });
}

void worker_cache::subscribe(const std::vector<std::string>& keys) {
  for (const auto& key : keys)
    if (clock_.of(key).model == consistency_model::ssp) pushed_->wants(key, clock_.finished());
  renew_push();
}

void worker_cache::renew_push() {
  if (pushed_ && clock_.uses(consistency_model::ssp)) pushed_->renew(clock_.slowest(), clock_.finished());
}

}  // namespace paracel
