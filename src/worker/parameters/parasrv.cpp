// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/parasrv.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <utility>

#include <paracel/error.hpp>

#include "worker/parameters/key_errors.hpp"

namespace paracel {

parasrv::parasrv(std::shared_ptr<session> job, const consistency& c, std::uint32_t begin)
    : job_(std::move(job)),
      client_(job_->open_client()),
      clock_(*job_, *client_, c, begin),
      functions_(*job_, *client_),
      failures_(*client_),
      cache_(*client_, clock_, functions_),
      combined_(*client_, clock_, functions_, failures_, cache_),
      many_(*client_, clock_, failures_, cache_) {
  if (c.model == consistency_model::bsp) job_->stages();
  client_->set_pre_send_hook([this](net::verb what, const std::string_view* key, const net::request_items* listed) {
    if (listed != nullptr) combined_.send_before(*listed);
    else combined_.send_before(key);
    cache_.before_request(what, key);
  });
}

parasrv::~parasrv() {
  try {
    if (std::uncaught_exceptions() == 0) finish_last();
  } catch (const job_error&) {  // and what was in flight ended with it
  } catch (...) {
    job_->fails(std::current_exception());
  }
  *self_ = nullptr;
  client_.reset();  // its handlers refer to marks of reads
}

/// Completes what was not waited for. Values and callbacks have no receiver any more.
void parasrv::finish_last() {
  many_.close();
  client_->forget_reads();
  std::erase_if(following_, [](const auto& r) { return r->reads; });
  do {
    combined_.send_all();
    client_->wait_all();
    send_following();
  } while (client_->in_flight() != 0);
  failures_.throw_first();
}

void parasrv::set_model(consistency_model model) {
  begin_model(model);
  clock_.set_model(model);
  if (!clock_.uses(consistency_model::ssp)) cache_.end_push();
}

void parasrv::set_consistency(const std::string& prefix, const consistency& c) {
  if (prefix.empty()) throw config_error("an empty prefix has no consistency of its own: every key begins with it");
  if (many_.has_prepared())
    throw config_error("the consistency of \"" + prefix + "\" must be set before any key set is prepared");
  begin_model(c.model);
  clock_.set_consistency(prefix, c);
}

/// Cached values and unsent updates belong to the previous consistency.
void parasrv::begin_model(consistency_model model) {
  if (model == consistency_model::bsp) job_->stages();
  combined_.send_before(nullptr);
  cache_.clear();
}

bool async_result::get() {
  if (other_.valid()) return other_.get();
  const auto from = std::exchange(from_, nullptr);
  if (from == nullptr) throw error("a future was used twice, or belongs to no request");
  if (*from == nullptr) throw error("a future was used after its paralg was gone");
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
    if (requests_->empty()) (*from_)->combined_.send_before(nullptr);
    if (!(*from_)->is_answered(requests_.get())) client.poll();
    return (*from_)->is_answered(requests_.get());
  }
  if (!client.answered(number_)) client.poll();
  return client.answered(number_);
}

async_result::operator std::future<bool>() && {
  return std::async(std::launch::deferred, [self = std::move(*this)]() mutable { return self.get(); });
}

/// `waits`, a member of `u`: it is still to be sent.
async_result parasrv::result_of(std::shared_ptr<shared_update> u, const bool* waits) {
  const std::shared_ptr<const std::vector<kvclt::sequence>> requests(u, &u->sent);
  return result_of(
      std::async(std::launch::deferred,
                 [self = std::weak_ptr(self_), u = std::move(u), waits] {
                   const auto there = self.lock();
                   if (!there || *there == nullptr)
                     throw error("the future of an update of \"" + u->name + "\" was used after its paralg was gone");
                   auto& me = **there;
                   const std::string_view only = u->name;
                   if (waits != nullptr && *waits) me.combined_.send_before(&only);
                   me.failures_.finish(u);
                   return true;
                 }),
      requests);
}

void parasrv::receive_read(const kv_result& r, value_sink to, const std::string* key, bool may_miss) {
  const auto number = r.header.sequence;
  if (!r.ok()) {
    const auto name = key != nullptr ? "\"" + *key + "\"" : std::string("a key");
    if (r.header.result != net::status::not_found)
      return failures_.record(number, r.header.result, r.text(), "reading " + name);
    if (!may_miss) return failures_.record(number, r.header.result, "key " + name + " does not exist", {});
    failures_.record_missing(number);
    return;
  }
  try {
    if (key != nullptr) naming_key(*key, [&] { to.put(to.target, r.value()); });
    else to.put(to.target, r.value());
  } catch (...) {
    failures_.record(number, std::current_exception());
  }
}

kvclt::sequence parasrv::start_read(const std::string& key, value_sink to, std::function<void()> then) {
  const auto& c = clock_.of(key);
  const bool is_clocked = worker_clock::is_clocked(c);
  if (!is_clocked && !then) {
    return client_->request(clock_.read_call(c, net::verb::pull), key, {},
                            [this, to, key](const kv_result& r) { receive_read(r, to, &key, true); });
  }
  if (is_clocked) {
    if (clock_.may_cache(c)) {
      if (const auto* e = cache_.find_fresh(key); e != nullptr) {
        clock_.record_staleness(e->minimum);
        naming_key(key, [&] { to.put(to.target, e->view()); });
        if (then) ready_.push_back(std::move(then));
        return 0;
      }
    }
    clock_.begin_read(c);
  }
  return client_->request(clock_.read_call(c, net::verb::pull), key, {},
                          [this, to, key, minimum = clock_.slowest(), mark = worker_cache::read_mark(cache_),
                           then = std::move(then)](const kv_result& r) mutable {
                            if (r.ok()) cache_.remember_read(key, r.value(), r.header.value_version, minimum, mark);
                            const auto failures = failures_.size();
                            receive_read(r, to, &key, !then);
                            if (then && failures_.size() == failures) ready_.push_back(std::move(then));
                          });
}

bool parasrv::read(const std::string& key, const put_value& put) {
  return finish(start_read(key, {const_cast<put_value*>(&put),
                                 [](void* to, const value_view& v) { (*static_cast<const put_value*>(to))(v); }}));
}

std::uint64_t parasrv::read_version(const std::string& key, const put_value& put) {
  const auto& c = clock_.of(key);
  clock_.begin_read(c);
  const auto minimum = clock_.slowest();  // as known when the read is sent
  std::uint64_t version = 0;
  outcome o;
  client_->wait(client_->request(clock_.read_call(c, net::verb::pull), key, {}, [&](const kv_result& r) {
    o = outcome(r);
    if (!r.ok()) return;
    version = r.header.value_version;
    if (worker_clock::is_clocked(c)) cache_.put(key, r.value(), version, minimum, true);
    put(r.value());
  }));
  if (o.result == net::status::not_found) return 0;
  if (!o.ok()) o.raise("reading \"" + key + "\"");
  return version;
}

bool parasrv::cas(const std::string& key, std::uint64_t& version, const value_view& value) {
  auto c = clock_.write_call(clock_.of(key), net::verb::cas);
  const auto expected = version;
  c.prefix = std::as_bytes(std::span(&expected, 1));
  bool swapped = false;
  outcome o;
  cache_.changing(key);
  const auto minimum = clock_.slowest();
  client_->wait(client_->request(c, key, value, [&](const kv_result& r) {
    swapped = r.ok();
    if (swapped || r.header.result == net::status::conflict) version = r.header.value_version;
    else o = outcome(r);
  }));
  if (!o.ok()) o.raise("swapping \"" + key + "\"");
  if (swapped) cache_.remember_write(key, value, minimum);
  else cache_.drop(key);  // the next reader needs the current value
  return swapped;
}

kvclt::sequence parasrv::start_write(const std::string& key, const value_view& value) {
  many_.fold_before_write({&key, 1});
  cache_.changing(key);
  const auto s = client_->request({.what = net::verb::push}, key, value, [this, key](const kv_result& r) {
    if (r.ok()) return;
    cache_.drop(key);
    failures_.record(r.header.sequence, r.header.result, r.text(), "writing \"" + key + "\"");
  });
  cache_.remember_write(key, value, clock_.slowest());
  return s;
}

void parasrv::write(const std::string& key, const value_view& value) { (void)finish(start_write(key, value)); }

const read_cache::entry* parasrv::read_kept(const std::string& key) {
  const auto& c = clock_.of(key);
  if (clock_.may_cache(c)) {
    if (const auto* e = cache_.find_fresh(key); e != nullptr) {
      clock_.record_staleness(e->minimum);
      return e;
    }
  }
  const bool there = read(key, [&](const value_view& v) {
    if (!worker_clock::is_clocked(c)) cache_.put(key, v, 0, clock_.slowest(), false);
  });
  return there ? cache_.find(key) : nullptr;
}

kvclt::sequence parasrv::start_update(const std::string& key, const value_view& delta, std::uint64_t function) {
  return send_update(clock_.update_call(clock_.of(key), net::verb::update, function, true), key, delta, delta);
}

kvclt::sequence parasrv::send_update(const kvclt::call& c, const std::string& key, const value_view& value,
                                     const value_view& delta) {
  if (!worker_clock::is_clocked(clock_.of(key))) {  // nothing is cached
    return client_->request(c, key, value, [this](const kv_result& r) {
      if (!r.ok()) failures_.record(r.header.sequence, r.header.result, r.text(), "updating a key");
    });
  }
  cache_.changing(key);
  const auto s = client_->request(c, key, value, [this, key](const kv_result& r) {
    if (r.ok()) return;
    cache_.drop(key);  // the delta was added to it
    failures_.record(r.header.sequence, r.header.result, r.text(), "updating \"" + key + "\"");
  });
  cache_.apply(key, delta, c.function);
  return s;
}

async_functor_type parasrv::update(const std::string& key, const value_view& delta, std::uint64_t function) {
  if (combined_.takes(key, delta, function)) {
    auto u = combined_.add(key, delta, function);
    const auto* waits = &u->waits;
    return result_of(std::move(u), waits);
  }
  return result_of(start_update(key, delta, function));
}

async_functor_type parasrv::update_default(const std::string& key, const value_view& initial, const value_view& delta,
                                           std::uint64_t function) {
  const auto payload = default_and_delta(initial, delta);
  auto c = clock_.update_call(clock_.of(key), net::verb::update_default, function, true);
  c.prefix = payload;
  return result_of(send_update(c, key, {}, delta));  // the cached value existed: the delta is added to it
}

void parasrv::bupdate(const std::string& key, const value_view& delta, std::uint64_t function, const put_value& put) {
  // The new value under BSP lacks staged updates; a read would not get it.
  const auto& c = clock_.of(key);
  const bool refresh = c.model == consistency_model::ssp && cache_.contains(key);
  if (!refresh) cache_.drop(key);
  cache_.changing(key);
  const auto what = put || refresh ? net::verb::bupdate : net::verb::update;
  const auto minimum = clock_.slowest();
  outcome o;
  client_->wait(client_->request(clock_.update_call(c, what, function, false), key, delta, [&](const kv_result& r) {
    o = outcome(r);
    if (!r.ok()) return;
    if (refresh) cache_.put(key, r.value(), r.header.value_version, minimum, false);
    if (put) put(r.value());
  }));
  if (!o.ok()) o.raise("updating \"" + key + "\"");
}

bool parasrv::contains(const std::string& key) {
  const auto& c = clock_.of(key);
  if (worker_clock::is_clocked(c)) clock_.wait_for_minimum(c);
  outcome o;
  client_->wait(
      client_->request(clock_.read_call(c, net::verb::contains), key, {}, [&](const kv_result& r) { o = outcome(r); }));
  if (!o.ok() && o.result != net::status::not_found) o.raise("looking for \"" + key + "\"");
  return o.ok();
}

bool parasrv::remove(const std::string& key) {
  cache_.changing(key);
  outcome o;
  client_->wait(client_->request({.what = net::verb::remove}, key, {}, [&](const kv_result& r) { o = outcome(r); }));
  cache_.drop(key);
  if (!o.ok() && o.result != net::status::not_found) o.raise("removing \"" + key + "\"");
  return o.ok();
}

// ---- waiting points -----------------------------------------------------------------------------------------------

kvclt::call parasrv::begin_read(const consistency& c, net::verb what) {
  combined_.send_all();
  clock_.begin_read(c);
  return clock_.read_call(c, what);
}

void parasrv::run_ready() {
  // A callback may make requests, wait for them, and so re-enter this function.
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

void parasrv::flush() {
  do {
    combined_.send_all();
    client_->wait_all();
    send_following();
    run_ready();
  } while (client_->in_flight() != 0 || !combined_.empty());
  failures_.throw_first();
}

bool parasrv::commit() {
  flush();
  failures_.forget_missing();
  job_->used().add(client_->take_traffic());
  const bool stops = clock_.tick();
  cache_.renew_push();
  return stops;
}

// ---- pushed values ----------------------------------------------------------------------------------------------

void parasrv::set_push(bool on) {
  if (!on) return cache_.end_push();
  cache_.begin_push([this](std::string_view key, read_cache::entry& e) { return combined_.add_unsent(key, e); });
}

void parasrv::subscribe(const std::vector<std::string>& keys) {
  set_push(true);
  struct nowhere final : set_target {
    using set_target::set_target;
    void put_one(std::size_t, const value_view&) override {}
  } values(keys.size());
  many_.read_multi(keys, values, true);
  cache_.subscribe(keys);
}

}  // namespace paracel
