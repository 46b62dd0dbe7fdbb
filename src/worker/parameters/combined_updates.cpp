// SPDX-License-Identifier: BSD-3-Clause
//
// What happens between calls: combined updates, and values that the servers push.
#include <algorithm>
#include <utility>

#include <paracel/error.hpp>

#include "core/reduction.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {

namespace {

// Pending deltas are memory that is not counted elsewhere; beyond this they are sent.
constexpr std::size_t most_combined_bytes = std::size_t{64} << 20;

}  // namespace

// ---- combined updates ------------------------------------------------------------------------------------------

void parasrv::set_combining(bool on) {
  if (!on) send_combined_before(nullptr);
  combining_ = on;
}

bool parasrv::combines(const std::string& key, const value_view& delta, std::uint64_t function) const {
  // Under BSP each update is staged separately: a sum of them would not be bit-identical.
  const auto model = clock_.of(key).model;
  if (model == consistency_model::bsp || !combining_.value_or(model == consistency_model::ssp)) return false;
  // An invalid key is rejected now, not when others are sent with it.
  return key.size() <= net::max_key_bytes && is_numeric(delta.tag) && is_well_formed(delta) &&
         functions_.is_additive(function);
}

async_functor_type parasrv::combine(const std::string& key, const value_view& delta, std::uint64_t function) {
  if (combiner_.bytes() + delta.bytes.size() > most_combined_bytes) send_combined_before(nullptr);
  auto* e = combiner_.add(key, delta, function);
  if (e == nullptr) {
    const std::string_view only = key;
    send_combined_before(&only);
    e = combiner_.add(key, delta, function);
  }
  if (!e->ticket) {
    e->ticket = std::make_shared<combined_update>();
    e->ticket->name = key;
  }
  cache_.changing(key);
  cache_.apply(key, delta, function);
  return future_of(e->ticket, &e->ticket->waits);
}

/// `waits`, a member of `u`: it is still to be sent.
async_functor_type parasrv::future_of(std::shared_ptr<shared_update> u, bool* waits) {
  const std::shared_ptr<const std::vector<kvclt::sequence>> requests(u, &u->sent);
  return result_of(
      std::async(std::launch::deferred,
                 [self = std::weak_ptr(self_), u = std::move(u), waits] {
                   const auto there = self.lock();
                   if (!there || *there == nullptr)
                     throw error("the future of an update of \"" + u->name + "\" was used after its paralg was gone");
                   auto& me = **there;
                   const std::string_view only = u->name;
                   if (waits != nullptr && *waits) me.send_combined_before(&only);
                   for (const auto s : u->sent) me.client_->wait(s);
                   me.failures_.take(u);
                   if (u->result != net::status::ok) throw_status(u->result, u->text, "updating \"" + u->name + "\"");
                   return true;
                 }),
      requests);
}

/// What is not sent must not appear acknowledged.
void parasrv::unsent(combined_update& u) {
  u.waits = false;
  u.result = net::status::internal;
  u.text = "it could not be sent";
}

void parasrv::send_combined(combiner::entry e) {
  unsent(*e.ticket);
  auto view = e.view();
  shared_buffer large;
  if (view.bytes.size() > net::tail_threshold_bytes) large = std::move(e.sum);
  e.ticket->sent.push_back(client_->request(
      clock_.update_call(clock_.of(e.key), net::verb::update, e.function, true), e.key, view,
      [this, u = e.ticket](const kv_result& r) {
        if (r.ok()) return;
        cache_.drop(u->name);
        failures_.record(u, r.header.result, r.text());
      },
      std::move(large)));
  e.ticket->result = net::status::ok;
}

void parasrv::send_combined_before(const std::string_view* key) {
  if (combiner_.empty()) return;
  if (key != nullptr) {
    if (auto e = combiner_.take(*key)) send_combined(std::move(*e));
    return;
  }
  auto all = combiner_.take_all();
  for (auto& e : all) unsent(*e.ticket);
  for (auto& e : all) send_combined(std::move(e));
}

void parasrv::send_all_combined() {
  if (combiner_.empty()) return;
  // One request per shard for all keys whose updates have the same function; large ones are sent separately. None is
  // under BSP: ASP and SSP send them alike.
  auto all = combiner_.take_all();
  for (auto& e : all) unsent(*e.ticket);
  const auto small_end = std::stable_partition(
      all.begin(), all.end(), [](const combiner::entry& e) { return e.sum.size() <= net::tail_threshold_bytes; });
  for (auto e = small_end; e != all.end(); ++e) send_combined(std::move(*e));
  all.erase(small_end, all.end());
  std::ranges::stable_sort(all, {}, &combiner::entry::function);
  for (auto from = all.begin(); from != all.end();) {
    const auto to = std::find_if(from, all.end(), [&](const auto& e) { return e.function != from->function; });
    if (to - from == 1) {
      send_combined(std::move(*from));
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
    client_->many().multi(clock_.update_call(clock_.of(from->key), net::verb::update_multi, from->function, true), keys,
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

// ---- pushed values ----------------------------------------------------------------------------------------------

void parasrv::set_push(bool on) {
  if (!on) return cache_.end_push();
  cache_.begin_push([this](std::string_view key, read_cache::entry& e) { return add_unsent(key, e); });
}

bool parasrv::add_unsent(std::string_view key, read_cache::entry& e) const {
  const auto* unsent = combiner_.find(key);
  if (unsent == nullptr) return true;
  if (unsent->tag != e.tag || unsent->sum.size() != e.bytes.size()) return false;
  fold(element_of(e.tag), e.bytes, unsent->sum.bytes(), reduce_op::sum);
  return true;
}

void parasrv::subscribe(const std::vector<std::string>& keys) {
  set_push(true);
  struct nowhere final : set_target {
    using set_target::set_target;
    void put_one(std::size_t, const value_view&) override {}
  } values(keys.size());
  many_.read_multi(keys, values, true);
  cache_.subscribe(keys);
}

}  // namespace paracel
