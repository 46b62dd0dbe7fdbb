// SPDX-License-Identifier: BSD-3-Clause
//
// Calls on many keys: lists of them, prepared sets, and values that lie in several keys.
#include <algorithm>
#include <future>
#include <optional>
#include <tuple>
#include <utility>

#include <paracel/error.hpp>

#include "worker/parasrv.hpp"

namespace paracel {

namespace {

/// The payload of update_default: two request items without keys.
std::vector<std::byte> default_and_delta(const value_view& initial, const value_view& delta) {
  std::vector<std::byte> payload;
  net::append_item(payload, {}, initial);
  net::append_item(payload, {}, delta);
  return payload;
}

}  // namespace

// ---- many keys ----------------------------------------------------------------------------------------------------

/// What is known of a call on many keys until its last request is answered.
struct parasrv::multi_call {
  put_item put;
  std::uint32_t minimum = 0;
  bool all = true;  // a missing key is a failure
  failure outcome;
  std::string what;
  std::exception_ptr error;
  std::optional<read_mark> mark;
  const bool* closing = nullptr;  // the caller has gone

  void fail(net::status result, std::string_view text, std::string doing) {
    if (outcome.result != net::status::ok || error) return;
    outcome = {result, std::string(text)};
    what = std::move(doing);
  }
  /// Hands a value to the caller; what he throws is the failure of the call.
  template <class F>
  void guarded(const F& f) noexcept {
    if (closing != nullptr && *closing) return;
    try {
      f();
    } catch (...) {
      if (!error && outcome.result == net::status::ok) error = std::current_exception();
    }
  }
  void end(parasrv& s, kvclt::sequence number) {
    if (error) s.note(number, error);
    else if (outcome.result != net::status::ok) s.note(number, outcome.result, outcome.text, what);
  }
};

kvclt::sequence parasrv::start_read_multi(std::span<const std::string> keys, put_item put, bool all) {
  if (clocked()) {
    const auto all_fresh = [&] {
      return cached() && std::ranges::all_of(keys, [&](const auto& k) { return cache_.find_fresh(k, needed()) != nullptr; });
    };
    bool fresh = all_fresh();
    if (!fresh && pushed_) {
      client_->poll();
      fresh = all_fresh();
    }
    if (fresh) {
      auto minimum = finished();
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto* e = cache_.find_fresh(keys[i], needed());
        e->read_in = finished();
        minimum = std::min(minimum, e->minimum);
        put(i, e->view());
      }
      last_staleness_ = finished() - minimum;
      return 0;
    }
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  auto call = std::make_shared<multi_call>();
  call->put = std::move(put);
  call->minimum = known_slowest_;
  call->all = all;
  if (clocked()) call->mark.emplace(this);
  return client_->many().multi_async(
      read_call(net::verb::pull_multi), keys, {},
      [this, call](std::size_t i, std::string_view key, const net::reply_item& item) {
        if (item.result == net::status::ok) {
          if (call->mark) remember_read(key, item.value, item.version, call->minimum, *call->mark);
          call->guarded([&] { call->put(i, item.value); });
        } else if (item.result != net::status::not_found) {
          call->fail(item.result, net::text_of(item.value.bytes), "reading \"" + std::string(key) + "\"");
        } else if (call->all) {
          call->fail(item.result, "key \"" + std::string(key) + "\" is not there", {});
        }
      },
      [this, call](kvclt::sequence number) { call->end(*this, number); });
}

void parasrv::read_multi(const std::vector<std::string>& keys, const put_item& put, bool all) {
  (void)finish(start_read_multi(keys, std::ref(put), all));
}

void parasrv::write_multi(const std::vector<std::string>& keys, const std::vector<value_view>& values) {
  fold_before_write(keys);
  for (const auto& key : keys) {
    changing(key);
    cache_.drop(key);
  }
  const auto minimum = known_slowest_;
  failure f;
  std::string failed;
  client_->many().multi({.what = net::verb::push_multi}, keys, values, [&](std::size_t i, const net::reply_item& item) {
    if (item.result == net::status::ok || f.result != net::status::ok) return;
    f = {item.result, std::string(net::text_of(item.value.bytes))};
    failed = keys[i];
  });
  if (f.result != net::status::ok) raise(f.result, f.text, "writing \"" + failed + "\"");
  for (std::size_t i = 0; i < keys.size(); ++i) remember_write(keys[i], values[i], minimum);
}

kvclt::sequence parasrv::start_update_multi(std::span<const std::string> keys, std::span<const value_view> deltas,
                                            std::uint64_t function, bool clocked_update, put_item put) {
  const auto what = put ? net::verb::bupdate_multi : net::verb::update_multi;
  return send_updates(update_call(what, function, clocked_update), keys, deltas, deltas, clocked_update, std::move(put));
}

kvclt::sequence parasrv::send_updates(const kvclt::call& c, std::span<const std::string> keys,
                                      std::span<const value_view> values, std::span<const value_view> deltas,
                                      bool clocked_update, put_item put) {
  if (clocked()) {
    for (const auto& key : keys) {
      changing(key);
      if (!clocked_update) cache_.drop(key);
    }
  }
  auto call = std::make_shared<multi_call>();
  call->put = std::move(put);
  call->closing = &closing_;
  const auto number = client_->many().multi_async(
      c, keys, values,
      [this, call](std::size_t i, std::string_view key, const net::reply_item& item) {
        if (item.result == net::status::ok) {
          if (call->put) call->guarded([&] { call->put(i, item.value); });
          return;
        }
        cache_.drop(key);  // the delta was added to it
        call->fail(item.result, net::text_of(item.value.bytes), "updating \"" + std::string(key) + "\"");
      },
      [this, call](kvclt::sequence answered) { call->end(*this, answered); });
  if (clocked() && clocked_update)
    for (std::size_t i = 0; i < keys.size(); ++i) apply_to_cache(keys[i], deltas[i], c.function);
  return number;
}

void parasrv::update_multi(const std::vector<std::string>& keys, const std::vector<value_view>& deltas,
                           std::uint64_t function, bool clocked_update, const put_item* put) {
  (void)finish(start_update_multi(keys, deltas, function, clocked_update, put != nullptr ? std::ref(*put) : put_item()));
}

async_functor_type parasrv::update_default(const std::string& key, const value_view& initial, const value_view& delta,
                                           std::uint64_t function) {
  const auto payload = default_and_delta(initial, delta);
  auto c = update_call(net::verb::update_default, function, true);
  c.prefix = payload;
  return result_of(send_update(c, key, {}, delta));  // what is cached was there: the delta is added to it
}

void parasrv::update_default_multi(const std::vector<std::string>& keys, const std::vector<value_view>& initials,
                                   const std::vector<value_view>& deltas, std::uint64_t function) {
  std::vector<std::vector<std::byte>> payloads(keys.size());
  std::vector<value_view> values(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    payloads[i] = default_and_delta(initials[i], deltas[i]);
    values[i] = {value_tag::none, payloads[i]};
  }
  (void)finish(send_updates(update_call(net::verb::update_default_multi, function, true), keys, values, deltas, true, {}));
}

bool parasrv::remove_multi(const std::vector<std::string>& keys) {
  for (const auto& key : keys) changing(key);
  bool all = true;
  failure f;
  client_->many().multi({.what = net::verb::remove_multi}, keys, {}, [&](std::size_t i, const net::reply_item& item) {
    cache_.drop(keys[i]);
    if (item.result == net::status::not_found) all = false;
    else if (item.result != net::status::ok) f = {item.result, std::string(net::text_of(item.value.bytes))};
  });
  if (f.result != net::status::ok) raise(f.result, f.text, "removing keys");
  return all;
}

void parasrv::clear() {
  failure f;
  client_->broadcast({.what = net::verb::clear}, {}, {}, [&](const kv_result& r) {
    if (!r.ok()) f = {r.header.result, std::string(r.text())};
  });
  cache_.clear();
  if (f.result != net::status::ok) raise(f.result, f.text, "clearing");
}

// ---- prepared key sets --------------------------------------------------------------------------------------------

struct parasrv::set_call : multi_call {
  std::shared_ptr<const key_parts> set;
  std::shared_ptr<set_target> to;
  const char* doing = "";  // to the keys

  void take(std::span<const std::uint32_t> order, const kv_result& r) {
    if (!r.ok()) return fail(r.header.result, r.text(), std::string(doing) + " a key set");
    if ((r.header.flags & net::reply_uniform) != 0) {
      if (to == nullptr) return;
      const auto width = element_bytes(r.header.tag);
      if (!is_numeric(r.header.tag) || r.body.size() % (width * order.size()) != 0)
        throw protocol_error("the reply to a key set does not fit its request");
      const auto numbers = r.body.size() / width / order.size();
      const auto array = static_cast<value_tag>(static_cast<unsigned>(r.header.tag) | 0x10U);
      return guarded([&] { to->put_all(order, {array, r.body}, numbers, is_array(r.header.tag)); });
    }
    net::reply_items items(r.body, r.header.count);
    net::reply_item item;
    std::size_t k = 0;
    for (; k < order.size() && items.next(item); ++k) {
      const auto& key = set->keys[order[k]];
      if (item.result == net::status::ok) {
        if (to != nullptr) guarded([&] { to->put_one(order[k], item.value); });
      } else if (item.result == net::status::not_found) {
        fail(item.result, "key \"" + key + "\" is not there", {});
      } else {
        fail(item.result, net::text_of(item.value.bytes), std::string(doing) + " \"" + key + "\"");
      }
    }
    if (k != order.size() || !items.ok()) throw protocol_error("the reply to a key set does not fit its request");
  }
};

std::shared_ptr<const key_parts> parasrv::prepare(std::vector<std::string> keys) {
  auto set = client_->many().split(std::move(keys));
  client_->many().prepare(*set);
  return set;
}

kvclt::sequence parasrv::start_set(const kvclt::call& c, std::shared_ptr<const key_parts> set, const set_source& values,
                                   std::shared_ptr<set_target> to, const char* doing) {
  if (set == nullptr || set->keys.empty()) return 0;
  auto call = std::make_shared<set_call>();
  call->set = set;
  call->closing = &closing_;
  call->to = std::move(to);
  call->doing = doing;
  const bool changes = c.what != net::verb::set_pull;
  return client_->many().set_async(
      c, std::move(set), {values.tag, values.value_bytes, values.numbers, values.items},
      [call](std::span<const std::uint32_t> order, const kv_result& r) { call->take(order, r); },
      [this, call, changes](kvclt::sequence number) {
        if (changes && (call->error || call->outcome.result != net::status::ok)) forget_set(*call->set);
        call->end(*this, number);
      });
}

void parasrv::forget_set(const key_parts& set) {
  if (cache_.size() == 0) return;
  for (const auto& key : set.keys) cache_.drop(key);
}

kvclt::sequence parasrv::start_set_read(std::shared_ptr<const key_parts> set, std::shared_ptr<set_target> to) {
  if (clocked()) {
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  return start_set(read_call(net::verb::set_pull), std::move(set), {}, std::move(to), "reading");
}

kvclt::sequence parasrv::start_set_write(std::shared_ptr<const key_parts> set, const set_source& values) {
  if (set == nullptr) return 0;
  if (model_ == consistency_model::bsp) {  // fold what all have finished, as fold_before_write does
    wait_for_minimum();
    client_->many().set_async(read_call(net::verb::set_pull), set, {}, nullptr);
  }
  if (clocked()) {
    for (const auto& key : set->keys) changing(key);
    forget_set(*set);
  }
  return start_set({.what = net::verb::set_push}, std::move(set), values, nullptr, "writing");
}

kvclt::sequence parasrv::start_set_update(std::shared_ptr<const key_parts> set, const set_source& deltas,
                                          std::uint64_t function, bool clocked_update, std::shared_ptr<set_target> to) {
  if (set == nullptr) return 0;
  const bool remembered = clocked() && (cache_.size() != 0 || reads_in_flight_ != 0);
  if (remembered) {
    for (const auto& key : set->keys) {
      changing(key);
      if (!clocked_update) cache_.drop(key);
    }
  }
  const auto what = to != nullptr ? net::verb::set_bupdate : net::verb::set_update;
  const auto number = start_set(update_call(what, function, clocked_update), set, deltas, std::move(to), "updating");
  if (remembered && clocked_update) {
    const auto width = deltas.value_bytes;
    for (std::size_t i = 0; i < set->keys.size(); ++i) {
      if (!deltas.items.empty()) apply_to_cache(set->keys[i], deltas.items[i], function);
      else apply_to_cache(set->keys[i], {deltas.tag, deltas.numbers.subspan(i * width, width)}, function);
    }
  }
  return number;
}

// ---- values in several keys -------------------------------------------------------------------------------------

void parasrv::read_parts(const std::string& name, std::span<const part> parts, const put_item& put) {
  if (clocked()) {
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  // Handlers share what they need: one that is called after an exception finds that nobody waits any more.
  struct reading {
    const put_item* put;
    net::status result = net::status::ok;
    std::string text{};
  };
  const auto state = std::make_shared<reading>(reading{&put});
  struct at_end {
    reading& state;
    ~at_end() { state.put = nullptr; }
  } const over{*state};
  std::vector<kvclt::sequence> sent;
  sent.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto c = read_call(parts[i].what);
    c.flags |= parts[i].flags;
    sent.push_back(client_->request(c, parts[i].key, parts[i].value, [state, i](const kv_result& r) {
      if (state->put == nullptr) return;
      if (r.ok()) (*state->put)(i, r.value());
      else if (state->result == net::status::ok) std::tie(state->result, state->text) = std::pair(r.header.result, r.text());
    }, parts[i].large));
  }
  for (const auto s : sent) client_->wait(s);
  if (state->result != net::status::ok) raise(state->result, state->text, "reading \"" + name + "\"");
}

void parasrv::read_parts(const std::string& name, const std::vector<std::string>& keys,
                         const std::vector<value_view>& elements, const put_item& put) {
  if (clocked()) {
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  auto result = net::status::ok;
  std::string text;
  client_->many().multi(read_call(net::verb::pull_at_multi), keys, elements, [&](std::size_t i, const net::reply_item& item) {
    if (item.result == net::status::ok) return put(i, item.value);
    if (result == net::status::ok) text = net::text_of(item.value.bytes);
    result = item.result;
  });
  if (result != net::status::ok) raise(result, text, "reading \"" + name + "\"");
}

async_functor_type parasrv::update_parts(const std::string& name, std::span<part> parts, std::uint64_t function,
                                         bool clocked_update) {
  auto all = std::make_shared<joint_update>();
  all->name = name;
  all->sent.reserve(parts.size());
  for (auto& p : parts) {
    auto c = update_call(p.what, function, clocked_update);
    c.flags |= p.flags;
    changing(std::string(p.key));
    cache_.drop(p.key);
    all->sent.push_back(client_->request(c, p.key, p.value, [this, all](const kv_result& r) {
      if (!r.ok()) note(all, r.header.result, r.text());
    }, std::move(p.large)));
  }
  return future_of(std::move(all), nullptr);
}

void parasrv::write_parts(const std::string& name, std::span<part> parts, std::uint64_t assign) {
  if (model_ == consistency_model::bsp) {
    wait_for_minimum();
    for (const auto& p : parts) client_->request(read_call(net::verb::contains), p.key, {}, nullptr);
  }
  update_parts(name, parts, assign, false).get();
}

}  // namespace paracel
