// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parasrv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <tuple>
#include <utility>

#include <paracel/error.hpp>

#include "core/ssp_clock.hpp"

namespace paracel {

namespace {

[[noreturn]] void fail(net::status result, const std::string& text, const std::string& what) {
  const auto line = text.empty() ? what + ": " + net::name_of(result) : text;
  switch (result) {
    case net::status::not_found: throw key_error(line);
    case net::status::type_mismatch: throw type_error(line);
    case net::status::plugin_failed:
    case net::status::unknown_function: throw plugin_error(line);
    case net::status::deadline_exceeded: throw network_error(line, true, exit_status::timeout);
    case net::status::job_ended: throw job_error(line, exit_status::failure);
    default: throw error(what + ": " + net::name_of(result) + (text.empty() ? "" : ": " + text));
  }
}

// Deltas that wait here are memory that nobody counts; beyond this they are sent.
constexpr std::size_t most_combined_bytes = std::size_t{64} << 20;
// Failures whose futures may still be asked, after the first of them was thrown.
constexpr std::size_t most_kept_failures = 4096;

/// The payload of update_default: two request items without keys.
std::vector<std::byte> default_and_delta(const value_view& initial, const value_view& delta) {
  std::vector<std::byte> payload;
  net::append_item(payload, {}, initial);
  net::append_item(payload, {}, delta);
  return payload;
}

}  // namespace

parasrv::parasrv(std::shared_ptr<session> job, std::uint32_t staleness, consistency_model model)
    : job_(std::move(job)), client_(job_->open_client()), staleness_(staleness), model_(model), begin_(job_->finished()) {
  client_->set_before([this](net::verb what, const std::string_view* key) { before_request(what, key); });
}

parasrv::~parasrv() {
  try {
    send_combined_before(nullptr);  // as an update that was sent and not waited for
  } catch (const std::exception&) {  // the job has ended, and with it what was to be sent
  }
  *self_ = nullptr;
  client_.reset();  // its handlers hold marks of reads
}

void parasrv::set_model(consistency_model model) {
  send_combined_before(nullptr);
  cache_.clear();
  if (model != consistency_model::ssp) pushed_.reset();
  model_ = model;
}

bool async_result::get() {
  if (other_.valid()) return other_.get();
  const auto from = std::exchange(from_, nullptr);
  if (from == nullptr) throw error("a future was asked twice, or never made");
  if (*from == nullptr) throw error("a future was asked after its paralg had gone");
  return (*from)->finish(number_);
}

void async_result::wait() const {
  if (other_.valid()) other_.wait();
  else if (from_ != nullptr && *from_ != nullptr) (*from_)->client().wait(number_);
}

bool async_result::ready() const {
  if (other_.valid() && !requests_) return other_.wait_for(std::chrono::seconds{0}) != std::future_status::timeout;
  if (from_ == nullptr || *from_ == nullptr) return true;
  auto& client = (*from_)->client();
  if (requests_) {
    if (requests_->empty()) (*from_)->send_combined_before(nullptr);
    const auto answered = [&] { return std::ranges::all_of(*requests_, [&](auto s) { return client.answered(s); }); };
    if (!answered()) client.poll();
    return answered();
  }
  if (!client.answered(number_)) client.poll();
  return client.answered(number_);
}

async_result::operator std::future<bool>() && {
  return std::async(std::launch::deferred, [self = std::move(*this)]() mutable { return self.get(); });
}

std::uint32_t parasrv::needed() const noexcept {
  const auto s = model_ == consistency_model::bsp ? 0 : staleness_;
  return needed_minimum(finished(), s);
}

void parasrv::wait_for_minimum() {
  if (known_slowest_ >= needed()) return;
  failure f;
  client_->wait(client_->clock_request(net::verb::clock_wait, needed(), [&](const kv_result& r) {
    if (r.ok()) known_slowest_ = std::max(known_slowest_, r.header.clock);
    else f = {r.header.result, std::string(r.text())};
  }));
  if (f.result != net::status::ok) fail(f.result, f.text, "waiting for the clock");
}

kvclt::call parasrv::read_call(net::verb what) const noexcept {
  kvclt::call c{.what = what};
  if (model_ == consistency_model::bsp) {
    c.flags = net::flag_bsp_read;
    c.clock = finished();
  }
  return c;
}

kvclt::call parasrv::update_call(net::verb what, std::uint64_t function, bool clocked) const noexcept {
  kvclt::call c{.what = what, .function = function};
  if (clocked && model_ == consistency_model::bsp) c.flags = net::flag_staged;
  if (clocked) c.clock = finished();
  return c;
}

void parasrv::note(kvclt::sequence number, net::status result, std::string_view text, std::string what) {
  failed_.push_back({number, {result, std::string(text)}, std::move(what), nullptr});
}

void parasrv::note(kvclt::sequence number, std::exception_ptr error) {
  failed_.push_back({number, {}, {}, std::move(error)});
}

void parasrv::refuse(const failed_request& f) {
  if (f.error) std::rethrow_exception(f.error);
  fail(f.outcome.result, f.outcome.text, f.what);
}

bool parasrv::finish(kvclt::sequence number) {
  client_->wait(number);
  if (number == 0) return true;
  if (!missing_.empty() && missing_.erase(number) != 0) return false;
  if (failed_.empty()) return true;
  const auto found = std::ranges::find(failed_, number, &failed_request::number);
  if (found == failed_.end()) return true;
  const auto failed = std::move(*found);
  failed_.erase(found);
  refuse(failed);
}

void parasrv::remember_read(std::string_view key, const value_view& value, std::uint64_t version, std::uint32_t minimum,
                            const read_mark& mark) {
  if (!clocked()) return;
  if (!changed_.empty()) {
    const auto changed = changed_.find(std::string(key));
    if (changed != changed_.end() && changed->second > mark.sent_at) return;  // an own change is missing in it
  }
  cache_.put(key, value, version, minimum);
  if (pushed_) was_read(std::string(key));
}

void parasrv::take_read(const kv_result& r, value_sink to, const std::string* key, bool may_miss) {
  if (!r.ok()) {
    const auto name = key != nullptr ? "\"" + *key + "\"" : std::string("a key");
    if (r.header.result != net::status::not_found)
      return note(r.header.sequence, r.header.result, r.text(), "reading " + name);
    if (!may_miss) return note(r.header.sequence, r.header.result, "key " + name + " is not there", {});
    missing_.insert(r.header.sequence);
    return;
  }
  try {
    to.put(to.target, r.value());
  } catch (...) {
    note(r.header.sequence, std::current_exception());
  }
}

kvclt::sequence parasrv::start_read(const std::string& key, value_sink to, std::function<void()> then) {
  if (!clocked() && !then) {
    return client_->request(read_call(net::verb::pull), key, {}, [this, to](const kv_result& r) {
      take_read(r, to, nullptr, true);
    });
  }
  if (clocked()) {
    if (cached()) {
      if (const auto* e = find_fresh(key); e != nullptr) {
        last_staleness_ = finished() - std::min(finished(), e->minimum);
        to.put(to.target, e->view());
        if (then) ready_.push_back(std::move(then));
        return 0;
      }
    }
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  return client_->request(read_call(net::verb::pull), key, {},
                          [this, to, key, minimum = known_slowest_, mark = read_mark(this),
                           then = std::move(then)](const kv_result& r) mutable {
                            if (r.ok()) remember_read(key, r.value(), r.header.value_version, minimum, mark);
                            const auto failures = failed_.size();
                            take_read(r, to, &key, !then);
                            if (then && failed_.size() == failures) ready_.push_back(std::move(then));
                          });
}

bool parasrv::read(const std::string& key, const put_value& put) {
  return finish(start_read(key, {const_cast<put_value*>(&put), [](void* to, const value_view& v) {
                                   (*static_cast<const put_value*>(to))(v);
                                 }}));
}

std::uint64_t parasrv::read_version(const std::string& key, const put_value& put) {
  if (clocked()) {
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  const auto minimum = known_slowest_;  // as known when the read is sent
  std::uint64_t version = 0;
  failure f;
  client_->wait(client_->request(read_call(net::verb::pull), key, {}, [&](const kv_result& r) {
    if (!r.ok()) {
      f = {r.header.result, std::string(r.text())};
      return;
    }
    version = r.header.value_version;
    if (clocked()) {
      cache_.put(key, r.value(), version, minimum);
      was_read(key);
    }
    put(r.value());
  }));
  if (f.result == net::status::not_found) return 0;
  if (f.result != net::status::ok) fail(f.result, f.text, "reading \"" + key + "\"");
  return version;
}

bool parasrv::cas(const std::string& key, std::uint64_t& version, const value_view& value) {
  if (model_ == consistency_model::bsp) wait_for_minimum();
  const auto expected = version;
  auto c = read_call(net::verb::cas);
  c.prefix = std::as_bytes(std::span(&expected, 1));
  bool swapped = false;
  failure f;
  changing(key);
  const auto minimum = known_slowest_;
  client_->wait(client_->request(c, key, value, [&](const kv_result& r) {
    swapped = r.ok();
    if (swapped || r.header.result == net::status::conflict) version = r.header.value_version;
    else f = {r.header.result, std::string(r.text())};
  }));
  if (f.result != net::status::ok) fail(f.result, f.text, "swapping \"" + key + "\"");
  if (swapped) remember_write(key, value, minimum);
  else cache_.drop(key);  // whoever reads next wants what is there
  return swapped;
}

void parasrv::fold_before_write(std::span<const std::string> keys) {
  if (model_ != consistency_model::bsp) return;
  wait_for_minimum();
  for (const auto& key : keys) client_->request(read_call(net::verb::contains), key, {}, nullptr);
}

kvclt::sequence parasrv::start_write(const std::string& key, const value_view& value) {
  fold_before_write({&key, 1});
  changing(key);
  const auto s = client_->request({.what = net::verb::push}, key, value, [this, key](const kv_result& r) {
    if (r.ok()) return;
    cache_.drop(key);
    note(r.header.sequence, r.header.result, r.text(), "writing \"" + key + "\"");
  });
  remember_write(key, value, known_slowest_);
  return s;
}

void parasrv::write(const std::string& key, const value_view& value) { (void)finish(start_write(key, value)); }

/// `minimum`: the slowest clock that was known when the write was sent.
void parasrv::remember_write(const std::string& key, const value_view& value, std::uint32_t minimum) {
  // Under BSP only an answer to a read is known to be the state of this clock.
  if (model_ == consistency_model::ssp) cache_.put(key, value, 0, minimum);
  else cache_.drop(key);
}

bool parasrv::is_additive(std::uint64_t function) const {
  if (function == 0) return true;
  const auto found = std::ranges::find_if(functions_, [&](const auto& f) { return f.second.id == function; });
  return found != functions_.end() && found->second.additive;
}

void parasrv::apply_to_cache(const std::string& key, const value_view& delta, std::uint64_t function) {
  // Under BSP own updates too take effect when the clock moves, and then the entry is out of date anyway.
  if (model_ != consistency_model::ssp) return;
  auto* e = cache_.find(key);
  if (e == nullptr) return;
  if (!is_additive(function) || e->tag != delta.tag || e->bytes.size() != delta.bytes.size() || !is_numeric(e->tag)) {
    cache_.drop(key);
    return;
  }
  add_numbers(element_of(e->tag), e->bytes, delta.bytes);
}

const read_cache::entry* parasrv::read_kept(const std::string& key) {
  if (cached()) {
    if (const auto* e = find_fresh(key); e != nullptr) {
      last_staleness_ = finished() - std::min(finished(), e->minimum);
      return e;
    }
  }
  const bool there = read(key, [&](const value_view& v) {
    if (!clocked()) cache_.put(key, v, 0, known_slowest_);
  });
  return there ? cache_.find_fresh(key, 0) : nullptr;
}

kvclt::sequence parasrv::start_update(const std::string& key, const value_view& delta, std::uint64_t function) {
  return send_update(update_call(net::verb::update, function, true), key, delta, delta);
}

async_functor_type parasrv::update_default(const std::string& key, const value_view& initial, const value_view& delta,
                                           std::uint64_t function) {
  const auto payload = default_and_delta(initial, delta);
  auto c = update_call(net::verb::update_default, function, true);
  c.prefix = payload;
  return result_of(send_update(c, key, {}, delta));  // what is cached was there: the delta is added to it
}

kvclt::sequence parasrv::send_update(const kvclt::call& c, const std::string& key, const value_view& value,
                                     const value_view& delta) {
  if (!clocked()) {  // nothing is cached
    return client_->request(c, key, value, [this](const kv_result& r) {
      if (!r.ok()) note(r.header.sequence, r.header.result, r.text(), "updating a key");
    });
  }
  changing(key);
  const auto s = client_->request(c, key, value, [this, key](const kv_result& r) {
    if (r.ok()) return;
    cache_.drop(key);  // the delta was added to it
    note(r.header.sequence, r.header.result, r.text(), "updating \"" + key + "\"");
  });
  apply_to_cache(key, delta, c.function);
  return s;
}

async_functor_type parasrv::update(const std::string& key, const value_view& delta, std::uint64_t function) {
  if (combines(key, delta, function)) return combine(key, delta, function);
  return result_of(start_update(key, delta, function));
}

void parasrv::bupdate(const std::string& key, const value_view& delta, std::uint64_t function, const put_value& put) {
  // The new value under BSP lacks what is staged; a read would not get it.
  const bool refresh = model_ == consistency_model::ssp && cache_.contains(key);
  if (!refresh) cache_.drop(key);
  changing(key);
  const auto what = put || refresh ? net::verb::bupdate : net::verb::update;
  const auto minimum = known_slowest_;
  failure f;
  client_->wait(client_->request(update_call(what, function, false), key, delta, [&](const kv_result& r) {
    if (!r.ok()) {
      f = {r.header.result, std::string(r.text())};
      return;
    }
    if (refresh) cache_.put(key, r.value(), r.header.value_version, minimum);
    if (put) put(r.value());
  }));
  if (f.result != net::status::ok) fail(f.result, f.text, "updating \"" + key + "\"");
}

bool parasrv::contains(const std::string& key) {
  if (clocked()) wait_for_minimum();
  failure f;
  client_->wait(client_->request(read_call(net::verb::contains), key, {}, [&](const kv_result& r) {
    f = {r.header.result, r.ok() ? std::string() : std::string(r.text())};
  }));
  if (f.result != net::status::ok && f.result != net::status::not_found)
    fail(f.result, f.text, "looking for \"" + key + "\"");
  return f.result == net::status::ok;
}

bool parasrv::remove(const std::string& key) {
  changing(key);
  failure f;
  client_->wait(client_->request({.what = net::verb::remove}, key, {}, [&](const kv_result& r) {
    f = {r.header.result, r.ok() ? std::string() : std::string(r.text())};
  }));
  cache_.drop(key);
  if (f.result != net::status::ok && f.result != net::status::not_found)
    fail(f.result, f.text, "removing \"" + key + "\"");
  return f.result == net::status::ok;
}

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

  void fail(net::status result, std::string_view text, std::string doing) {
    if (outcome.result != net::status::ok || error) return;
    outcome = {result, std::string(text)};
    what = std::move(doing);
  }
  /// Hands a value to the caller; what he throws is the failure of the call.
  template <class F>
  void guarded(const F& f) noexcept {
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
  return client_->multi_async(
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
  client_->multi({.what = net::verb::push_multi}, keys, values, [&](std::size_t i, const net::reply_item& item) {
    if (item.result == net::status::ok || f.result != net::status::ok) return;
    f = {item.result, std::string(net::text_of(item.value.bytes))};
    failed = keys[i];
  });
  if (f.result != net::status::ok) fail(f.result, f.text, "writing \"" + failed + "\"");
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
  const auto number = client_->multi_async(
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
  client_->multi({.what = net::verb::remove_multi}, keys, {}, [&](std::size_t i, const net::reply_item& item) {
    cache_.drop(keys[i]);
    if (item.result == net::status::not_found) all = false;
    else if (item.result != net::status::ok) f = {item.result, std::string(net::text_of(item.value.bytes))};
  });
  if (f.result != net::status::ok) fail(f.result, f.text, "removing keys");
  return all;
}

void parasrv::clear() {
  failure f;
  client_->broadcast({.what = net::verb::clear}, {}, {}, [&](const kv_result& r) {
    if (!r.ok()) f = {r.header.result, std::string(r.text())};
  });
  cache_.clear();
  if (f.result != net::status::ok) fail(f.result, f.text, "clearing");
}

// ---- values that come by themselves -----------------------------------------------------------------------------

namespace {
constexpr bool only_looks(net::verb v) noexcept {
  using net::verb;
  switch (v) {
    case verb::pull: case verb::contains: case verb::pull_at: case verb::pull_multi: case verb::contains_multi:
    case verb::pull_at_multi: case verb::scan: case verb::top_k: case verb::reduce: case verb::set_pull: return true;
    default: return false;
  }
}
}  // namespace

void parasrv::before_request(net::verb what, const std::string_view* key) {
  send_combined_before(key);
  if (pushed_ && !only_looks(what)) pushed_->changing(key, client_->next());
}

void parasrv::set_push(bool on) {
  if (!on) {
    pushed_.reset();
    return;
  }
  if (pushed_) return;
  client_->clock_request(net::verb::subscribe, 0, nullptr);  // from now on it tells the shards
  pushed_ = std::make_unique<subscriber>(*client_, cache_, [this](std::string_view key, read_cache::entry& e) {
    const auto* unsent = combiner_.find(key);
    if (unsent == nullptr) return true;
    if (unsent->tag != e.tag || unsent->sum.size() != e.bytes.size()) return false;
    add_numbers(element_of(e.tag), e.bytes, unsent->sum.bytes());
    return true;
  }, [this](std::uint32_t slowest) { known_slowest_ = std::max(known_slowest_, slowest); });
}

void parasrv::subscribe(const std::vector<std::string>& keys) {
  set_push(true);
  read_multi(keys, [](std::size_t, const value_view&) {}, true);
  for (const auto& key : keys) pushed_->wants(key, finished());
  if (model_ == consistency_model::ssp) pushed_->renew(known_slowest_, finished());
}

/// The entry of `key` if it may answer a read; what has been pushed is looked at when there seems to be none.
const read_cache::entry* parasrv::find_fresh(const std::string& key) {
  const auto* e = cache_.find_fresh(key, needed());
  if (e == nullptr && pushed_) {
    client_->poll();
    e = cache_.find_fresh(key, needed());
  }
  if (e != nullptr) e->read_in = finished();
  return e;
}

void parasrv::was_read(const std::string& key) {
  if (pushed_ && cached()) pushed_->wants(key, finished());
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
  auto set = client_->split(std::move(keys));
  client_->prepare(*set);
  return set;
}

kvclt::sequence parasrv::start_set(const kvclt::call& c, std::shared_ptr<const key_parts> set, const set_source& values,
                                   std::shared_ptr<set_target> to, const char* doing) {
  if (set == nullptr || set->keys.empty()) return 0;
  auto call = std::make_shared<set_call>();
  call->set = set;
  call->to = std::move(to);
  call->doing = doing;
  const bool changes = c.what != net::verb::set_pull;
  return client_->set_async(
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
    client_->set_async(read_call(net::verb::set_pull), set, {}, nullptr);
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

// ---- updates that are added up first --------------------------------------------------------------------------

void parasrv::set_combining(bool on) {
  if (!on) send_combined_before(nullptr);
  combining_ = on;
}

bool parasrv::combines(const std::string& key, const value_view& delta, std::uint64_t function) const {
  // Under BSP each update is staged by itself: a sum of them would give other bits.
  if (model_ == consistency_model::bsp || !combining_.value_or(model_ == consistency_model::ssp)) return false;
  // A key that cannot travel is refused now, and not when others travel with it.
  return key.size() <= net::max_key_bytes && is_numeric(delta.tag) && is_well_formed(delta) && is_additive(function);
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
  changing(key);
  apply_to_cache(key, delta, function);
  return future_of(e->ticket, &e->ticket->waits);
}

void parasrv::note(const std::shared_ptr<joint_update>& u, net::status result, std::string_view text) {
  if (std::ranges::find(joint_failed_, u) != joint_failed_.end()) return;  // the first reason counts
  u->result = result;
  u->text = text;
  joint_failed_.push_back(u);
}

/// `waits`, a member of `u`: it is still to be sent.
async_functor_type parasrv::future_of(std::shared_ptr<joint_update> u, bool* waits) {
  const std::shared_ptr<const std::vector<kvclt::sequence>> requests(u, &u->sent);
  return result_of(std::async(std::launch::deferred, [self = std::weak_ptr(self_), u = std::move(u), waits] {
    const auto there = self.lock();
    if (!there || *there == nullptr)
      throw error("the future of an update of \"" + u->name + "\" was asked after its paralg had gone");
    auto& me = **there;
    const std::string_view only = u->name;
    if (waits != nullptr && *waits) me.send_combined_before(&only);
    for (const auto s : u->sent) me.client_->wait(s);
    std::erase(me.joint_failed_, u);
    if (u->result != net::status::ok) fail(u->result, u->text, "updating \"" + u->name + "\"");
    return true;
  }), requests);
}

/// What is not sent must not look as if it had been acknowledged.
void parasrv::unsent(combined_update& u) {
  u.waits = false;
  u.result = net::status::internal;
  u.text = "it could not be sent";
}

void parasrv::send_combined(combiner::entry e) {
  unsent(*e.ticket);
  auto view = e.view();
  blob large;
  if (view.bytes.size() > net::tail_threshold_bytes) large = std::move(e.sum);
  e.ticket->sent.push_back(client_->request(update_call(net::verb::update, e.function, true), e.key, view,
                                            [this, u = e.ticket](const kv_result& r) {
                                              if (r.ok()) return;
                                              cache_.drop(u->name);
                                              note(u, r.header.result, r.text());
                                            }, std::move(large)));
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
  // One request a shard for all keys whose updates have the same function; what is large goes by itself.
  auto all = combiner_.take_all();
  for (auto& e : all) unsent(*e.ticket);
  const auto small_end = std::stable_partition(all.begin(), all.end(), [](const combiner::entry& e) {
    return e.sum.size() <= net::tail_threshold_bytes;
  });
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
      e->ticket->text = "no answer came: it is unknown whether it was applied";
    }
    client_->multi(update_call(net::verb::update_multi, from->function, true), keys, sums,
                   [&](std::size_t i, const net::reply_item& item) {
                     const auto& u = from[static_cast<std::ptrdiff_t>(i)].ticket;
                     u->result = item.result;
                     if (item.result == net::status::ok) return;
                     cache_.drop(u->name);
                     note(u, item.result, net::text_of(item.value.bytes));
                   });
    from = to;
  }
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
  if (state->result != net::status::ok) fail(state->result, state->text, "reading \"" + name + "\"");
}

void parasrv::read_parts(const std::string& name, const std::vector<std::string>& keys,
                         const std::vector<value_view>& elements, const put_item& put) {
  if (clocked()) {
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  auto result = net::status::ok;
  std::string text;
  client_->multi(read_call(net::verb::pull_at_multi), keys, elements, [&](std::size_t i, const net::reply_item& item) {
    if (item.result == net::status::ok) return put(i, item.value);
    if (result == net::status::ok) text = net::text_of(item.value.bytes);
    result = item.result;
  });
  if (result != net::status::ok) fail(result, text, "reading \"" + name + "\"");
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

std::string parasrv::symbol_with(const std::string& symbol, const hyper_parameters& hyper) {
  std::string text = symbol;
  for (const auto& [name, value] : hyper) {
    if (!std::isfinite(value))
      throw plugin_error(symbol + ": hyper-parameter '" + name + "' is " + std::to_string(value) +
                         ", want a finite number");
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text += text.size() == symbol.size() ? '\0' : ',';
    text += name + '=';
    text.append(digits.data(), end);
  }
  return text;
}

std::uint64_t parasrv::find_function(const std::string& file, const std::string& function, const hyper_parameters& hyper) {
  return find_function(file, symbol_with(function, hyper), net::verb::register_update);
}

std::uint64_t parasrv::find_filter(const std::string& file, const std::string& symbol) {
  return find_function(file, symbol, net::verb::register_filter);
}

std::uint64_t parasrv::find_function(const std::string& file, const std::string& symbol, net::verb what) {
  const std::filesystem::path path(file);
  auto name = path.filename().string();
  const auto known_as = name + '\0' + symbol + '\0' + net::name_of(what);
  for (const auto& [name_and_symbol, f] : functions_)
    if (name_and_symbol == known_as) return f.id;
  if (path.has_parent_path()) job_->allow_plugin_folder(path.parent_path().string());

  failure f;
  function_ref found;
  client_->broadcast({.what = what}, name, net::bytes_of(symbol), [&](const kv_result& r) {
    if (!r.ok()) {
      if (f.result == net::status::ok) f = {r.header.result, std::string(r.text())};
    } else if (r.body.size() >= 9) {
      std::memcpy(&found.id, r.body.data(), 8);
      found.additive = r.body[8] != std::byte{0};
    } else {
      f = {net::status::internal, "a server's answer to register is too short"};
    }
  });
  // Up to the zero: without the hyper-parameters.
  if (f.result != net::status::ok) fail(f.result, f.text, "registering " + name + ":" + symbol.c_str());
  functions_.emplace_back(known_as, found);
  return found.id;
}

kvclt::call parasrv::begin_read(net::verb what) {
  send_all_combined();
  if (clocked()) {
    wait_for_minimum();
    last_staleness_ = finished() - std::min(finished(), known_slowest_);
  }
  return read_call(what);
}

kvclt::call parasrv::begin_write(net::verb what) {
  if (model_ != consistency_model::bsp) return {.what = what};
  wait_for_minimum();
  return read_call(what);
}

void parasrv::failed_later(const std::string& what, net::status why, std::string text) {
  note(0, why, text, "updating \"" + what + "\"");
}

void parasrv::raise(net::status why, const std::string& text, const std::string& what) { fail(why, text, what); }

void parasrv::run_ready() {
  // A callback may make requests, wait for them, and so come here again.
  while (!ready_.empty()) {
    const auto then = std::move(ready_.front());
    ready_.pop_front();
    then();
  }
}

std::size_t parasrv::poll() {
  const auto answers = client_->poll();
  run_ready();
  return answers;
}

void parasrv::settle() {
  do {
    send_all_combined();
    client_->wait_all();
    run_ready();
  } while (client_->in_flight() != 0 || !combiner_.empty());
  const auto joint = std::exchange(joint_failed_, {});
  std::optional<failed_request> first;
  for (auto& f : failed_) {
    if (!std::exchange(f.told, true) && !first) first = f;
  }
  std::erase_if(failed_, [](const auto& f) { return f.number == 0; });  // nobody can ask for these
  if (failed_.size() > most_kept_failures)
    failed_.erase(failed_.begin(), failed_.end() - static_cast<std::ptrdiff_t>(most_kept_failures));
  if (first) refuse(*first);
  if (!joint.empty()) fail(joint.front()->result, joint.front()->text, "updating \"" + joint.front()->name + "\"");
}

void parasrv::commit() {
  settle();
  missing_.clear();
  const auto next = finished() + 1;
  failure f;
  client_->wait(client_->clock_request(net::verb::clock_tick, next, [&](const kv_result& r) {
    if (r.ok()) known_slowest_ = std::max(known_slowest_, r.header.clock);
    else f = {r.header.result, std::string(r.text())};
  }));
  if (f.result != net::status::ok) fail(f.result, f.text, "committing iteration " + std::to_string(next));
  job_->set_finished(next);
  if (pushed_ && model_ == consistency_model::ssp) pushed_->renew(known_slowest_, next);
}

}  // namespace paracel
