// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/row_service.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include <paracel/error.hpp>

#include "server/plugin/last_words.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

// Rows whose slots, and then the rows themselves, are prefetched before the first is handled: as for keys, more than a
// core keeps in flight, and few enough for the first-level cache.
constexpr std::size_t rows_at_once = 32;
constexpr std::size_t line_bytes = 64;
// Beyond this the hardware prefetcher takes over.
constexpr std::size_t prefetched_bytes = 512;
constexpr std::uint16_t not_here = 0xffff;
// Rows that a scan visits in one request: 16,000 rows of 16 floats take 0.2 ms.
constexpr std::size_t scan_chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t kept_body_bytes = std::size_t{1} << 20;
constexpr std::size_t largest_row_bytes = std::size_t{64} << 20;
// Each has an index for every partition of the shard, and is checked after every request.
constexpr std::size_t most_tables = 1024;
// Approximate overhead of a waiting batch besides its payload.
constexpr std::size_t staged_batch_bytes = 128;

void prefetch_row(const std::byte* row, std::size_t bytes) noexcept {
  const auto n = std::min(bytes, prefetched_bytes);
  for (std::size_t at = 0; at < n; at += line_bytes) __builtin_prefetch(row + at, 1);
  __builtin_prefetch(row + n - 1, 1);
}

template <class F>
void with_element(value_tag t, const F& f) {
  switch (t) {
    case value_tag::i32:
      return f(std::int32_t{});
    case value_tag::i64:
      return f(std::int64_t{});
    case value_tag::f32:
      return f(float{});
    default:
      return f(double{});
  }
}

/// Numbers of a payload may lie at any address.
template <class T>
void add(std::byte* row, const std::byte* delta, std::size_t width) noexcept {
  auto* __restrict v = reinterpret_cast<T*>(row);
  for (std::size_t j = 0; j < width; ++j) {
    T d;
    std::memcpy(&d, delta + j * sizeof(T), sizeof d);
    if constexpr (std::is_integral_v<T>) {
      using bits = std::make_unsigned_t<T>;
      v[j] = static_cast<T>(static_cast<bits>(v[j]) + static_cast<bits>(d));
    } else {
      v[j] += d;
    }
  }
}

std::string described(const row_init& i) {
  const auto number = [](double d) { return std::to_string(d); };
  switch (i.what()) {
    case row_init::kind::zeros:
      return "zeros";
    case row_init::kind::constant:
      return "constant " + number(i.a());
    case row_init::kind::uniform:
      return "uniform in [" + number(i.a()) + ", " + number(i.b()) + "), seed " + std::to_string(i.seed());
    case row_init::kind::normal:
      return "normal with mean " + number(i.a()) + ", deviation " + number(i.b()) + ", seed " +
             std::to_string(i.seed());
  }
  return "unknown";
}

std::string shown_row(std::uint64_t id) { return "row " + std::to_string(id); }
std::string shown_row(std::string_view name) {
  std::string text = "row \"";
  for (const char c : name.substr(0, 120)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + "\"";
}

}  // namespace

row_service::typed_table::typed_table(std::string of, const net::table_definition& d, const loaded_update* f,
                                      std::uint32_t partitions)
    : name(std::move(of)),
      init(d.init),
      function(f),
      by_id({d.element, d.width, f != nullptr && f->optimizer != nullptr ? f->optimizer->states : 0,
             f != nullptr && f->counts_steps()},
            partitions, false) {}

row_service::row_service(const key_store& keys, plugin_registry& plugins, change_log& log)
    : keys_(keys),
      plugins_(plugins),
      changes_(log),
      place_of_(partition_count, not_here),
      partitions_((partition_count + keys.settings().threads - 1) / keys.settings().threads),
      staged_bytes_(keys.settings().max_memory_bytes) {
  const auto& s = keys.settings();
  for (std::uint32_t p = s.index; p < partition_count; p += s.threads)
    place_of_[p] = static_cast<std::uint16_t>(p / s.threads);
}

const std::string& row_service::doing(const net::request_header& header) const noexcept {
  static const std::string opening = "the loader of a plug-in";
  static const std::string adding = "rows of a table";
  if (header.what == verb::table_open) return opening;
  const auto t = tables_.find(header.table);
  return t == tables_.end() || t->second->function == nullptr ? adding : t->second->function->name;
}

std::size_t row_service::memory_bytes() const noexcept {
  std::size_t n = staged_bytes_.held();
  for (const auto& [id, t] : tables_)
    n += t->by_id.memory_bytes() + (t->by_name != nullptr ? t->by_name->memory_bytes() : 0);
  return n;
}

std::uint64_t row_service::rows() const noexcept {
  std::uint64_t n = 0;
  for (const auto& [id, t] : tables_) n += t->by_id.size() + (t->by_name != nullptr ? t->by_name->size() : 0);
  return n;
}

void row_service::clear() noexcept {
  for (auto& [id, t] : tables_) {
    t->by_id.clear();
    t->by_name.reset();
    t->staged.clear();
    t->broken.clear();
  }
  staged_count_ = 0;
}

row_service::served row_service::handle(const net::request_view& request, shared_buffer tail, completion& done,
                                        std::uint32_t& folded_clock) {
  reply out;
  problem p;
  if (tail && !request.payload().empty()) {
    p = refusal{status::bad_request, "rows in the body and others in a second frame"};
  } else if (request.header.what == verb::table_open) {
    p = open(request.key(), request.payload(), out);
  } else {
    p = on_rows(request, std::move(tail), out, folded_clock);
  }
  if (p) {
    done.fail(p->why, p->text);
    return {net::reply_header_bytes + p->text.size(), true};
  }
  const auto body = out.body != nullptr ? std::span<const std::byte>(*out.body) : std::span<const std::byte>();
  const auto bytes = net::reply_header_bytes + body.size() + out.tail.size();
  done.answer(out.header, body, std::move(out.tail));
  if (body_.capacity() > kept_body_bytes) body_ = {};
  return {bytes, false};
}

// ---- tables -----------------------------------------------------------------------------------------------------

row_service::problem row_service::open(std::string_view name, std::span<const std::byte> definition, reply& out) {
  if (name.empty()) return refusal{status::bad_request, "a table has a name"};
  net::table_definition d;
  if (const auto* wrong = net::decode(definition, d)) return refusal{status::bad_request, wrong};
  const loaded_update* f = nullptr;
  if (!d.plugin.empty() || !d.symbol.empty()) {
    try {
      f = &plugins_.load_update(d.plugin, d.symbol);
    } catch (const plugin_error& e) {
      return refusal{status::plugin_failed, e.what()};
    }
    const auto wanted = static_cast<value_tag>(f->function->value_tag);
    const bool fits = f->optimizer != nullptr
                          ? steps(*f, d.element)
                          : f->function->in_place != nullptr && (wanted == value_tag::none || wanted == d.element);
    if (!fits) {  // no value has another type: this plug-in cannot serve such a table
      return refusal{status::plugin_failed,
                     f->name + (f->optimizer == nullptr && f->function->in_place == nullptr
                                    ? " cannot work in place, as it must on rows"
                                    : std::string(" does not take rows of ") + name_of(d.element))};
    }
  }
  const auto id = net::table_id(name);
  if (tables_.size() >= most_tables && !tables_.contains(id)) {
    return refusal{status::out_of_memory, std::to_string(most_tables) + " tables are open already"};
  }
  auto& slot = tables_[id];
  if (slot != nullptr) {
    const auto& t = *slot;
    const auto differs = [&](const std::string& what, const std::string& there, const std::string& asked) {
      return refusal{status::bad_request, "table \"" + t.name + "\" is open already with " + what + " " + there +
                                              "; it was asked for with " + asked};
    };
    const auto function = [](const loaded_update* u) { return u == nullptr ? std::string("add") : u->name; };
    if (t.name != name) {
      return refusal{status::bad_request, "the names of tables \"" + t.name + "\" and \"" + std::string(name) +
                                              "\" have the same hash: call one of them otherwise"};
    }
    if (t.layout().element != d.element) return differs("elements", name_of(t.layout().element), name_of(d.element));
    if (t.layout().width != d.width) return differs("width", std::to_string(t.layout().width), std::to_string(d.width));
    if (!(t.init == d.init)) return differs("initialiser", described(t.init), described(d.init));
    if (t.function != f) {
      const bool same_name = function(t.function) == function(f);
      return differs("optimizer", function(t.function), same_name ? "other hyper-parameters" : function(f));
    }
  } else {
    try {
      slot = std::make_unique<typed_table>(std::string(name), d, f, partitions_);
      slot->definition.assign(definition.begin(), definition.end());
    } catch (...) {
      tables_.erase(id);
      throw;
    }
    if (slot->layout().stride() > largest_row_bytes) {
      const auto bytes = slot->layout().stride();
      tables_.erase(id);
      return refusal{status::too_large, "a row with its state has " + std::to_string(bytes) + " bytes; at most " +
                                            std::to_string(largest_row_bytes) + " are taken"};
    }
    if (!keys_.has_room(slot->by_id.memory_bytes())) {
      tables_.erase(id);
      return refusal{status::out_of_memory, memory_limit_reached().what()};
    }
  }
  const std::array<std::uint64_t, 2> sizes{owned_rows(slot->by_id),
                                           slot->by_name != nullptr ? owned_rows(*slot->by_name) : 0};
  const auto bytes = std::as_bytes(std::span(sizes));
  body_.assign(bytes.begin(), bytes.end());
  out.body = &body_;
  return {};
}

row_table& row_service::rows_of(typed_table& t, bool named) {
  if (!named) return t.by_id;
  if (t.by_name == nullptr) t.by_name = std::make_unique<row_table>(t.layout(), partitions_, true);
  return *t.by_name;
}

// ---- rows --------------------------------------------------------------------------------------------------------

row_service::problem row_service::on_rows(const net::request_view& request, shared_buffer&& tail, reply& out,
                                          std::uint32_t& folded_clock) {
  const auto& h = request.header;
  const auto found = tables_.find(h.table);
  if (found == tables_.end()) {
    return refusal{status::bad_request,
                   "no table with this id is open at s" + std::to_string(keys_.settings().slot) + ": open it first"};
  }
  auto& t = *found->second;
  if (h.what != verb::rows_scan && h.tag != t.layout().element) {
    return refusal{status::type_mismatch, "table \"" + t.name + "\" has elements " + name_of(t.layout().element) +
                                              ", the request has " + name_of(h.tag)};
  }
  if ((h.flags & net::flag_bsp_read) != 0 && h.clock != net::no_clock) {
    folded_clock = std::max(folded_clock, h.clock);
    fold_before(h.clock, t, [] { return false; });
    if (!t.broken.empty()) return t.failure();
  }
  if (h.what == verb::rows_scan) return scan(t, request, out);

  const bool named = (h.flags & net::flag_named) != 0;
  const bool has_values = h.what == verb::rows_push || h.what == verb::rows_update;
  net::rows_view r;
  if (const auto* wrong = net::decode(tail ? tail.bytes() : request.payload(), h.count, named,
                                      has_values ? t.layout().value_bytes() : 0, r)) {
    return refusal{status::bad_request, std::string("table \"") + t.name + "\": " + wrong};
  }
  if (auto p = locate(r, named)) return p;
  auto& rows = rows_of(t, named);
  const bool staged = h.what == verb::rows_update && (h.flags & net::flag_staged) != 0 && h.clock != net::no_clock;
  if (!changes_.recording()) [[likely]]
    return change(t, rows, request, r, staged, std::move(tail), out, folded_clock);

  touch_partitions();
  std::uint32_t removed_before = 0;
  shared_buffer rest;
  if (changes_.retried()) {
    if (auto p = leave_out_applied(h, t, r, rest, removed_before)) return p;
  }
  net::request_view what = request;
  if (rest) {
    what.header.count = r.count;
    what.header.key_bytes = 0;
    what.body = rest.bytes();
    tail = {};
  }
  expect_answers(h);
  if (!staged && h.what != verb::rows_pull) record_rows(t, named);  // a pull notes those that it creates
  const auto p = change(t, rows, what, r, staged, std::move(tail), out, folded_clock);
  note_answers(p);
  out.header.count = h.what == verb::rows_remove ? out.header.count + removed_before : h.count;
  return p;
}

/// A request on rows that have been located. Changes have been noted, unless this is a pull or to be staged.
row_service::problem row_service::change(typed_table& t, row_table& rows, const net::request_view& request,
                                         const net::rows_view& r, bool staged, shared_buffer&& tail, reply& out,
                                         std::uint32_t folded_clock) try {
  const auto& h = request.header;
  failed_row_ = 0;
  const auto staged_bytes =
      staged ? r.values.size() + r.texts.size() + r.count * sizeof(std::uint64_t) + staged_batch_bytes : 0;
  if (h.what != verb::rows_remove && !has_room(t, rows, staged_bytes)) {
    return refusal{status::out_of_memory, memory_limit_reached().what()};
  }
  out.header.count = h.count;
  switch (h.what) {
    case verb::rows_pull:
      return pull(t, rows, r, h.credit, out);
    case verb::rows_push:
      push(t, rows, r);
      return {};
    case verb::rows_remove:
      remove(rows, r, out);
      return {};
    default:
      if (staged) return stage(t, request, std::move(tail), folded_clock);
      return update(t, rows, r);
  }
} catch (const std::bad_alloc&) {
  return no_memory(t);
}

/// Whether the located rows may be created, where they are missing.
/// `staged_bytes`: of the batch, if it is to wait for the clock.
bool row_service::has_room(typed_table& t, const row_table& rows, std::size_t staged_bytes) const {
  constexpr std::size_t index_bytes = 16;  // of a row, as much as it takes at most
  const auto row_bytes = t.layout().stride() + index_bytes;
  if (keys_.has_room(hashes_.size() * row_bytes + staged_bytes)) return true;
  if (staged_bytes != 0) return false;
  std::size_t missing = 0;
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    const auto place = place_of_[partition_of(hashes_[i])];
    const auto* row = rows.named() ? rows.find(place, hashes_[i], names_[i]) : rows.find(place, hashes_[i], ids_[i]);
    if (row == nullptr) ++missing;
  }
  return missing == 0 || keys_.has_room(missing * row_bytes);
}

/// Hashes of all rows of a request. Nothing is handled if one of them belongs to another shard.
row_service::problem row_service::locate(const net::rows_view& r, bool named) {
  hashes_.resize(r.count);
  if (named) {
    names_.resize(r.count);
    std::size_t at = 0;
    for (std::size_t i = 0; i < r.count; ++i) {
      names_[i] = r.texts.substr(at, r.length(i));
      at += names_[i].size();
      hashes_[i] = net::hash_row(names_[i]);
    }
  } else {
    ids_.resize(r.count);
    for (std::size_t i = 0; i < r.count; ++i) {
      ids_[i] = r.id(i);
      hashes_[i] = net::hash_row(ids_[i]);
    }
  }
  const auto* owned = keys_.owned();
  for (const auto hash : hashes_) {
    const auto partition = partition_of(hash);
    if (place_of_[partition] == not_here || (owned != nullptr && !owned->mine[partition]))
      return refusal{status::wrong_owner, keys_.not_mine(partition)};
  }
  return {};
}

/// Calls `work(i, row)` for each row that `locate` has found, in order; missing ones are created; then they are noted
/// before if `note_made` says so. `bytes` of a row are prefetched. Stops with false when `work` returns false.
template <class Key, class Work>
bool row_service::each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work, bool note_made) {
  const auto key = [&](std::size_t i) -> Key {
    if constexpr (std::is_same_v<Key, std::uint64_t>) return ids_[i];
    else return names_[i];
  };
  const auto made = [&](std::size_t i, std::uint32_t place) {
    failed_row_ = i;  // if there is no memory for it
    if (note_made) changes_.row(net::table_id(t.name), hashes_[i], key(i));
    auto* row = rows.make(place, hashes_[i], key(i));
    with_element(t.layout().element, [&](auto zero) {
      using element = decltype(zero);
      std::uint64_t id = 0;
      if constexpr (std::is_same_v<Key, std::uint64_t>) id = ids_[i];
      else id = hashes_[i];
      t.init.fill(id, std::span(reinterpret_cast<element*>(row + row_layout::value_at), t.layout().width));
    });
    return row;
  };
  std::array<std::byte*, rows_at_once> guess;
  std::array<std::uint32_t, rows_at_once> place;
  const auto count = hashes_.size();
  for (std::size_t first = 0; first < count; first += rows_at_once) {
    const auto n = std::min(rows_at_once, count - first);
    for (std::size_t k = 0; k < n; ++k) {
      place[k] = place_of_[partition_of(hashes_[first + k])];
      rows.prefetch_slot(place[k], hashes_[first + k]);
    }
    for (std::size_t k = 0; k < n; ++k) {
      guess[k] = rows.guess(place[k], hashes_[first + k]);
      if (guess[k] != nullptr) prefetch_row(guess[k], bytes);
    }
    for (std::size_t k = 0; k < n; ++k) {
      const auto i = first + k;
      auto* row = guess[k];
      if (row == nullptr || !row_table::is(row, key(i))) {
        row = rows.find(place[k], hashes_[i], key(i));
        if (row == nullptr) row = made(i, place[k]);
      }
      if (!work(i, row)) return false;
    }
  }
  return true;
}

template <class Work>
bool row_service::each_row(typed_table& t, row_table& rows, std::size_t bytes, const Work& work, bool note_made) {
  return rows.named() ? each_row<std::string_view>(t, rows, bytes, work, note_made)
                      : each_row<std::uint64_t>(t, rows, bytes, work, note_made);
}

row_service::problem row_service::pull(typed_table& t, row_table& rows, const net::rows_view& r, std::uint32_t credit,
                                       reply& out) {
  const auto row_bytes = t.layout().value_bytes();
  const auto bytes = r.count * row_bytes;
  const auto most = keys_.settings().max_message_bytes - net::reply_header_bytes;
  if (bytes > most || (credit != 0 && bytes > credit)) {
    return refusal{status::too_large, std::to_string(r.count) + " rows of " + std::to_string(row_bytes) +
                                          " bytes are more than one reply may hold"};
  }
  std::byte* to = nullptr;
  if (bytes > net::tail_threshold_bytes) {
    out.tail = shared_buffer::allocate(bytes);
    to = out.tail.mutable_data();
  } else {
    body_.resize(bytes);
    out.body = &body_;
    to = body_.data();
  }
  out.header.tag = static_cast<value_tag>(static_cast<unsigned>(t.layout().element) | 0x10U);
  const auto copy = [&](std::size_t i, const std::byte* row) {
    std::memcpy(to + i * row_bytes, row + row_layout::value_at, row_bytes);
    return true;
  };
  each_row(t, rows, row_layout::value_at + row_bytes, copy, true);
  return {};
}

void row_service::push(typed_table& t, row_table& rows, const net::rows_view& r) {
  const auto& l = t.layout();
  const auto row_bytes = l.value_bytes();
  each_row(t, rows, l.row_bytes(), [&](std::size_t i, std::byte* row) {
    std::memcpy(row + row_layout::value_at, r.values.data() + i * row_bytes, row_bytes);
    std::memset(row + l.state_at(), 0, l.row_bytes() - l.state_at());
    return true;
  });
}

row_service::problem row_service::update(typed_table& t, row_table& rows, const net::rows_view& r) {
  const auto& l = t.layout();
  const auto row_bytes = l.value_bytes();
  const std::byte* delta = r.values.data();
  if (t.function == nullptr) {
    with_element(l.element, [&](auto zero) {
      using element = decltype(zero);
      const std::size_t width = l.width;
      each_row(t, rows, l.row_bytes(), [&](std::size_t i, std::byte* row) {
        add<element>(row + row_layout::value_at, delta + i * row_bytes, width);
        return true;
      });
    });
    return {};
  }

  const auto& f = *t.function;
  failed_row_ = 0;
  if (const auto* why = f.refused.why())
    return refusal{status::plugin_failed, "table \"" + t.name + "\": " + f.name + ": " + *why};
  std::array<char, 1024> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  const bool aligned = reinterpret_cast<std::uintptr_t>(delta) % element_bytes(l.element) == 0;
  gradient_.resize(aligned ? 0 : (row_bytes + sizeof(double) - 1) / sizeof(double));
  const bool may_fail = f.optimizer != nullptr ? (f.optimizer->flags & abi::step_no_throw) == 0
                                               : (f.function->flags & abi::no_throw) == 0;
  before_.resize(may_fail ? l.row_bytes() : 0);
  std::int32_t ended = abi::ok;
  std::size_t failed = 0;
  const in_user_call mark({&f.name, f.id, t.name});
  const bool all = each_row(t, rows, l.row_bytes(), [&](std::size_t i, std::byte* row) {
    if (rows.named()) current_call.key = names_[i];
    else current_call.row = ids_[i];
    const auto* change = delta + i * row_bytes;
    if (!aligned) {
      std::memcpy(gradient_.data(), change, row_bytes);
      change = reinterpret_cast<const std::byte*>(gradient_.data());
    }
    if (may_fail) std::memcpy(before_.data(), row, before_.size());
    auto* value = row + row_layout::value_at;
    const auto tag = static_cast<std::uint8_t>(l.element);
    if (f.optimizer != nullptr) {
      std::uint32_t number = 0;
      if (l.counts_steps) {
        std::memcpy(&number, row + l.steps_at(), sizeof number);
        if (number != 0xffffffffU) ++number;
        std::memcpy(row + l.steps_at(), &number, sizeof number);
      }
      ended = f.optimizer->step(f.optimizer, f.hyper.data(), tag, value, row + l.state_at(), change, l.width, number,
                                &text);
    } else {
      ended = f.function->in_place(f.function, tag, value, change, l.width, &text);
    }
    if (ended == abi::ok) return true;
    if (may_fail) std::memcpy(row, before_.data(), before_.size());
    failed = i;
    return false;
  });
  if (all) return {};
  failed_row_ = failed;
  const auto row = rows.named() ? shown_row(names_[failed]) : shown_row(ids_[failed]);
  return refusal{ended == abi::type_mismatch ? status::type_mismatch : status::plugin_failed,
                 "table \"" + t.name + "\", " + row + ": " + f.name + ": " +
                     (buffer[0] != '\0' ? buffer.data() : "failed without a reason") + "; the row is as before, " +
                     std::to_string(failed) + " of the batch were updated"};
}

void row_service::remove(row_table& rows, const net::rows_view& r, reply& out) noexcept {
  out.header.count = 0;
  for (std::size_t i = 0; i < r.count; ++i) {
    const auto place = place_of_[partition_of(hashes_[i])];
    const bool there = rows.named() ? rows.erase(place, hashes_[i], names_[i]) : rows.erase(place, hashes_[i], ids_[i]);
    if (!there) continue;
    ++out.header.count;
    const auto p = std::ranges::lower_bound(in_hand_, partition_of(hashes_[i]), {}, &partition_in_hand::partition);
    if (p != in_hand_.end()) ++p->removed;
  }
}

row_service::problem row_service::scan(typed_table& t, const net::request_view& request, reply& out) {
  const auto& h = request.header;
  const bool named = (h.flags & net::flag_named) != 0;
  const bool with_values = (h.flags & net::flag_keys_only) == 0;
  std::uint64_t position = 0;
  if (request.payload().size() != sizeof position) {
    return refusal{status::bad_request, "the cursor of a scan has 8 bytes"};
  }
  std::memcpy(&position, request.payload().data(), sizeof position);
  auto& rows = rows_of(t, named);
  const auto row_bytes = with_values ? t.layout().value_bytes() : 0;
  const auto most = std::min(scan_chunk_bytes, keys_.settings().max_message_bytes - net::reply_header_bytes);
  const auto room = h.credit != 0 ? std::min<std::size_t>(h.credit, most) : most;

  found_.clear();
  std::size_t texts = 0;
  bool more = false;
  for (;;) {
    auto behind = position;
    const auto* row = rows.next(behind);
    if (row == nullptr) break;
    if (keys_.keeps_copies() && !keys_.owns(partition_of(named ? net::hash_row(row_table::name_of(row))
                                                               : net::hash_row(row_table::id_of(row))))) {
      position = behind;  // a replica of another server's
      continue;
    }
    const auto text = named ? row_table::name_of(row).size() : 0;
    const auto count = found_.size() + 1;
    const auto names = named ? net::names_bytes(count, texts + text) : count * sizeof(std::uint64_t);
    more = count > 1 && sizeof position + names + count * row_bytes > room;  // at least one row is sent
    if (more) break;
    found_.push_back(row);
    texts += text;
    position = behind;
  }
  const auto count = found_.size();
  const auto names = named ? net::names_bytes(count, texts) : count * sizeof(std::uint64_t);
  body_.clear();
  body_.resize(sizeof position + names + count * row_bytes);
  auto* to = body_.data();
  std::memcpy(to, &position, sizeof position);
  to += sizeof position;
  if (named) {
    auto* text = to + count * sizeof(std::uint32_t);
    for (std::size_t i = 0; i < count; ++i) {
      const auto name = row_table::name_of(found_[i]);
      const auto length = static_cast<std::uint32_t>(name.size());
      std::memcpy(to + i * sizeof length, &length, sizeof length);
      if (!name.empty()) std::memcpy(text, name.data(), name.size());
      text += name.size();
    }
  } else {
    constexpr auto id_bytes = sizeof(std::uint64_t);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * id_bytes, found_[i], id_bytes);
  }
  to += names;
  for (std::size_t i = 0; i < count && row_bytes != 0; ++i)
    std::memcpy(to + i * row_bytes, found_[i] + row_layout::value_at, row_bytes);
  out.header.count = static_cast<std::uint32_t>(count);
  out.header.flags = more ? net::reply_more : std::uint16_t{0};
  out.header.tag = static_cast<value_tag>(static_cast<unsigned>(t.layout().element) | 0x10U);
  out.body = &body_;
  return {};
}

held_bytes row_service::counted(const shared_buffer& payload) noexcept {
  held_bytes held;
  held.add(staged_bytes_, payload.size() + staged_batch_bytes);
  return held;
}

}  // namespace paracel::srv
