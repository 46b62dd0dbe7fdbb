// SPDX-License-Identifier: BSD-3-Clause
//
// Converts the state of a partition to records, and back.
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "server/request/request_payloads.hpp"
#include "server/store/partition_store.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

std::span<const std::byte> in(std::string_view text) noexcept { return net::bytes_of(text); }

/// The header before the numbers of an optimizer's state (optimizer_state.cpp).
constexpr std::size_t least_state_bytes = 16;

bool is_of_key(const record& r) noexcept {
  return r.kind == record_kind::put || r.kind == record_kind::erase || r.kind == record_kind::stage ||
         r.kind == record_kind::folded || (r.kind == record_kind::broken && (r.flags & record_of_table) == 0);
}

/// The failure in a `broken` record of a key; ok: an unknown one.
status failure_in(const record& r) noexcept {
  status how = status::ok;
  if (r.value.size() >= sizeof how) load_fields(r.value.data(), how);
  return how > status::expired ? status::ok : how;
}

/// What is wrong with an `applied` record, whose answers may be sent again; null: nothing.
const char* wrong_in_applied(const record& r) noexcept {
  constexpr const char* malformed = "the answer of an applied request is malformed";
  if (r.state.size() != 2 * sizeof(std::uint64_t)) return "an applied request has a client and its watermark";
  for (auto rest = r.value; !rest.empty();) {
    constexpr std::size_t front = 16;
    std::uint32_t bytes = 0;
    if (rest.size() >= front) load_fields(rest.data(), bytes);
    if (rest.size() < front || bytes > rest.size() - front) return malformed;
    net::reply_item item;
    if (net::reply_items one(rest.first(front + bytes), 1); !one.next(item)) return malformed;
    rest = rest.subspan(front + bytes);
  }
  return nullptr;
}

}  // namespace

// ---- state as records -----------------------------------------------------------------------------------------------

void partition_store::make_staged_index() {
  if (staged_indexed_ == staged_changes_) return;
  staged_index_.clear();
  for (const auto& [key, staged] : staged_) staged_index_.emplace_back(partition_of(hash_key(key)), key);
  std::sort(staged_index_.begin(), staged_index_.end());
  staged_indexed_ = staged_changes_;
}

void partition_store::encode_key(const entry& e, std::uint64_t hash, std::vector<std::byte>& out) {
  record r;
  r.kind = record_kind::put;
  r.tag = static_cast<std::uint8_t>(e.tag());
  r.a = e.version();
  r.key = in(e.key());
  r.value = e.value();
  if (const auto* state = keys_.find_state(hash, e.key())) r.state = state->value();
  append(out, r);
}

void partition_store::encode_staged(std::string_view key, const staged_key& staged, std::vector<std::byte>& out) {
  std::vector<const staged_update*> waiting;
  for (const auto& u : staged.waiting) waiting.push_back(&u);
  std::sort(waiting.begin(), waiting.end(), [](const auto* a, const auto* b) {
    return std::tie(a->clock, a->rank, a->arrival) < std::tie(b->clock, b->rank, b->arrival);
  });
  for (const auto* u : waiting) encode_staged(key, *u, out);
  encode_broken(key, staged, out);
}

void partition_store::encode_broken(std::string_view key, const staged_key& staged, std::vector<std::byte>& out) {
  if (staged.broken == status::ok) return;
  std::vector<std::byte> value(sizeof staged.broken);
  store_fields(value.data(), staged.broken);
  value.insert(value.end(), in(staged.why).begin(), in(staged.why).end());
  append(out, {.kind = record_kind::broken, .key = in(key), .value = value});
}

void partition_store::encode_staged(std::string_view key, const staged_update& u, std::vector<std::byte>& out) {
  staged_front front;
  front.clock = u.clock;
  front.rank = u.rank;
  front.arrival = u.arrival;
  front.what = static_cast<std::uint8_t>(u.what);
  front.flags = u.flags;
  front.function = u.function->id;
  append(
      out,
      {.kind = record_kind::stage, .tag = static_cast<std::uint8_t>(u.tag), .key = in(key), .value = u.delta.bytes()},
      front);
}

void partition_store::encode_partition(std::uint16_t partition, std::vector<std::byte>& out) {
  if (!keys_.is_of_shard(partition)) return;
  rows_.encode(partition, out);

  std::vector<const entry*> entries;
  keys_.table_of_partition(partition).for_each(0, 0x10000, [&](const entry& e) { entries.push_back(&e); });
  std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->key() < b->key(); });
  make_staged_index();
  auto staged = std::lower_bound(staged_index_.begin(), staged_index_.end(), std::pair(partition, std::string_view()));
  const auto is_here = [&](auto at) { return at != staged_index_.end() && at->first == partition; };
  const auto waiting = [&](std::string_view key) { encode_staged(key, staged_.find(key)->second, out); };
  for (const auto* e : entries) {
    for (; is_here(staged) && staged->second < e->key(); ++staged) waiting(staged->second);
    encode_key(*e, hash_key(e->key()), out);
    if (is_here(staged) && staged->second == e->key()) waiting((staged++)->second);
  }
  for (; is_here(staged); ++staged) waiting(staged->second);

  applied_.each(partition,
                [&](const dedup_window::part& p) { append_applied(out, p.client, p.low, p.sequence, p.what); });
}

void partition_store::append_applied(std::vector<std::byte>& out, std::uint64_t client, std::uint64_t low,
                                     std::uint64_t sequence, const dedup_window::answer& what) {
  const std::array<std::uint64_t, 2> of{client, low};
  append(out, {.kind = record_kind::applied,
               .flags = what.flags,
               .a = sequence,
               .value = what.items,
               .state = std::as_bytes(std::span(of))});
}

// ---- records as state -----------------------------------------------------------------------------------------------

status partition_store::apply_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) {
  if (!keys_.is_of_shard(partition)) {
    why = "partition " + std::to_string(partition) + " is not one of thread " + std::to_string(settings_.index);
    return status::wrong_owner;
  }
  if (!are_records(bytes)) {
    why = "the state of partition " + std::to_string(partition) + " is malformed";
    return status::bad_request;
  }
  return apply_all<false>(partition, bytes, why);
}

status partition_store::apply_checked_records(std::uint16_t partition, std::span<const std::byte> bytes,
                                              std::string& why) {
  PARACEL_CHECK(keys_.is_of_shard(partition));
  keys_.limit_memory(false);
  return apply_all<true>(partition, bytes, why);
}

template <bool is_checked>
status partition_store::apply_all(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) {
  key_outcome out;
  try {
    records cursor(bytes);
    for (record r; out.result == status::ok && cursor.next(r);) {
      const auto hash = is_of_key(r) ? hash_key(net::text_of(r.key)) : 0;
      if constexpr (!is_checked) check_record(partition, r, hash, out);
      if (out.result == status::ok) apply_record(partition, r, hash, out);
    }
    PARACEL_CHECK(out.result != status::ok || cursor.ok());
  } catch (const memory_limit_reached& e) {
    out.fail(status::out_of_memory, e.what());
  } catch (const std::bad_alloc&) {
    out.fail(status::out_of_memory, "there was no memory for it");
  }
  keys_.limit_memory(true);
  why = std::move(out.text);
  return out.result;
}

bool partition_store::check_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) const {
  key_outcome out;
  records walk(bytes);
  for (record r; out.result == status::ok && walk.next(r);)
    check_record(partition, r, is_of_key(r) ? hash_key(net::text_of(r.key)) : 0, out);
  if (out.result == status::ok && !walk.ok()) out.fail(status::bad_request, "its records are malformed");
  why = std::move(out.text);
  return out.result == status::ok;
}

/// `hash`: of the record's key, if it has one.
void partition_store::check_record(std::uint16_t partition, const record& r, std::uint64_t hash,
                                   key_outcome& out) const {
  const auto key = net::text_of(r.key);
  const auto refuse = [&out](const char* why) { out.fail(status::bad_request, why); };
  if (is_of_key(r) && (key.size() > net::max_key_bytes || partition_of(hash) != partition))
    return refuse("a record of a key of another partition");
  switch (r.kind) {
    case record_kind::put:
      if (!acceptable(key, {static_cast<value_tag>(r.tag), r.value}, out)) return;
      if (r.a == 0 || r.a > most_version || (!r.state.empty() && r.state.size() < least_state_bytes))
        refuse("a key has an impossible version or state");
      return;
    case record_kind::erase:
    case record_kind::clear:
    case record_kind::folded:
      return;
    case record_kind::stage:
      return check_stage(key, r, out);
    case record_kind::applied:
      if (const char* wrong = wrong_in_applied(r)) refuse(wrong);
      return;
    case record_kind::broken:
      if (!is_of_key(r)) out.result = rows_.check(partition, r, out.text);
      else if (failure_in(r) == status::ok) refuse("a failure of a staged update has an unknown status");
      return;
    case record_kind::table:
    case record_kind::row:
    case record_kind::row_erase:
    case record_kind::row_stage:
    case record_kind::row_folded:
      out.result = rows_.check(partition, r, out.text);
      return;
    case record_kind::clock:
      break;
  }
  refuse("not a record of a shard");
}

void partition_store::check_stage(std::string_view key, const record& r, key_outcome& out) const {
  staged_front front;
  const value_view delta{static_cast<value_tag>(r.tag), r.value};
  const auto what = read(r.state, front) ? static_cast<verb>(front.what) : verb::none;
  bool fits = front.clock != net::no_clock && is_known(delta.tag);
  default_and_delta both;
  element_change change;
  switch (what) {
    case verb::update:
      fits = fits && acceptable(key, delta, out);
      break;
    case verb::update_default:
      fits = fits && parse(delta.bytes, both) && acceptable(key, both.initial, out) && acceptable(key, both.delta, out);
      break;
    case verb::update_at:
      fits = fits && parse_update_at(delta, (front.flags & net::flag_range) != 0, change) == nullptr &&
             delta.bytes.size() <= settings_.max_value_bytes;
      break;
    default:
      fits = false;
  }
  if (!fits) out.fail(status::bad_request, "a staged update is malformed");
}

/// `hash`: as above. The record has been checked.
void partition_store::apply_record(std::uint16_t partition, const record& r, std::uint64_t hash, key_outcome& out) {
  const auto key = net::text_of(r.key);
  switch (r.kind) {
    case record_kind::put:
      return apply_put(key, hash, r);
    case record_kind::erase:
      forget_staged(key);
      keys_.erase(hash, key);
      return;
    case record_kind::clear:
      return clear_partition(partition);
    case record_kind::stage:
      return apply_stage(partition, key, r, out);
    case record_kind::folded: {
      const auto at = staged_.find(key, hash);
      if (at == staged_.end()) return;
      auto& waiting = at.value().waiting;
      const auto gone = std::partition(waiting.begin(), waiting.end(), [&](const auto& u) { return u.clock >= r.a; });
      for (auto u = gone; u != waiting.end(); ++u) keys_.count_bytes(-staged_bytes(u->delta.size()));
      staged_count_ -= static_cast<std::uint64_t>(waiting.end() - gone);
      waiting.erase(gone, waiting.end());
      if (waiting.empty() && at->second.broken == status::ok) forget_staged(key);
      return;
    }
    case record_kind::applied:
      return apply_applied(partition, r);
    case record_kind::broken:
      if (is_of_key(r)) {
        const auto how = failure_in(r);
        auto at = staged_.find(key, hash);
        if (at == staged_.end()) {
          at = staged_.insert({std::string(key), {}}).first;
          ++staged_changes_;
        }
        clear_error(at.value());
        at.value().broken = how;
        at.value().why = net::text_of(r.value.subspan(sizeof how));
        ++broken_count_;
        return;
      }
      [[fallthrough]];
    default: {
      std::string why;
      if (const auto s = rows_.apply(partition, r, why); s != status::ok) out.fail(s, std::move(why));
    }
  }
}

void partition_store::apply_put(std::string_view key, std::uint64_t hash, const record& r) {
  auto& e = keys_.store(hash, key, {static_cast<value_tag>(r.tag), r.value});
  table::set_version(e, r.a);
  keys_.raise_versions(r.a);
  if (!r.state.empty()) {
    auto& state = keys_.make_state(hash, key, r.state.size());
    std::memcpy(keys_.open_state(hash, state).data(), r.state.data(), r.state.size());
  }
  if (const auto at = staged_.find(key, hash); at != staged_.end()) {
    clear_error(at.value());
    if (at->second.waiting.empty()) forget_staged(key);
  }
}

void partition_store::apply_stage(std::uint16_t partition, std::string_view key, const record& r, key_outcome& out) {
  staged_front front;
  static_cast<void>(read(r.state, front));  // was checked before
  const value_view delta{static_cast<value_tag>(r.tag), r.value};
  const auto what = static_cast<verb>(front.what);
  const auto* f = plugins_.find(front.function);
  if (f == nullptr) {  // the default one is loaded when it is first used
    try {
      f = &plugins_.load_update({}, {});
    } catch (const plugin_error& e) {
      return out.fail(status::plugin_failed, e.what());
    }
    if (f->id != front.function) {
      return out.fail(status::unknown_function,
                      "a staged update by a function that is not registered at s" + std::to_string(settings_.slot));
    }
  }
  if (!keys_.has_room(static_cast<std::size_t>(staged_bytes(delta.bytes.size())))) throw memory_limit_reached();
  auto at = staged_.find(key);
  if (at == staged_.end()) {
    at = staged_.insert({std::string(key), {}}).first;
    ++staged_changes_;
  }
  auto& waiting = at.value().waiting;
  if (keys_.owns(partition)) list(at.value(), key, front.clock);
  at.value().changes_type = at->second.changes_type || may_change_type(what, *f);
  waiting.push_back(
      {front.clock, front.rank, front.arrival, what, front.flags, f, delta.tag, shared_buffer::copy_of(delta.bytes)});
  keys_.count_bytes(staged_bytes(delta.bytes.size()));
  ++staged_count_;
  arrivals_ = std::max(arrivals_, front.arrival + 1);
}

void partition_store::apply_applied(std::uint16_t partition, const record& r) {
  std::array<std::uint64_t, 2> of{};  // client, and its watermark
  std::memcpy(of.data(), r.state.data(), sizeof of);
  applied_.add_copy(of[0], of[1], r.a, partition, {r.flags, r.value});
}

void partition_store::clear_partition(std::uint16_t partition) {
  make_staged_index();
  std::vector<std::string> staged;
  auto at = std::lower_bound(staged_index_.begin(), staged_index_.end(), std::pair(partition, std::string_view()));
  for (; at != staged_index_.end() && at->first == partition; ++at) staged.emplace_back(at->second);
  for (const auto& key : staged) forget_staged(key);
  keys_.clear(partition);
  rows_.clear(partition);
}

void partition_store::drop_partitions(const std::bitset<partition_count>& which) {
  for (std::uint32_t p = settings_.index; p < partition_count; p += settings_.threads) {
    if (which[p]) clear_partition(static_cast<std::uint16_t>(p));
  }
  applied_.drop_if([&](std::uint16_t p) { return which[p]; });
}

}  // namespace paracel::srv
