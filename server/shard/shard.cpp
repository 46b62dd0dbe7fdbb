// SPDX-License-Identifier: BSD-3-Clause
#include "server/shard/shard.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "server/request/request_payloads.hpp"
#include "server/store/optimizer_state.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

/// Whether a request depends on the current value, which under BSP must be that of its clock: all but `push`.
constexpr bool reads_current_value(verb v) noexcept { return v != verb::push; }

}  // namespace

shard::shard(const shard_settings& settings, plugin_registry& plugins, const std::atomic<const ownership*>& owned)
    : settings_(settings),
      plugins_(plugins),
      times_(settings.times ? std::make_unique<verb_times>() : nullptr),
      store_(settings, plugins, owned, monitor_),
      scans_(store_.keys(), plugins, store_) {}

void shard::handle(const net::request_view& request, shared_buffer tail, completion done) noexcept {
  if (times_ != nullptr) [[unlikely]]
    times_->begin();
  const auto v = static_cast<std::size_t>(request.header.what);
  if (request.header.what != verb::ping) shard_counters::add(counters_.requests[v < shard_counters::verbs ? v : 0], 1);
  shard_counters::add(counters_.bytes_in, net::request_header_bytes + request.body.size() + tail.size());
  if (hot_.is_due()) [[unlikely]]
    count_key(request);
  if (deferred_.empty()) guarded_dispatch(request, std::move(tail), done);
  else handle_in_order(request, std::move(tail), done);
  publish();
  if (times_ != nullptr) [[unlikely]]
    times_->end(request.header.what);
}

/// Of a request on keys by name. Key sets and rows are not counted: finding a name there takes longer than serving
/// them.
void shard::count_key(const net::request_view& request) noexcept {
  try {
    const auto kind = net::kind_of(request.header.what);
    if (kind == net::verb_kind::key) return hot_.count(request.key(), 1);
    const auto count = request.header.count;
    if (kind != net::verb_kind::keys || !net::has_items(request.header.what) || count == 0) return;
    net::request_items items(request.payload(), count);
    auto skipped = hot_.random() % count;
    for (net::request_item item; items.next(item); --skipped)
      if (skipped == 0) return hot_.count(item.key, count);
  } catch (const std::bad_alloc&) {  // it is not counted
  }
}

void shard::guarded_dispatch(const net::request_view& request, shared_buffer&& tail, completion& done) noexcept {
  try {
    log().begin(request.header);
    if (log().remembers() && !store_.applied().admits(request.header.client)) [[unlikely]] {
      refuse(done, status::out_of_memory, "requests of too many clients are remembered here");
    } else {
      dispatch(request, std::move(tail), done);
    }
  } catch (const std::exception& e) {
    const bool none = dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
    const bool full = none || dynamic_cast<const memory_limit_reached*>(&e) != nullptr;
    try {
      refuse(done, full ? status::out_of_memory : status::internal,
             none ? "there was no memory for it, or for its answer" : e.what());
    } catch (...) {  // the completion still answers when it is destroyed
    }
  }
  log().end();
}

/// As guarded_dispatch while a client's refused request is expected again.
void shard::handle_in_order(const net::request_view& request, shared_buffer&& tail, completion& done) noexcept {
  using verdict = deferred_requests::verdict;
  const auto what = deferred_.judge(request);
  try {
    if (what == verdict::hold) {
      if (deferred_.hold(request, std::move(tail), std::move(done))) return;
      return refuse(done, status::internal, "too much waits here for a key set that was not prepared again");
    }
  } catch (const std::exception&) {  // no memory: the completion answers
    return;
  }
  guarded_dispatch(request, std::move(tail), done);
  if (what != verdict::proceed_then_drain) return;
  for (deferred_requests::held h; deferred_.next(request.header.client, h);) {
    guarded_dispatch(h.view(), std::move(h.tail), h.done);
  }
}

void shard::closing() {
  subscriptions_.close(status::job_ended, "the server is stopping");
  deferred_.close(status::job_ended, "the server is stopping");
}

void shard::expect(std::span<const net::request_view> requests) noexcept {
  expected_.count = 0;
  expected_.next = 0;
  if (requests.size() < 2) return;  // nothing to overlap
  for (const auto& r : requests) {
    if (net::kind_of(r.header.what) != net::verb_kind::key || expected_.count == expected_keys::most) continue;
    expected_.key[expected_.count] = r.key();
    expected_.hash[expected_.count++] = hash_key(r.key());
  }
  store_.keys().prefetch({expected_.hash.data(), expected_.count});
}

std::uint64_t shard::hash_of(std::string_view key) noexcept {
  if (expected_.next != expected_.count) {
    const auto& e = expected_.key[expected_.next];
    if (e.data() == key.data() && e.size() == key.size()) return expected_.hash[expected_.next++];
  }
  return hash_key(key);
}

status shard::apply_records(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) {
  const auto applied = store_.apply_records(partition, bytes, why);
  publish();
  return applied;
}

status shard::apply_replica(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) {
  const auto applied = store_.apply_checked_records(partition, bytes, why);
  publish();
  return applied;
}

void shard::drop_partitions(const std::bitset<partition_count>& which) {
  store_.drop_partitions(which);
  publish();
}

void shard::each_definition(const definitions& known, const definition_visitor& f) const {
  const auto now = defined();
  if (known.functions != now.functions) {
    for (const auto& r : plugins_.registrations()) {
      f(r.is_filter ? verb::register_filter : verb::register_update, r.plugin, net::bytes_of(r.symbol));
    }
  }
  if (known.tables != now.tables) {
    store_.rows().each_table(
        [&](std::string_view name, std::span<const std::byte> definition) { f(verb::table_open, name, definition); });
  }
}

bool shard::fold_due(const std::function<bool()>& over) {
  const bool more = store_.fold_due(over);
  publish();
  return more;
}

bool shard::wants_tidying() const noexcept {
  // Each thread of a server may leave its share.
  constexpr std::size_t allowed = std::size_t{16} << 20;
  constexpr std::size_t least = std::size_t{1} << 20;
  const auto& keys = store_.keys();
  return keys.unused_bytes() > std::max(allowed / settings_.threads, least) + keys.memory_bytes() / 8 ||
         store_.rows().wants_tidying();
}

bool shard::tidy(const std::function<bool()>& over) noexcept {
  tidied_keys_ = tidied_keys_ || !store_.keys().tidy(over);
  const bool more = !tidied_keys_ || store_.rows().tidy(over);
  if (!more) tidied_keys_ = false;
  publish();
  return more;
}

void shard::publish() noexcept {
  store_.note_size();
  shard_counters::set(counters_.keys, store_.keys().size());
  const auto rows = store_.rows().memory_bytes();
  store_.keys().set_other_bytes(rows);
  shard_counters::set(counters_.memory_bytes, store_.keys().memory_bytes() + rows);
  shard_counters::set(counters_.staged, store_.staged());
  shard_counters::set(counters_.rows, store_.rows().rows());
}

void shard::refuse(completion& done, status why, std::string_view text) {
  if (why != status::not_found && why != status::conflict) shard_counters::add(counters_.failures, 1);
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes + text.size());
  done.fail(why, text);
}

void shard::dispatch(const net::request_view& request, shared_buffer tail, completion& done) {
  const auto& h = request.header;
  if (settings_.job != 0 && h.job != settings_.job) {
    return refuse(done, status::wrong_job, "this server belongs to another job");
  }
  if (!fenced_.empty() && fenced_.contains(h.client)) [[unlikely]] {
    return refuse(done, status::bad_request,
                  "another process is the worker of rank " + std::to_string(h.rank) + " now");
  }
  if (!left_.empty() && (h.flags & net::flag_staged) != 0 && h.what != verb::fence) [[unlikely]] {
    const auto gone = left_.find(h.rank);
    if (gone != left_.end() && h.clock >= gone->second) {
      return refuse(done, status::bad_request, "worker " + std::to_string(h.rank) + " has left the job");
    }
  }
  const auto kind = net::kind_of(h.what);
  if (kind == net::verb_kind::rows) return handle_rows(request, std::move(tail), done);
  if (h.table != 0) return refuse(done, status::bad_request, "there is only table 0");
  if (kind == net::verb_kind::key) return handle_single(request, std::move(tail), done);
  if (tail) return refuse(done, status::bad_request, "a second frame belongs to a request of one key only");
  if (kind == net::verb_kind::keys) return handle_multi(request, done);
  if (kind == net::verb_kind::key_set) return handle_set(request, done);
  if (kind == net::verb_kind::function) return handle_register(request, done);
  if (kind == net::verb_kind::all_keys && h.what != verb::clear) return handle_scan(request, done);
  switch (h.what) {
    case verb::subscribe:
      return subscriptions_.subscribe(request, std::move(done));
    case verb::clock_moved:
      subscriptions_.clock_moved(h.clock);
      if (h.clock != net::no_clock) store_.clock_moved(h.clock);
      return done.ok();
    case verb::clear:
      return handle_clear(done);
    case verb::fence:
      return fence(request, done);
    case verb::fold:
      return handle_fold(request, done);
    case verb::ping:
      shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
      return done.ok();
    default:
      return refuse(done, status::bad_request, std::string(name_of(h.what)) + " is not a verb of a shard thread");
  }
}

const loaded_update* shard::function_of(const net::request_header& header, key_outcome& out) {
  const auto id = header.function;
  if (id == 0) {
    if (default_update_ == nullptr) {
      try {
        default_update_ = &plugins_.load_update({}, {});
      } catch (const plugin_error& e) {
        out.fail(status::plugin_failed, e.what());
      }
    }
    return default_update_;
  }
  if (last_update_ == nullptr || last_update_->id != id) {
    const auto* found = plugins_.find(id);
    if (found == nullptr) {
      out.fail(status::unknown_function,
               "no update function with this id is registered at s" + std::to_string(settings_.slot));
      return nullptr;
    }
    last_update_ = found;
  }
  return last_update_;
}

void shard::handle_single(const net::request_view& request, shared_buffer tail, completion& done) {
  const auto& h = request.header;
  const auto key = request.key();
  const auto hash = hash_of(key);
  const auto partition = partition_of(hash);
  key_outcome out;
  if (h.partition != net::any_partition && h.partition != partition) {
    return refuse(done, status::bad_request,
                  quoted_key(key) + " belongs to partition " + std::to_string(partition) + ", not " +
                      std::to_string(h.partition));
  }
  if (!store_.keys().owns(partition)) return refuse(done, status::wrong_owner, store_.keys().not_mine(partition));
  store_.load().touch(partition);
  log().expect(partition);
  log().hold_places();
  log().touch(partition);  // hold_places has made room
  if (log().retried() && was_answered(h, key, hash, done)) return;
  key_operation c{&h, h.what};
  auto payload = request.payload();
  if (h.what == verb::cas && !take_expected(payload, c.expected)) {
    return refuse(done, status::bad_request, "cas without the expected version");
  }
  if (tail && (!payload.empty() || h.what == verb::update_default)) {
    return refuse(done, status::bad_request, "a value in the body and another in a second frame");
  }
  if (c.takes_function()) {
    c.function = function_of(h, out);
    if (c.function == nullptr) return refuse(done, out);
  }
  const value_view value{h.tag, tail ? tail.bytes() : payload};
  if (tail && h.what == verb::update && update_after_answer(c, key, hash, value, done)) return;
  try {
    perform(c, key, hash, value, std::move(tail), out);
  } catch (...) {
    out.fail_by_exception();
  }
  if (log().remembers()) note_answer(partition, out);

  net::reply_header reply;
  reply.value_version = out.version;
  if (out.result == status::conflict) {
    reply.result = out.result;
    shard_counters::add(counters_.bytes_out, net::reply_header_bytes + out.text.size());
    return done.answer(reply, net::bytes_of(out.text));
  }
  if (out.result != status::ok) return refuse(done, out);
  if (!out.has_value()) {
    shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
    return done.answer(reply);
  }
  const auto [tag, bytes] = out.view();
  if (bytes.size() > settings_.max_message_bytes - net::reply_header_bytes) {
    return refuse(done, status::too_large,
                  quoted_key(key) + ": " + std::to_string(bytes.size()) + " bytes do not fit a message of " +
                      std::to_string(settings_.max_message_bytes));
  }
  if (h.credit != 0 && bytes.size() > h.credit && c.is_cut_by_credit()) {
    return refuse(done, status::too_large,
                  quoted_key(key) + " has " + std::to_string(bytes.size()) + " bytes, more than the credit of " +
                      std::to_string(h.credit));
  }
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes + bytes.size());
  reply.tag = tag;
  if (out.value != nullptr && out.value->is_large()) return done.answer(reply, {}, out.value->share());
  if (bytes.size() > net::tail_threshold_bytes) done.answer(reply, {}, shared_buffer::copy_of(bytes));
  else done.answer(reply, bytes);
  store_.trim();
}

/// An update of a large value that cannot fail is answered before it runs. The next request is served by this
/// thread, so none can see the old value; and the sender's next request is in flight meanwhile. Fetching 80
/// kB of delta from the other processor's cache takes 10 us of the 75 us that the round trip would last.
bool shard::update_after_answer(const key_operation& c, std::string_view key, std::uint64_t hash,
                                const value_view& delta, completion& done) {
  if ((c.header->flags & net::flag_staged) != 0 || log().recording()) return false;
  auto& t = store_.keys().table_of(hash);
  auto* e = t.find(hash, key);
  if (e == nullptr || !e->is_large() || !cannot_fail(*c.function, e->view(), delta)) return false;
  const busy_mark mark(monitor_, *c.function, key);
  const auto bytes = t.open(*e);
  net::reply_header reply;
  reply.value_version = store_.keys().family().last_version + 1;
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
  done.answer(reply);
  if (log().remembers()) log().answered(partition_of(hash), status::ok, reply.value_version, {});
  std::string error;
  (void)apply_in_place(*c.function, e->tag(), bytes, delta, error);
  t.changed(*e);
  store_.nans().saw(c.function->name, e->tag(), bytes, [&] { return quoted_key(key); });
  return true;
}

void shard::perform(const key_operation& c, std::string_view key, std::uint64_t hash, const value_view& value,
                    shared_buffer&& tail, key_outcome& out) {
  const bool staged = (c.header->flags & net::flag_staged) != 0 && c.header->clock != net::no_clock;
  if (c.what == verb::push || c.what == verb::update || c.what == verb::bupdate || c.what == verb::cas) {
    if (!store_.acceptable(key, value, out)) return;
  }
  if (c.what == verb::update_at && value.bytes.size() > settings_.max_value_bytes) {
    return out.fail(status::too_large, quoted_key(key) + ": elements of " + std::to_string(value.bytes.size()) +
                                           " bytes; this server accepts at most " +
                                           std::to_string(settings_.max_value_bytes));
  }
  if ((c.header->flags & net::flag_bsp_read) != 0 && c.header->clock != net::no_clock && !staged &&
      reads_current_value(c.what)) {
    store_.fold_before(c.header->clock, key, hash, out);
    if (c.what == verb::remove) out = {};  // it is removed, whatever happened to it
    if (out.result != status::ok) return;
  }
  if (log().recording()) record_change(c, key, hash, staged);
  switch (c.what) {
    case verb::pull:
    case verb::contains: {
      const auto* e = store_.keys().find(hash, key);
      if (e == nullptr) return out.fail(status::not_found, "the key is not there");
      out.version = e->version();
      if (c.what == verb::pull) out.value = e;
      return;
    }
    case verb::cas: {
      const auto* e = store_.keys().find(hash, key);
      out.version = e != nullptr ? e->version() : 0;
      if (out.version != c.expected) {
        return out.fail(status::conflict, quoted_key(key) +
                                              (e == nullptr ? std::string(" does not exist")
                                                            : " has version " + std::to_string(out.version)) +
                                              ", expected " + std::to_string(c.expected));
      }
      [[fallthrough]];
    }
    case verb::push:
      return store_.push(key, hash, value, std::move(tail), out);
    case verb::update_default: {
      default_and_delta both;
      if (!parse(value.bytes, both)) {
        return out.fail(status::bad_request, quoted_key(key) + ": want two items, an initial value and a delta");
      }
      if (!store_.acceptable(key, both.initial, out) || !store_.acceptable(key, both.delta, out)) return;
      if (staged) return store_.stage(c, key, hash, value, {}, out);
      store_.update_default(*c.function, key, hash, both, out);
      out.value = nullptr;
      return;
    }
    case verb::update:
      if (staged) return store_.stage(c, key, hash, value, std::move(tail), out);
      store_.update(*c.function, key, hash, value, std::move(tail), out);
      out.value = nullptr;  // the sender did not request it
      return;
    case verb::bupdate:
      return store_.update(*c.function, key, hash, value, std::move(tail), out);
    case verb::pull_at:
      return pull_at(c, key, hash, value, out);
    case verb::update_at:
      return update_at(c, key, hash, value, std::move(tail), out);
    case verb::remove:
      return store_.remove(key, hash, out);
    default:
      return out.fail(status::bad_request, "not a verb of a key");
  }
}

/// The elements of an array that the request names.
void shard::pull_at(const key_operation& c, std::string_view key, std::uint64_t hash, const value_view& elements,
                    key_outcome& out) {
  element_choice choice;
  if (const char* reason = parse_pull_at(elements, (c.header->flags & net::flag_range) != 0, choice)) {
    return out.fail(status::bad_request, quoted_key(key) + ": " + reason);
  }
  store_.pull_at(key, hash, choice, out);
}

void shard::update_at(const key_operation& c, std::string_view key, std::uint64_t hash, const value_view& elements,
                      shared_buffer&& tail, key_outcome& out) {
  const bool is_range = (c.header->flags & net::flag_range) != 0;
  element_change change;
  if (const char* reason = parse_update_at(elements, is_range, change)) {
    return out.fail(status::bad_request, quoted_key(key) + ": " + reason);
  }
  if ((c.header->flags & net::flag_staged) != 0 && c.header->clock != net::no_clock) {
    return store_.stage(c, key, hash, elements, std::move(tail), out);
  }
  store_.update_at(*c.function, key, hash, change, out);
}

// ---- the whole shard ------------------------------------------------------------------------------------------------

void shard::handle_clear(completion& done) {
  if (log().recording()) return clear_owned(done);
  log().hold_places();
  change_log::earlier before;
  if (log().retried() && log().next_answer(net::any_partition, before) == dedup_window::verdict::expired)
    return refuse(done, status::expired, change_log::too_late);
  const bool applied = log().retried() && before.item.version != 0;
  const auto count = applied ? before.item.version - 1 : store_.clear();
  log().answered(net::any_partition, status::ok, count + 1, {});
  net::reply_header reply;
  reply.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, 0xffffffffU));
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
  done.answer(reply);
}

/// Folds a slice of what is staged below header.clock, and reports what could not be folded.
void shard::handle_fold(const net::request_view& request, completion& done) {
  const auto& h = request.header;
  if (h.clock == net::no_clock) return refuse(done, status::bad_request, "fold without a clock");
  constexpr std::chrono::milliseconds slice{4};
  const auto until = std::chrono::steady_clock::now() + slice;
  const auto over = [&] { return std::chrono::steady_clock::now() >= until; };
  net::reply_header reply;
  if (!store_.fold_all_before(h.clock, until) || !store_.rows().fold_before(h.clock, over))
    reply.flags = net::reply_more;
  std::string why;
  if (const auto s = store_.failed_fold(why); s != status::ok) return refuse(done, s, why);
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
  done.answer(reply);
}

/// The worker of this rank restarts after header.clock iterations: what the previous process had staged for the next
/// one is dropped, and late requests of its clients are rejected. With flag_staged it has left the job, and stages
/// nothing more.
void shard::fence(const net::request_view& request, completion& done) {
  const auto& h = request.header;
  auto rest = request.payload();
  if (h.clock == net::no_clock || rest.size() % sizeof(std::uint64_t) != 0) {
    return refuse(done, status::bad_request, "a fence has a clock and ids of clients");
  }
  if (rest.size() / sizeof(std::uint64_t) > most_fenced - std::min(most_fenced, fenced_.size())) {
    return refuse(done, status::out_of_memory, "too many clients are fenced off here");
  }
  for (std::uint64_t client = 0; take_fields(rest, client);) {
    fenced_.insert(client);
    deferred_.forget(client, status::bad_request);
  }
  if ((h.flags & net::flag_staged) != 0) left_[h.rank] = h.clock;
  std::string example;
  const auto dropped = store_.fence(h.rank, h.clock, example);
  net::reply_header reply;
  reply.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(dropped, 0xffffffffU));
  done.answer(reply, net::bytes_of(example));
}

void shard::handle_rows(const net::request_view& request, shared_buffer tail, completion& done) {
  if (const auto list = store_.rows().missing_list(request)) {
    if (!deferred_.refused(request.header.client, *list)) {
      return refuse(done, status::internal, "too many clients wait for their lists of rows");
    }
    return refuse(done, status::unknown_set, "no such list of rows is here");
  }
  const busy_mark mark(monitor_, store_.rows().doing(request.header));
  const auto served = store_.rows().handle(request, std::move(tail), done, store_.folded_clock());
  shard_counters::add(counters_.bytes_out, served.bytes_out);
  if (served.failed) shard_counters::add(counters_.failures, 1);
}

void shard::handle_scan(const net::request_view& request, completion& done) {
  const auto answer = scans_.handle(request);
  if (answer.result != status::ok) return refuse(done, answer.result, answer.text);
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes + answer.body.size());
  done.answer(answer.header, answer.body);
}

void shard::handle_register(const net::request_view& request, completion& done) {
  static const std::string loading = "the loader of a plug-in";
  auto plugin = request.key();
  auto symbol = net::text_of(request.payload());
  if (const auto zero = plugin.find('\0'); zero != std::string_view::npos) {
    symbol = plugin.substr(zero + 1);
    plugin = plugin.substr(0, zero);
  }
  const busy_mark mark(monitor_, loading, 0, plugin);
  try {
    std::uint64_t id = 0;
    bool additive = false;
    if (request.header.what == verb::register_filter) {
      id = plugins_.load_filter(plugin, symbol).id;
    } else {
      const auto& f = plugins_.load_update(plugin, symbol);
      id = f.id;
      // Deltas may be combined before they are sent, but not where a missing key depends on the first one.
      additive = f.additive && f.function->initialise == nullptr;
    }
    std::array<std::byte, sizeof id + 1> body;
    store_fields(body.data(), id, static_cast<std::uint8_t>(additive ? 1 : 0));
    shard_counters::add(counters_.bytes_out, net::reply_header_bytes + body.size());
    done.answer({}, body);
  } catch (const plugin_error& e) {
    refuse(done, status::plugin_failed, e.what());
  }
}

}  // namespace paracel::srv
