// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/row_service.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>
#include <paracel/free_memory.hpp>

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

// Rows that a scan visits in one request: 16,000 rows of 16 floats take 0.2 ms.
constexpr std::size_t scan_chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t kept_body_bytes = std::size_t{1} << 20;
// What a request of a table_client has at most, as long as its rows are short.
constexpr std::size_t kept_widened_bytes = std::size_t{8} << 20;
constexpr std::size_t largest_row_bytes = std::size_t{64} << 20;
// Each has an index for every partition of the shard, and is checked after every request.
constexpr std::size_t most_tables = 1024;
// Approximate overhead of a waiting batch besides its payload.
constexpr std::size_t staged_batch_bytes = 128;

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

}  // namespace

row_service::typed_table::typed_table(std::string of, const net::table_definition& d, const loaded_update* f,
                                      std::uint32_t partitions)
    : name(std::move(of)),
      init(d.init),
      function(f),
      by_id({d.element, d.width, f != nullptr && f->optimizer != nullptr ? f->optimizer->states : 0,
             f != nullptr && f->counts_steps()},
            partitions, false) {}

row_service::row_service(const key_store& keys, plugin_registry& plugins, change_log& log, nan_watch& nans,
                         partition_load& load)
    : keys_(keys),
      plugins_(plugins),
      changes_(log),
      nans_(nans),
      load_(load),
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

std::size_t row_service::bytes_of(std::uint16_t partition) const noexcept {
  const auto place = place_of_[partition];
  std::size_t n = 0;
  for (const auto& [id, t] : tables_)
    n += (t->by_id.size(place) + (t->by_name != nullptr ? t->by_name->size(place) : 0)) * t->layout().stride();
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
    if (t->by_name != nullptr) t->by_name->clear();
    t->staged.clear();
    t->broken.clear();
  }
  staged_count_ = 0;
}

bool row_service::wants_tidying() const noexcept {
  return std::ranges::any_of(tables_, [](const auto& t) {
    return t.second->by_id.wants_tidying() || (t.second->by_name != nullptr && t.second->by_name->wants_tidying());
  });
}

bool row_service::tidy(const std::function<bool()>& over) noexcept {
  for (auto& [id, t] : tables_) {
    for (auto* rows : {&t->by_id, t->by_name.get()}) {
      while (rows != nullptr && rows->wants_tidying()) {
        if (rows->tidy(over)) return true;
      }
    }
  }
  return false;
}

row_service::served row_service::handle(const net::request_view& request, shared_buffer tail, completion& done,
                                        std::uint32_t& folded_clock) {
  reply out;
  problem p;
  if (tail && !request.payload().empty()) {
    p = refusal{status::bad_request, "rows in the body and others in a second frame"};
  } else if (request.header.what == verb::table_open) {
    p = open(request.key(), request.payload(), request.header.flags, out);
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
  free_if_larger(body_, kept_body_bytes);
  free_if_larger(widened_, kept_widened_bytes);
  return {bytes, false};
}

// ---- tables -----------------------------------------------------------------------------------------------------

row_service::problem row_service::open(std::string_view name, std::span<const std::byte> definition,
                                       std::uint16_t flags, reply& out) {
  if (name.empty()) return refusal{status::bad_request, "a table must have a name"};
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
    if (!fits) {  // all values have this type: the plug-in cannot serve such a table
      return refusal{status::plugin_failed,
                     f->name + (f->optimizer == nullptr && f->function->in_place == nullptr
                                    ? " cannot work in place, as rows require"
                                    : std::string(" does not take rows of ") + name_of(d.element))};
    }
  }
  const auto format = net::format_of(flags);
  if (!format) return refusal{status::bad_request, "rows can be sent as f16 or as i8, not as both"};
  if (auto p = check_format(std::string(name), d.element, f, *format, verb::rows_update)) return p;
  const auto id = net::table_id(name);
  if (tables_.size() >= most_tables && !tables_.contains(id)) {
    return refusal{status::out_of_memory, std::to_string(most_tables) + " tables are open already"};
  }
  auto& slot = tables_[id];
  if (slot != nullptr) {
    const auto& t = *slot;
    const auto differs = [&](const std::string& what, const std::string& there, const std::string& asked) {
      return refusal{status::bad_request, "table \"" + t.name + "\" is open already with " + what + " " + there +
                                              "; the request has " + asked};
    };
    const auto function = [](const loaded_update* u) { return u == nullptr ? std::string("add") : u->name; };
    if (t.name != name) {
      return refusal{status::bad_request, "the names of tables \"" + t.name + "\" and \"" + std::string(name) +
                                              "\" have the same hash: rename one of them"};
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
                                            std::to_string(largest_row_bytes) + " are allowed"};
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

namespace {

/// The rows and their values as one payload.
shared_buffer with_names(const net::rows_view& r) {
  const auto front = r.ids != nullptr ? r.count * sizeof(std::uint64_t) : net::names_bytes(r.count, r.texts.size());
  auto out = shared_buffer::allocate(front + r.values.size());
  auto* to = out.mutable_data();
  if (r.ids != nullptr) {
    std::ranges::copy(std::span(r.ids, front), to);
  } else {
    to = std::ranges::copy(std::span(r.lengths, r.count * sizeof(std::uint32_t)), to).out;
    to = std::ranges::copy(net::bytes_of(r.texts), to).out;
    std::fill(to, out.mutable_data() + front, std::byte{0});
  }
  std::ranges::copy(r.values, out.mutable_data() + front);
  return out;
}

/// False: the request names no list.
bool digest_in(const net::request_view& request, digest128& digest) noexcept {
  if (request.key().size() != sizeof digest) return false;
  load_fields(request.body.data(), digest);
  return true;
}

}  // namespace

std::optional<digest128> row_service::missing_list(const net::request_view& request) {
  const auto& h = request.header;
  digest128 digest;
  if ((h.flags & net::flag_listed) == 0 || h.what == verb::table_open || h.what == verb::rows_scan) return {};
  if (!digest_in(request, digest) || lists_.find({digest, h.table}) != nullptr) return {};
  return digest;
}

/// Whether rows of such a table may be read or changed in this format.
row_service::problem row_service::check_format(const std::string& table, value_tag element, const loaded_update* f,
                                               wire_format format, verb what) {
  if (format == wire_format::full) return {};
  const auto refused = [&](const std::string& wrong) {
    return refusal{status::bad_request, "table \"" + table + "\": " + wrong};
  };
  const std::string as = net::name_of(format);
  if (!net::can_be_quantised(element))
    return refused(std::string("rows of ") + name_of(element) + " cannot be sent as " + as + ", want float or double");
  if (what != verb::rows_pull && what != verb::rows_push && what != verb::rows_update)
    return refused(std::string(net::name_of(what)) + " has no numbers to be sent as " + as);
  if (what == verb::rows_update && f != nullptr && f->optimizer == nullptr && (f->function->flags & abi::additive) == 0)
    return refused(
        f->name + " does not add: found an update function that is not declared additive(...), and updates " +
        "are sent as " + as + " only if what rounding leaves of one can be added to the next; want wire_format::full");
  return {};
}

/// Replaces values that came in fewer bits by what they mean, so that everything else sees rows as they are stored.
void row_service::widen(const typed_table& t, wire_format format, net::rows_view& r) {
  const auto& l = t.layout();
  widened_.resize((r.count * l.value_bytes() + sizeof(double) - 1) / sizeof(double));
  auto* to = reinterpret_cast<std::byte*>(widened_.data());
  net::dequantise(format, l.element, r.values.data(), r.count, l.width, to);
  r.values = {to, r.count * l.value_bytes()};
}

/// Reads the rows of a request and their values, and locates the rows.
row_service::problem row_service::read_request(typed_table& t, const net::request_view& request,
                                               const shared_buffer& tail, net::rows_view& r) {
  const auto& h = request.header;
  const bool named = (h.flags & net::flag_named) != 0;
  const bool listed = (h.flags & net::flag_listed) != 0;
  const bool has_values = h.what == verb::rows_push || h.what == verb::rows_update;
  const auto format = *net::format_of(h.flags);
  const auto row_bytes = has_values ? net::wire_bytes(format, t.layout().element, t.layout().width) : 0;
  const auto payload = tail ? tail.bytes() : request.payload();
  const auto refused = [&](const char* wrong) {
    return refusal{status::bad_request, std::string("table \"") + t.name + "\": " + wrong};
  };
  digest128 digest;
  const bool has_digest = digest_in(request, digest);
  if (!has_digest && (listed || !request.key().empty())) return refused("a list of rows has a name of 16 bytes");
  if (has_digest && named) return refused("a list of rows is one of ids");
  const bool gaps = (h.flags & net::flag_gaps) != 0;
  if (gaps && (named || listed)) return refused("only ids can be sent as gaps");
  if (gaps && h.count > keys_.settings().max_message_bytes / sizeof(std::uint64_t))
    return refused("these are more rows than a frame has room for ids");
  if (listed) {
    auto* list = lists_.find({digest, h.table});
    if (list == nullptr) return refusal{status::unknown_set, "no such list of rows is here"};
    if (h.count != list->size()) return refused("the list has another number of rows than the request");
    if (const auto* wrong = net::decode_values(payload, h.count, row_bytes, r)) return refused(wrong);
    if (has_values && format != wire_format::full) widen(t, format, r);
    r.ids = std::as_bytes(list->ids()).data();
    return locate(t.by_id, *list);
  }
  const auto* wrong = gaps ? net::decode_gaps(payload, h.count, row_bytes, id_memory_, r)
                           : net::decode(payload, h.count, named, row_bytes, r);
  if (wrong != nullptr) return refused(wrong);
  if (auto p = locate(r, named)) return p;
  if (has_values && format != wire_format::full) widen(t, format, r);
  if (!has_digest) return {};
  if (digest_of({r.ids, h.count * sizeof(std::uint64_t)}) != digest)
    return refused("the ids of the list are not those of its digest");
  list_ = lists_.find({digest, h.table});
  if (list_ == nullptr) list_ = &lists_.add({digest, h.table}, row_list(ids_, hashes_));
  return {};
}

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
  const auto format = net::format_of(h.flags);
  if (!format) return refusal{status::bad_request, "rows can be sent as f16 or as i8, not as both"};
  if (auto p = check_format(t.name, t.layout().element, t.function, *format, h.what)) return p;
  if (*format != wire_format::full && h.count > keys_.settings().max_message_bytes / t.layout().value_bytes())
    return refusal{status::too_large,
                   "table \"" + t.name + "\": these are more rows than a frame has room for in full"};
  if ((h.flags & net::flag_bsp_read) != 0 && h.clock != net::no_clock) {
    folded_clock = std::max(folded_clock, h.clock);
    fold_before(h.clock, t, [] { return false; });
    if (!t.broken.empty()) return t.failure();
  }
  if (h.what == verb::rows_scan) return scan(t, request, out);

  const bool named = (h.flags & net::flag_named) != 0;
  net::rows_view r;
  if (auto p = read_request(t, request, tail, r)) return p;
  load_.touch(hashes_.size(), [this](std::size_t i) { return hashes_[i]; });
  auto& rows = rows_of(t, named);
  const bool staged = h.what == verb::rows_update && (h.flags & net::flag_staged) != 0 && h.clock != net::no_clock;
  if (!changes_.recording()) [[likely]] {
    if (!changes_.remembers()) return change(t, rows, request, r, staged, std::move(tail), out, folded_clock);
    changes_.hold_places();
    if (changes_.retried()) {
      change_log::earlier before;
      const auto how = changes_.next_answer(net::any_partition, before);
      if (how == dedup_window::verdict::expired) return refusal{status::expired, std::string(change_log::too_late)};
      if (how == dedup_window::verdict::applied) {
        out.header.count = static_cast<std::uint32_t>(before.item.version);
        if (before.item.result == status::ok) return {};
        return refusal{before.item.result, std::string(net::text_of(before.item.value.bytes))};
      }
    }
    auto p = change(t, rows, request, r, staged, std::move(tail), out, folded_clock);
    if (p) changes_.answered(net::any_partition, p->why, 0, {value_tag::packed, net::bytes_of(p->text)});
    else changes_.answered(net::any_partition, status::ok, out.header.count, {});
    return p;
  }

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
      return pull(t, rows, r, h, out);
    case verb::rows_push:
      push(t, rows, r);
      return {};
    case verb::rows_remove:
      remove(rows, r, out);
      return {};
    default:
      if (!staged) return update(t, rows, r);
      // Not earlier: `r` points into the received payload.
      if ((h.flags & (net::flag_listed | net::flag_gaps | net::flag_f16 | net::flag_i8)) != 0) tail = with_names(r);
      return stage(t, request, std::move(tail), folded_clock);
  }
} catch (const std::bad_alloc&) {
  return no_memory(t);
}

row_service::problem row_service::scan(typed_table& t, const net::request_view& request, reply& out) {
  const auto& h = request.header;
  const bool named = (h.flags & net::flag_named) != 0;
  const bool with_values = (h.flags & net::flag_keys_only) == 0;
  std::uint64_t position = 0;
  if (request.payload().size() != sizeof position) {
    return refusal{status::bad_request, "the cursor of a scan has 8 bytes"};
  }
  load_fields(request.payload().data(), position);
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
    if (keys_.keeps_replicas() && !keys_.owns(partition_of(named ? net::hash_row(row_table::name_of(row))
                                                                 : net::hash_row(row_table::id_of(row))))) {
      position = behind;  // a replica of another server's row
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
  store_fields(to, position);
  to += sizeof position;
  if (named) {
    auto* text = to + count * sizeof(std::uint32_t);
    for (std::size_t i = 0; i < count; ++i) {
      const auto name = row_table::name_of(found_[i]);
      const auto length = static_cast<std::uint32_t>(name.size());
      store_fields(to + i * sizeof length, length);
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
