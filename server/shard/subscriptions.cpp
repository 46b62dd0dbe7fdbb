// SPDX-License-Identifier: BSD-3-Clause
#include "server/shard/subscriptions.hpp"

#include <algorithm>
#include <utility>

#include <paracel/detail/bytes.hpp>

#include "core/check.hpp"

namespace paracel::srv {

using net::status;

bool is_subscription(std::span<const std::byte> payload, std::uint32_t count) noexcept {
  net::request_items items(payload, count);
  for (net::request_item item; items.next(item);) {
    if (item.value.tag != value_tag::i64 || item.value.bytes.size() != sizeof(std::uint64_t)) return false;
  }
  return items.ok();
}

void subscriptions::subscribe(const net::request_view& request, completion done) {
  const auto& h = request.header;
  const auto items = request.payload();
  if (!is_subscription(items, h.count)) {
    return done.fail(status::bad_request, "a subscription is items of a key and the version that is known");
  }
  if (std::size_t{h.count} * net::reply_item_bytes > keys_.settings().max_message_bytes - net::reply_header_bytes) {
    return done.fail(status::too_large, std::to_string(h.count) + " items are too many for one reply");
  }
  if (const auto before = parked_.find(h.client); before != parked_.end()) {
    net::reply_header reply;
    reply.clock = clock_;
    before->second.done.answer(reply);
    parked_.erase(before);
  }
  if (h.clock < clock_) return answer(h, items, done);
  held_bytes held;
  if (!held.take(budget_, items.size() + sizeof(subscription))) {
    return done.fail(status::too_large, "too many keys are subscribed to here");
  }
  parked_.emplace(h.client, subscription{h, {items.begin(), items.end()}, std::move(done), std::move(held)});
}

void subscriptions::clock_moved(std::uint32_t clock) {
  if (clock <= clock_) return;
  clock_ = clock;
  for (auto s = parked_.begin(); s != parked_.end();) {
    if (s->second.header.clock >= clock_) {
      ++s;
      continue;
    }
    answer(s->second.header, s->second.items, s->second.done);
    s = parked_.erase(s);
  }
}

void subscriptions::answer(const net::request_header& header, std::span<const std::byte> items, completion& done) {
  auto room = keys_.settings().max_message_bytes - net::reply_header_bytes;
  if (header.credit != 0) {
    room = std::min(room, std::max<std::size_t>(header.credit, std::size_t{header.count} * net::reply_item_bytes));
  }
  reply_.clear();
  std::size_t left = header.count;
  net::request_items cursor(items, header.count);
  for (net::request_item item; cursor.next(item);) {
    --left;
    const auto hash = hash_key(item.key);
    const auto* e = keys_.owns(partition_of(hash)) ? keys_.find(hash, item.key) : nullptr;
    const auto known = load_field<std::uint64_t>(item.value.bytes.data());
    if (e == nullptr) {
      net::append_item(reply_, status::not_found, 0, {});
    } else if (e->version() == known) {
      net::append_item(reply_, status::ok, known, {});
    } else if (e->is_large() || reply_.size() + net::reply_item_bytes * (left + 1) + e->value().size() > room) {
      net::append_item(reply_, status::too_large, e->version(), {});
    } else {
      net::append_item(reply_, status::ok, e->version(), e->view());
    }
  }
  PARACEL_ASSERT(left == 0);  // is_subscription has counted them
  net::reply_header reply;
  reply.clock = clock_;
  reply.count = header.count;
  done.answer(reply, reply_);
}

void subscriptions::close(net::status why, std::string_view text) {
  for (auto& [client, s] : parked_) s.done.fail(why, text);
  parked_.clear();
}

}  // namespace paracel::srv
