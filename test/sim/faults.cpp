// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/faults.hpp"

namespace paracel::sim {

void faults::fill_disk() {
  disk_.fill_at(disk_.steps() + in_.dice().below(30));
  in_.after(in_.dice().between(10_ms, 1_s), [this] { disk_.free_space(); });
}
void faults::lose_power() {
  disk_.lose_power_at(disk_.steps() + in_.dice().below(60));
  in_.after(2_s, [] { throw test::crash_disk::power_loss(); });
}
void faults::hold_up(process& p, nanos time) {
  if (in_.dice().in(2)) {
    in_.stop(p);
    in_.after(time, [this, &p] { in_.resume(p); });
  } else {
    in_.cut(p, scheduler_);
    in_.after(time, [this, &p] { in_.mend(p, scheduler_); });
  }
}
void faults::break_connections(process& a, process& b) {
  auto& dice = in_.dice();
  if (dice.in(4)) return in_.break_some(a, b);
  in_.cut(a, b);
  in_.after(dice.between(1_ms, 300_ms), [this, &a, &b] {
    in_.break_some(a, b);
    in_.mend(a, b);
  });
}
void faults::break_scheduler_lines(process& p) {
  if (in_.dice().in(3)) break_connections(scheduler_, p);
  else break_connections(p, scheduler_);
}
void faults::silence_scheduler_lines(process& p) {
  if (in_.dice().in(3)) in_.swallow_some(scheduler_, p);
  else in_.swallow_some(p, scheduler_);
}
void faults::cut_for_a_while(process& a, process& b) {
  in_.cut(a, b);
  in_.after(in_.dice().between(1_ms, 2_s), [this, &a, &b] { in_.mend(a, b); });
}
void faults::stop_scheduler() {
  if (scheduler_.stopped()) return;
  in_.stop(scheduler_);
  in_.after(in_.dice().between(1_ms, 1_s), [this] { in_.resume(scheduler_); });
}

}  // namespace paracel::sim
