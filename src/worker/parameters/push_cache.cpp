// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/push_cache.hpp"

#include <algorithm>
#include <utility>

namespace paracel {

push_cache::place& push_cache::place_of(const std::string& key) {
  const auto at = client_.locate(key);
  const auto found =
      std::ranges::find_if(places_, [&](const place& p) { return p.server == at.server && p.shard == at.shard; });
  if (found != places_.end()) return *found;
  places_.push_back({at.server, at.shard, {}, false, false});
  return places_.back();
}

/// The servers have changed: nothing is parked any more.
void push_cache::move() {
  epoch_ = client_.servers().epoch;
  places_.clear();
  for (const auto& [key, read] : wanted_) place_of(key).keys.push_back(key);
}

void push_cache::wants(const std::string& key, std::uint32_t iteration) {
  if (epoch_ != client_.servers().epoch) move();
  auto found = wanted_.find(key);
  if (found == wanted_.end()) {
    found = wanted_.emplace(key, interest{}).first;
    place_of(key).keys.push_back(key);
  }
  found.value().iteration = iteration;
}

void push_cache::changing(const std::string_view* key, kvclt::sequence s) {
  if (key == nullptr) {
    if (many_.size() >= 64) std::erase_if(many_, [&](auto m) { return client_.answered(m); });
    many_.push_back(s);
  } else if (const auto found = wanted_.find(*key); found != wanted_.end()) {
    found.value().last_change = s;
  }
}

bool push_cache::is_changing(std::string_view key) {
  std::erase_if(many_, [&](auto m) { return client_.answered(m); });
  if (!many_.empty()) return true;
  const auto found = wanted_.find(key);
  return found != wanted_.end() && !client_.answered(found->second.last_change);
}

void push_cache::renew(std::uint32_t minimum, std::uint32_t iteration) {
  iteration_ = iteration;
  client_.refresh_membership();
  if (epoch_ != client_.servers().epoch) move();
  for (std::size_t at = 0; at < places_.size(); ++at) {
    if (!places_[at].parked) subscribe(at, minimum);
  }
}

void push_cache::subscribe(std::size_t at, std::uint32_t minimum) {
  auto& p = places_[at];
  if (p.refused) return;
  std::erase_if(p.keys, [&](const std::string& key) {
    const auto found = wanted_.find(key);
    const auto* e = cache_.find_fresh(key, 0);
    const auto read = std::max(found->second.iteration, e == nullptr ? 0 : e->read_in);
    const bool forgotten = e == nullptr || read + forgotten_after < iteration_;
    if (forgotten) wanted_.erase(found);
    return forgotten;
  });
  if (p.keys.empty()) return;
  body_.clear();
  for (const auto& key : p.keys) {
    const auto version = cache_.find_fresh(key, 0)->version;
    net::append_item(body_, key, {value_tag::i64, std::as_bytes(std::span(&version, 1))});
  }
  const auto count = static_cast<std::uint32_t>(p.keys.size());
  client_.subscribe(p.server, p.shard, minimum, body_, count,
                    [self = std::weak_ptr(self_), at, keys = p.keys](const kv_result& r) {
                      if (const auto there = self.lock()) (*there)->take(at, keys, r);
                    });
  p.parked = true;
}

void push_cache::take(std::size_t at, const std::vector<std::string>& keys, const kv_result& r) {
  places_[at].parked = false;
  places_[at].refused = !r.ok();
  if (!r.ok()) return;
  heard_(r.header.clock);
  net::reply_items items(r.tail ? r.tail.bytes() : r.body, r.header.count);
  std::size_t i = 0;
  for (net::reply_item item; i < keys.size() && items.next(item); ++i) take(keys[i], item, r.header.clock);
  subscribe(at, r.header.clock);
}

void push_cache::take(const std::string& key, const net::reply_item& item, std::uint32_t minimum) {
  if (cache_.find_fresh(key, 0) == nullptr) return;  // it was dropped, and has not been read since
  if (item.result == net::status::ok && item.value.tag == value_tag::none) {
    // No worker has changed it: the cached value is the current one plus our later deltas.
    taken_ += cache_.raise(key, item.version, minimum) ? 1U : 0U;
    return;
  }
  if (item.result == net::status::too_large || is_changing(key)) return;
  if (item.result != net::status::ok) {
    cache_.drop(key);
    return;
  }
  if (minimum <= cache_.find_fresh(key, 0)->minimum) return;
  cache_.put(key, item.value, item.version, minimum);
  auto* e = cache_.find(key);
  if (add_(key, *e)) ++taken_;
  else cache_.drop(key);
}

}  // namespace paracel
