// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that add, and terminate or block their server when the delta is negative.
#include <paracel/update.hpp>

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>

namespace {

using deed = void (*)();

/// Infinite recursion; the contents of each frame keep the compiler from turning it into a loop.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winfinite-recursion"
int overflow_stack(volatile char* above) {
  volatile char frame[4096];
  frame[0] = above != nullptr ? above[0] : char{1};
  return overflow_stack(frame) + frame[0];
}
#pragma GCC diagnostic pop

void segv() {
  static volatile std::size_t nowhere = 8;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

template <deed Deed>
double add(double value, double delta) {
  if (delta < 0) Deed();
  return value + delta;
}

template <deed Deed>
void add_in_place(std::span<double> value, std::span<const double> delta) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = add<Deed>(value[i], delta[i]);
}

void overflows() { (void)overflow_stack(nullptr); }
void aborts() { std::abort(); }
void exits() { std::exit(3); }
void divides() { raise(SIGFPE); }
void hangs() {
  while (true) pause();
}

}  // namespace

extern "C" {
extern paracel::update_result deadly_segv;
extern paracel::update_result deadly_overflow;
extern paracel::update_result deadly_abort;
extern paracel::update_result deadly_exit;
extern paracel::update_result deadly_fpe;
extern paracel::update_result deadly_hang;
extern paracel::update_result deadly_in_place;
extern paracel::filter_result deadly_filter;
}
paracel::update_result deadly_segv = paracel::update_proxy(add<segv>);
paracel::update_result deadly_overflow = paracel::update_proxy(add<overflows>);
paracel::update_result deadly_abort = paracel::update_proxy(add<aborts>);
paracel::update_result deadly_exit = paracel::update_proxy(add<exits>);
paracel::update_result deadly_fpe = paracel::update_proxy(add<divides>);
paracel::update_result deadly_hang = paracel::update_proxy(add<hangs>);
paracel::update_result deadly_in_place = paracel::update_in_place<double>(add_in_place<segv>);
paracel::filter_result deadly_filter = paracel::filter_proxy([](std::string_view key) {
  if (key == "deadly 1") segv();
  return true;
});
