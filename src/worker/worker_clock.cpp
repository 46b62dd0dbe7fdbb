// SPDX-License-Identifier: BSD-3-Clause
#include "worker/worker_clock.hpp"

#include <string>

#include "worker/folds.hpp"
#include "worker/request_failures.hpp"

namespace paracel {

void worker_clock::wait_for_minimum() {
  if (slowest_ >= needed()) return;
  outcome o;
  client_.wait(client_.clock_request(net::verb::clock_wait, needed(), [&](const kv_result& r) {
    if (r.ok()) record_slowest(r.header.clock);
    else o = outcome(r);
  }));
  if (!o.ok()) o.raise("waiting for the clock");
}

kvclt::call worker_clock::read_call(net::verb what) const noexcept {
  kvclt::call c{.what = what};
  if (model_ == consistency_model::bsp) {
    c.flags = net::flag_bsp_read;
    c.clock = finished();
  }
  return c;
}

kvclt::call worker_clock::write_call(net::verb what) {
  if (model_ != consistency_model::bsp) return {.what = what};
  wait_for_minimum();
  return read_call(what);
}

kvclt::call worker_clock::update_call(net::verb what, std::uint64_t function, bool of_iteration) {
  kvclt::call c{.what = what, .function = function};
  if (model_ == consistency_model::bsp) c.flags = of_iteration ? net::flag_staged : net::flag_bsp_read;
  // An immediate one acts on completed iterations, whenever these are folded.
  if (!of_iteration && model_ == consistency_model::bsp) wait_for_minimum();
  if (of_iteration || model_ == consistency_model::bsp) c.clock = finished();
  return c;
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
      model_ == consistency_model::bsp ? net::flag_staged : std::uint16_t{0}));
  if (!o.ok()) o.raise("committing iteration " + std::to_string(next));
  job_.set_finished(next);
  return stops;
}

void worker_clock::fold_finished() {
  if (model_ != consistency_model::bsp) return;
  client_.wait(client_.clock_request(net::verb::clock_wait, 0, [&](const kv_result& r) {
    if (r.ok()) record_slowest(r.header.clock);
  }));
  fold_everywhere(client_, slowest_);
}

void worker_clock::fold_committed() {
  if (model_ != consistency_model::bsp) return;
  wait_for_minimum();
  fold_everywhere(client_, finished());
}

}  // namespace paracel
