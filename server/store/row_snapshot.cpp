// SPDX-License-Identifier: BSD-3-Clause
//
// Converts the rows of a partition to records, and back.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include <paracel/detail/bytes.hpp>

#include "core/check.hpp"
#include "server/store/row_service.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

template <class T>
std::span<const std::byte> bytes_of_number(const T& v) noexcept {
  return std::as_bytes(std::span(&v, 1));
}

/// The selected rows of a batch as a payload of their own.
shared_buffer chosen_rows(const net::rows_view& r, bool named, std::size_t row_bytes,
                          std::span<const std::uint32_t> chosen, std::span<const std::string_view> names) {
  std::size_t texts = 0;
  if (named) {
    for (const auto i : chosen) texts += names[i].size();
  }
  const auto front = named ? net::names_bytes(chosen.size(), texts) : chosen.size() * sizeof(std::uint64_t);
  auto out = shared_buffer::allocate(front + chosen.size() * row_bytes);
  auto* at = out.mutable_data();
  if (named) {
    std::memset(at, 0, front);
    auto* text = at + chosen.size() * sizeof(std::uint32_t);
    for (const auto i : chosen) {
      const auto length = static_cast<std::uint32_t>(names[i].size());
      store_fields(at, length);
      at += sizeof length;
      if (length != 0) std::memcpy(text, names[i].data(), length);
      text += length;
    }
  } else {
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      std::memcpy(at + k * sizeof(std::uint64_t), r.ids + chosen[k] * sizeof(std::uint64_t), sizeof(std::uint64_t));
    }
  }
  at = out.mutable_data() + front;
  for (std::size_t k = 0; k < chosen.size() && row_bytes != 0; ++k) {
    std::memcpy(at + k * row_bytes, r.values.data() + chosen[k] * row_bytes, row_bytes);
  }
  return out;
}

}  // namespace

void row_service::clear(std::uint16_t partition) {
  const auto place = place_of_[partition];
  split_staged();
  for (auto& [id, t] : tables_) {
    t->by_id.clear(place);
    if (t->by_name != nullptr) t->by_name->clear(place);
    forget_staged(*t, partition, net::no_clock);
    t->broken.erase(partition);
  }
}

void row_service::split_staged() {
  for (auto& [id, t] : tables_) split_staged(*t);
}

void row_service::split_staged(typed_table& t) {
  const auto whole = t.staged.find(net::any_partition);
  if (whole == t.staged.end()) return;
  const auto row_bytes = t.layout().value_bytes();
  staged_batches parts;
  for (const auto& b : whole->second) {
    net::rows_view r;
    (void)net::decode(b.payload.bytes(), b.count, b.named, row_bytes, r);  // was checked on arrival
    std::vector<std::string_view> names;
    std::map<std::uint16_t, std::vector<std::uint32_t>> rows_of_partition;
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < r.count; ++i) {
      std::uint64_t hash = 0;
      if (b.named) {
        names.push_back(r.texts.substr(at, r.length(i)));
        at += names.back().size();
        hash = net::hash_row(names.back());
      } else {
        hash = net::hash_row(r.id(i));
      }
      rows_of_partition[partition_of(hash)].push_back(i);
    }
    for (const auto& [partition, chosen] : rows_of_partition) {
      auto payload = chosen_rows(r, b.named, row_bytes, chosen, names);
      auto held = counted(payload);
      parts[partition].push_back({b.clock, b.rank, b.arrival, static_cast<std::uint32_t>(chosen.size()), b.named,
                                  std::move(payload), std::move(held)});
    }
  }
  for (const auto& [partition, more] : parts) make_room(t.staged[partition], more.size());
  // Nothing fails from here on.
  PARACEL_CHECK(whole->second.size() <= staged_count_);
  staged_count_ -= whole->second.size();
  t.staged.erase(net::any_partition);
  for (auto& [partition, more] : parts) {
    staged_count_ += more.size();
    std::ranges::move(more, std::back_inserter(t.staged[partition]));
  }
}

/// Drops a partition's batches of clocks before this one; all of them for no_clock.
void row_service::forget_staged(typed_table& t, std::uint16_t partition, std::uint32_t before) {
  const auto at = t.staged.find(partition);
  if (at == t.staged.end()) return;
  staged_count_ -=
      std::erase_if(at->second, [&](const auto& b) { return before == net::no_clock || b.clock < before; });
  if (at->second.empty()) t.staged.erase(at);
}

// ---- rows as records ------------------------------------------------------------------------------------------------

void row_service::encode_rows(std::uint32_t id, typed_table& t, bool named, std::uint16_t partition,
                              std::vector<std::byte>& out) {
  const auto& rows = rows_of(t, named);
  std::vector<const std::byte*> found;
  rows.for_each(place_of_[partition], [&](const std::byte* row) { found.push_back(row); });
  std::sort(found.begin(), found.end(), [&](const auto* a, const auto* b) {
    return named ? row_table::name_of(a) < row_table::name_of(b) : row_table::id_of(a) < row_table::id_of(b);
  });
  for (const auto* row : found) append_row(out, id, rows, row);
}

void row_service::append_row(std::vector<std::byte>& out, std::uint32_t id, const row_table& rows,
                             const std::byte* row) {
  record r;
  r.kind = record_kind::row;
  r.a = id;
  r.flags = rows.named() ? record_named : std::uint16_t{0};
  r.key = rows.named() ? net::bytes_of(row_table::name_of(row)) : std::span(row, sizeof(std::uint64_t));
  r.value = {row + row_layout::value_at, rows.layout().row_bytes() - row_layout::value_at};
  append(out, r);
}

void row_service::encode(std::uint16_t partition, std::vector<std::byte>& out) {
  const auto place = place_of_[partition];
  for (auto& [id, t] : tables_) {
    split_staged(*t);
    auto staged = t->staged.find(partition);
    if (staged != t->staged.end() && staged->second.empty()) staged = t->staged.end();
    const auto broken = t->broken.find(partition);
    const bool has_rows = t->by_id.size(place) != 0 || (t->by_name != nullptr && t->by_name->size(place) != 0);
    if (!has_rows && staged == t->staged.end() && broken == t->broken.end()) continue;
    append(out, {.kind = record_kind::table, .a = id, .key = net::bytes_of(t->name), .value = t->definition});
    encode_rows(id, *t, false, partition, out);
    if (t->by_name != nullptr) encode_rows(id, *t, true, partition, out);
    if (staged != t->staged.end()) {
      auto& batches = staged->second;
      std::sort(batches.begin(), batches.end(), [](const auto& a, const auto& b) {
        return std::tie(a.clock, a.rank, a.arrival) < std::tie(b.clock, b.rank, b.arrival);
      });
      for (const auto& b : batches) append_staged(out, id, b);
    }
    if (broken != t->broken.end()) append_broken(out, id, broken->second);
  }
}

void row_service::append_staged(std::vector<std::byte>& out, std::uint32_t id, const staged_batch& b) {
  staged_front front;
  front.clock = b.clock;
  front.rank = b.rank;
  front.arrival = b.arrival;
  front.what = static_cast<std::uint8_t>(verb::rows_update);
  front.count = b.count;
  append(out,
         {.kind = record_kind::row_stage,
          .flags = b.named ? record_named : std::uint16_t{0},
          .a = id,
          .value = b.payload.bytes()},
         front);
}

void row_service::append_broken(std::vector<std::byte>& out, std::uint32_t id, const refusal& why) {
  std::vector<std::byte> value(sizeof why.why);
  store_fields(value.data(), why.why);
  const auto text = net::bytes_of(why.text);
  value.insert(value.end(), text.begin(), text.end());
  append(out, {.kind = record_kind::broken, .flags = record_of_table, .a = id, .value = value});
}

// ---- what has changed -----------------------------------------------------------------------------------------------

void row_service::encode_changes(std::uint16_t partition, std::span<const change_log::row_change> rows,
                                 std::span<const change_log::batch_change> batches, std::vector<std::byte>& out) {
  const auto place = place_of_[partition];
  for (const auto& b : batches) {
    const auto& t = *tables_.at(b.table);
    if (b.folded != 0) {
      append(out, {.kind = record_kind::row_folded, .a = b.table, .value = bytes_of_number(b.folded)});
      if (const auto broken = t.broken.find(partition); broken != t.broken.end()) {
        append_broken(out, b.table, broken->second);
      }
      continue;
    }
    const auto staged = t.staged.find(partition);
    if (staged == t.staged.end()) continue;
    for (const auto& s : staged->second) {
      if (s.arrival == b.arrival) append_staged(out, b.table, s);
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& c = rows[i];
    const auto name = changes_.text(c.at, c.bytes);
    // They are in the order of their hashes: duplicates are adjacent.
    if (i + 1 < rows.size() && rows[i + 1].hash == c.hash && rows[i + 1].table == c.table &&
        rows[i + 1].named == c.named && rows[i + 1].id == c.id &&
        changes_.text(rows[i + 1].at, rows[i + 1].bytes) == name) {
      continue;
    }
    auto& of = rows_of(*tables_.at(c.table), c.named);
    const auto* row = c.named ? of.find(place, c.hash, name) : of.find(place, c.hash, c.id);
    if (row != nullptr) {
      append_row(out, c.table, of, row);
    } else {
      append(out, {.kind = record_kind::row_erase,
                   .flags = c.named ? record_named : std::uint16_t{0},
                   .a = c.table,
                   .key = c.named ? net::bytes_of(name) : bytes_of_number(c.id)});
    }
  }
}

void row_service::record_rows(typed_table& t, bool named) {
  const auto id = net::table_id(t.name);
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    if (named) changes_.row(id, hashes_[i], names_[i]);
    else changes_.row(id, hashes_[i], ids_[i]);
  }
}

void row_service::touch_partitions() {
  if (!changes_.watches()) return;
  for (const auto h : hashes_) changes_.touch(partition_of(h));
}

/// Called before any of the current rows changes: the answers of their partitions will be remembered.
void row_service::expect_answers(const net::request_header& h) {
  in_hand_.clear();
  if (!changes_state(h.what)) return;
  in_hand_.reserve(hashes_.size());
  for (const auto hash : hashes_) in_hand_.push_back({partition_of(hash), 0});
  std::ranges::sort(in_hand_, {}, &partition_in_hand::partition);
  // Not std::ranges::unique, whose subrange clang 14 does not support.
  const auto same = [](const auto& a, const auto& b) { return a.partition == b.partition; };
  in_hand_.erase(std::unique(in_hand_.begin(), in_hand_.end(), same), in_hand_.end());
  for (const auto& x : in_hand_) changes_.expect(x.partition);
  changes_.hold_places();
}

/// The answer for these partitions if the request is retried: whether it failed, and how many rows were removed.
void row_service::note_answers(const problem& p) {
  for (const auto& x : in_hand_) {
    if (p) changes_.answered(x.partition, p->why, 0, {value_tag::packed, net::bytes_of(p->text)});
    else changes_.answered(x.partition, status::ok, x.removed, {});
  }
}

/// For a retried request: keeps only the rows of partitions where it was not applied, in `rest` if that is not all.
row_service::problem row_service::leave_out_applied(const net::request_header& h, typed_table& t, net::rows_view& r,
                                                    shared_buffer& rest, std::uint32_t& removed) {
  const bool named = (h.flags & net::flag_named) != 0;
  std::map<std::uint16_t, bool> applied;
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t i = 0; i < r.count; ++i) {
    const auto partition = partition_of(hashes_[i]);
    const auto [at, first] = applied.try_emplace(partition, false);
    if (first) {
      change_log::earlier before;
      const auto how = changes_.next_answer(partition, before);
      if (how == dedup_window::verdict::expired) {
        return refusal{status::expired, std::string(change_log::too_late)};
      }
      at->second = how == dedup_window::verdict::applied;
      if (at->second && before.item.result != status::ok) {
        return refusal{before.item.result, std::string(net::text_of(before.item.value.bytes))};
      }
      if (at->second) removed += static_cast<std::uint32_t>(before.item.version);
    }
    if (!at->second) chosen.push_back(i);
  }
  if (chosen.size() == r.count) return {};
  const auto row_bytes = r.values.empty() ? 0 : t.layout().value_bytes();
  rest = chosen_rows(r, named, row_bytes, chosen, names_);
  // The current names point into the received payload.
  if (const auto* wrong = net::decode(rest.bytes(), static_cast<std::uint32_t>(chosen.size()), named, row_bytes, r)) {
    return refusal{status::internal, wrong};
  }
  return locate(r, named);
}

row_service::problem row_service::no_memory(const typed_table& t) const noexcept {
  return refusal{status::out_of_memory, told_by([&] {
                   return "table \"" + t.name + "\": there was no memory for it; " + std::to_string(failed_row_) +
                          " of the batch were handled";
                 })};
}

std::uint64_t row_service::owned_rows(const row_table& rows) const {
  if (!keys_.keeps_replicas()) return rows.size();
  std::uint64_t n = 0;
  const auto& s = keys_.settings();
  for (std::uint32_t p = s.index; p < partition_count; p += s.threads) {
    if (keys_.owns(static_cast<std::uint16_t>(p))) n += rows.size(p / s.threads);
  }
  return n;
}

// ---- records as rows ------------------------------------------------------------------------------------------------

/// What is wrong with a row's record by itself and, if its table is open, in that table; null: nothing.
const char* row_service::wrong_in_row(std::uint16_t partition, const typed_table* t, const record& r) {
  const bool named = (r.flags & record_named) != 0;
  std::uint64_t id = 0;
  if (named ? r.key.size() > net::max_key_bytes : r.key.size() != sizeof id)
    return "the name of a row has a wrong length";
  if (!named) load_fields(r.key.data(), id);
  if (partition_of(named ? net::hash_row(net::text_of(r.key)) : net::hash_row(id)) != partition)
    return "a row of another partition";
  const bool fits = t == nullptr || r.kind == record_kind::row_erase ||
                    r.value.size() == t->layout().row_bytes() - row_layout::value_at;
  return fits ? nullptr : "a row has another size than those of its table";
}

std::string row_service::wrong_in_staged(std::uint16_t partition, const typed_table& t, const record& r) {
  staged_front front;
  const bool named = (r.flags & record_named) != 0;
  net::rows_view rows;
  if (!read(r.state, front) || front.clock == net::no_clock ||
      front.what != static_cast<std::uint8_t>(verb::rows_update) ||
      net::decode(r.value, front.count, named, t.layout().value_bytes(), rows) != nullptr) {
    return "a staged batch of table \"" + t.name + "\" is malformed";
  }
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < rows.count; ++i) {
    std::uint64_t hash = 0;
    if (named) {
      const auto length = rows.length(i);
      hash = net::hash_row(rows.texts.substr(at, length));
      at += length;
    } else {
      hash = net::hash_row(rows.id(i));
    }
    if (partition_of(hash) != partition) return "a staged row of another partition";
  }
  return {};
}

status row_service::check(std::uint16_t partition, const record& r, std::string& why) const {
  std::string wrong;
  const auto found = r.a <= 0xffffffffU ? tables_.find(static_cast<std::uint32_t>(r.a)) : tables_.end();
  const auto* t = found != tables_.end() ? found->second.get() : nullptr;
  switch (r.kind) {
    case record_kind::table:
      if (r.a != net::table_id(net::text_of(r.key))) wrong = "the id of a table is not that of its name";
      break;
    case record_kind::row:
    case record_kind::row_erase:
      if (const char* bad = wrong_in_row(partition, t, r)) wrong = bad;
      if (!wrong.empty() && t == nullptr) wrong += ", and its table is not open";
      break;
    case record_kind::row_stage:
      if (t != nullptr) wrong = wrong_in_staged(partition, *t, r);
      break;
    case record_kind::row_folded:
      if (r.value.size() != sizeof(std::uint32_t)) wrong = "a clock has 4 bytes";
      break;
    case record_kind::broken: {
      status how = status::ok;
      if (r.value.size() < sizeof how || !r.key.empty()) wrong = "a failure of a table is a status and a text";
      else load_fields(r.value.data(), how);
      if (wrong.empty() && (how == status::ok || how > status::expired))
        wrong = "a failure of a table has an unknown status";
      break;
    }
    default:
      wrong = "not a record of a table";
  }
  if (wrong.empty()) return status::ok;
  why = std::move(wrong);
  return status::bad_request;
}

status row_service::apply(std::uint16_t partition, const record& r, std::string& why) {
  if (const auto wrong = check(partition, r, why); wrong != status::ok) return wrong;
  problem p;
  if (r.kind == record_kind::table) {
    reply unused;
    p = open(net::text_of(r.key), r.value, 0, unused);
  } else if (const auto found = tables_.find(static_cast<std::uint32_t>(r.a)); found == tables_.end()) {
    p = refusal{status::bad_request, "rows of a table that is not open"};
  } else {
    auto& t = *found->second;
    if (r.kind == record_kind::row || r.kind == record_kind::row_erase) {
      p = apply_row(partition, t, r);
    } else if (r.kind == record_kind::row_stage) {
      apply_staged(partition, t, r);
    } else if (r.kind == record_kind::row_folded) {
      std::uint32_t clock = 0;
      load_fields(r.value.data(), clock);
      split_staged(t);
      forget_staged(t, partition, clock);
    } else {
      refusal how;
      load_fields(r.value.data(), how.why);
      how.text = net::text_of(r.value.subspan(sizeof how.why));
      if (t.broken.empty()) t.first_broken = partition;
      t.broken.insert_or_assign(partition, std::move(how));
    }
  }
  if (!p) return status::ok;
  why = std::move(p->text);
  return p->why;
}

row_service::problem row_service::apply_row(std::uint16_t partition, typed_table& t, const record& r) {
  const bool named = (r.flags & record_named) != 0;
  const auto name = net::text_of(r.key);
  std::uint64_t id = 0;
  if (!named) load_fields(r.key.data(), id);
  const auto hash = named ? net::hash_row(name) : net::hash_row(id);
  const auto place = place_of_[partition];
  auto& rows = rows_of(t, named);
  if (r.kind == record_kind::row_erase) {
    if (named) rows.erase(place, hash, name);
    else rows.erase(place, hash, id);
    return {};
  }
  auto* row = named ? rows.find(place, hash, name) : rows.find(place, hash, id);
  if (row == nullptr) {
    if (!keys_.has_room(t.layout().stride())) return refusal{status::out_of_memory, memory_limit_reached().what()};
    row = named ? rows.make(place, hash, name) : rows.make(place, hash, id);
  }
  std::memcpy(row + row_layout::value_at, r.value.data(), r.value.size());
  return {};
}

void row_service::apply_staged(std::uint16_t partition, typed_table& t, const record& r) {
  staged_front front;
  static_cast<void>(read(r.state, front));  // was checked
  split_staged(t);
  auto payload = shared_buffer::copy_of(r.value);
  auto held = counted(payload);
  t.staged[partition].push_back({front.clock, front.rank, front.arrival, front.count, (r.flags & record_named) != 0,
                                 std::move(payload), std::move(held)});
  ++staged_count_;
  folded_to_ = std::min(folded_to_, front.clock);
  arrivals_ = std::max(arrivals_, front.arrival + 1);
}

}  // namespace paracel::srv
