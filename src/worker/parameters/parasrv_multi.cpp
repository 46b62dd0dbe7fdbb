// SPDX-License-Identifier: BSD-3-Clause
//
// Calls on many keys: lists of them, prepared sets, and values split over several keys.
#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include <paracel/error.hpp>

#include "core/short_bytes.hpp"
#include "worker/parameters/key_errors.hpp"
#include "worker/parameters/parasrv_multi.hpp"

namespace paracel {

std::vector<std::byte> default_and_delta(const value_view& initial, const value_view& delta) {
  std::vector<std::byte> payload;
  net::append_item(payload, {}, initial);
  net::append_item(payload, {}, delta);
  return payload;
}

// ---- many keys ----------------------------------------------------------------------------------------------------

/// The state of a call on many keys until its last request is answered.
struct parasrv_multi::multi_call {
  std::shared_ptr<set_target> to;
  std::uint32_t minimum = 0;
  bool all = true;  // a missing key is a failure
  outcome how;
  std::string doing;
  std::exception_ptr error;
  std::optional<worker_cache::read_mark> mark;
  std::vector<std::uint32_t> places;  // of the keys that are asked for, in the caller's list; empty: these are all
  const bool* closing = nullptr;      // the caller is gone

  /// A reply with the values, if any, of these keys contiguously. `key`: one of them.
  void take_uniform(std::span<const std::uint32_t> order, const kv_result& r, std::string_view key) {
    if (to == nullptr) return;
    const auto bytes = r.tail ? r.tail.bytes() : r.body;
    const auto width = element_bytes(r.header.tag);
    if (!is_numeric(r.header.tag) || bytes.size() % (width * order.size()) != 0)
      throw protocol_error("the reply to a call on many keys does not fit its request");
    const auto numbers = bytes.size() / width / order.size();
    const auto array = static_cast<value_tag>(static_cast<unsigned>(r.header.tag) | 0x10U);
    guarded([&] { naming_key(key, [&] { to->put_all(order, {array, bytes}, numbers, is_array(r.header.tag)); }); });
  }
  void fail(net::status result, std::string_view text, std::string what) {
    if (failed()) return;
    how = {result, text};
    doing = std::move(what);
  }
  [[nodiscard]] bool failed() const noexcept { return error != nullptr || !how.ok(); }
  /// Passes a value to the caller; its exception is the failure of the call.
  template <class F>
  void guarded(const F& f) noexcept {
    if (closing != nullptr && *closing) return;
    try {
      f();
    } catch (...) {
      if (!failed()) error = std::current_exception();
    }
  }
  void end(request_failures& failures, kvclt::sequence number) const {
    if (error) failures.record(number, error);
    else if (!how.ok()) failures.record(number, how.result, how.text, doing);
  }
};

namespace {

std::shared_ptr<set_target> borrowed(set_target* to) noexcept { return {std::shared_ptr<void>(), to}; }

bool is_same_text(const std::string& a, const std::string& b) noexcept {
  return a.size() == b.size() && equal_short(a.data(), b.data(), a.size());
}

/// Values of one type and size become contiguous numbers, copied to `memory` if necessary; others become items.
set_source source_of(std::span<const value_view> values, std::vector<std::byte>& memory) {
  const auto first = values.empty() ? value_view{} : values[0];
  const auto bytes = first.bytes.size();
  bool contiguous = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].tag != first.tag || values[i].bytes.size() != bytes) return {value_tag::none, 0, {}, values};
    contiguous = contiguous && values[i].bytes.data() == first.bytes.data() + i * bytes;
  }
  if (!is_numeric(first.tag) || bytes == 0) return {value_tag::none, 0, {}, values};
  if (contiguous) return {first.tag, bytes, {first.bytes.data(), values.size() * bytes}, {}};
  memory.resize(values.size() * bytes);
  for (std::size_t i = 0; i < values.size(); ++i)
    std::ranges::copy(values[i].bytes, memory.begin() + static_cast<std::ptrdiff_t>(i * bytes));
  return {first.tag, bytes, memory, {}};
}

}  // namespace

std::shared_ptr<const sharded_keys> parasrv_multi::find_repeated(std::span<const std::string> keys) {
  if (keys.size() < least_repeated) return nullptr;
  const auto print = print_of_list(keys.size(), [&](std::size_t i) { return hash_key(keys[i]); });
  auto set =
      repeated_.find(print, [&](const sharded_keys& s) { return std::ranges::equal(s.keys, keys, is_same_text); });
  if (set != nullptr) return set;
  auto bytes = keys.size() * (sizeof(std::string) + sizeof(std::uint32_t));
  for (const auto& key : keys) bytes += key.size();
  if (!repeated_.is_due(print, bytes)) return nullptr;
  set = client_.many().split({keys.begin(), keys.end()});
  repeated_.keep(print, set, bytes);
  return set;
}

std::uint32_t parasrv_multi::put_fresh(std::span<const std::string> keys, std::span<const std::uint32_t> others,
                                       set_target& to) {
  auto minimum = clock_.finished();
  auto other = others.begin();
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (other != others.end() && *other == i) {
      ++other;
      continue;
    }
    const auto* e = cache_.find_fresh(keys[i]);
    minimum = std::min(minimum, e->minimum);
    naming_key(keys[i], [&] { to.put_one(i, e->view()); });
  }
  return minimum;
}

kvclt::sequence parasrv_multi::start_read_multi(std::span<const std::string> keys, std::shared_ptr<set_target> to,
                                                bool all) {
  const auto& c = clock_.of(keys);
  const bool is_clocked = worker_clock::is_clocked(c);
  std::vector<std::uint32_t> others;  // that are not fresh in the cache
  if (is_clocked) others = cache_.not_fresh(c, keys);
  // Of a repeated list only values travel, so it is asked for as a whole if most of it is. Values that are pushed are
  // cached with their versions, which the reply for a set does not have.
  const bool most = !is_clocked || 2 * others.size() > keys.size();
  auto set = most && !cache_.is_pushed() ? find_repeated(keys) : nullptr;
  if (is_clocked) {
    const auto minimum = set == nullptr ? put_fresh(keys, others, *to) : clock_.finished();
    if (!others.empty()) clock_.begin_read(c);
    clock_.record_staleness(others.empty() ? minimum : std::min(minimum, clock_.slowest()));
    if (others.empty()) return 0;
  }
  if (set != nullptr) {
    return start_set(clock_.read_call(c, net::verb::set_pull), std::move(set), {}, std::move(to), "reading",
                     all ? asked_for::list : asked_for::those_that_exist);
  }
  auto call = std::make_shared<multi_call>();
  call->to = std::move(to);
  call->minimum = clock_.slowest();
  call->all = all;
  std::vector<std::string> asked;
  if (!others.empty() && others.size() < keys.size()) {
    for (const auto i : others) asked.push_back(keys[i]);
    keys = asked;
    call->places = std::move(others);
  }
  if (is_clocked) call->mark.emplace(cache_);
  multi_client::uniform_handler uniform;  // has no versions, which the cache needs
  if (!call->mark)
    uniform = [call](std::span<const std::uint32_t> order, std::string_view first, const kv_result& r) {
      call->take_uniform(order, r, first);
    };
  return client_.many().multi_async(
      clock_.read_call(c, net::verb::pull_multi), keys, {},
      [this, call](std::size_t i, std::string_view key, const net::reply_item& item) {
        if (item.result == net::status::ok) {
          if (call->mark) cache_.remember_read(key, item.value, item.version, call->minimum, *call->mark);
          const auto at = call->places.empty() ? i : call->places[i];
          call->guarded([&] { naming_key(key, [&] { call->to->put_one(at, item.value); }); });
        } else if (item.result != net::status::not_found) {
          call->fail(item.result, net::text_of(item.value.bytes), "reading \"" + std::string(key) + "\"");
        } else if (call->all) {
          call->fail(item.result, "key \"" + std::string(key) + "\" does not exist", {});
        }
      },
      [this, call](kvclt::sequence number) { call->end(failures_, number); }, std::move(uniform));
}

void parasrv_multi::read_multi(const std::vector<std::string>& keys, set_target& to, bool all) {
  (void)failures_.finish(start_read_multi(keys, borrowed(&to), all));
}

void parasrv_multi::fold_before_write(std::span<const std::string> keys) {
  const auto& c = clock_.of(keys);
  if (c.model != consistency_model::bsp) return;
  clock_.wait_for_minimum(c);
  for (const auto& key : keys) client_.request(clock_.read_call(c, net::verb::contains), key, {}, nullptr);
}

void parasrv_multi::write_multi(const std::vector<std::string>& keys, const std::vector<value_view>& values) {
  fold_before_write(keys);
  for (const auto& key : keys) {
    cache_.changing(key);
    cache_.drop(key);
  }
  const auto minimum = clock_.slowest();
  outcome o;
  std::string failed;
  const auto each = [&](std::size_t i, const net::reply_item& item) {
    if (item.result == net::status::ok || !o.ok()) return;
    o = {item.result, net::text_of(item.value.bytes)};
    failed = keys[i];
  };
  client_.many().multi({.what = net::verb::push_multi}, keys, values, each);
  if (!o.ok()) o.raise("writing \"" + failed + "\"");
  for (std::size_t i = 0; i < keys.size(); ++i) cache_.remember_write(keys[i], values[i], minimum);
}

kvclt::sequence parasrv_multi::start_update_multi(std::span<const std::string> keys, const set_source& deltas,
                                                  std::uint64_t function, bool clocked_update,
                                                  std::shared_ptr<set_target> to) {
  const auto what = to != nullptr ? net::verb::bupdate_multi : net::verb::update_multi;
  const auto& of_keys = clock_.of(keys);
  if (auto set = find_repeated(keys)) {
    return start_set_update(std::move(set), deltas.items.empty() ? deltas : source_of(deltas.items, numbers_), function,
                            clocked_update, std::move(to), asked_for::list);
  }
  const auto c = clock_.update_call(of_keys, what, function, clocked_update);
  return send_updates(c, keys, deltas, deltas, clocked_update, std::move(to));
}

kvclt::sequence parasrv_multi::send_updates(const kvclt::call& c, std::span<const std::string> keys,
                                            const set_source& values, const set_source& deltas, bool clocked_update,
                                            std::shared_ptr<set_target> to) {
  const bool is_clocked = worker_clock::is_clocked(clock_.of(keys));
  if (is_clocked) {
    for (const auto& key : keys) {
      cache_.changing(key);
      if (!clocked_update) cache_.drop(key);
    }
  }
  auto call = std::make_shared<multi_call>();
  call->to = std::move(to);
  call->closing = &closing_;
  const auto number = client_.many().multi_async(
      c, keys, {values.tag, values.value_bytes, values.numbers, values.items},
      [this, call](std::size_t i, std::string_view key, const net::reply_item& item) {
        if (item.result == net::status::ok) {
          if (call->to != nullptr) call->guarded([&] { naming_key(key, [&] { call->to->put_one(i, item.value); }); });
          return;
        }
        cache_.drop(key);  // the delta was added to it
        call->fail(item.result, net::text_of(item.value.bytes), "updating \"" + std::string(key) + "\"");
      },
      [this, call](kvclt::sequence answered) { call->end(failures_, answered); },
      [call](std::span<const std::uint32_t> order, std::string_view first, const kv_result& r) {
        call->take_uniform(order, r, first);
      });
  if (is_clocked && clocked_update)
    for (std::size_t i = 0; i < keys.size(); ++i) cache_.apply(keys[i], deltas.at(i), c.function);
  return number;
}

void parasrv_multi::update_multi(const std::vector<std::string>& keys, const set_source& deltas, std::uint64_t function,
                                 bool clocked_update, set_target* to) {
  (void)failures_.finish(
      start_update_multi(keys, deltas, function, clocked_update, to != nullptr ? borrowed(to) : nullptr));
}

void parasrv_multi::update_default_multi(const std::vector<std::string>& keys, const std::vector<value_view>& initials,
                                         const std::vector<value_view>& deltas, std::uint64_t function) {
  std::vector<std::vector<std::byte>> payloads(keys.size());
  std::vector<value_view> values(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    payloads[i] = default_and_delta(initials[i], deltas[i]);
    values[i] = {value_tag::none, payloads[i]};
  }
  const auto c = clock_.update_call(clock_.of(keys), net::verb::update_default_multi, function, true);
  (void)failures_.finish(
      send_updates(c, keys, {value_tag::none, 0, {}, values}, {value_tag::none, 0, {}, deltas}, true, {}));
}

bool parasrv_multi::remove_multi(const std::vector<std::string>& keys) {
  for (const auto& key : keys) cache_.changing(key);
  bool all = true;
  outcome o;
  const auto each = [&](std::size_t i, const net::reply_item& item) {
    cache_.drop(keys[i]);
    if (item.result == net::status::not_found) all = false;
    else if (item.result != net::status::ok) o = {item.result, net::text_of(item.value.bytes)};
  };
  client_.many().multi({.what = net::verb::remove_multi}, keys, {}, each);
  if (!o.ok()) o.raise("removing keys");
  return all;
}

void parasrv_multi::clear() {
  outcome o;
  ++clears_;
  client_.broadcast({.what = net::verb::clear}, {}, {}, [&](const kv_result& r) {
    if (!r.ok()) o = outcome(r);
  });
  cache_.clear();
  if (!o.ok()) o.raise("clearing");
}

// ---- prepared key sets --------------------------------------------------------------------------------------------

struct parasrv_multi::set_call : multi_call {
  std::shared_ptr<const sharded_keys> set;
  const char* verb = "";  // the operation on the keys
  asked_for what = asked_for::set;
  worker_cache* cache = nullptr;  // of a marked read

  void receive(std::span<const std::uint32_t> order, const kv_result& r) {
    if (!r.ok()) {
      const auto name = what == asked_for::set ? "a key set" : "\"" + set->keys[order.front()] + "\"";
      return fail(r.header.result, r.text(), std::string(verb) + " " + name);
    }
    if ((r.header.flags & net::reply_uniform) != 0) {
      take_uniform(order, r, set->keys[order.front()]);
      return remember_uniform(order, r);
    }
    net::reply_items items(r.body, r.header.count);
    net::reply_item item;
    std::size_t k = 0;
    for (; k < order.size() && items.next(item); ++k) {
      const auto& key = set->keys[order[k]];
      if (item.result == net::status::ok) {
        if (mark) cache->remember_read(key, item.value, item.version, minimum, *mark);
        if (to != nullptr) guarded([&] { naming_key(key, [&] { to->put_one(order[k], item.value); }); });
      } else if (item.result == net::status::not_found) {
        if (what == asked_for::those_that_exist) continue;
        fail(item.result, "key \"" + key + "\" does not exist", {});
      } else {
        fail(item.result, net::text_of(item.value.bytes), std::string(verb) + " \"" + key + "\"");
      }
    }
    if (k != order.size() || !items.ok()) throw protocol_error("the reply to a key set does not fit its request");
  }
  /// The reply's version is the newest of its shard: no value has a higher one.
  void remember_uniform(std::span<const std::uint32_t> order, const kv_result& r) {
    if (!mark) return;
    const auto bytes = r.tail ? r.tail.bytes() : r.body;
    const auto each = bytes.size() / order.size();
    for (std::size_t k = 0; k < order.size(); ++k)
      cache->remember_read(set->keys[order[k]], {r.header.tag, bytes.subspan(k * each, each)}, r.header.value_version,
                           minimum, *mark, false);
  }
};

namespace {

/// All keys of a set have the consistency of its first one; an empty set has the usual one.
std::span<const std::string> first_of(const std::shared_ptr<const sharded_keys>& set) {
  return set == nullptr || set->keys.empty() ? std::span<const std::string>() : std::span(set->keys).first(1);
}

}  // namespace

std::shared_ptr<const sharded_keys> parasrv_multi::prepare(std::vector<std::string> keys) {
  (void)clock_.of(keys);
  prepared_ = true;
  auto set = client_.many().split(std::move(keys));
  client_.many().prepare(*set);
  return set;
}

kvclt::sequence parasrv_multi::start_set(const kvclt::call& c, std::shared_ptr<const sharded_keys> set,
                                         const set_source& values, std::shared_ptr<set_target> to, const char* doing,
                                         asked_for what) {
  if (set == nullptr || set->keys.empty()) return 0;
  auto call = std::make_shared<set_call>();
  call->set = set;
  call->closing = &closing_;
  call->to = std::move(to);
  call->verb = doing;
  call->what = what;
  const bool changes = c.what != net::verb::set_pull;
  if (!changes && what != asked_for::set && worker_clock::is_clocked(clock_.of(first_of(set)))) {
    call->cache = &cache_;
    call->minimum = clock_.slowest();
    call->mark.emplace(cache_);
  }
  return client_.many().set_async(
      c, std::move(set), {values.tag, values.value_bytes, values.numbers, values.items},
      [call](std::span<const std::uint32_t> order, const kv_result& r) { call->receive(order, r); },
      [this, call, changes](kvclt::sequence number) {
        if (changes && call->failed()) cache_.drop(*call->set);
        call->end(failures_, number);
      });
}

kvclt::sequence parasrv_multi::start_set_read(std::shared_ptr<const sharded_keys> set, std::shared_ptr<set_target> to) {
  const auto& c = clock_.of(first_of(set));
  clock_.begin_read(c);
  return start_set(clock_.read_call(c, net::verb::set_pull), std::move(set), {}, std::move(to), "reading",
                   asked_for::set);
}

kvclt::sequence parasrv_multi::start_set_write(std::shared_ptr<const sharded_keys> set, const set_source& values) {
  if (set == nullptr) return 0;
  const auto& c = clock_.of(first_of(set));
  if (c.model == consistency_model::bsp) {  // fold completed iterations, as fold_before_write does
    clock_.wait_for_minimum(c);
    client_.many().set_async(clock_.read_call(c, net::verb::set_pull), set, {}, nullptr);
  }
  if (worker_clock::is_clocked(c)) {
    for (const auto& key : set->keys) cache_.changing(key);
    cache_.drop(*set);
  }
  return start_set({.what = net::verb::set_push}, std::move(set), values, nullptr, "writing", asked_for::set);
}

kvclt::sequence parasrv_multi::start_set_update(std::shared_ptr<const sharded_keys> set, const set_source& deltas,
                                                std::uint64_t function, bool clocked_update,
                                                std::shared_ptr<set_target> to) {
  return start_set_update(std::move(set), deltas, function, clocked_update, std::move(to), asked_for::set);
}

kvclt::sequence parasrv_multi::start_set_update(std::shared_ptr<const sharded_keys> set, const set_source& deltas,
                                                std::uint64_t function, bool clocked_update,
                                                std::shared_ptr<set_target> to, asked_for asked) {
  if (set == nullptr) return 0;
  const auto& of_set = clock_.of(first_of(set));
  const bool remembered = worker_clock::is_clocked(of_set) && (cache_.size() != 0 || cache_.has_reads_in_flight());
  if (remembered) {
    for (const auto& key : set->keys) {
      cache_.changing(key);
      if (!clocked_update) cache_.drop(key);
    }
  }
  const auto what = to != nullptr ? net::verb::set_bupdate : net::verb::set_update;
  const auto c = clock_.update_call(of_set, what, function, clocked_update);
  const auto number = start_set(c, set, deltas, std::move(to), "updating", asked);
  if (remembered && clocked_update) {
    for (std::size_t i = 0; i < set->keys.size(); ++i) cache_.apply(set->keys[i], deltas.at(i), function);
  }
  return number;
}

// ---- values split over several keys -----------------------------------------------------------------------------

void parasrv_multi::read_parts(const std::string& name, std::span<const part> parts, const put_item& put) {
  const auto& of_name = clock_.of(name);
  clock_.begin_read(of_name);
  // Handlers share what they need: one that runs after an exception finds that the caller no longer waits.
  struct reading {
    const put_item* put;
    outcome how{};
  };
  const auto state = std::make_shared<reading>(reading{&put});
  struct at_end {
    reading& state;
    ~at_end() { state.put = nullptr; }
  } const over{*state};
  std::vector<kvclt::sequence> sent;
  sent.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto c = clock_.read_call(of_name, parts[i].what);
    c.flags |= parts[i].flags;
    sent.push_back(client_.request(
        c, parts[i].key, parts[i].value,
        [state, i](const kv_result& r) {
          if (state->put == nullptr) return;
          if (r.ok()) (*state->put)(i, r.value());
          else if (state->how.ok()) state->how = outcome(r);
        },
        parts[i].large));
  }
  for (const auto s : sent) client_.wait(s);
  if (!state->how.ok()) state->how.raise("reading \"" + name + "\"");
}

void parasrv_multi::read_parts(const std::string& name, const std::vector<std::string>& keys,
                               const std::vector<value_view>& elements, const put_item& put) {
  const auto& of_name = clock_.of(name);
  clock_.begin_read(of_name);
  outcome o;
  const auto each = [&](std::size_t i, const net::reply_item& item) {
    if (item.result == net::status::ok) return put(i, item.value);
    if (o.ok()) o = {item.result, net::text_of(item.value.bytes)};
  };
  client_.many().multi(clock_.read_call(of_name, net::verb::pull_at_multi), keys, elements, each);
  if (!o.ok()) o.raise("reading \"" + name + "\"");
}

std::shared_ptr<shared_update> parasrv_multi::update_parts(const std::string& name, std::span<part> parts,
                                                           std::uint64_t function, bool clocked_update) {
  auto all = std::make_shared<shared_update>();
  all->name = name;
  all->sent.reserve(parts.size());
  for (auto& p : parts) {
    auto c = clock_.update_call(clock_.of(name), p.what, function, clocked_update);
    c.flags |= p.flags;
    cache_.changing(std::string(p.key));
    cache_.drop(p.key);
    all->sent.push_back(client_.request(
        c, p.key, p.value,
        [this, all](const kv_result& r) {
          if (!r.ok()) failures_.record(all, r.header.result, r.text());
        },
        std::move(p.large)));
  }
  return all;
}

void parasrv_multi::write_parts(const std::string& name, std::span<part> parts, std::uint64_t assign) {
  if (const auto& c = clock_.of(name); c.model == consistency_model::bsp) {
    clock_.wait_for_minimum(c);
    for (const auto& p : parts) client_.request(clock_.read_call(c, net::verb::contains), p.key, {}, nullptr);
  }
  failures_.finish(update_parts(name, parts, assign, false));
}

}  // namespace paracel
