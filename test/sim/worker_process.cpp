// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/worker_process.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/codec.hpp>

#include "core/ssp_clock.hpp"
#include "storage/checkpoint_store.hpp"

namespace paracel::sim {

using net::status;
using net::verb;
using nlohmann::json;

namespace {

constexpr std::size_t most_in_flight = 24;
constexpr std::uint64_t most_requests = 30;  // in an iteration

std::int64_t number_in(const value_view& v) { return decode<std::int64_t>(v); }
std::string text_of(const kv_result& r) { return std::string(r.text()); }

}  // namespace

worker_process::worker_process(simulation& in, process& p, storage::file_system& disk, history& known,
                               std::uint32_t rank, std::uint32_t size)
    : in_(in),
      process_(p),
      disk_(disk),
      known_(known),
      rank_(rank),
      size_(size),
      incarnation_(in.dice().next() | 1U),
      thread_(p.add("client")) {
  known.knows_client(incarnation_);
  const auto take = [this](std::string_view text) {
    const auto m = membership::from_json(text);
    board_->put(m);
    return m.epoch;
  };
  pulse_.emplace(
      in, p, net::heartbeat_options{.on_membership = take},
      [rank] {
        return json{{"role", "worker"}, {"rank", rank}, {"pid", 1000 + rank}}.dump();
      },
      [rank, &known](const net::directive& o) {
        // A suspended worker may be told that it was ejected before the launcher kills it.
        if (!known.may_be_ejected(rank)) wrong("worker " + std::to_string(rank) + " is told to end: " + o.cause);
      });
  p.own(thread_);
  to_scheduler_.emplace(p);
  thread_.step = [this] { return client_ != nullptr ? step() : start(); };
  in.wake(thread_, in.now());
}

nanos worker_process::start() {
  if (!std::exchange(asked_, true)) {
    const json me = {{"role", "worker"}, {"rank", rank_}, {"size", size_}, {"host", "here"}, {"pid", 1000 + rank_}};
    to_scheduler_->ask(verb::join, me.dump());
  }
  const auto answer = to_scheduler_->answer();
  if (!answer) return 50_ms;
  const auto m = membership::from_json(*answer);
  resume_from(m.checkpoints);
  board_->put(m);
  kvclt_options o;
  o.timeout = std::chrono::milliseconds(0);
  o.incarnation = incarnation_;
  o.time = &process_.time();
  client_ = std::make_unique<server_group>(process_, m, rank_, o, nullptr, board_);
  pulse_->follow(m.epoch);
  requests_left_ = 1 + in_.dice().below(most_requests);
  for (int i = 0; i < 3; ++i) sets_.push_back(make_set());
  return 1_ms;
}

/// Like session.
void worker_process::resume_from(const checkpoint_plan& plan) {
  plan_ = plan;
  iterations_ = plan.clock;
  if (!plan.resume.empty()) parts_.read(disk_, plan, rank_, size_);
  parts_.enter(iterations_, [this](saved_state& to) { to.put("iterations", static_cast<std::int64_t>(iterations_)); });
  if (plan.resume.empty()) return;
  const auto saved = parts_.states(0);
  std::int64_t n = 0;
  if (saved.same_workers() && (!saved.own().get("iterations", n) || n != plan.clock)) {
    wrong("worker " + std::to_string(rank_) + " had finished " + std::to_string(n) +
          " iterations in a checkpoint at clock " + std::to_string(plan.clock));
  }
}

nanos worker_process::step() {
  client_->poll();
  client_->refresh_membership();
  if (phase_ == phase::left) return 20_ms;
  if (phase_ == phase::to_stop) stop();
  if (phase_ == phase::stopped) {
    if (const auto answer = to_scheduler_->answer()) on_checkpoint(*answer);
  }
  if (phase_ == phase::working && in_.now() >= next_) {
    if (requests_left_ == 0 && client_->in_flight() == 0) {
      end_iteration();
    } else if (requests_left_ != 0 && client_->in_flight() < most_in_flight) {
      const auto n = std::min(requests_left_, 1 + in_.dice().below(3));
      for (auto i = n; i != 0; --i) begin_one();
      requests_left_ -= n;
      next_ = in_.now() + in_.dice().between(1_ms, 60_ms);
    }
  }
  return std::clamp<nanos>(next_ - in_.now(), 1_ms, 20_ms);
}

void worker_process::end_iteration() {
  if (iterations_ >= last_) {
    phase_ = phase::left;
    known_.leaves(rank_);
    client_->clock_request(verb::clock_tick, net::no_clock, [this](const kv_result& r) {
      if (!r.ok()) wrong("the clock does not let worker " + std::to_string(rank_) + " go: " + text_of(r));
    });
    return;
  }
  known_.finishes(rank_, ++iterations_);
  parts_.committed(0);
  // Requests after the last iteration are not started.
  requests_left_ = iterations_ >= last_ ? 0 : 1 + in_.dice().below(most_requests);
  phase_ = phase::asks_clock;
  client_->clock_request(
      verb::clock_tick, iterations_,
      [this](const kv_result& r) {
        take_clock(r, 0);
        if (r.header.order == net::instruction::checkpoint) phase_ = phase::to_stop;
        else wait_for_clock(r.header.clock);
      },
      net::flag_staged);
}

/// `known`: the clock's last reply.
void worker_process::wait_for_clock(std::uint32_t known) {
  const auto needed = needed_minimum(iterations_, known_.staleness());
  // Sometimes the clock is queried although the answer is known.
  if (known >= needed && !in_.dice().in(4)) {
    phase_ = phase::working;
    return;
  }
  phase_ = phase::asks_clock;
  client_->clock_request(verb::clock_wait, needed, [this, needed](const kv_result& r) {
    take_clock(r, needed);
    phase_ = phase::working;
  });
}

/// Like session.
void worker_process::stop() {
  known_.stops(rank_, iterations_);
  const auto folder = plan_.folder + "/" + storage::checkpoint_folder_name(iterations_);
  json body = {{"role", "worker"}, {"rank", rank_}, {"clock", iterations_}};
  file_.clear();
  try {
    const auto e = parts_.write(disk_, folder,
                                {.kind = storage::checkpoint_kind::worker,
                                 .clock = iterations_,
                                 .index = rank_,
                                 .job = job_id,
                                 .count = size_});
    file_ = folder + "/" + e.name;
    body["file"] = json::parse(storage::to_json(e));
  } catch (const std::exception& e) {
    body["error"] = e.what();
  }
  to_scheduler_->ask(verb::checkpoint, body.dump());
  phase_ = phase::stopped;
}

void worker_process::on_checkpoint(const std::string& text) {
  const auto answer = json::parse(text, nullptr, false);
  if (!answer.is_object()) wrong("worker " + std::to_string(rank_) + " is refused a checkpoint");
  if (!answer.value("ok", false) && !file_.empty()) disk_.remove(file_);
  wait_for_clock(0);
}

void worker_process::take_clock(const kv_result& r, std::uint32_t needed) {
  if (!r.ok()) wrong("worker " + std::to_string(rank_) + " is refused by the clock: " + text_of(r));
  known_.answered_clock(rank_, r.header.clock, needed);
}

void worker_process::begin_one() {
  known_.asks(rank_);
  auto& dice = in_.dice();
  if (auto& sums = known_.sums(); !sums.empty() && dice.in(3)) {
    auto& s = sums[dice.below(sums.size())];
    if (dice.in(3)) read(s, iterations_);
    else stage(s);
    return;
  }
  auto& all = known_.counters();
  auto& c = all[dice.below(all.size())];
  const auto& set = sets_[dice.below(sets_.size())];
  switch (dice.below(10)) {
    case 0:
      return add_many();
    case 1:
      return read_many();
    case 2:
      return add(set);
    case 3:
      return read(set);
    case 4:
    case 5:
      return read(c);
    default:
      return add(c);
  }
}

void worker_process::add(counter& c) {
  ++c.begun;
  const encoded<std::int64_t> one(1);
  client_->request({.what = verb::bupdate}, c.key, one.view(), [this, &c, before = c.seen](const kv_result& r) {
    if (!r.ok()) wrong("an addition to " + c.key + " was refused: " + text_of(r));
    known_.answered_add(c, number_in(r.value()), before);
  });
}

void worker_process::read(counter& c) {
  client_->request({.what = verb::pull}, c.key, {}, [this, &c, before = c.seen](const kv_result& r) {
    if (!r.ok() && r.header.result != status::not_found) wrong("a read of " + c.key + " was refused: " + text_of(r));
    known_.answered_read(c, r.ok() ? number_in(r.value()) : 0, before);
  });
}

void worker_process::add_many() {
  std::vector<std::string> keys;
  auto before = std::make_shared<std::vector<std::pair<counter*, std::int64_t>>>();
  for (auto& c : known_.counters()) {
    if (!in_.dice().in(4)) continue;
    ++c.begun;
    keys.push_back(c.key);
    before->emplace_back(&c, c.seen);
  }
  const encoded<std::int64_t> one(1);
  const std::vector<value_view> values(keys.size(), one.view());
  client_->many().multi_async({.what = verb::bupdate_multi}, keys, values,
                              [this, before](std::size_t i, std::string_view, const net::reply_item& item) {
                                auto& [c, seen] = (*before)[i];
                                if (item.result != status::ok) wrong("one of many additions was refused: " + c->key);
                                known_.answered_add(*c, number_in(item.value), seen);
                              });
}

void worker_process::read_many() {
  std::vector<std::string> keys;
  auto before = std::make_shared<std::vector<std::pair<counter*, std::int64_t>>>();
  for (auto& c : known_.counters()) {
    if (!in_.dice().in(4)) continue;
    keys.push_back(c.key);
    before->emplace_back(&c, c.seen);
  }
  client_->many().multi_async({.what = verb::pull_multi}, keys, {},
                              [this, before](std::size_t i, std::string_view, const net::reply_item& item) {
                                auto& [c, seen] = (*before)[i];
                                if (item.result != status::ok && item.result != status::not_found) {
                                  wrong("one of many reads was refused: " + c->key);
                                }
                                known_.answered_read(*c, item.result == status::ok ? number_in(item.value) : 0, seen);
                              });
}

worker_process::counter_set worker_process::make_set() {
  auto& all = known_.counters();
  counter_set s;
  std::vector<std::string> keys;
  for (auto n = 1 + in_.dice().below(8); n != 0; --n) {
    s.counters.push_back(&all[in_.dice().below(all.size())]);
    keys.push_back(s.counters.back()->key);
  }
  s.parts = client_->many().split(std::move(keys));
  return s;
}

void worker_process::add(const counter_set& s) {
  for (auto* c : s.counters) ++c->begun;
  const std::vector<std::int64_t> ones(s.counters.size(), 1);
  const multi_client::set_payload values{
      encoded<std::int64_t>(1).view().tag, sizeof ones[0], std::as_bytes(std::span(ones)), {}};
  ask(s, {.what = verb::set_bupdate}, values, true);
}

void worker_process::read(const counter_set& s) { ask(s, {.what = verb::set_pull}, {}, false); }

void worker_process::ask(const counter_set& s, kvclt::call what, const multi_client::set_payload& values, bool adds) {
  std::vector<std::pair<counter*, std::int64_t>> before;
  for (auto* c : s.counters) before.emplace_back(c, c->seen);
  const auto take = [this, adds, before](std::uint32_t i, std::int64_t found) {
    auto& [c, seen] = before[i];
    if (adds) known_.answered_add(*c, found, seen);
    else known_.answered_read(*c, found, seen);
  };
  client_->many().set_async(what, s.parts, values,
                            [take, adds](std::span<const std::uint32_t> order, const kv_result& r) {
                              if (!r.ok()) wrong("a key set was refused: " + text_of(r));
                              if ((r.header.flags & net::reply_uniform) != 0) {
                                std::vector<std::int64_t> numbers(order.size());
                                if (r.body.size() != numbers.size() * sizeof numbers[0])
                                  wrong("the answer to a key set has another length");
                                std::memcpy(numbers.data(), r.body.data(), r.body.size());
                                for (std::size_t k = 0; k < order.size(); ++k) take(order[k], numbers[k]);
                                return;
                              }
                              net::reply_items items(r.body, r.header.count);
                              net::reply_item item;
                              std::size_t k = 0;
                              for (; k < order.size() && items.next(item); ++k) {
                                if (item.result != status::ok && (adds || item.result != status::not_found))
                                  wrong("one of a key set was refused");
                                take(order[k], item.result == status::ok ? number_in(item.value) : 0);
                              }
                              if (k != order.size()) wrong("the answer to a key set lacks some of it");
                            });
}

void worker_process::stage(sum& s) {
  auto& dice = in_.dice();
  const auto digits = 1.0 + static_cast<double>(dice.below(1U << 20));
  const auto number = std::ldexp(digits, static_cast<int>(dice.below(80)) - 60);
  known_.begins_add(s, iterations_, rank_, number);
  const encoded<double> value(number);
  client_->request({.what = verb::update, .clock = iterations_, .flags = net::flag_staged}, s.key, value.view(),
                   [&s](const kv_result& r) {
                     if (!r.ok()) wrong("a number for " + s.key + " was refused: " + text_of(r));
                   });
}

void worker_process::read(const sum& s, std::uint32_t clock) {
  client_->request({.what = verb::pull, .clock = clock, .flags = net::flag_bsp_read}, s.key, {},
                   [this, &s, clock](const kv_result& r) {
                     if (!r.ok() && r.header.result != status::not_found) {
                       wrong("a read of " + s.key + " was refused: " + text_of(r));
                     }
                     known_.answered_read(s, r.ok() ? decode<double>(r.value()) : 0, clock);
                   });
}

void worker_process::read_all() {
  process_.own(thread_);
  for (auto& c : known_.counters()) read(c);
  for (const auto& s : known_.sums()) read(s, known_.end_clock());
}

}  // namespace paracel::sim
