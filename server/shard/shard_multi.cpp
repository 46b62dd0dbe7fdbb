// SPDX-License-Identifier: BSD-3-Clause
//
// Requests of many keys at a shard: items with their keys, and prepared sets.
#include <algorithm>
#include <array>
#include <string>
#include <type_traits>

#include <paracel/detail/bytes.hpp>
#include <paracel/free_memory.hpp>

#include "core/check.hpp"
#include "core/short_bytes.hpp"
#include "server/shard/shard.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

constexpr std::size_t items_at_once = key_store::batch;

using item_places = std::span<const std::byte* const>;

/// Not one call a key: the hash of a short one is a few instructions.
[[gnu::flatten]] void hash_keys(item_places items, std::uint64_t* out) noexcept {
  for (const auto* item : items) *out++ = hash_key(net::item_key(item));
}

/// Copies the values of these items to `to` if each has this type and so many bytes.
bool copy_values(item_places items, value_tag tag, std::size_t bytes, std::byte* to) noexcept {
  bool same = true;
  const auto each = [&](auto width) {
    for (const auto* item : items) {
      const auto value = net::item_value(item);
      if (value.tag != tag || value.bytes.size() != bytes) return void(same = false);
      copy_short(to, value.bytes.data(), width);
      to += width;
    }
  };
  if (bytes == 4) each(std::integral_constant<std::size_t, 4>());
  else if (bytes == 8) each(std::integral_constant<std::size_t, 8>());
  else each(bytes);
  return same;
}

}  // namespace

void shard::handle_multi(const net::request_view& request, completion& done) {
  const auto& h = request.header;
  key_operation c{&h, net::traits_of(h.what).each};
  if ((h.flags & net::flag_uniform_reply) != 0 && c.what <= verb::bupdate) {
    key_outcome unknown;
    if (c.takes_function()) c.function = function_of(h, unknown);
    if ((c.function != nullptr || !c.takes_function()) && run_multi(c, request, done)) return;
  }
  // All items are checked before the first is handled: a malformed request changes nothing.
  const bool expected = log().expects_partitions();
  net::request_items check(request.payload(), h.count);
  for (net::request_item item; check.next(item);) {
    if (expected) expect_answer(hash_key(item.key));
  }
  if (!check.ok()) return refuse(done, status::bad_request, "the items of the request do not fit its body");
  if (c.takes_function()) {
    key_outcome out;
    c.function = function_of(h, out);
    if (c.function == nullptr) return refuse(done, out);
  }
  log().hold_places();
  net::request_items cursor(request.payload(), h.count);
  answer_items(
      c,
      [&cursor](net::request_item& item, std::uint64_t& hash) {
        if (cursor.next(item)) hash = hash_key(item.key);
      },
      done);
}

/// The size limit of a reply of many values.
std::size_t shard::room_of(const key_operation& c) const noexcept {
  const auto most = settings_.max_message_bytes - net::reply_header_bytes;
  const auto credit = c.header->credit;
  return c.is_cut_by_credit() && credit != 0 ? std::min<std::size_t>(most, credit) : most;
}

/// Executes `c` on the `count` items of its request, which `next` returns with the hashes of their keys.
template <class Next>
void shard::answer_items(const key_operation& c, Next&& next, completion& done) {
  const auto count = c.header->count;
  const auto most = room_of(c);
  if (std::size_t{count} * net::reply_item_bytes > most) {
    return refuse(done, status::too_large, std::to_string(count) + " items are too many for one reply");
  }
  // From here on nothing throws: a single item fails, and completed ones are answered.
  items_.clear();
  make_room(items_, std::size_t{count} * net::reply_item_bytes);
  std::size_t left = count;
  std::array<net::request_item, items_at_once> item;
  std::array<std::uint64_t, items_at_once> hash;
  while (left != 0) {
    const auto n = std::min(left, items_at_once);
    for (std::size_t i = 0; i < n; ++i) next(item[i], hash[i]);
    store_.load().touch(n, [&](std::size_t i) { return hash[i]; });
    store_.keys().prefetch({hash.data(), n});
    expected_calls soon(c.function);
    if (soon.wanted()) [[unlikely]]
      announce(c, {item.data(), n}, {hash.data(), n}, soon);
    for (std::size_t i = 0; i < n; ++i) {
      key_outcome out;
      const auto partition = partition_of(hash[i]);
      const bool owned = store_.keys().owns(partition);
      try {
        if (!owned) {
          out.fail(status::wrong_owner, store_.keys().not_mine(partition));
        } else {
          log().touch(partition);  // hold_places has made room
          if (!log().retried() || !was_applied(c, item[i].key, hash[i], out)) {
            if (c.what == verb::bupdate) make_room_for_value(left, item[i], hash[i]);
            perform(c, item[i].key, hash[i], item[i].value, {}, out);
          }
        }
      } catch (...) {
        out.fail_by_exception();
      }
      if (log().remembers() && owned) {
        out.text.resize(std::min(out.text.size(), std::size_t{512}));
        note_answer(partition, out);
      }
      --left;
      value_view back;
      if (out.result == status::ok && out.has_value()) {
        back = out.view();
        const auto bytes = net::reply_item_bytes * (left + 1) + back.bytes.size();
        const bool fits = items_.size() + bytes <= most;
        if (!fits || !try_room(items_, bytes)) {
          out.result = fits ? status::out_of_memory : status::too_large;
          back = {};
        }
      } else if (!out.text.empty()) {
        out.text.resize(std::min(out.text.size(), std::size_t{512}));
        const auto bytes = net::reply_item_bytes * (left + 1) + out.text.size();
        if (items_.size() + bytes <= most && try_room(items_, bytes)) {
          back = {value_tag::packed, net::bytes_of(out.text)};
        }
      }
      if (out.result != status::ok && out.result != status::not_found) shard_counters::add(counters_.failures, 1);
      net::append_item(items_, out.result, out.version, back);
    }
  }
  PARACEL_ASSERT(items_.size() <= most && items_.size() >= std::size_t{count} * net::reply_item_bytes);
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes + items_.size());
  net::reply_header reply;
  reply.count = count;
  done.answer(reply, items_);
  free_if_larger(items_, kept_buffer_bytes);
}

/// Has the sandbox process these items together, as far as their values are known.
void shard::announce(const key_operation& c, std::span<const net::request_item> items,
                     std::span<const std::uint64_t> hashes, expected_calls& soon) {
  const bool staged = (c.header->flags & net::flag_staged) != 0 && c.header->clock != net::no_clock;
  if (staged || log().retried() || (c.what != verb::update && c.what != verb::bupdate)) return;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!store_.keys().owns(partition_of(hashes[i]))) continue;
    if (const auto* e = store_.keys().find(hashes[i], items[i].key)) soon.add(e->view(), items[i].value);
  }
  const busy_mark mark(monitor_, *c.function, {});
  soon.run();
}

/// An update that returns its value is not executed when there is no memory for the reply, as far as its size is known.
void shard::make_room_for_value(std::size_t left, const net::request_item& item, std::uint64_t hash) {
  const auto* e = store_.keys().find(hash, item.key);
  make_room(items_, net::reply_item_bytes * left + (e != nullptr ? e->value() : item.value.bytes).size());
}

// ---- prepared key sets ----------------------------------------------------------------------------------------------

void shard::handle_set(const net::request_view& request, completion& done) {
  const auto& h = request.header;
  digest128 digest;
  if (request.key().size() != sizeof digest) {
    return refuse(done, status::bad_request, "a key set has a name of 16 bytes");
  }
  load_fields(request.body.data(), digest);
  if (h.what == verb::set_prepare) return prepare_set(request, digest, done);
  auto* set = sets_.find(digest);
  if (set == nullptr) {
    if (!deferred_.refused(h.client, digest)) {
      return refuse(done, status::internal, "too many clients wait for their key sets");
    }
    return refuse(done, status::unknown_set, "no such key set is here");
  }
  if (h.count != set->size()) {
    return refuse(done, status::bad_request,
                  "the key set has " + std::to_string(set->size()) + " keys, the request " + std::to_string(h.count));
  }
  key_operation c{&h, net::traits_of(h.what).each};
  set_values values;
  if (c.what == verb::pull) {
    if (!request.payload().empty()) return refuse(done, status::bad_request, "a pull carries no values");
  } else if (const char* reason = parse_set_values(h.tag, request.payload(), h.count, values)) {
    return refuse(done, status::bad_request, reason);
  }
  if (c.takes_function()) {
    key_outcome out;
    c.function = function_of(h, out);
    if (c.function == nullptr) return refuse(done, out);
  }
  for (std::size_t i = 0; log().expects_partitions() && i < set->size(); ++i) expect_answer(set->hash(i));
  log().hold_places();
  if (run_set(c, *set, values, done)) return;

  net::request_items cursor(values.payload, h.count);
  const bool items = c.what != verb::pull && !values.uniform();
  std::size_t i = 0;
  answer_items(
      c,
      [&](net::request_item& item, std::uint64_t& hash) {
        item.value = {};
        if (items) (void)cursor.next(item);
        else if (c.what != verb::pull) item.value = values.at(i);
        item.key = set->key(i);
        hash = set->hash(i++);
      },
      done);
}

void shard::prepare_set(const net::request_view& request, const digest128& digest, completion& done) {
  if (const char* reason = sets_.prepare(digest, request.payload(), request.header.count)) {
    return refuse(done, status::bad_request, reason);
  }
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
  done.ok();
}

/// The fast path: all keys exist with values of one kind, and nothing waits for the clock. False: not applicable,
/// and nothing has happened.
bool shard::run_set(const key_operation& c, prepared_set& set, const set_values& values, completion& done) {
  if (!can_run(c)) return false;
  auto* keys = set.resolve(store_.keys());
  if (keys == nullptr || !can_run(c, *keys)) return false;
  if (c.what != verb::pull && (values.tag != keys->tag() || values.bytes != keys->value_bytes())) return false;
  store_.load().touch(set.size(), [&](std::size_t i) { return set.hash(i); });
  const bool noted = log().recording() && c.what != verb::pull;
  for (std::size_t i = 0; noted && i < set.size(); ++i) log().key(set.hash(i), set.key(i));
  const bool early = may_answer_first(c);
  if (early) answer_uniform(c, *keys, done);
  run(c, *keys, values.payload.data());
  if (log().remembers()) note_answers(c, set, *keys);
  if (!early) answer_uniform(c, *keys, done);
  return true;
}

/// The same for a request with its own keys, from a client that understands the answer.
bool shard::run_multi(const key_operation& c, const net::request_view& request, completion& done) {
  const auto payload = request.payload();
  const auto count = c.header->count;
  if (log().recording() || log().expects_partitions() || !can_run(c)) return false;
  if (count == 0 || count > payload.size() / net::request_item_bytes) return false;
  const bool reads = c.what == verb::pull;
  auto& keys = store_.keys();
  resolved_.clear(reads ? 0 : count);
  net::request_items cursor(payload, count);
  std::array<const std::byte*, items_at_once> item;
  std::array<std::uint64_t, items_at_once> hash;
  std::array<entry*, items_at_once> found;
  for (std::size_t first = 0; first < count; first += items_at_once) {
    const auto n = std::min(count - first, items_at_once);
    const std::span items(item.data(), n);
    const std::span hashes(hash.data(), n);
    if (cursor.next(items) != n) return false;
    hash_keys(items, hash.data());
    if (!keys.owns_all(hashes)) return false;
    keys.find(
        hashes, [&](std::size_t i) { return net::item_key(item[i]); }, found.data());
    if (first == 0) {
      if (resolved_.begin(found[0]) != resolved_keys::fit::good || !can_run(c, resolved_)) return false;
      if (!reads && resolved_.value_bytes() > payload.size() / count) return false;
      auto& numbers = reads ? items_ : values_;
      if (const auto bytes = count * resolved_.value_bytes(); numbers.size() < bytes) numbers.resize(bytes);
    }
    store_.load().touch(n, [&](std::size_t i) { return hash[i]; });
    const auto at = first * resolved_.value_bytes();
    const std::span entries(found.data(), n);
    if (reads) {
      if (resolved_.read(entries, items_.data() + at) != resolved_keys::fit::good) return false;
    } else {
      if (resolved_.add(entries) != resolved_keys::fit::good) return false;
      if (!copy_values(items, resolved_.tag(), resolved_.value_bytes(), values_.data() + at)) return false;
    }
  }
  if (!cursor.ok()) return false;
  log().hold_places();
  const bool early = may_answer_first(c);
  if (early) answer_uniform(c, resolved_, done);
  run(c, resolved_, values_.data());  // values that were read are in place
  if (log().remembers()) log().answered_alike(count, c.what == verb::bupdate ? resolved_.tag() : value_tag::none);
  if (!early) answer_uniform(c, resolved_, done);
  free_if_larger(values_, kept_buffer_bytes);
  return true;
}

bool shard::can_run(const key_operation& c) const {
  const auto& changes = store_.changes();
  return (c.header->flags & net::flag_staged) == 0 && store_.is_settled() && !changes.retried() && !changes.watches();
}

bool shard::can_run(const key_operation& c, const resolved_keys& keys) const {
  const bool answers_values = c.what == verb::pull || c.what == verb::bupdate;
  if (answers_values && c.header->count * keys.value_bytes() > room_of(c)) return false;
  if (c.function != nullptr && !keys.can_update(*c.function)) return false;
  // An optimizer's state is dropped with the old value.
  return c.what != verb::push || !store_.keys().keeps_states();
}

/// As in `update_after_answer`: nothing that follows can fail, and the answer is known before the values are changed.
bool shard::may_answer_first(const key_operation& c) const {
  return !store_.changes().recording() && (c.what == verb::push || (c.what == verb::update && c.function->additive));
}

void shard::run(const key_operation& c, resolved_keys& keys, const std::byte* values) {
  const auto& h = *c.header;
  const bool answers_values = c.what == verb::pull || c.what == verb::bupdate;
  if (const auto bytes = answers_values ? keys.size() * keys.value_bytes() : 0; items_.size() < bytes)
    items_.resize(bytes);
  switch (c.what) {
    case verb::pull:
      // Everything below this clock has been folded: nothing is staged.
      if ((h.flags & net::flag_bsp_read) != 0 && h.clock != net::no_clock) store_.saw_complete(h.clock);
      return keys.gather(items_.data());
    case verb::push:
      return keys.scatter(store_.keys(), values);
    default: {
      const busy_mark mark(monitor_, *c.function, {});
      keys.update(store_.keys(), *c.function, values, answers_values ? items_.data() : nullptr);
      auto& nans = store_.nans();
      if (keys.size() == 0 || !nans.is_due()) break;
      const auto& e = keys.at(nans.turn() % keys.size());
      nans.look(c.function->name, e.tag(), e.value(), [&] { return quoted_key(e.key()); });
    }
  }
}

void shard::answer_uniform(const key_operation& c, const resolved_keys& keys, completion& done) {
  const bool answers_values = c.what == verb::pull || c.what == verb::bupdate;
  const std::size_t count = c.header->count;
  const auto bytes = answers_values ? count * keys.value_bytes() : 0;
  net::reply_header reply;
  reply.count = c.header->count;
  reply.flags = net::reply_uniform;
  reply.tag = answers_values ? keys.tag() : value_tag::none;
  reply.value_version = store_.keys().family().last_version;
  if (may_answer_first(c)) reply.value_version += count;  // as of the end of the change
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes + bytes);
  done.answer(reply, std::span(items_).first(bytes));
  free_if_larger(items_, kept_buffer_bytes);
}

}  // namespace paracel::srv
