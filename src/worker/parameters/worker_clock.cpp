// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/worker_clock.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <paracel/error.hpp>

#include "worker/job/folds.hpp"
#include "worker/job/request_failures.hpp"

namespace paracel {

namespace {

std::string describe(const consistency& c) {
  const std::string model = name_of(c.model);
  return c.model == consistency_model::ssp ? model + " (" + std::to_string(c.staleness) + ")" : model;
}

}  // namespace

void worker_clock::set_consistency(std::string prefix, const consistency& c) {
  std::erase_if(others_, [&](const auto& other) { return other.first == prefix; });
  const auto shorter =
      std::ranges::find_if(others_, [&](const auto& other) { return other.first.size() < prefix.size(); });
  others_.emplace(shorter, std::move(prefix), c);
}

const consistency& worker_clock::find(std::string_view name) const noexcept {
  for (const auto& [prefix, c] : others_)
    if (name.starts_with(prefix)) return c;
  return usual_;
}

const consistency& worker_clock::of(std::span<const std::string> names) const {
  if (others_.empty() || names.empty()) return usual_;
  const auto& first = find(names[0]);
  for (const auto& name : names) {
    const auto& c = find(name);
    if (&c == &first || c == first) continue;
    throw config_error("\"" + names[0] + "\" has the consistency " + describe(first) + " and \"" + name + "\" " +
                       describe(c) + ": want keys of one consistency in a call");
  }
  return first;
}

const consistency& worker_clock::of_range(std::string_view prefix) const noexcept {
  const auto strictness = [](const consistency& c) {
    return std::pair(c.model == consistency_model::bsp   ? 2
                     : c.model == consistency_model::ssp ? 1
                                                         : 0,
                     -std::int64_t{c.staleness});
  };
  const auto* strictest = &find(prefix);
  for (const auto& [other, c] : others_)
    if (std::string_view(other).starts_with(prefix) && strictness(c) > strictness(*strictest)) strictest = &c;
  return *strictest;
}

bool worker_clock::uses(consistency_model model) const noexcept {
  return usual_.model == model || std::ranges::any_of(others_, [&](const auto& o) { return o.second.model == model; });
}

void worker_clock::wait_for_minimum(const consistency& c) {
  if (slowest_ >= needed(c)) return;
  outcome o;
  client_.wait(client_.clock_request(net::verb::clock_wait, needed(c), [&](const kv_result& r) {
    if (r.ok()) record_slowest(r.header.clock);
    else o = outcome(r);
  }));
  if (!o.ok()) o.raise("waiting for the clock");
}

kvclt::call worker_clock::read_call(const consistency& c, net::verb what) const noexcept {
  kvclt::call call{.what = what};
  if (c.model == consistency_model::bsp) {
    call.flags = net::flag_bsp_read;
    call.clock = finished();
  }
  return call;
}

kvclt::call worker_clock::write_call(const consistency& c, net::verb what) {
  if (c.model != consistency_model::bsp) return {.what = what};
  wait_for_minimum(c);
  return read_call(c, what);
}

kvclt::call worker_clock::update_call(const consistency& c, net::verb what, std::uint64_t function, bool of_iteration) {
  const bool bsp = c.model == consistency_model::bsp;
  kvclt::call call{.what = what, .function = function};
  if (bsp) call.flags = of_iteration ? net::flag_staged : net::flag_bsp_read;
  // An immediate one acts on completed iterations, whenever these are folded.
  if (!of_iteration && bsp) wait_for_minimum(c);
  if (of_iteration || bsp) call.clock = finished();
  return call;
}

bool worker_clock::tick() {
  const auto next = finished() + 1;
  bool stops = false;
  outcome o;
  client_.wait(client_.clock_request(
      net::verb::clock_tick, next,
      [&](const kv_result& r) {
        stops = r.header.order == net::instruction::checkpoint;
        if (r.ok()) record_slowest(r.header.clock);
        else o = outcome(r);
      },
      uses(consistency_model::bsp) ? net::flag_staged : std::uint16_t{0}));
  if (!o.ok()) o.raise("committing iteration " + std::to_string(next));
  job_.set_finished(next);
  job_.used().set_ahead(next - std::min(next, slowest_));
  return stops;
}

void worker_clock::fold_finished() {
  if (!uses(consistency_model::bsp)) return;
  client_.wait(client_.clock_request(net::verb::clock_wait, 0, [&](const kv_result& r) {
    if (r.ok()) record_slowest(r.header.clock);
  }));
  fold_everywhere(client_, slowest_);
}

void worker_clock::fold_committed() {
  if (!uses(consistency_model::bsp)) return;
  wait_for_minimum(consistency::bsp());
  fold_everywhere(client_, finished());
}

}  // namespace paracel
