// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/combined_updates.hpp"

#include <algorithm>
#include <utility>

#include "core/reduction.hpp"

namespace paracel {

namespace {

// Pending deltas are memory that is not counted elsewhere; beyond this they are sent.
constexpr std::size_t most_combined_bytes = std::size_t{64} << 20;

}  // namespace

void combined_updates::set(bool on) {
  if (!on) send_before(nullptr);
  on_ = on;
}

bool combined_updates::takes(const std::string& key, const value_view& delta, std::uint64_t function) const {
  // Under BSP each update is staged separately: a sum of them would not be bit-identical.
  const auto model = clock_.of(key).model;
  if (model == consistency_model::bsp || !on_.value_or(model == consistency_model::ssp)) return false;
  // An invalid key is rejected now, not when others are sent with it.
  return key.size() <= net::max_key_bytes && is_numeric(delta.tag) && is_well_formed(delta) &&
         functions_.is_additive(function);
}

std::shared_ptr<combined_updates::update> combined_updates::add(const std::string& key, const value_view& delta,
                                                                std::uint64_t function) {
  if (sums_.bytes() + delta.bytes.size() > most_combined_bytes) send_before(nullptr);
  auto* e = sums_.add(key, delta, function);
  if (e == nullptr) {
    const std::string_view only = key;
    send_before(&only);
    e = sums_.add(key, delta, function);
  }
  if (!e->ticket) {
    e->ticket = std::make_shared<update>();
    e->ticket->name = key;
  }
  cache_.changing(key);
  cache_.apply(key, delta, function);
  return e->ticket;
}

/// What is not sent must not appear acknowledged.
void combined_updates::unsent(update& u) {
  u.waits = false;
  u.result = net::status::internal;
  u.text = "it could not be sent";
}

void combined_updates::send(entry e) {
  unsent(*e.ticket);
  auto view = e.view();
  shared_buffer large;
  if (view.bytes.size() > net::tail_threshold_bytes) large = std::move(e.sum);
  e.ticket->sent.push_back(client_.request(
      clock_.update_call(clock_.of(e.key), net::verb::update, e.function, true), e.key, view,
      [this, u = e.ticket](const kv_result& r) {
        if (r.ok()) return;
        cache_.drop(u->name);
        failures_.record(u, r.header.result, r.text());
      },
      std::move(large)));
  e.ticket->result = net::status::ok;
}

void combined_updates::send_before(const std::string_view* key) {
  if (sums_.empty()) return;
  if (key != nullptr) {
    if (auto e = sums_.take(*key)) send(std::move(*e));
    return;
  }
  auto all = sums_.take_all();
  for (auto& e : all) unsent(*e.ticket);
  for (auto& e : all) send(std::move(e));
}

void combined_updates::send_before(net::request_items listed) {
  net::request_item item;
  while (!sums_.empty() && listed.next(item))
    if (auto e = sums_.take(item.key)) send(std::move(*e));
}

void combined_updates::send_all() {
  if (sums_.empty()) return;
  // One request per shard for all keys whose updates have the same function; large ones are sent separately. None is
  // under BSP: ASP and SSP send them alike.
  auto all = sums_.take_all();
  for (auto& e : all) unsent(*e.ticket);
  const auto small_end = std::stable_partition(
      all.begin(), all.end(), [](const entry& e) { return e.sum.size() <= net::tail_threshold_bytes; });
  for (auto e = small_end; e != all.end(); ++e) send(std::move(*e));
  all.erase(small_end, all.end());
  std::ranges::stable_sort(all, {}, &entry::function);
  for (auto from = all.begin(); from != all.end();) {
    const auto to = std::find_if(from, all.end(), [&](const auto& e) { return e.function != from->function; });
    if (to - from == 1) {
      send(std::move(*from));
      from = to;
      continue;
    }
    std::vector<std::string> keys;
    std::vector<value_view> sums;
    for (auto e = from; e != to; ++e) {
      keys.push_back(e->key);
      sums.push_back(e->view());
      e->ticket->waits = false;
      e->ticket->result = net::status::internal;
      e->ticket->text = "no reply arrived: it is unknown whether it was applied";
    }
    client_.many().multi(clock_.update_call(clock_.of(from->key), net::verb::update_multi, from->function, true), keys,
                         sums, [&](std::size_t i, const net::reply_item& item) {
                           const auto& u = from[static_cast<std::ptrdiff_t>(i)].ticket;
                           u->result = item.result;
                           if (item.result == net::status::ok) return;
                           cache_.drop(u->name);
                           failures_.record(u, item.result, net::text_of(item.value.bytes));
                         });
    from = to;
  }
}

bool combined_updates::add_unsent(std::string_view key, read_cache::entry& e) const {
  const auto* unsent = sums_.find(key);
  if (unsent == nullptr) return true;
  if (unsent->tag != e.tag || unsent->sum.size() != e.bytes.size()) return false;
  fold(element_of(e.tag), e.bytes, unsent->sum.bytes(), reduce_op::sum);
  return true;
}

}  // namespace paracel
