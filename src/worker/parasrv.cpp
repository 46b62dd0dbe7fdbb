// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parasrv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <utility>

#include <paracel/error.hpp>

#include "core/ssp_clock.hpp"
#include "worker/folds.hpp"

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

// Failures whose futures may still be asked, after the first of them was thrown.
constexpr std::size_t most_kept_failures = 4096;

}  // namespace

parasrv::parasrv(std::shared_ptr<session> job, const consistency& c, std::uint32_t begin)
    : job_(std::move(job)), client_(job_->open_client()), staleness_(c.staleness), model_(c.model), begin_(begin) {
  if (model_ == consistency_model::bsp) job_->stages();
  client_->set_pre_send_hook([this](net::verb what, const std::string_view* key) { before_request(what, key); });
}

parasrv::~parasrv() {
  try {
    if (std::uncaught_exceptions() == 0) finish_last();
  } catch (const job_error&) {  // and with it ended what was on its way
  } catch (...) {
    job_->fails(std::current_exception());
  }
  *self_ = nullptr;
  client_.reset();  // its handlers hold marks of reads
}

/// What nobody has waited for. Nobody is there any more for values, or to be called back.
void parasrv::finish_last() {
  closing_ = true;
  client_->forget_reads();
  send_all_combined();
  client_->wait_all();
  throw_untold();
}

void parasrv::set_model(consistency_model model) {
  if (model == consistency_model::bsp) job_->stages();
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

kvclt::call parasrv::update_call(net::verb what, std::uint64_t function, bool clocked) {
  kvclt::call c{.what = what, .function = function};
  if (model_ == consistency_model::bsp) c.flags = clocked ? net::flag_staged : net::flag_bsp_read;
  // One that acts at once acts on what all have finished, whenever that is folded.
  if (!clocked && model_ == consistency_model::bsp) wait_for_minimum();
  if (clocked || model_ == consistency_model::bsp) c.clock = finished();
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

// ---- functions in the servers -------------------------------------------------------------------------------------

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
  client_->broadcast({.what = what}, file, net::bytes_of(symbol), [&](const kv_result& r) {
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
  throw_untold();
}

void parasrv::throw_untold() {
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

void parasrv::fold_finished() {
  if (model_ != consistency_model::bsp) return;
  client_->wait(client_->clock_request(net::verb::clock_wait, 0, [&](const kv_result& r) {
    if (r.ok()) known_slowest_ = std::max(known_slowest_, r.header.clock);
  }));
  fold_everywhere(*client_, known_slowest_);
}

void parasrv::fold_committed() {
  if (model_ != consistency_model::bsp) return;
  wait_for_minimum();
  fold_everywhere(*client_, finished());
}

bool parasrv::commit() {
  settle();
  missing_.clear();
  const auto next = finished() + 1;
  bool stops = false;
  failure f;
  client_->wait(client_->clock_request(net::verb::clock_tick, next, [&](const kv_result& r) {
    stops = r.header.order == net::instruction::checkpoint;
    if (r.ok()) known_slowest_ = std::max(known_slowest_, r.header.clock);
    else f = {r.header.result, std::string(r.text())};
  }, model_ == consistency_model::bsp ? net::flag_staged : std::uint16_t{0}));
  if (f.result != net::status::ok) fail(f.result, f.text, "committing iteration " + std::to_string(next));
  job_->set_finished(next);
  if (pushed_ && model_ == consistency_model::ssp) pushed_->renew(known_slowest_, next);
  return stops;
}

}  // namespace paracel
